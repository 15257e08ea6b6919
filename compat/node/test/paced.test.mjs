// More writes than the disk takes, from a client as it comes: the server holds them back so far that it never notices.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { PASSWORD, USERNAME, newKey, sleep } from './connect.mjs'
import { startNode } from './own-node.mjs'

// Of the server that is pressed; the one of the suite goes on.
const ADDRESS = '127.0.31.17'
const [WRITERS, VALUE_BYTES, OLD, MILLIS] = [24, 10_000, 2000, 12_000]
// The pressure from which on mutations are held to what the disk takes.
const PACING = 3

describe('an overloaded disk', () => {
  let node, cluster
  before(async () => {
    node = await startNode(ADDRESS, 'node-paced', '--disk-bytes-per-sec', '4000000')
    cluster = await couchbase.connect(`couchbase://${ADDRESS}`, { username: USERNAME, password: PASSWORD })
  })
  after(async () => {
    await cluster.close()
    assert.equal(await node.stop(), 0, 'the node ends well')
  })

  test('is no error', async (context) => {
    const collection = cluster.bucket('main').defaultCollection()
    const key = newKey()
    for (let n = 0; n < OLD; n++) await collection.upsert(`${key}-old-${n}`, { n })
    const failures = []
    const until = Date.now() + MILLIS
    const write = async (writer) => {
      for (let count = 0; Date.now() < until; count++) {
        const written = collection.upsert(`${key}-${writer}-${count}`, randomBytes(VALUE_BYTES))
        await written.catch((error) => failures.push(error))
      }
    }
    const working = Array.from({ length: WRITERS }, (_, writer) => write(writer))
    let removed = 0
    for (; removed < OLD && Date.now() < until; removed++) {
      const name = `${key}-old-${removed}`
      assert.deepEqual((await collection.get(name)).content, { n: removed })
      await collection.remove(name)
      await sleep(5)
    }
    await Promise.all(working)
    assert.ok(Number(await node.tell('pressure')) >= PACING, 'the disk kept up: nothing was tested')
    assert.deepEqual(failures, [])
    context.diagnostic(`${removed} read and removed beside`)
  })
})
