// Range scans of a collection: over every vBucket.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { connect, eventually, newKey } from './connect.mjs'

const { MutationState, PrefixScan, RangeScan, SamplingScan, ScanTerm } = couchbase
const IDS = Array.from({ length: 200 }, (_, number) => `song-${String(number).padStart(3, '0')}`)

for (const scheme of ['couchbase', 'couchbases']) {
  describe(`scans over ${scheme}`, () => {
    let cluster, manager, name, songs, state
    before(async () => {
      cluster = await connect(scheme)
      const bucket = cluster.bucket('main')
      manager = bucket.collections()
      name = `scan${newKey().slice(5, 15)}`
      await manager.createCollection(name, '_default')
      songs = bucket.scope('_default').collection(name)
      await eventually(() => songs.upsert('other', {}))
      const results = await Promise.all(IDS.map((id) => songs.upsert(id, { id })))
      state = new MutationState(...results.map((result) => result.token))
    })
    after(async () => {
      await manager.dropCollection(name, '_default')
      await cluster.close()
    })

    const ids = async (kind, options = {}) =>
      (await songs.scan(kind, { concurrency: 16, ...options })).map((item) => item.id).sort()

    test('everything, with contents', async () => {
      const found = await songs.scan(new RangeScan(), { consistentWith: state, concurrency: 16 })
      assert.deepEqual(found.map((item) => item.id).sort(), ['other', ...IDS])
      for (const item of found.filter((each) => each.id !== 'other')) {
        assert.deepEqual(item.content, { id: item.id })
      }
    })

    test('ranges and prefixes', async () => {
      assert.deepEqual(await ids(new PrefixScan('song-1'), { idsOnly: true }), IDS.slice(100))
      assert.deepEqual(await ids(new RangeScan(new ScanTerm(IDS[10]), new ScanTerm(IDS[20]))), IDS.slice(10, 21))
      const within = new RangeScan(new ScanTerm(IDS[10], true), new ScanTerm(IDS[20], true))
      assert.deepEqual(await ids(within, { idsOnly: true }), IDS.slice(11, 20))
      assert.deepEqual(await ids(new PrefixScan('nothing')), [])
      assert.deepEqual(await ids(new PrefixScan('song-'), { batchItemLimit: 1, batchByteLimit: 0 }), IDS)
    })

    test('samples', async () => {
      assert.equal((await ids(new SamplingScan(30, 7), { idsOnly: true })).length, 30)
      assert.deepEqual(await ids(new SamplingScan(1000, 7)), ['other', ...IDS])
    })
  })
}
