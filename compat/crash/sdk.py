"""The same client as in writer.py, speaking through the official Python SDK.

Fewer operations, since the SDK has no absolute expiry and no pipeline of its own; but what counts as *unknown*
here is what the SDK itself calls ambiguous.
"""

from datetime import timedelta
from types import SimpleNamespace

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import ClientDurability, Durability, PersistToExtended, ReplicateTo, ServerDurability
from couchbase.exceptions import (
    AmbiguousTimeoutException,
    DurabilitySyncWriteAmbiguousException,
    RequestCanceledException,
    UnAmbiguousTimeoutException,
)
from couchbase.options import (
    AppendOptions,
    ClusterOptions,
    InsertOptions,
    RemoveOptions,
    ReplaceOptions,
    UpsertOptions,
)
from couchbase.transcoder import RawBinaryTranscoder
from model import Version
from settee import kv
from settee.node import PASSWORD, USERNAME
from writer import BUCKET, Writer

# The flags the SDK's binary transcoder writes: the common format above, its legacy one below.
BINARY = 0x03000002
UNKNOWN = (AmbiguousTimeoutException, DurabilitySyncWriteAmbiguousException, RequestCanceledException)
TIMEOUT = timedelta(milliseconds=1500)
PROMISES = {
    "none": {},
    "durable": {"durability": ServerDurability(Durability.PERSIST_TO_MAJORITY)},
    "majority": {"durability": ServerDurability(Durability.MAJORITY)},
    "observe": {"durability": ClientDurability(ReplicateTo.NONE, PersistToExtended.ACTIVE)},
}


class SdkWriter(Writer):
    def run(self):
        try:
            cluster = Cluster.connect(
                f"couchbase://{self.node.address}", ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD))
            )
            try:
                self.collection = cluster.bucket(BUCKET).default_collection()
                while not self.node.killed:
                    self.step()
            finally:
                cluster.close()
        except (*UNKNOWN, UnAmbiguousTimeoutException) as error:
            if not self.node.killed:
                self.broken = error
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.broken = error

    def step(self):
        document = self.random.choice(self.documents)
        near_end = document.current.expiry
        if document.current.value is not None and not near_end:
            choices = [self.store, self.swap, self.remove, self.append]
        else:
            choices = [self.store]
        choice = self.random.choice(choices)
        self.counts[f"sdk_{choice.__name__}"] = self.counts.get(f"sdk_{choice.__name__}", 0) + 1
        choice(document)

    def request(self, document, opcode, version, value=None, cas=0, **_):
        promise = self.random.choice(list(PROMISES))
        options = {"timeout": TIMEOUT, **PROMISES[promise]}
        if opcode in (kv.SET, kv.ADD, kv.REPLACE):
            version.flags = BINARY
            options["transcoder"] = RawBinaryTranscoder()
        if opcode == kv.REPLACE:
            options["cas"] = cas
        key = document.key.decode()
        version.how = f"0x{opcode:02x} {promise}"
        document.attempt(version)
        try:
            if opcode == kv.SET:
                result = self.collection.upsert(key, value, UpsertOptions(**options))
            elif opcode == kv.ADD:
                result = self.collection.insert(key, value, InsertOptions(**options))
            elif opcode == kv.REPLACE:
                result = self.collection.replace(key, value, ReplaceOptions(**options))
            elif opcode == kv.APPEND:
                result = self.collection.binary().append(key, value, AppendOptions(**options))
            else:
                result = self.collection.remove(key, RemoveOptions(**options))
        except UnAmbiguousTimeoutException:
            document.refused()
            raise
        token = result.mutation_token()
        document.answered(SimpleNamespace(cas=result.cas, token=(token.partition_uuid, token.sequence_number)))
        # Not after "observe": with PersistTo ACTIVE the SDK asks once and does not wait for the answer it wants
        # (C++ core 1.3.2, `observe_poll.cxx`: zero replicas required are always met).
        if promise == "durable":
            document.promise()

    def remove(self, document):
        self.request(document, kv.DELETE, Version(None))
