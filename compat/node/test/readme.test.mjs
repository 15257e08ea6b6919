// The README's program in JavaScript runs as it stands.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

test('the program runs', () => {
  // It lies here, so that it finds the SDK that the tests have.
  const file = fileURLToPath(new URL('./greeting.mjs', import.meta.url))
  writeFileSync(file, execFileSync('python3', ['-m', 'settee.readme', 'js'], { encoding: 'utf8' }))
  try {
    const printed = execFileSync(process.execPath, [file], { encoding: 'utf8', timeout: 60_000 })
    assert.equal(printed, "{ hello: 'world' }\n")
  } finally {
    rmSync(file)
  }
})
