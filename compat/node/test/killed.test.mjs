// The server dies in the middle of transactions. What was acknowledged has happened, nothing has happened in half, and what
// unlucky attempts left behind is in nobody's way.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { PASSWORD, USERNAME, eventually, newKey, sleep } from './connect.mjs'
import { TRANSACTIONS, within } from './doomed.mjs'
import { startNode } from './own-node.mjs'

// Of the server that is killed; the one of the suite goes on.
const ADDRESS = '127.0.31.27'
const [ACCOUNTS, WORKERS, KILLS] = [4, 3, 4]

async function connect() {
  const cluster = await couchbase.connect(`couchbase://${ADDRESS}`, {
    username: USERNAME,
    password: PASSWORD,
    transactions: TRANSACTIONS,
  })
  await cluster.waitUntilReady(10_000)
  return cluster
}

describe('a server that is killed', () => {
  let node
  before(async () => {
    node = await startNode(ADDRESS, 'node-killed')
  })
  after(async () => assert.equal(await node.stop(), 0, 'the node ends well'))

  test('money is conserved', async (context) => {
    const key = newKey()
    const names = Array.from({ length: ACCOUNTS }, (_, number) => `${key}-${number}`)
    const cluster = await connect()
    const collection = cluster.bucket('main').defaultCollection()
    const durable = { durabilityLevel: couchbase.DurabilityLevel.PersistToMajority }
    for (const name of names) await collection.upsert(name, { n: 100 }, durable)

    const receipts = []
    let stopped = false
    const work = async (worker) => {
      for (let count = 0; !stopped; count++) {
        const from = Math.floor(Math.random() * ACCOUNTS)
        const to = (from + 1 + Math.floor(Math.random() * (ACCOUNTS - 1))) % ACCOUNTS
        const receipt = `${key}-receipt-${worker}-${count}`
        const logic = async (attempt) => {
          for (const [account, amount] of [[from, -1], [to, 1]]) {
            const read = await attempt.get(collection, names[account])
            await attempt.replace(read, { n: read.content.n + amount })
          }
          await attempt.insert(collection, receipt, {})
        }
        try {
          await cluster.transactions().run(logic, within(10_000))
          receipts.push(receipt)
        } catch (error) {
          if (!(error instanceof couchbase.CouchbaseError)) throw error
        }
      }
    }
    const working = Array.from({ length: WORKERS }, (_, worker) => work(worker))
    for (let kills = 0; kills < KILLS; kills++) {
      await sleep(300 + Math.random() * 1000)
      assert.equal(await node.tell('kill'), 'up')
    }
    await sleep(1000)
    stopped = true
    await Promise.all(working)
    await cluster.close()

    // Attempts that their client could not end are ended by another that looks after the collection.
    const other = await connect()
    const accounts = other.bucket('main').defaultCollection()
    await eventually(
      () =>
        other.transactions().run(async (attempt) => {
          for (const name of names) {
            const read = await attempt.get(accounts, name)
            await attempt.replace(read, read.content)
          }
        }),
      60_000,
    )
    let sum = 0
    for (const name of names) sum += (await accounts.get(name)).content.n
    assert.equal(sum, 100 * ACCOUNTS)
    assert.notEqual(receipts.length, 0)
    for (const receipt of receipts) await eventually(() => accounts.get(receipt), 40_000)
    context.diagnostic(`${receipts.length} transfers were acknowledged`)
    await other.close()
  })
})
