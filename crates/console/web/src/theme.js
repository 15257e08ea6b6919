// Light or dark: as the system has it, until the reader says otherwise.
import { signal } from '@preact/signals';

const KEY = 'settee-theme';
const system = matchMedia('(prefers-color-scheme: dark)');
const stored = () => {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
};

/** `light` or `dark`, as it is shown now. */
export const theme = signal('light');

function show() {
  const wanted = stored();
  if (wanted) document.documentElement.dataset.theme = wanted;
  theme.value = wanted ?? (system.matches ? 'dark' : 'light');
}

export function turn() {
  const next = theme.value === 'dark' ? 'light' : 'dark';
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // A browser that keeps nothing shows it until the page is loaded again.
  }
  document.documentElement.dataset.theme = next;
  theme.value = next;
}

system.addEventListener('change', show);
show();
