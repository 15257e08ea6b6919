// Collections, buckets, users and groups, and asking how the cluster is.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { connect, eventually, goneWithin, newKey } from './connect.mjs'

const timedOutOr = (kind) => (error) => error instanceof kind || /timeout/i.test(error.constructor.name)

for (const scheme of ['couchbase', 'couchbases']) {
  describe(`management over ${scheme}`, () => {
    let cluster
    before(async () => { cluster = await connect(scheme) })
    after(() => cluster.close())

    test('collections', async () => {
      const bucket = cluster.bucket('main')
      const manager = bucket.collections()
      const [scope, key] = [newKey(), newKey()]
      await manager.createScope(scope)
      await assert.rejects(manager.createScope(scope), couchbase.ScopeExistsError)
      await manager.createCollection('songs', scope)
      await manager.createCollection('brief', scope, { maxExpiry: 1 })
      await assert.rejects(manager.createCollection('songs', scope), couchbase.CollectionExistsError)
      await assert.rejects(manager.createCollection('songs', 'nowhere'), couchbase.ScopeNotFoundError)
      await assert.rejects(manager.dropCollection('missing', scope), couchbase.CollectionNotFoundError)
      const found = (await manager.getAllScopes()).find((each) => each.name === scope)
      assert.deepEqual(found.collections.map((each) => each.name).sort(), ['brief', 'songs'])

      const songs = bucket.scope(scope).collection('songs')
      const brief = bucket.scope(scope).collection('brief')
      await songs.upsert(key, 'song')
      await brief.upsert(key, 'brief')
      await bucket.defaultCollection().upsert(key, 'default')
      assert.equal((await songs.get(key)).content, 'song')
      await songs.upsert('k'.repeat(246), 1)
      await goneWithin(brief, key, 5000)
      await manager.dropCollection('songs', scope)
      await assert.rejects(songs.get(key, { timeout: 700 }), timedOutOr(couchbase.CollectionNotFoundError))
      await manager.dropScope(scope)
      await assert.rejects(manager.dropScope(scope), couchbase.ScopeNotFoundError)
      assert.equal((await bucket.defaultCollection().get(key)).content, 'default')
    })

    test('buckets', async () => {
      const manager = cluster.buckets()
      const [name, key] = [`b${newKey().slice(5, 15)}`, newKey()]
      const settings = { name, ramQuotaMB: 100, bucketType: 'membase', numReplicas: 0, flushEnabled: true }
      await manager.createBucket(settings)
      await assert.rejects(manager.createBucket(settings), couchbase.BucketExistsError)
      const found = await manager.getBucket(name)
      assert.equal(found.ramQuotaMB, 100)
      assert.equal(found.flushEnabled, true)
      assert.ok((await manager.getAllBuckets()).some((each) => each.name === name))
      const collection = cluster.bucket(name).defaultCollection()
      await eventually(() => collection.upsert(key, 1))
      await manager.flushBucket(name)
      await assert.rejects(collection.get(key), couchbase.DocumentNotFoundError)
      await manager.updateBucket({ ...settings, flushEnabled: false, ramQuotaMB: 128 })
      assert.equal((await manager.getBucket(name)).ramQuotaMB, 128)
      await assert.rejects(manager.flushBucket(name), couchbase.BucketNotFlushableError)
      await manager.dropBucket(name)
      await assert.rejects(manager.getBucket(name), couchbase.BucketNotFoundError)
    })

    test('users and groups', async () => {
      const users = cluster.users()
      const [name, group, key] = [newKey(), newKey(), newKey()]
      await users.upsertGroup({ name: group, description: 'Readers', roles: [{ name: 'data_reader', bucket: 'main' }] })
      await users.upsertUser({ username: name, displayName: 'A reader', password: 'reader-pass', groups: [group] })
      assert.equal((await users.getUser(name)).displayName, 'A reader')
      assert.equal((await users.getGroup(group)).description, 'Readers')
      assert.ok((await users.getRoles()).length >= 5)
      await cluster.bucket('main').defaultCollection().upsert(key, 1)
      const client = await connect(scheme, name, 'reader-pass')
      try {
        const collection = client.bucket('main').defaultCollection()
        assert.equal((await collection.get(key)).content, 1)
        await assert.rejects(collection.upsert(key, 2, { timeout: 1000 }), couchbase.CouchbaseError)
      } finally {
        await client.close()
      }
      await users.dropUser(name)
      await users.dropGroup(group)
      await assert.rejects(users.getUser(name), couchbase.UserNotFoundError)
      await assert.rejects(users.getGroup(group), couchbase.GroupNotFoundError)
    })

    test('strangers stay out', async () => {
      await assert.rejects(connect(scheme, 'nobody', 'wrong'), couchbase.AuthenticationFailureError)
    })

    test('ping and diagnostics', async () => {
      const report = await cluster.bucket('main').ping({ serviceTypes: ['kv', 'mgmt'] })
      assert.ok(report.services.kv.length > 0)
      for (const endpoint of [...report.services.kv, ...(report.services.mgmt ?? [])]) {
        assert.equal(endpoint.state, 0, JSON.stringify(endpoint))
      }
      assert.ok((await cluster.diagnostics()).services.kv.length > 0)
    })
  })
}
