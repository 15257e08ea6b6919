// Every key-value call of the SDK, over plain and TLS, on a persistent and a memory-only bucket.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { WAYS, connect, goneWithin, newKey, sleep } from './connect.mjs'

const MIB = 1024 * 1024
const raw = { encode: (value) => [value, 0x03000000], decode: (bytes) => bytes }

for (const [way, scheme, bucket] of WAYS) {
  describe(way, () => {
    let cluster, collection
    before(async () => {
      cluster = await connect(scheme)
      collection = cluster.bucket(bucket).defaultCollection()
    })
    after(() => cluster.close())

    test('store, read, replace and remove, with CAS', async () => {
      const key = newKey()
      await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
      await assert.rejects(collection.replace(key, 1), couchbase.DocumentNotFoundError)
      const first = await collection.insert(key, { title: 'Águas de Março', year: 1972 })
      await assert.rejects(collection.insert(key, {}), couchbase.DocumentExistsError)
      const read = await collection.get(key)
      assert.deepEqual(read.content, { title: 'Águas de Março', year: 1972 })
      assert.equal(String(read.cas), String(first.cas))
      const second = await collection.upsert(key, { n: 2 })
      await assert.rejects(collection.replace(key, 3, { cas: first.cas }), couchbase.CasMismatchError)
      const third = await collection.replace(key, { n: 3 }, { cas: second.cas })
      await assert.rejects(collection.remove(key, { cas: first.cas }), couchbase.CasMismatchError)
      assert.equal((await collection.exists(key)).exists, true)
      await collection.remove(key, { cas: third.cas })
      await assert.rejects(collection.remove(key), couchbase.DocumentNotFoundError)
      assert.equal((await collection.exists(key)).exists, false)
    })

    test('expiry: relative, absolute, far, touched, preserved, cleared', async () => {
      const key = newKey()
      await collection.upsert(`${key}-1`, 1, { expiry: 1 })
      await collection.upsert(`${key}-2`, 1, { expiry: new Date(Date.now() + 2000) })
      await collection.upsert(`${key}-3`, 1, { expiry: 2 })
      await collection.upsert(`${key}-3`, 2, { preserveExpiry: true })
      await collection.replace(`${key}-3`, 3, { preserveExpiry: true })
      await collection.upsert(`${key}-4`, 1)
      await collection.touch(`${key}-4`, 100)
      assert.equal((await collection.getAndTouch(`${key}-4`, 1)).content, 1)
      await collection.upsert(`${key}-5`, 1, { expiry: 1 })
      await collection.upsert(`${key}-5`, 2)
      await collection.upsert(`${key}-6`, 1, { expiry: 40 * 24 * 3600 })
      for (const n of [1, 2, 3, 4]) await goneWithin(collection, `${key}-${n}`, 5000)
      assert.equal((await collection.get(`${key}-5`)).content, 2)
      assert.equal((await collection.get(`${key}-6`)).content, 1)
      await assert.rejects(collection.touch(`${key}-7`, 1), couchbase.DocumentNotFoundError)
      await assert.rejects(collection.getAndTouch(`${key}-7`, 1), couchbase.DocumentNotFoundError)
    })

    test('counters', async () => {
      const key = newKey()
      const binary = collection.binary()
      assert.equal((await binary.increment(key, 1, { initial: 10 })).value, 10)
      assert.equal((await binary.increment(key, 32)).value, 42)
      assert.equal((await binary.decrement(key, 2)).value, 40)
      assert.equal((await binary.decrement(key, 100)).value, 0)
      await collection.upsert(key, { not: 'a number' })
      await assert.rejects(binary.increment(key, 1), couchbase.CouchbaseError)
    })

    test('append and prepend', async () => {
      const key = newKey()
      await assert.rejects(collection.binary().append(key, Buffer.from('x')), couchbase.CouchbaseError)
      const { cas } = await collection.upsert(key, Buffer.from('middle'), { transcoder: raw })
      await collection.binary().append(key, Buffer.from('-end'), { cas })
      await collection.binary().prepend(key, Buffer.from('start-'))
      await assert.rejects(collection.binary().append(key, Buffer.from('x'), { cas }), couchbase.CasMismatchError)
      assert.equal((await collection.get(key, { transcoder: raw })).content.toString(), 'start-middle-end')
    })

    test('locks', async () => {
      const key = newKey()
      const short = { timeout: 800 }
      await collection.upsert(key, 1)
      const { cas } = await collection.getAndLock(key, 15)
      assert.equal((await collection.get(key)).content, 1)
      await assert.rejects(collection.upsert(key, 2, short), (error) =>
        [couchbase.DocumentLockedError, couchbase.TimeoutError, couchbase.AmbiguousTimeoutError,
          couchbase.UnambiguousTimeoutError].some((kind) => error instanceof kind))
      await collection.unlock(key, cas)
      await assert.rejects(collection.unlock(key, cas), couchbase.DocumentNotLockedError)
      const again = await collection.getAndLock(key, 15)
      await collection.replace(key, 3, { cas: again.cas })
      await collection.getAndLock(key, 1)
      await collection.upsert(key, 4)
      await assert.rejects(collection.getAndLock(newKey(), 1), couchbase.DocumentNotFoundError)
    })

    test('values of all kinds', async () => {
      const key = newKey()
      for (const value of [null, true, 0, -1.5, 'naïve ☃ 🎵', [], {}, [[[1]]], { deep: { deeper: ['x'] } }]) {
        await collection.upsert(key, value)
        assert.deepEqual((await collection.get(key)).content, value)
      }
      const bytes = Buffer.from([...Array(256).keys()])
      await collection.upsert(key, bytes)
      assert.deepEqual((await collection.get(key)).content, bytes)
    })

    test('mutation tokens', async () => {
      const key = newKey()
      const first = (await collection.upsert(key, 1)).token.toJSON()
      const second = (await collection.remove(key)).token.toJSON()
      assert.equal(first.partition_uuid, second.partition_uuid)
      assert.equal(first.partition_id, second.partition_id)
      assert.ok(BigInt(second.sequence_number) > BigInt(first.sequence_number))
    })

    test('keys of all sorts', async () => {
      for (const key of [`${newKey()} space`, `${newKey()}/☃/ключ/鍵`, newKey().padEnd(250, 'x')]) {
        await collection.upsert(key, { key })
        assert.deepEqual((await collection.get(key)).content, { key })
        await collection.remove(key)
      }
      await assert.rejects(collection.upsert('k'.repeat(251), 1), couchbase.InvalidArgumentError)
    })

    test('large values, and one too large', async () => {
      const key = newKey()
      const options = { transcoder: raw, timeout: 30_000 }
      const random = randomBytes(20 * MIB + 1)
      for (const value of [Buffer.alloc(0), random.subarray(0, MIB), random.subarray(0, 20 * MIB),
        Buffer.alloc(2 * MIB, 'all work and no play ')]) {
        await collection.upsert(key, value, options)
        assert.ok((await collection.get(key, options)).content.equals(value), `${value.length} bytes`)
      }
      await assert.rejects(collection.upsert(key, random, options), couchbase.ValueTooLargeError)
      await collection.remove(key)
    })

    test('thousands of operations at once', async () => {
      const key = newKey()
      const options = { timeout: 30_000 }
      const names = [...Array(5000).keys()].map((n) => `${key}-${n}`)
      await Promise.all(names.map((name) => collection.upsert(name, { name }, options)))
      const read = await Promise.all(names.map((name) => collection.get(name, options)))
      assert.deepEqual(read.map((result) => result.content.name), names)
      await Promise.all([...Array(1000)].map(() => collection.binary().increment(key, 1, { initial: 1, ...options })))
      assert.equal((await collection.get(key)).content, 1000)
    })

    test('any copy, when there is one', async () => {
      const key = newKey()
      await collection.upsert(key, { n: 1 })
      assert.equal((await collection.getAnyReplica(key)).isReplica, false)
      assert.equal((await collection.getAllReplicas(key)).length, 1)
    })

    test('a lock runs out by itself', async () => {
      const key = newKey()
      await collection.upsert(key, 1)
      await collection.getAndLock(key, 1)
      await sleep(1500)
      await collection.replace(key, 2, { timeout: 2000 })
    })
  })
}
