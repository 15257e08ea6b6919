// A steady client on the official Node.js SDK: see compat/steady/run.py for what such a client does and says.

import couchbase from 'couchbase'

const WORKERS = 4
const KEYS = 50
const PAUSE = 20

const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

/** Writes its own keys one after the other and reads each back; every other worker writes durably. */
class Worker {
  constructor(collection, number) {
    this.collection = collection
    this.kind = number % 2 ? 'durable' : 'plain'
    this.options = number % 2 ? { durabilityLevel: couchbase.DurabilityLevel.Majority } : {}
    this.keys = Array.from({ length: KEYS }, (_, key) => `node-${number}-${key}`)
    // By key: what was acknowledged and when, and what may have been written since.
    this.known = new Map(this.keys.map((key) => [key, { value: null, since: 0, doubts: new Set() }]))
    this.done = 0
    this.over = false
  }

  async work() {
    while (!this.over) {
      const key = this.keys[this.done % KEYS]
      this.done += 1
      await this.write(key, this.done)
      await this.read(key)
      await sleep(PAUSE)
    }
  }

  /** The action's result; undefined after an error, which is told. */
  async attempt(op, key, action) {
    const began = Date.now()
    try {
      return await action()
    } catch (error) {
      const text = `${error.name}: ${error.message} ${JSON.stringify(error.context ?? {})}`.slice(0, 300)
      say({ what: 'error', kind: this.kind, op, key, began, at: Date.now(), text })
      return undefined
    }
  }

  async write(key, number) {
    const stored = await this.attempt('write', key, () => this.collection.upsert(key, number, this.options))
    if (stored === undefined) this.known.get(key).doubts.add(number)
    else this.known.set(key, { value: number, since: Date.now(), doubts: new Set() })
  }

  async read(key) {
    const found = await this.attempt('read', key, async () => {
      try {
        return (await this.collection.get(key)).content
      } catch (error) {
        if (error instanceof couchbase.DocumentNotFoundError) return null
        throw error
      }
    })
    const known = this.known.get(key)
    if (found === undefined || found === known.value || known.doubts.has(found)) return
    const at = Date.now()
    say({ what: 'wrong', kind: this.kind, key, acknowledged: known.since, expected: known.value, found, at })
    // Told once: from here on this is what it is.
    Object.assign(known, { value: found, since: at })
  }
}

const [seeds, username, password, bucketName] = process.argv.slice(2)
const cluster = await couchbase.connect(`couchbase://${seeds}`, { username, password })
await cluster.waitUntilReady(20_000)
const collection = cluster.bucket(bucketName).defaultCollection()
const workers = Array.from({ length: WORKERS }, (_, number) => new Worker(collection, number))
const working = workers.map((worker) => worker.work())
say({ what: 'ready' })
// Until the end of the input.
await new Promise((done) => process.stdin.resume().once('end', done))
for (const worker of workers) worker.over = true
await Promise.all(working)
for (const worker of workers) for (const key of worker.keys) await worker.read(key)
say({ what: 'done', operations: workers.reduce((sum, worker) => sum + worker.done, 0) })
await cluster.close()
