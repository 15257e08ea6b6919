// Numbers as people read them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(value) {
  if (!Number.isFinite(value)) return '–';
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${value < 0 ? '−' : ''}${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}

export function count(value) {
  if (!Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (Math.abs(value) >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (Math.abs(value) >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Number.isInteger(value) || Math.abs(value) >= 100 ? String(Math.round(value)) : value.toFixed(1);
}

export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? '' : 's'}`;

export const percent = (value) => (Number.isFinite(value) ? `${value >= 99.95 || value === 0 ? Math.round(value) : value.toFixed(1)} %` : '–');

export function micros(value) {
  if (!Number.isFinite(value)) return '–';
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} s`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(value >= 1e4 ? 0 : 1)} ms`;
  return `${Math.round(value)} µs`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 2 * 86400) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString();
export const moment = (ms) => new Date(ms).toLocaleString();

export const last = (values) => (values?.length ? values[values.length - 1] : undefined);
