// Has plain V8 map documents, as an indexer would that has them in memory: JSON.parse, the map function, JSON.stringify.
//
//   node --expose-gc map_documents.js FILE FUNCTION     FILE has a document a line, as `settee songs` writes them
//
// Only the mapping is timed. Prints documents, rows, emitted bytes, seconds, and seconds of the processor with those of V8's
// own threads.
"use strict";
const fs = require("fs");
const CHUNK_BYTES = 64 << 20;
const ID = '"track_id": "';
const ID_LENGTH = 18;

const [path, source] = process.argv.slice(2);
let rows = 0, bytes = 0;
globalThis.emit = function (key, value) {
  rows += 1;
  bytes += JSON.stringify(key).length + JSON.stringify(value).length;
};
// Not in strict mode, which the published function could not run in: it declares no variable.
const map = (0, eval)("(" + source + ")");

function mapAll(texts, metas) {
  for (let at = 0; at < texts.length; at++) {
    map(JSON.parse(texts[at]), metas[at]);
  }
}

const total = { documents: 0, seconds: 0, cpu_seconds: 0 };

function timed(texts) {
  const metas = texts.map((text) => {
    const at = text.indexOf(ID) + ID.length;
    return { id: text.slice(at, at + ID_LENGTH) };
  });
  // What was read is garbage of nobody's mapping.
  globalThis.gc();
  const cpu = process.cpuUsage(), began = process.hrtime.bigint();
  mapAll(texts, metas);
  total.seconds += Number(process.hrtime.bigint() - began) / 1e9;
  const used = process.cpuUsage(cpu);
  total.cpu_seconds += (used.user + used.system) / 1e6;
  total.documents += texts.length;
}

const file = fs.openSync(path, "r");
const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
let kept = 0;
for (;;) {
  const count = fs.readSync(file, chunk, kept, CHUNK_BYTES - kept, null);
  const end = kept + count, texts = [];
  let from = 0;
  for (let to; (to = chunk.subarray(0, end).indexOf(10, from)) >= 0; from = to + 1) {
    texts.push(chunk.toString("utf8", from, to));
  }
  if (texts.length > 0) timed(texts);
  if (count === 0) break;
  chunk.copyWithin(0, from, end);
  kept = end - from;
}
console.log(JSON.stringify({ ...total, rows, bytes }));
