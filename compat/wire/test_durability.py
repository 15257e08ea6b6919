"""Durable writes, frame by frame, and the minimum that a bucket can insist on."""

import struct
import unittest

from case import REST, WireCase, eventually
from settee import kv

LEVELS = (kv.MAJORITY, kv.PERSIST_ACTIVE, kv.PERSIST_MAJORITY)
INVALID_LEVEL, IMPOSSIBLE, IN_PROGRESS, AMBIGUOUS = 0xA0, 0xA1, 0xA2, 0xA3


def persisted(client, key, uuid):
    response = client.call(kv.OBSERVE_SEQNO, vb=kv.vbucket_of(key), value=struct.pack(">Q", uuid))
    return struct.unpack_from(">BHQQ", response.value)[3]


class Promises(WireCase):
    def assert_kept(self, client, token):
        """What is told is the commit. On disk is then the prepare before it, which no crash undoes; the commit follows."""
        uuid, seqno = token
        self.assertGreaterEqual(persisted(client, self.key, uuid), seqno - 1)
        client.must("persistence", client.persisted(self.key, seqno))
        self.assertGreaterEqual(persisted(client, self.key, uuid), seqno)


class Durable(Promises):
    def test_levels(self):
        for level in LEVELS:
            stored = self.stored(b"x", framing=kv.durability(level, 5000))
            if level != kv.MAJORITY:
                self.assert_kept(self.client, stored.token)
        self.on(kv.DELETE, framing=kv.durability(kv.PERSIST_MAJORITY))

    def test_every_durable_command(self):
        framing = kv.durability(kv.PERSIST_MAJORITY)
        store = {"extras": bytes(8), "framing": framing}
        number = {"extras": struct.pack(">QQI", 1, 7, 0), "framing": framing}
        for opcode, fields in (
            (kv.ADD, {**store, "value": b"1"}),
            (kv.REPLACE, {**store, "value": b"2"}),
            (kv.APPEND, {"value": b"3", "framing": framing}),
            (kv.PREPEND, {"value": b"1", "framing": framing}),
            (kv.INCREMENT, number),
            (kv.DECREMENT, number),
            (kv.DELETE, {"framing": framing}),
        ):
            with self.subTest(opcode=opcode):
                self.assert_kept(self.client, self.on(opcode, **fields).token)
        self.on(kv.GET, kv.NOT_FOUND)

    def test_refusals(self):
        replicated = self.connect(bucket="replicated")
        for level in LEVELS:
            refused = replicated.set(self.key, b"x", framing=kv.durability(level))
            self.assertEqual(refused.status, IMPOSSIBLE)
        self.assertEqual(replicated.on(kv.GET, self.key).status, kv.NOT_FOUND)
        memory = self.connect(bucket="ephemeral")
        self.assertEqual(memory.set(self.key, b"x", framing=kv.durability(kv.PERSIST_ACTIVE)).status, INVALID_LEVEL)
        self.assertEqual(memory.set(self.key, b"x", framing=kv.durability(kv.MAJORITY)).status, kv.OK)

    def test_frames(self):
        def status(framing, opcode=kv.SET, **fields):
            return self.client.on(opcode, self.key, framing=framing, **fields).status

        store = {"extras": bytes(8), "value": b"x"}
        for level in (0, 4, 255):
            self.assertEqual(status(kv.durability(level), **store), INVALID_LEVEL)
        for timeout in (0, 0xFFFF):
            self.assertEqual(status(kv.durability(kv.MAJORITY, timeout), **store), kv.INVALID)
        for broken in (b"\x10", b"\x12\x01\x01", b"\x14\x01\x00\x01\x00"):
            self.assertEqual(status(broken, **store), kv.INVALID)
        self.assertEqual(status(kv.durability(kv.MAJORITY), kv.GET), kv.INVALID)
        self.assertEqual(status(kv.durability(kv.MAJORITY, 0xFFFE), **store), kv.OK)
        for opcode in (kv.TOUCH, kv.GAT):
            answer = status(kv.durability(kv.MAJORITY), opcode, extras=struct.pack(">I", 60))
            self.assertEqual(answer, kv.NOT_SUPPORTED, "not made durable, and not pretended")

    def test_a_write_that_timed_out_was_not_made(self):
        self.stored(b"first")
        expected = b"first"
        for number in range(50):
            value = b"%d" % number
            durable = self.client.set(self.key, value, framing=kv.durability(kv.PERSIST_MAJORITY, 1))
            self.assertIn(durable.status, (kv.OK, AMBIGUOUS))
            expected = value if durable.status == kv.OK else expected
            # Either way it does not stay pending.
            answer = next(
                answer
                for answer in (self.client.on(kv.APPEND, self.key, value=b"+") for _ in range(10_000))
                if answer.status != IN_PROGRESS
            )
            self.assertEqual(answer.status, kv.OK)
            expected += b"+"
            self.assertEqual(self.client.must("get", self.client.on(kv.GET, self.key)).value, expected)


class Cache(WireCase):
    BUCKET = "wire-cache"

    def test_a_cache_has_no_durability(self):
        REST.ok(
            "POST", "/pools/default/buckets", {"name": self.BUCKET, "ramQuotaMB": 100, "bucketType": "memcached"}
        )
        REST.wait_healthy(self.BUCKET)
        self.addCleanup(REST.delete_bucket, self.BUCKET)
        client = self.connect(bucket=self.BUCKET)
        for level in LEVELS:
            self.assertEqual(client.set(self.key, b"x", framing=kv.durability(level)).status, kv.NOT_SUPPORTED)
        self.assertEqual(client.set(self.key, b"x").status, kv.OK)


class Minimum(Promises):
    BUCKET = "wire-minimum"

    @classmethod
    def setUpClass(cls):
        REST.create_bucket(cls.BUCKET, durabilityMinLevel="majorityAndPersistActive")

    @classmethod
    def tearDownClass(cls):
        REST.delete_bucket(cls.BUCKET)

    def change(self, **form):
        REST.ok("POST", f"/pools/default/buckets/{self.BUCKET}", form)

    def test_a_bucket_can_insist(self):
        client = self.connect(bucket=self.BUCKET)
        for framing in (b"", kv.durability(kv.MAJORITY)):
            self.assert_kept(client, client.must("set", client.set(self.key, b"x", framing=framing)).token)
        self.assert_kept(client, client.must("delete", client.on(kv.DELETE, self.key)).token)

        refused = REST.request(
            "POST", f"/pools/default/buckets/{self.BUCKET}", {"durabilityMinLevel": "majority", "replicaNumber": 1}
        )
        self.assertIn("not have enough data servers", refused.text)
        self.change(durabilityMinLevel="none", replicaNumber=1)
        self.assertEqual(client.set(self.key, b"x").status, kv.OK)
        # How many copies there shall be is what nodes act on by and by, as in Couchbase, where it takes a rebalance.
        durable = kv.durability(kv.MAJORITY)
        eventually(lambda: client.set(self.key, b"x", framing=durable).status == IMPOSSIBLE)
        self.change(durabilityMinLevel="persistToMajority", replicaNumber=0)
        eventually(lambda: client.set(self.key, b"y", framing=durable).status == kv.OK)
        self.assert_kept(client, client.must("set", client.set(self.key, b"y")).token)


if __name__ == "__main__":
    unittest.main()
