"""A DCP consumer on raw frames: says what it is told to say and hands over what comes, in order, unjudged.

`Consumer` is one connection. It answers NOOPs and acknowledges bytes only when asked to (`automatic`), so that a
test can be as slow or as silent as it wants. `Ledger` is the judge: it keeps what a stream told and knows the rules
that hold for every stream.
"""

import json
import struct
import time

from . import kv
from .documents import FEATURES
from .node import PASSWORD, USERNAME

OPEN, ADD_STREAM, CLOSE_STREAM, STREAM_REQUEST, FAILOVER_LOG = 0x50, 0x51, 0x52, 0x53, 0x54
STREAM_END, MARKER, MUTATION, DELETION, EXPIRATION = 0x55, 0x56, 0x57, 0x58, 0x59
NOOP, BUFFER_ACK, CONTROL, SYSTEM_EVENT, SEQNO_ADVANCED, OSO = 0x5C, 0x5D, 0x5E, 0x5F, 0x64, 0x65

PRODUCER, XATTRS, NO_VALUE, DELETE_TIMES, KEEP_DATATYPE = 0x01, 0x04, 0x08, 0x20, 0x40
DISK_ONLY, TO_LATEST, ACTIVE_ONLY, STRICT_UUID, FROM_LATEST, IGNORE_PURGED = 0x02, 0x04, 0x10, 0x20, 0x40, 0x80
END_OK, END_CLOSED, END_STATE, END_DISCONNECTED, END_SLOW, END_FILTER_EMPTY = 0, 1, 2, 3, 4, 7
SNAPSHOT_MEMORY, SNAPSHOT_DISK, SNAPSHOT_CHECKPOINT = 1, 2, 4
COLLECTION_CREATED, COLLECTION_DROPPED, SCOPE_CREATED, SCOPE_DROPPED, COLLECTION_CHANGED = 0, 1, 3, 4, 5

FOREVER = 0xFFFF_FFFF_FFFF_FFFF
REQUEST_MAGIC = (0x80, 0x08)
# Messages that count towards the flow-control window.
COUNTED = (STREAM_END, MARKER, MUTATION, DELETION, EXPIRATION, SYSTEM_EVENT, SEQNO_ADVANCED, OSO)


class Consumer(kv.Connection):
    """A connection opened for streaming."""

    def __init__(
        self, node, bucket, name, flags=PRODUCER, features=FEATURES, controls=(), automatic=True,
        username=USERNAME, password=PASSWORD, open_now=True, noop=True, **options,
    ):  # fmt: skip
        super().__init__(node.address, node.ports["kv"], **options)
        self.name = name
        self.automatic = automatic
        self.unacknowledged = 0
        self.collections = kv.F_COLLECTIONS in features
        wanted = b"".join(struct.pack(">H", feature) for feature in features)
        kv.Client.must("hello", self.call(kv.HELLO, key=b"settee-compat", value=wanted))
        proof = b"\0" + username.encode() + b"\0" + password.encode()
        kv.Client.must("authentication", self.call(kv.SASL_AUTH, key=b"PLAIN", value=proof))
        kv.Client.must("select bucket", self.call(kv.SELECT_BUCKET, key=bucket.encode()))
        if open_now:
            kv.Client.must("open", self.open(flags))
            if noop:
                # Collections and xattrs are not streamed to who would not notice that the server is gone.
                kv.Client.must("noop", self.control("enable_noop", "true"))
        for key, value in controls:
            kv.Client.must(f"control {key}", self.control(key, value))

    def open(self, flags=PRODUCER, name=None):
        name = self.name if name is None else name
        return self.call(OPEN, key=name.encode(), extras=struct.pack(">II", 0, flags))

    def control(self, key, value):
        return self.call(CONTROL, key=key.encode(), value=str(value).encode())

    def ask(self, opcode, opaque=None, **fields):
        """One request; the response to it, and the stream messages that came before the response."""
        opaque = next(self.opaques) if opaque is None else opaque
        self.send(kv.frame(opcode, opaque=opaque, **fields))
        before = []
        while True:
            message = self.receive()
            if message.magic not in REQUEST_MAGIC and message.opaque == opaque:
                return message, before
            before.append(message)

    def stream(
        self, vb, start=0, end=FOREVER, uuid=0, snapshot=None, flags=0, value=None, opaque=None, stream_id=None
    ):  # fmt: skip
        """Ask for a stream; the response. Messages of other streams that come meanwhile are lost."""
        snapshot = (start, start) if snapshot is None else snapshot
        if value is None:
            value = b'{"uid":"0"}' if self.collections else b""
        if isinstance(value, dict):
            value = json.dumps(value).encode()
        extras = struct.pack(">IIQQQQQ", flags, 0, start, end, uuid, *snapshot)
        return self.ask(STREAM_REQUEST, opaque=opaque, vb=vb, extras=extras, value=value)[0]

    def must_stream(self, vb, **fields):
        """As `stream`; the failover log."""
        response = kv.Client.must(f"stream of vBucket {vb}", self.stream(vb, **fields))
        return list(struct.iter_unpack(">QQ", response.value))

    def close_stream(self, vb, framing=b""):
        """The response, and what was streamed before it."""
        return self.ask(CLOSE_STREAM, vb=vb, framing=framing)

    def acknowledge(self, size):
        self.send(kv.frame(BUFFER_ACK, extras=struct.pack(">I", size)))

    def next(self, seconds=10.0):
        """The next message of any stream; None when none comes within the time."""
        self.socket.settimeout(seconds)
        try:
            while True:
                message = self.receive()
                size = 24 + len(message.framing) + len(message.extras) + len(message.key) + len(message.value)
                if message.opcode in COUNTED:
                    self.unacknowledged += size
                if self.automatic and self.unacknowledged > 4096:
                    self.acknowledge(self.unacknowledged)
                    self.unacknowledged = 0
                if message.opcode == NOOP and message.magic in REQUEST_MAGIC:
                    if self.automatic:
                        self.send(kv.frame(NOOP, magic=0x81, opaque=message.opaque))
                        continue
                return message
        except TimeoutError:
            return None
        finally:
            self.socket.settimeout(10.0)

    def until(self, wanted, seconds=15.0):
        """Messages up to and with the first one that `wanted` says yes to."""
        messages, limit = [], time.monotonic() + seconds
        while True:
            message = self.next(max(limit - time.monotonic(), 0.001))
            if message is None:
                raise AssertionError(f"not within {seconds} s; so far {[summary(m) for m in messages[-20:]]}")
            messages.append(message)
            if wanted(message):
                return messages

    def until_seqno(self, seqno, seconds=15.0):
        return self.until(lambda message: (seqno_of(message) or 0) >= seqno, seconds)

    def until_end(self, seconds=15.0):
        """Up to the end of one stream; the messages, and why it ended."""
        messages = self.until(lambda message: message.opcode == STREAM_END, seconds)
        return messages, struct.unpack(">I", messages[-1].extras)[0]


def vb_of(message):
    """Requests carry the vBucket where responses carry the status."""
    return message.status


def seqno_of(message):
    """The seqno of a message that has one."""
    if message.opcode in (MUTATION, DELETION, EXPIRATION, SYSTEM_EVENT, SEQNO_ADVANCED):
        return struct.unpack(">Q", message.extras[:8])[0]
    return None


def marker(message):
    """(start, end, type) of a snapshot marker of any version."""
    if len(message.extras) == 20:
        return struct.unpack(">QQI", message.extras)
    return struct.unpack(">QQI", message.value[:20])


def event(message):
    """(kind, manifest uid, scope, collection or None, name) of a system event."""
    _, kind, _version = struct.unpack(">QIB", message.extras)
    uid, scope = struct.unpack(">QI", message.value[:12])
    collection = struct.unpack(">I", message.value[12:16])[0] if kind in (0, 1) else None
    return kind, uid, scope, collection, message.key.decode()


def summary(message):
    return f"0x{message.opcode:02x} vb {message.status} seqno {seqno_of(message)} {message.key!r}"


class Ledger:
    """What the streams of one connection told, by vBucket: the newest version of every key, and where they are.

    Raises when a rule is broken that holds for every stream: seqnos rise (but for out-of-order snapshots), lie inside
    the announced snapshot, and no key comes twice in one.
    """

    def __init__(self):
        self.documents = {}
        self.snapshots = {}
        self.seqnos = {}
        self.seen = {}
        self.unordered = {}
        self.events = []
        self.ends = {}

    def take(self, message):
        vb = vb_of(message)
        if message.opcode == MARKER:
            start, end, _ = marker(message)
            if start > end:
                raise AssertionError(f"vBucket {vb}: snapshot from {start} to {end}")
            self.snapshots[vb], self.seen[vb] = (start, end), set()
        elif message.opcode == OSO:
            self.unordered[vb] = struct.unpack(">I", message.extras)[0] == 1
            self.seen[vb] = set()
        elif message.opcode == STREAM_END:
            self.ends[vb] = struct.unpack(">I", message.extras)[0]
        elif message.opcode in (MUTATION, DELETION, EXPIRATION):
            self._place(vb, message)
            if message.key in self.seen[vb]:
                raise AssertionError(f"{summary(message)}: twice in one snapshot")
            self.seen[vb].add(message.key)
            self.documents.setdefault(vb, {})[message.key] = message
        elif message.opcode in (SYSTEM_EVENT, SEQNO_ADVANCED):
            self._place(vb, message)
            if message.opcode == SYSTEM_EVENT:
                self.events.append((vb, *event(message)))

    def _place(self, vb, message):
        seqno, last = seqno_of(message), self.seqnos.get(vb, 0)
        if self.unordered.get(vb):
            self.seqnos[vb] = max(last, seqno)
            return
        if seqno <= last:
            raise AssertionError(f"{summary(message)}: after {last}")
        if message.opcode != SEQNO_ADVANCED and vb not in self.snapshots:
            raise AssertionError(f"{summary(message)}: no snapshot")
        if vb in self.snapshots and message.opcode != SEQNO_ADVANCED:
            start, end = self.snapshots[vb]
            if not start <= seqno <= end:
                raise AssertionError(f"{summary(message)}: not within {start}..{end}")
        self.seqnos[vb] = seqno

    def take_all(self, messages):
        for message in messages:
            self.take(message)
        return self

    def catch_up(self, consumer, targets, seconds=30.0):
        """Take messages until every vBucket is where `targets` says."""
        limit = time.monotonic() + seconds
        behind = {vb for vb, seqno in targets.items() if self.seqnos.get(vb, 0) < seqno}
        while behind:
            message = consumer.next(max(limit - time.monotonic(), 0.001))
            if message is None:
                late = {vb: (self.seqnos.get(vb, 0), targets[vb]) for vb in sorted(behind)[:5]}
                raise AssertionError(f"{len(behind)} vBuckets are late, among them (has, wants): {late}")
            self.take(message)
            vb = vb_of(message)
            if vb in behind and self.seqnos.get(vb, 0) >= targets[vb]:
                behind.discard(vb)
        return self

    def versions(self):
        """{encoded key: message} of documents that were not deleted."""
        return {
            key: message
            for documents in self.documents.values()
            for key, message in documents.items()
            if message.opcode == MUTATION
        }
