// Bundles the console: one script, one style sheet, both named after their contents, and a page that loads them.
// A file is left alone where it would not change, so that cargo has nothing to embed anew.
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

// The whole of the first page, as it is sent.
const BYTES_MAX = 100_000;

const built = await build({
  entryPoints: { console: 'src/main.jsx' },
  outdir: 'dist',
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  write: false,
  logLevel: 'warning',
});

const files = new Map();
const names = {};
for (const { path, contents } of built.outputFiles) {
  const kind = path.split('.').pop();
  const hash = createHash('sha256').update(contents).digest('hex').slice(0, 12);
  names[kind] = `console-${hash}.${kind}`;
  files.set(names[kind], Buffer.from(contents));
}
files.set('icon-1.svg', readFileSync('src/icon.svg'));
const page = readFileSync('src/index.html', 'utf8').replace('CONSOLE.js', names.js).replace('CONSOLE.css', names.css);
files.set('index.html', Buffer.from(page));

let sent = 0;
for (const [name, contents] of [...files]) {
  const packed = gzipSync(contents, { level: 9 });
  sent += Math.min(packed.length, contents.length);
  if (packed.length < contents.length) files.set(`${name}.gz`, packed);
}
for (const old of readdirSync('dist')) {
  if (!files.has(old) && !old.startsWith('.')) rmSync(`dist/${old}`);
}
for (const [name, contents] of files) {
  const path = `dist/${name}`;
  if (!existsSync(path) || !readFileSync(path).equals(contents)) writeFileSync(path, contents);
}
console.log(`console: ${files.size} files, ${sent} bytes compressed`);
if (sent > BYTES_MAX) {
  console.error(`the first page may have ${BYTES_MAX} bytes`);
  process.exit(1);
}
