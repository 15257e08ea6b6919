// Where the reader is: the part of the address after `#`, as decoded segments.
import { signal } from '@preact/signals';

const decoded = (segment) => {
  try {
    return decodeURIComponent(segment);
  } catch {
    // Somebody has typed it.
    return segment;
  }
};
const read = () => location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decoded);

export const route = signal(read());
addEventListener('hashchange', () => {
  route.value = read();
});

export const to = (...segments) => `#/${segments.map(encodeURIComponent).join('/')}`;
export const go = (...segments) => {
  location.hash = to(...segments);
};
