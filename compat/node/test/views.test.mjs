// Views, as the SDK makes and asks them.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { connect, newKey } from './connect.mjs'

const { DesignDocument, DesignDocumentNamespace, DesignDocumentView, ViewOrdering, ViewScanConsistency } = couchbase
const COUNT = 60

for (const scheme of ['couchbase', 'couchbases']) {
  describe(`views over ${scheme}`, () => {
    const prefix = newKey()
    const id = (number) => `${prefix}-${String(number).padStart(2, '0')}`
    let cluster, bucket, songs
    before(async () => {
      cluster = await connect(scheme)
      bucket = cluster.bucket('main')
      songs = bucket.defaultCollection()
      const numbers = Array.from({ length: COUNT }, (_, number) => number)
      await Promise.all(numbers.map((n) => songs.upsert(id(n), { n, artist: `Ä${n % 4}` })))
      const map = `function (doc, meta) { if (meta.id.indexOf('${prefix}') == 0) emit(doc.artist, doc.n); }`
      const views = {
        rows: new DesignDocumentView({ map }),
        sum: new DesignDocumentView({ map, reduce: '_sum' }),
      }
      const design = new DesignDocument({ name: prefix, views })
      await bucket.viewIndexes().upsertDesignDocument(design, DesignDocumentNamespace.Development)
      await bucket.viewIndexes().publishDesignDocument(prefix)
    })
    after(async () => {
      await bucket.viewIndexes().dropDesignDocument(prefix, DesignDocumentNamespace.Development)
      await bucket.viewIndexes().dropDesignDocument(prefix, DesignDocumentNamespace.Production)
      await cluster.close()
    })

    const ask = (view, options = {}) =>
      bucket.viewQuery(prefix, view, {
        namespace: DesignDocumentNamespace.Production,
        scanConsistency: ViewScanConsistency.RequestPlus,
        timeout: 20_000,
        ...options,
      })

    test('rows and ranges', async () => {
      const all = await ask('rows')
      assert.equal(all.meta.totalRows, COUNT)
      assert.equal(all.rows.length, COUNT)
      assert.deepEqual([all.rows[0].key, all.rows[0].id, all.rows[0].value], ['Ä0', id(0), 0])
      const some = await ask('rows', { range: { start: 'Ä1', end: 'Ä3', inclusiveEnd: false } })
      assert.deepEqual([...new Set(some.rows.map((row) => row.key))], ['Ä1', 'Ä2'])
      const two = await ask('rows', { key: 'Ä2', limit: 2, skip: 1 })
      assert.deepEqual(
        two.rows.map((row) => row.value),
        [6, 10],
      )
      const keys = await ask('rows', { keys: ['Ä3', 'Ä0', 'B'], limit: COUNT })
      assert.deepEqual([keys.rows[0].key, keys.rows.at(-1).key, keys.rows.length], ['Ä3', 'Ä0', COUNT / 2])
      const last = await ask('rows', { order: ViewOrdering.Descending, limit: 1 })
      assert.equal(last.rows[0].id, id(COUNT - 1))
    })

    test('reductions', async () => {
      const sum = await ask('sum', { reduce: true })
      assert.deepEqual(
        sum.rows.map((row) => row.value),
        [(COUNT * (COUNT - 1)) / 2],
      )
      const groups = await ask('sum', { reduce: true, group: true })
      assert.deepEqual(
        groups.rows.map((row) => [row.key, row.value]),
        [0, 1, 2, 3].map((n) => [`Ä${n}`, 420 + 15 * n]),
      )
    })

    test('a query has what was written before', async () => {
      for (let number = 0; number < 10; number++) {
        await songs.upsert(`${prefix}-new`, { n: 100 + number, artist: `new ${number}` })
        const found = await ask('rows', { key: `new ${number}` })
        assert.deepEqual(
          found.rows.map((row) => row.value),
          [100 + number],
        )
      }
      await songs.remove(`${prefix}-new`)
      assert.equal((await ask('rows', { limit: 1 })).meta.totalRows, COUNT)
    })

    test('what is not there', async () => {
      // The client takes every 404 of this port for that.
      await assert.rejects(ask('none'), couchbase.DesignDocumentNotFoundError)
      await assert.rejects(
        bucket.viewIndexes().getDesignDocument('none', DesignDocumentNamespace.Production),
        couchbase.DesignDocumentNotFoundError,
      )
    })
  })
}
