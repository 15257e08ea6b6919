import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canBeForced, forced } from './force.js';

const refused = (status, message) => Object.assign(new Error(message), { status });

test('only a refusal that says how it is forced can be', () => {
  const text = 'Bucket "b": … its quota there is 100 MiB. Give it more, add nodes, or force it (allowUnderProvisioned=true).';
  assert.equal(canBeForced(refused(400, text)), true);
  assert.equal(canBeForced(refused(503, text)), false);
  assert.equal(canBeForced(refused(400, 'Inactive server given.')), false);
  assert.equal(canBeForced(undefined), false);
});

test('it is forced where the box was ticked', () => {
  assert.deepEqual(forced({ how: 'graceful', allowUnderProvisioned: 'true' }), { allowUnderProvisioned: 'true' });
  assert.deepEqual(forced({ how: 'graceful' }), {});
  assert.deepEqual(forced(), {});
});
