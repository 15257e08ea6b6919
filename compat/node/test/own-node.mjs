// A server that a test presses or kills while the one of the suite goes on; see compat/harness/settee/on_order.py.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

/** A node with a bucket main: `tell` gives an order and has the answer, `stop` waits for the exit code. */
export async function startNode(address, name, ...options) {
  const process = spawn('python3', ['-m', 'settee.on_order', address, name, ...options], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ended = new Promise((done) => process.once('exit', done))
  const answers = createInterface(process.stdout)[Symbol.asyncIterator]()
  const answer = async () => (await answers.next()).value
  assert.equal(await answer(), 'ready')
  return {
    tell(order) {
      process.stdin.write(`${order}\n`)
      return answer()
    },
    stop() {
      process.stdin.end()
      return ended
    },
  }
}
