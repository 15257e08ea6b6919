"""One client that writes until the server is taken from it.

It owns its documents, notes every attempt before it is sent and every answer as it comes, and asks for the
promise in the ways a client can: a durable write, waiting for the seqno, observing the key.
"""

import random
import struct
import threading
import time

from model import Broken, Document, Version
from settee import kv
from settee.node import PASSWORD, USERNAME

BUCKET = "crash"
VBUCKETS = 64
DAY = 86_400


def connect(node):
    return kv.Client(node.address, node.ports["kv"], USERNAME, PASSWORD, BUCKET)


class Writer(threading.Thread):
    def __init__(self, node, name, documents, seed):
        super().__init__(daemon=True)
        self.node, self.writer_name, self.documents = node, name, documents
        self.random = random.Random(seed)
        self.counts = {}
        self.broken = None

    @staticmethod
    def documents_for(name, count):
        keys = [f"crash-{name}-{number}".encode() for number in range(count)]
        return [Document(key, kv.vbucket_of(key, VBUCKETS)) for key in keys]

    def run(self):
        try:
            with connect(self.node) as client:
                self.client = client
                while True:
                    self.step()
        except (kv.Closed, OSError):
            pass  # what the round is about
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.broken = error

    def step(self):
        document = self.random.choice(self.documents)
        near_end = document.current.expiry and document.current.expiry < time.time() + 5
        alive = document.current.value is not None and not near_end
        choices = [self.store, self.store, self.store_expiring, self.burst]
        if alive:
            choices += [self.swap, self.remove, self.append, self.touch]
        elif not near_end:
            choices += [self.add]
        choice = self.random.choice(choices)
        self.counts[choice.__name__] = self.counts.get(choice.__name__, 0) + 1
        choice(document)

    # -- values: unique, so that every version tells where it came from ------------------------------------

    def value(self):
        head = f"{self.writer_name}:{self.random.getrandbits(64):016x}:".encode()
        size = self.random.choice([0, 20, 300, 2_000, 2_000, 20_000])
        if self.random.random() < 0.01:
            size = 1_500_000
        return head + self.random.randbytes(size)

    # -- sending and settling ------------------------------------------------------------------------------

    def request(self, document, opcode, version, **fields):
        """One mutation with one of the promises. `fields` as in `kv.frame`."""
        promise = self.random.choice(["none", "none", "durable", "majority", "seqno", "observe"])
        if promise == "durable":
            fields["framing"] = kv.durability(self.random.choice([kv.PERSIST_ACTIVE, kv.PERSIST_MAJORITY]))
        elif promise == "majority":
            fields["framing"] = kv.durability(kv.MAJORITY)
        version.how = f"0x{opcode:02x} {promise}"
        document.attempt(version)
        response = self.client.call(opcode, key=document.key, vb=document.vb, **fields)
        if not self.settle(document, response):
            return
        if promise == "durable":
            document.promise()
        elif promise == "seqno":
            extras = struct.pack(">Q", version.seqno)
            answer = self.client.call(kv.SEQNO_PERSISTENCE, vb=document.vb, extras=extras)
            if answer.status == kv.OK:
                document.promise()
        elif promise == "observe":
            self.observe(document, version)

    def settle(self, document, response):
        if response.status == kv.OK:
            document.answered(response)
            return True
        if response.status in (kv.TEMPORARY_FAILURE, kv.NO_MEMORY):
            document.refused()
            time.sleep(0.005)
            return False
        raise Broken(f"{document.key!r}: status 0x{response.status:02x} for {document.current}")

    def observe(self, document, version):
        """OBSERVE until the key is on disk in this version, as the older SDKs do it."""
        asked = struct.pack(">HH", document.vb, len(document.key)) + document.key
        persisted = 0x80 if version.value is None else 0x01
        for _ in range(400):
            response = self.client.must("observe", self.client.call(kv.OBSERVE, value=asked))
            state, cas = struct.unpack(">BQ", response.value[-9:])
            if state == persisted and (version.value is None or cas == version.cas):
                document.promise()
                return
            time.sleep(0.001)

    # -- operations ----------------------------------------------------------------------------------------

    def store(self, document):
        version = Version(self.value(), self.random.getrandbits(32))
        self.request(document, kv.SET, version, value=version.value, extras=struct.pack(">II", version.flags, 0))

    def add(self, document):
        version = Version(self.value(), self.random.getrandbits(32))
        self.request(document, kv.ADD, version, value=version.value, extras=struct.pack(">II", version.flags, 0))

    def store_expiring(self, document):
        seconds = self.random.choice([3, 4, DAY, 40 * DAY])
        version = Version(self.value(), 7, int(time.time()) + seconds)
        extras = struct.pack(">II", version.flags, version.expiry)
        self.request(document, kv.SET, version, value=version.value, extras=extras)

    def swap(self, document):
        version = Version(self.value(), 9)
        cas = document.current.cas
        extras = struct.pack(">II", version.flags, 0)
        self.request(document, kv.REPLACE, version, value=version.value, extras=extras, cas=cas)

    def append(self, document):
        before = document.current
        tail = self.value()[:100]
        if len(before.value) + len(tail) > 2_000_000:
            return
        version = Version(before.value + tail, before.flags, before.expiry)
        self.request(document, kv.APPEND, version, value=tail)

    def touch(self, document):
        before = document.current
        # Never twice the same time: a touch that changes nothing may keep the CAS.
        expiry = int(time.time()) + DAY + self.random.randrange(10 * DAY)
        version = document.attempt(Version(before.value, before.flags, expiry))
        extras = struct.pack(">I", version.expiry)
        self.settle(document, self.client.call(kv.TOUCH, key=document.key, vb=document.vb, extras=extras))

    def remove(self, document):
        self.request(document, kv.DELETE, Version(None))

    def burst(self, _document):
        """A pipeline of plain stores, answered later."""
        chosen = self.random.sample(self.documents, min(20, len(self.documents)))
        pieces = []
        for number, document in enumerate(chosen):
            version = document.attempt(Version(self.value()[:3_000], number))
            extras = struct.pack(">II", number, 0)
            pieces.append(
                kv.frame(
                    kv.SET, key=document.key, vb=document.vb, extras=extras, value=version.value, opaque=number
                )
            )
        self.client.send(b"".join(pieces))
        for _ in chosen:
            response = self.client.receive()
            self.settle(chosen[response.opaque], response)
