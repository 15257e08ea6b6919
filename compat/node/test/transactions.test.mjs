// Distributed transactions: they live in the client, on top of extended attributes and tombstones.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import couchbase from 'couchbase'
import { connect, eventually, newKey, sleep } from './connect.mjs'
import { DOCUMENTS, TRANSACTIONS } from './doomed.mjs'

const { LookupInSpec: look } = couchbase
const DOOMED = fileURLToPath(new URL('./doomed.mjs', import.meta.url))

/** A client process that has staged its changes and is killed by `kill`. */
async function doomed(mode, prefix, timeout) {
  const child = spawn(process.execPath, [DOOMED, mode, prefix, String(timeout)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = new Promise((done) => child.once('exit', done))
  for await (const line of createInterface(child.stdout)) if (line === 'staged') break
  return () => {
    child.kill('SIGKILL')
    return ended
  }
}

describe('transactions', () => {
  let cluster, collection
  before(async () => {
    cluster = await connect('couchbase', undefined, undefined, { transactions: TRANSACTIONS })
    collection = cluster.bucket('main').defaultCollection()
  })
  after(() => cluster.close())

  const run = (logic, options) => cluster.transactions().run(logic, options)
  const content = async (key) => (await collection.get(key)).content
  const isStaged = async (key) =>
    (await collection.lookupIn(key, [look.exists('txn', { xattr: true })])).content[0].value

  async function change(attempt, key, update) {
    const read = await attempt.get(collection, key)
    await attempt.replace(read, update(read.content))
  }

  /** This SDK leaves it to the application to run a transaction again that met another one. */
  async function stubbornly(logic) {
    for (const until = Date.now() + 120_000; ; ) {
      try {
        return await run(logic)
      } catch (error) {
        if (Date.now() > until) throw error
      }
    }
  }

  const add = (amount) => ({ n }) => ({ n: n + amount })

  test('commit', async () => {
    const key = newKey()
    for (const name of ['a', 'b']) await collection.upsert(`${key}-${name}`, { n: 1 })
    await run(async (attempt) => {
      await change(attempt, `${key}-a`, add(1))
      await attempt.remove(await attempt.get(collection, `${key}-b`))
      await attempt.insert(collection, `${key}-c`, { n: 3 })
      assert.deepEqual((await attempt.get(collection, `${key}-c`)).content, { n: 3 })
      assert.deepEqual(await content(`${key}-a`), { n: 1 })
      assert.equal(await isStaged(`${key}-a`), true)
      assert.equal((await collection.exists(`${key}-c`)).exists, false)
    })
    assert.deepEqual([await content(`${key}-a`), await content(`${key}-c`)], [{ n: 2 }, { n: 3 }])
    assert.equal((await collection.exists(`${key}-b`)).exists, false)
    assert.equal(await isStaged(`${key}-a`), false)
  })

  test('rollback', async () => {
    const key = newKey()
    for (const name of ['a', 'b']) await collection.upsert(`${key}-${name}`, { n: 1 })
    const failing = run(async (attempt) => {
      await change(attempt, `${key}-a`, add(1))
      await attempt.remove(await attempt.get(collection, `${key}-b`))
      await attempt.insert(collection, `${key}-c`, { n: 3 })
      throw new Error('changed my mind')
    })
    await assert.rejects(failing, couchbase.TransactionFailedError)
    for (const name of ['a', 'b']) {
      assert.deepEqual(await content(`${key}-${name}`), { n: 1 })
      assert.equal(await isStaged(`${key}-${name}`), false)
    }
    assert.equal((await collection.exists(`${key}-c`)).exists, false)
    await run((attempt) => attempt.insert(collection, `${key}-c`, { n: 4 }))
    assert.deepEqual(await content(`${key}-c`), { n: 4 })
  })

  test('writers of one document', async () => {
    const key = newKey()
    await collection.upsert(key, { n: 0 })
    const work = async () => {
      for (let count = 0; count < 5; count++) await stubbornly((attempt) => change(attempt, key, add(1)))
    }
    await Promise.all([work(), work(), work(), work()])
    assert.deepEqual(await content(key), { n: 20 })
  })

  test('a transaction that takes too long', async () => {
    const key = newKey()
    await collection.upsert(key, { n: 1 })
    const late = async (attempt) => {
      await change(attempt, key, add(1))
      await sleep(1500)
      await attempt.get(collection, key)
    }
    await assert.rejects(run(late, { timeout: 1000 }))
    assert.deepEqual(await content(key), { n: 1 })
    // Whether the attempt was rolled back by itself, or forgotten by a clean-up that came in between and left its change
    // staged: it is in nobody's way.
    await stubbornly((attempt) => change(attempt, key, add(2)))
    assert.deepEqual(await content(key), { n: 3 })
    assert.equal(await isStaged(key), false)
  })

  test('what a killed client staged is in nobody’s way', async () => {
    const key = newKey()
    await collection.upsert(`${key}-0`, { n: 1 })
    await (await doomed('stage', key, 2000))()
    assert.equal(await isStaged(`${key}-0`), true)
    assert.deepEqual(await content(`${key}-0`), { n: 1 })
    await stubbornly((attempt) => change(attempt, `${key}-0`, add(5)))
    assert.deepEqual(await content(`${key}-0`), { n: 6 })
    assert.equal(await isStaged(`${key}-0`), false)
  })

  /** Until the attempt that staged a change of this document is committed: from there on it counts. A document that is not staged any
   * more belongs to a client that has finished it already. */
  async function committed(key) {
    const { content: staged } = await collection.lookupIn(key, [look.get('txn', { xattr: true })])
    if (staged[0].error) return
    const { id, atr } = staged[0].value
    for (const until = Date.now() + 30_000; Date.now() < until; ) {
      const specs = [look.get(`attempts.${id.atmpt}.st`, { xattr: true })]
      const [{ value, error }] = (await collection.lookupIn(atr.id, specs)).content
      if (error || value === 'COMMITTED') return
    }
    assert.fail('no commit in time')
  }

  test('what a killed client committed is finished by another', async (context) => {
    // A client looks after the attempts in the collections that it has run transactions in.
    await run((attempt) => attempt.insert(collection, `${newKey()}-other`, {}))
    let names = []
    let left = 0
    // A client that had finished before it was killed leaves nothing to look at: another one is killed then.
    for (let round = 0; left === 0 && round < 5; round++) {
      const key = newKey()
      names = Array.from({ length: DOCUMENTS }, (_, number) => `${key}-${number}`)
      for (const name of names) await collection.upsert(name, { n: 1 })
      const kill = await doomed('commit', key, 10_000)
      await committed(names[0])
      await kill()
      left = (await Promise.all(names.map(isStaged))).filter(Boolean).length
    }
    assert.ok(left > 0, 'each client had finished before it was killed')
    context.diagnostic(`${left} documents were left`)
    for (const name of names) {
      await eventually(async () => {
        assert.equal(await isStaged(name), false)
        assert.deepEqual(await content(name), { n: 2 })
      }, 40_000)
    }
  })
})
