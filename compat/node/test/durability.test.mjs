// Durable writes: on one node without replicas they work, and where they cannot, the error says why.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { connect, eventually, newKey } from './connect.mjs'

const { None, Majority, MajorityAndPersistOnMaster, PersistToMajority } = couchbase.DurabilityLevel

for (const scheme of ['couchbase', 'couchbases']) {
  describe(`durability over ${scheme}`, () => {
    let cluster
    before(async () => { cluster = await connect(scheme) })
    after(() => cluster.close())
    const collection = (bucket) => cluster.bucket(bucket).defaultCollection()

    for (const durabilityLevel of [Majority, MajorityAndPersistOnMaster, PersistToMajority]) {
      test(`level ${durabilityLevel}`, async () => {
        const key = newKey()
        await collection('main').insert(key, 1, { durabilityLevel })
        const { cas } = await collection('main').upsert(key, 2, { durabilityLevel })
        await collection('main').replace(key, 3, { durabilityLevel, cas })
        assert.equal((await collection('main').get(key)).content, 3)
        await collection('main').remove(key, { durabilityLevel })
        await assert.rejects(
          collection('replicated').upsert(key, 1, { durabilityLevel }), couchbase.DurabilityImpossibleError)
        if (durabilityLevel === Majority) await collection('ephemeral').upsert(key, 1, { durabilityLevel })
        else {
          await assert.rejects(
            collection('ephemeral').upsert(key, 1, { durabilityLevel }), couchbase.DurabilityLevelNotAvailableError)
        }
      })
    }

    test('a bucket that insists', async () => {
      const [manager, name, key] = [cluster.buckets(), `b${newKey().slice(5)}`, newKey()]
      const settings = { name, ramQuotaMB: 100, numReplicas: 0, minimumDurabilityLevel: PersistToMajority }
      await manager.createBucket(settings)
      try {
        assert.equal((await manager.getBucket(name)).minimumDurabilityLevel, PersistToMajority)
        await eventually(() => collection(name).upsert(key, 1))
        await assert.rejects(
          manager.updateBucket({ ...settings, numReplicas: 1, minimumDurabilityLevel: Majority }))
        await manager.updateBucket({ ...settings, numReplicas: 1, minimumDurabilityLevel: None })
        await collection(name).upsert(key, 2)
        // The node takes over the new number of copies a moment after the answer.
        await eventually(() => assert.rejects(
          collection(name).upsert(key, 3, { durabilityLevel: Majority }), couchbase.DurabilityImpossibleError))
      } finally {
        await manager.dropBucket(name)
      }
    })

    test('observed persistence', async () => {
      const key = newKey()
      await collection('main').upsert(key, 1, { durabilityPersistTo: 1 })
      await collection('main').remove(key, { durabilityPersistTo: 1 })
      assert.equal((await collection('main').exists(key)).exists, false)
    })
  })
}
