// Parts of documents, extended attributes, and reads that the SDK makes of them.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import couchbase from 'couchbase'
import { WAYS, connect, goneWithin, newKey } from './connect.mjs'

const { LookupInSpec: look, MutateInSpec: change, LookupInMacro, MutateInMacro, StoreSemantics } = couchbase
const SONG = { title: 'Águas de Março', year: 1972, by: ['Elis', 'Tom'] }
const xattr = true

for (const [way, scheme, bucket] of WAYS) {
  describe(`sub-documents, ${way}`, () => {
    let cluster, collection
    before(async () => {
      cluster = await connect(scheme)
      collection = cluster.bucket(bucket).defaultCollection()
    })
    after(() => cluster.close())

    async function song() {
      const key = newKey()
      await collection.upsert(key, SONG)
      return key
    }

    const attribute = async (key, path) =>
      (await collection.lookupIn(key, [look.get(path, { xattr })])).content[0].value

    test('lookups', async () => {
      const key = await song()
      const specs = [look.get('by[-1]'), look.exists('year'), look.count('by'), look.get('')]
      const failing = [look.get('none'), look.exists('none'), look.get('year.x'), look.get('by[')]
      const { content, cas } = await collection.lookupIn(key, [...specs, ...failing])
      assert.deepEqual(content.slice(0, 4).map(({ value }) => value), ['Tom', true, 2, SONG])
      assert.ok(content[4].error instanceof couchbase.PathNotFoundError)
      assert.equal(content[5].value, false)
      assert.ok(content[6].error instanceof couchbase.PathMismatchError)
      assert.ok(content[7].error instanceof couchbase.PathInvalidError)
      assert.equal(String(cas), String((await collection.get(key)).cas))
      await assert.rejects(collection.lookupIn(`${key}-none`, specs), couchbase.DocumentNotFoundError)
    })

    test('every mutation', async () => {
      const key = await song()
      const { content, cas } = await collection.mutateIn(key, [
        change.insert('label.name', 'Philips', { createPath: true }),
        change.upsert('year', 1974),
        change.replace('title', 'Waters of March'),
        change.remove('by[0]'),
        change.arrayAppend('by', ['and', 'others'], { multi: true }),
        change.arrayPrepend('by', 'first'),
        change.arrayInsert('by[1]', 'second'),
        change.arrayAddUnique('by', 'last'),
        change.increment('plays', 43),
        change.decrement('plays', 1),
      ])
      assert.equal(content[9].value, 42)
      const read = await collection.get(key)
      assert.deepEqual(read.content, {
        title: 'Waters of March',
        year: 1974,
        by: ['first', 'second', 'Tom', 'and', 'others', 'last'],
        label: { name: 'Philips' },
        plays: 42,
      })
      assert.equal(String(read.cas), String(cas))
    })

    test('one failure undoes everything', async () => {
      const key = await song()
      for (const [spec, error] of [
        [change.insert('title', 1), couchbase.PathExistsError],
        [change.upsert('a.b', 1), couchbase.PathNotFoundError],
        [change.arrayAppend('title', 1), couchbase.PathMismatchError],
        [change.arrayAddUnique('by', 'Tom'), couchbase.PathExistsError],
        [change.increment('title', 1), couchbase.PathMismatchError],
      ]) {
        await assert.rejects(collection.mutateIn(key, [change.upsert('year', 0), spec]), error)
      }
      assert.deepEqual((await collection.get(key)).content, SONG)
    })

    test('store semantics and CAS', async () => {
      const key = newKey()
      const specs = [change.upsert('a.b', 1, { createPath: true })]
      await assert.rejects(collection.mutateIn(key, specs), couchbase.DocumentNotFoundError)
      await collection.mutateIn(key, specs, { storeSemantics: StoreSemantics.Insert })
      const again = collection.mutateIn(key, specs, { storeSemantics: StoreSemantics.Insert })
      await assert.rejects(again, couchbase.DocumentExistsError)
      const { cas } = await collection.mutateIn(key, specs, { storeSemantics: StoreSemantics.Upsert })
      assert.deepEqual((await collection.get(key)).content, { a: { b: 1 } })
      await collection.mutateIn(key, specs, { cas })
      await assert.rejects(collection.mutateIn(key, specs, { cas }), couchbase.CasMismatchError)
    })

    test('expiry and projections', async () => {
      const key = newKey()
      await collection.upsert(key, SONG, { expiry: 1000 })
      const read = await collection.get(key, { withExpiry: true, project: ['title', 'by[0]', 'none'] })
      assert.deepEqual(read.content, { title: SONG.title, by: ['Elis'] })
      const expiryTime = async () => (await collection.get(key, { withExpiry: true })).expiryTime
      const expiry = await expiryTime()
      assert.ok(Math.abs(expiry - Date.now() / 1000 - 1000) < 5)
      await collection.mutateIn(key, [change.upsert('year', 1)], { preserveExpiry: true })
      assert.equal(await expiryTime(), expiry)
      await collection.mutateIn(key, [change.upsert('year', 1)])
      assert.equal((await expiryTime()) ?? 0, 0)
      await collection.mutateIn(key, [change.upsert('year', 1)], { expiry: 1 })
      await goneWithin(collection, key, 5000)
    })

    test('extended attributes, virtual ones and macros', async () => {
      const key = await song()
      const { cas, token } = await collection.mutateIn(key, [
        change.upsert('user.deep', 1, { xattr, createPath: true }),
        change.upsert('_system', 'kept', { xattr }),
        change.upsert('macros.cas', MutateInMacro.Cas, { xattr, createPath: true }),
        change.upsert('macros.seqno', MutateInMacro.SeqNo, { xattr }),
        change.upsert('macros.crc', MutateInMacro.ValueCrc32c, { xattr }),
        change.upsert('year', 1973),
      ])
      assert.ok(token)
      const macros = await attribute(key, 'macros')
      const about = await attribute(key, LookupInMacro.Document)
      const bytes = about.CAS.slice(2).match(/../g)
      assert.equal(macros.cas, `0x${bytes.reverse().join('')}`)
      assert.deepEqual([macros.seqno, macros.crc], [about.seqno, about.value_crc32c])
      assert.equal(await attribute(key, LookupInMacro.Cas), about.CAS)
      assert.equal(await attribute(key, 'user.deep'), 1)
      assert.deepEqual(await attribute(key, '$XTOC'), ['user', '_system', 'macros'])
      assert.deepEqual((await collection.get(key)).content, { ...SONG, year: 1973 })
      assert.equal(String((await collection.get(key)).cas), String(cas))

      await collection.remove(key)
      const specs = [look.get('_system', { xattr }), look.get('user', { xattr })]
      await assert.rejects(collection.lookupIn(key, specs), couchbase.DocumentNotFoundError)
      const { content } = await collection.lookupIn(key, specs, { accessDeleted: true })
      assert.equal(content[0].value, 'kept')
      assert.ok(content[1].error instanceof couchbase.PathNotFoundError)
    })

    test('replicas are the active alone', async () => {
      const key = await song()
      const read = await collection.lookupInAnyReplica(key, [look.get('year')])
      assert.deepEqual([read.content[0].value, read.isReplica], [1972, false])
      assert.equal((await collection.lookupInAllReplicas(key, [look.get('year')])).length, 1)
    })
  })
}
