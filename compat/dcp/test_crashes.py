"""Collections that come and go while the node is killed: the manifest is in one place, what tells of it in every vBucket."""

import struct
import threading
import time

from case import NODE, Case
from settee import dcp, documents, kv
from settee.validated import ValidatedLoad

BUCKET = "shifting"
VBUCKETS = 256
ROUNDS = 5
COLLECTIONS = f"/pools/default/buckets/{BUCKET}/scopes/_default/collections"


class Churn(threading.Thread):
    """Creates and drops collections until the node is gone."""

    def __init__(self, chance, first):
        super().__init__(daemon=True)
        self.chance, self.number = chance, first

    def run(self):
        alive = []
        try:
            while True:
                if alive and self.chance.random() < 0.4:
                    NODE.rest.ok("DELETE", f"{COLLECTIONS}/{alive.pop(self.chance.randrange(len(alive)))}")
                else:
                    self.number += 1
                    NODE.rest.ok("POST", COLLECTIONS, {"name": f"c{self.number}"})
                    alive.append(f"c{self.number}")
        except OSError:
            pass


class Crashes(Case):
    def connect_patiently(self):
        def connected():
            try:
                return documents.connect(NODE, BUCKET, vbuckets=VBUCKETS)
            except (kv.Closed, kv.Refused, OSError):
                return None

        client = self.eventually("the bucket is served again", connected)
        self.addCleanup(client.close)
        return client

    def write(self, client, collection):
        """A document into a collection, which may have to wait until its beginning is known."""

        def stored():
            key, extras = documents.leb128(collection) + b"k", bytes(8)
            response = client.call(kv.SET, key=key, vb=kv.vbucket_of(b"k", VBUCKETS), extras=extras, value=b"v")
            if response.status != kv.TEMPORARY_FAILURE:
                client.must(f"store into collection {collection}", response)
            return response.status == kv.OK

        self.eventually("collections can be written to", stored)

    def told(self):
        """The collections that each vBucket tells of, all streamed from the beginning."""
        consumer = dcp.Consumer(NODE, BUCKET, "crashes")
        self.addCleanup(consumer.close)
        extras = struct.pack(">IIQQQQQ", dcp.TO_LATEST, 0, 0, dcp.FOREVER, 0, 0, 0)
        requests = (
            kv.frame(dcp.STREAM_REQUEST, vb=vb, opaque=vb, extras=extras, value=b'{"uid":"0"}') for vb in range(VBUCKETS)
        )
        consumer.send(b"".join(requests))
        ledger, begun = dcp.Ledger(), [{0} for _ in range(VBUCKETS)]
        while len(ledger.ends) < VBUCKETS:
            message = consumer.next(10.0)
            self.assertIsNotNone(message)
            if message.magic not in dcp.REQUEST_MAGIC:
                self.assertEqual(message.status, kv.OK)
                continue
            ledger.take(message)
            vb = dcp.vb_of(message)
            if message.opcode == dcp.SYSTEM_EVENT:
                kind, _, _, collection, _ = dcp.event(message)
                (begun[vb].add if kind == dcp.COLLECTION_CREATED else begun[vb].discard)(collection)
            elif message.opcode == dcp.MUTATION:
                is_known = any(message.key.startswith(documents.leb128(collection)) for collection in begun[vb])
                self.assertTrue(is_known, "a document before its collection")
        return begun

    def test_every_vbucket_knows_the_collections(self):
        NODE.rest.create_bucket(BUCKET, quota_mb=128, numVBuckets=VBUCKETS)
        self.addCleanup(NODE.rest.delete_bucket, BUCKET)
        with ValidatedLoad(NODE, BUCKET, seconds=15, durability="persistToMajority"):
            self.crash_and_compare()

    def crash_and_compare(self):
        most = 0
        for number in range(ROUNDS):
            churn = Churn(self.random, number * 1000)
            churn.start()
            time.sleep(self.random.uniform(0.2, 0.8))
            NODE.kill()
            churn.join(30)
            NODE.start()
            client = self.connect_patiently()
            collections = set(documents.manifest(NODE, BUCKET).values())
            for collection in collections - {0}:
                self.write(client, collection)
            self.eventually("warm", lambda client=client: client.stats()["ep_warmup_thread"] == "complete")
            for vb, told in enumerate(self.told()):
                self.assertEqual(told, collections, f"round {number}, vBucket {vb}")
            most = max(most, len(collections))
            client.close()
        self.assertGreater(most, 1, "no collection was made")
