// Connections for the tests; compat/run starts the server and says where it is.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import couchbase from 'couchbase'

export const { SETTEE_ADDRESS: ADDRESS, SETTEE_USERNAME: USERNAME, SETTEE_PASSWORD: PASSWORD } = process.env

export async function connect(scheme = 'couchbase', username = USERNAME, password = PASSWORD, more = {}) {
  const security = scheme === 'couchbases' ? { trustStorePath: process.env.SETTEE_CERTIFICATE } : {}
  const timeouts = { kvTimeout: 10_000, kvDurableTimeout: 10_000, managementTimeout: 30_000 }
  const cluster = await couchbase.connect(`${scheme}://${ADDRESS}`, { username, password, security, timeouts, ...more })
  await cluster.waitUntilReady(10_000)
  return cluster
}

/** Every way to reach a default collection: [name, scheme, bucket]. */
export const WAYS = [
  ['plain, persistent', 'couchbase', 'main'],
  ['TLS, persistent', 'couchbases', 'main'],
  ['plain, ephemeral', 'couchbase', 'ephemeral'],
]

export const newKey = () => `node-${randomUUID()}`
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

export async function goneWithin(collection, key, ms) {
  for (const until = Date.now() + ms; Date.now() < until; await sleep(100)) {
    if (!(await collection.exists(key)).exists) return
  }
  assert.fail(`${key} is still there after ${ms} ms`)
}

/** The action's result, once it no longer throws. */
export async function eventually(action, ms = 10_000) {
  for (const until = Date.now() + ms; ; await sleep(100)) {
    try {
      return await action()
    } catch (error) {
      if (Date.now() > until) throw error
    }
  }
}
