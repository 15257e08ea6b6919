// A client process that is going to be killed in the middle of a transaction: `node doomed.mjs MODE PREFIX TIMEOUT`.

import { fileURLToPath } from 'node:url'
import couchbase from 'couchbase'
import { connect, sleep } from './connect.mjs'

/** So many that a client can be killed before it has finished all of them. */
export const DOCUMENTS = 300

/** On disk when acknowledged. */
const { PersistToMajority: DURABILITY } = couchbase.DurabilityLevel

/** Half the window and two seconds later others may consider this client dead. */
export const TRANSACTIONS = { durabilityLevel: DURABILITY, cleanupConfig: { cleanupWindow: 2000 } }

/** Options of one transaction. The SDK takes a level that is not given here for none, whatever the cluster's says. */
export const within = (timeout) => ({ timeout, durabilityLevel: DURABILITY })

async function main(mode, prefix, timeout) {
  const cluster = await connect('couchbase', undefined, undefined, { transactions: TRANSACTIONS })
  const collection = cluster.bucket('main').defaultCollection()
  const logic = async (attempt) => {
    for (let number = 0; number < (mode === 'stage' ? 1 : DOCUMENTS); number++) {
      const read = await attempt.get(collection, `${prefix}-${number}`)
      await attempt.replace(read, { n: read.content.n + 1 })
    }
    console.log('staged')
    if (mode === 'stage') await sleep(3_600_000)
  }
  await cluster.transactions().run(logic, within(Number(timeout)))
  await sleep(3_600_000)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(...process.argv.slice(2))
