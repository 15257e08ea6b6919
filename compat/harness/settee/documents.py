"""Many documents, written fast and remembered by key, and what the server says of them afterwards."""

import random
import struct
import threading

from . import kv
from .node import PASSWORD, USERNAME

FEATURES = (kv.F_SEQNO, kv.F_XATTR, kv.F_XERROR, kv.F_SELECT, kv.F_SNAPPY, kv.F_JSON, kv.F_COLLECTIONS)
# Requests sent before their answers are read.
PIPELINE = 256


def leb128(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def connect(node, bucket, features=FEATURES, vbuckets=1024, **options):
    client = kv.Client(node.address, node.ports["kv"], USERNAME, PASSWORD, bucket, features, **options)
    client.vbuckets = vbuckets
    return client


def manifest(node, bucket):
    """Collection ids by qualified name."""
    scopes = node.rest.get(f"/pools/default/buckets/{bucket}/scopes").json["scopes"]
    return {
        f"{scope['name']}.{collection['name']}": int(collection["uid"], 16)
        for scope in scopes
        for collection in scope["collections"]
    }


def pipeline(client, requests):
    """Send requests (opcode, collection, key, fields), many at a time; yields (request, response) in order."""
    for at in range(0, len(requests), PIPELINE):
        batch = requests[at : at + PIPELINE]
        client.send(
            b"".join(
                kv.frame(opcode, key=leb128(collection) + key, vb=kv.vbucket_of(key, client.vbuckets), **fields)
                for opcode, collection, key, fields in batch
            )
        )
        for request in batch:
            yield request, client.receive()


def read_all(client, keys):
    """What GET_META and GET say of (collection, key) pairs: {pair: None, or (deleted, cas, rev, flags, expiry, value)}."""
    found = {}
    asked = [(kv.GET_META, collection, key, {"extras": b"\x02"}) for collection, key in keys]
    for (_, collection, key, _), response in pipeline(client, asked):
        if response.status == kv.NOT_FOUND:
            found[collection, key] = None
            continue
        client.must(f"meta of {key!r}", response)
        deleted, flags, expiry, rev = struct.unpack(">IIIQ", response.extras[:20])
        found[collection, key] = (bool(deleted), response.cas, rev, flags, expiry, b"")
    alive = [pair for pair, facts in found.items() if facts and not facts[0]]
    for (_, collection, key, _), response in pipeline(client, [(kv.GET, c, k, {}) for c, k in alive]):
        if response.status == kv.NOT_FOUND:
            raise AssertionError(f"{key!r} went away while it was looked at")
        client.must(f"get {key!r}", response)
        found[collection, key] = found[collection, key][:5] + (response.value,)
    return found


def set_xattr(client, key, name, value):
    """Give a document of the default collection an extended attribute."""
    extras = struct.pack(">HB", len(name), 0x04)
    return client.must("xattr", client.on(kv.DICT_UPSERT, key, extras=extras, value=name + value))


def high_seqnos(client, collection=None, state=0):
    """{vBucket: seqno}, of the bucket as the connection sees it or of one collection; of its copies there in one `state`."""
    extras = struct.pack(">I", state) + (b"" if collection is None else struct.pack(">I", collection))
    answer = client.must("seqnos", client.call(kv.ALL_SEQNOS, extras=extras))
    return dict(struct.iter_unpack(">HQ", answer.value))


class Writer(threading.Thread):
    """Sets, deletes and overwrites documents of some collections until it is told to stop, or the server dies.

    `keys` is every (collection, key) it has touched.
    """

    def __init__(self, node, bucket, collections, seed, documents=400, bytes_max=2000, vbuckets=1024, operations=None):
        super().__init__(daemon=True)
        self.node, self.bucket, self.collections, self.vbuckets = node, bucket, list(collections), vbuckets
        self.random = random.Random(seed)
        self.documents, self.bytes_max, self.operations = documents, bytes_max, operations
        self.prefix = f"w{seed}-"
        self.keys = set()
        self.done = 0
        self.stopping = threading.Event()
        # Its server is going to be killed.
        self.doomed = False
        self.error = None

    def _request(self):
        chance = self.random.random()
        key = f"{self.prefix}{self.random.randrange(self.documents)}".encode()
        collection = self.random.choice(self.collections)
        self.keys.add((collection, key))
        if chance < 0.2:
            return kv.DELETE, collection, key, {}
        expiry = 1 if chance < 0.25 else 0
        value = self.random.randbytes(self.random.randrange(self.bytes_max))
        if chance > 0.9:
            value = b'{"n":' + b"1" * self.random.randrange(1, 500) + b"}"
        flags = self.random.getrandbits(32)
        return kv.SET, collection, key, {"extras": struct.pack(">II", flags, expiry), "value": value}

    def run(self):
        try:
            with connect(self.node, self.bucket, vbuckets=self.vbuckets) as client:
                while not self.stopping.is_set() and (self.operations is None or self.done < self.operations):
                    for _, response in pipeline(client, [self._request() for _ in range(64)]):
                        if response.status not in (kv.OK, kv.NOT_FOUND, kv.TEMPORARY_FAILURE, kv.UNKNOWN_COLLECTION):
                            raise kv.Refused("a writer's request", response)
                        self.done += 1
        except (kv.Closed, OSError) as error:
            if not self.doomed:
                self.error = error
        except kv.Refused as error:
            self.error = error

    def finish(self):
        self.stopping.set()
        self.join(30)
        if self.error or self.is_alive():
            raise AssertionError(f"a writer did not end well: {self.error}")
        return self.keys
