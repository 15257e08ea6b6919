// What an operator is told, on figures of clusters that were seen.
import assert from 'node:assert/strict';
import test from 'node:test';
import { findings, lastMinute, missed, resources } from './health.js';

const pool = { nodes: [], balanced: true, storageTotals: { ram: { quotaUsed: 300, quotaTotal: 3000 } } };
const memory = { what: 'memory', bucket: 'b', node: 'n:1', value: 15, limit: 85, outlook: 'notEnoughData' };

test('a limit that is reached now is shown with what is used now', () => {
  const samples = { b: { timestamp: [1], mem_used: [277], ep_mem_high_wat: [255] } };
  const [of] = resources(pool, samples, { forecasts: [memory], samples });
  assert.deepEqual([of.name, of.used, of.limit, of.when.text], ['Memory of b', 277, 255, 'reached']);
});

test('a forecast is shown with the figures that it was made of', () => {
  const likely = new Date(Date.now() + 86_400_000 * 3).toISOString();
  const [of, given] = resources(pool, {}, { forecasts: [{ ...memory, outlook: 'dated', likely }], samples: {} });
  assert.deepEqual([of.used, of.limit, of.when.text], [15, 85, 'in 3 days on n:1']);
  assert.deepEqual([given.used, given.limit], [300, 3000]);
});

test('what follows from a full memory depends on what may leave it', () => {
  const samples = { b: { mem_used: [90], ep_mem_high_wat: [85] } };
  const advice = (evictionPolicy) => findings(pool, [{ name: 'b', replicaNumber: 1, evictionPolicy }], samples, [])[0].advice;
  assert.match(advice('valueOnly'), /^Values leave memory/);
  assert.match(advice('noEviction'), /writes are refused/);
  assert.match(advice('nruEviction'), /are deleted/);
});

test('a node that does not answer is told with the age of its figures', () => {
  const node = { hostname: 'n:1', status: 'unhealthy', clusterMembership: 'active', settee: { figuresAgeSecs: 35 } };
  const [found] = findings({ ...pool, nodes: [node] }, [], {}, []);
  assert.match(found.advice, /^What it said last is 35 s old\. /);
});

test('an objective is missed where clients see it missed, too', () => {
  const seen = (state) => ({ sdk: { state }, probe: { state: 'met' } });
  const of = (state, sdk) => missed([{ name: 'fast', bucket: 'b', state, seenFromOutside: seen(sdk) }]);
  assert.equal(of('met', 'met'), '');
  assert.equal(of('burning', 'exhausted'), 'fast of b');
  assert.equal(of('met', 'exhausted'), 'fast of b (as clients see it)');
});

test('a bucket is slow or quick by the requests that it had, and neither where it had none', () => {
  const told = { operations: { get: { all: { count: 12, p50Us: 90, p99Us: 1200 } }, set: { all: { count: 0, p50Us: null, p99Us: null } } } };
  assert.deepEqual(lastMinute(told, 'get'), { p50: 90, p99: 1200 });
  for (const nothing of [lastMinute(told, 'set'), lastMinute(told, 'delete'), lastMinute(undefined, 'get')]) assert.equal(nothing, undefined);
});
