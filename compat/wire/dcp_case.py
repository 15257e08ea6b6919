"""A bucket of few vBuckets whose history a test module has to itself, and consumers of it."""

import struct
import unittest
import uuid
from types import SimpleNamespace

from case import ADDRESS, REST
from settee import dcp, documents, kv

NODE = SimpleNamespace(
    address=ADDRESS, ports={"kv": 11210, "kv_tls": 11207, "memcached": 11211}, rest=REST, killed=False
)
VBUCKETS = 16


class DcpCase(unittest.TestCase):
    BUCKET = "dcp"
    KIND = "couchbase"

    @classmethod
    def setUpClass(cls):
        REST.create_bucket(cls.BUCKET, quota_mb=128, kind=cls.KIND, numVBuckets=VBUCKETS, flushEnabled=1)
        cls.addClassCleanup(REST.delete_bucket, cls.BUCKET)

    def setUp(self):
        self.writer = self.connect()

    def connect(self, **options):
        client = documents.connect(NODE, self.BUCKET, vbuckets=VBUCKETS, **options)
        self.addCleanup(client.close)
        return client

    def consumer(self, *, name=None, bucket=None, **options):
        made = dcp.Consumer(NODE, bucket or self.BUCKET, name or f"wire-{uuid.uuid4().hex}", **options)
        self.addCleanup(made.close)
        return made

    def key_in(self, vb):
        """A new key of that vBucket."""
        while True:
            key = f"k-{uuid.uuid4().hex}".encode()
            if kv.vbucket_of(key, VBUCKETS) == vb:
                return key

    def write(self, opcode, key, collection=0, **fields):
        """(uuid, seqno, cas) of a mutation that succeeds."""
        encoded = documents.leb128(collection) + key
        response = self.writer.call(opcode, key=encoded, vb=kv.vbucket_of(key, VBUCKETS), **fields)
        self.assertEqual(response.status, kv.OK, response.value)
        return *response.token, response.cas

    def set(self, key, value=b"value", collection=0, flags=0, expiry=0, **fields):
        return self.write(kv.SET, key, collection, extras=struct.pack(">II", flags, expiry), value=value, **fields)

    def delete(self, key, collection=0):
        return self.write(kv.DELETE, key, collection)

    def high_seqno(self, vb):
        return documents.high_seqnos(self.writer)[vb]

    def uuid_of(self, vb):
        answer = self.writer.call(kv.GET_FAILOVER_LOG, vb=vb)
        return struct.unpack(">Q", answer.value[:8])[0]

    def assert_status(self, response, status):
        self.assertEqual(response.status, status, f"0x{response.status:02x} {response.value[:200]}")

    def assert_closed(self, consumer):
        with self.assertRaises(kv.Closed):
            while consumer.next(10.0) is not None:
                pass
