"""The memcached binary protocol as Couchbase extended it: enough to say anything to a server, right or wrong.

`Frame` builds bytes, `Connection` sends and receives them and knows nothing of documents, `Client` adds the
handshake and the operations that the suites use. Nothing is retried and nothing is hidden.
"""

import itertools
import socket
import struct
import zlib
from dataclasses import dataclass

GET, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT = 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
QUIT, FLUSH, GETQ, NOOP, VERSION, GETK, APPEND, PREPEND, STAT = 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0E, 0x0F, 0x10
SETQ, TOUCH, GAT, HELLO, SASL_LIST, SASL_AUTH, SASL_STEP = 0x11, 0x1C, 0x1D, 0x1F, 0x20, 0x21, 0x22
GET_REPLICA, SELECT_BUCKET, OBSERVE_SEQNO, OBSERVE, GETL, UNLOCK = 0x83, 0x89, 0x91, 0x92, 0x94, 0x95
GET_META, SET_WITH_META, CLUSTER_CONFIG, GET_RANDOM, SEQNO_PERSISTENCE = 0xA0, 0xA2, 0xB5, 0xB6, 0xB7
GET_MANIFEST, GET_CID, GET_SID, ERROR_MAP, ALL_SEQNOS = 0xBA, 0xBB, 0xBC, 0xFE, 0x48
ADD_WITH_META, DELETE_WITH_META, CONFIG_CHANGED, GET_FAILOVER_LOG = 0xA4, 0xA8, 0x01, 0x96
DICT_UPSERT = 0xC8

F_SEQNO, F_XATTR, F_XERROR, F_SELECT, F_SNAPPY, F_JSON = 0x04, 0x06, 0x07, 0x08, 0x0A, 0x0B
F_DUPLEX, F_UNORDERED, F_TRACING, F_ALT, F_DURABILITY, F_COLLECTIONS = 0x0C, 0x0E, 0x0F, 0x10, 0x11, 0x12
F_PRESERVE, F_KNOWN_VERSION, F_DEDUPE, F_BRIEF = 0x14, 0x1D, 0x1E, 0x1F

OK, NOT_FOUND, EXISTS, TOO_BIG, INVALID, NOT_STORED = 0x00, 0x01, 0x02, 0x03, 0x04, 0x05
NOT_MY_VBUCKET, NO_BUCKET, LOCKED, AUTH_ERROR, NO_ACCESS = 0x07, 0x08, 0x09, 0x20, 0x24
UNKNOWN_FRAME, UNKNOWN_COMMAND, NOT_SUPPORTED, NO_MEMORY, TEMPORARY_FAILURE = 0x80, 0x81, 0x83, 0x82, 0x86

UNKNOWN_COLLECTION, UNKNOWN_SCOPE, RANGE, ROLLBACK = 0x88, 0x8C, 0x22, 0x23

MAJORITY, PERSIST_ACTIVE, PERSIST_MAJORITY = 1, 2, 3

# States of copies of a vBucket.
ACTIVE, REPLICA = 1, 2


class Closed(Exception):
    """The server closed the connection."""


class Refused(Exception):
    """An operation that had to succeed was refused."""

    def __init__(self, what, response):
        super().__init__(f"{what}: status 0x{response.status:02x} {response.value[:200]!r}")
        self.status = response.status


def vbucket_of(key, vbuckets=1024):
    return ((zlib.crc32(key) >> 16) & 0x7FFF) % vbuckets


def frame(opcode, key=b"", extras=b"", value=b"", vb=0, cas=0, datatype=0, framing=b"", opaque=0, magic=None):
    """One request. `framing` makes it a flexible one; `magic` overrides for frames that should not exist."""
    body = framing + extras + key + value
    if framing:
        head = struct.pack(">BBBB", 0x08 if magic is None else magic, opcode, len(framing), len(key))
    else:
        head = struct.pack(">BBH", 0x80 if magic is None else magic, opcode, len(key))
    return head + struct.pack(">BBHIIQ", len(extras), datatype, vb, len(body), opaque, cas) + body


def durability(level, timeout_ms=None):
    """The framing extra that asks for a synchronous write."""
    if timeout_ms is None:
        return bytes([0x11, level])
    return bytes([0x13, level]) + struct.pack(">H", timeout_ms)


@dataclass
class Response:
    opcode: int
    status: int
    opaque: int
    cas: int
    datatype: int
    extras: bytes
    key: bytes
    value: bytes
    magic: int
    framing: bytes

    @property
    def token(self):
        """(vbucket uuid, seqno) of a mutation, when the connection asked for them."""
        return struct.unpack(">QQ", self.extras) if len(self.extras) == 16 else None


class Connection:
    """Bytes out, frames in."""

    def __init__(self, address, port, timeout=10.0, source=None, context=None):
        self.socket = socket.create_connection((address, port), timeout, (source, 0) if source else None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=address)
        self.buffer = bytearray()
        self.opaques = itertools.count(1)
        self.pushes = []

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise Closed(str(error)) from None

    def _fill(self, size):
        while len(self.buffer) < size:
            try:
                piece = self.socket.recv(1 << 18)
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not piece:
                raise Closed("end of stream")
            self.buffer += piece

    def receive(self):
        """The next response; what the server sends on its own account goes to `pushes`."""
        while True:
            self._fill(24)
            magic, opcode, keys, extras, datatype, status, size, opaque, cas = struct.unpack(
                ">BBHBBHIIQ", bytes(self.buffer[:24])
            )
            framing = 0
            if magic in (0x18, 0x08):
                framing, keys = keys >> 8, keys & 0xFF
            self._fill(24 + size)
            body = bytes(self.buffer[24 : 24 + size])
            del self.buffer[: 24 + size]
            at = framing + extras
            key, value = body[at : at + keys], body[at + keys :]
            response = Response(
                opcode, status, opaque, cas, datatype, body[framing:at], key, value, magic, body[:framing]
            )
            if magic != 0x82:
                return response
            self.pushes.append(response)

    def call(self, opcode, **fields):
        """One request, one response, whatever its status."""
        opaque = next(self.opaques)
        self.send(frame(opcode, opaque=opaque, **fields))
        response = self.receive()
        if response.opaque != opaque:
            raise Refused(f"opaque {response.opaque} instead of {opaque}", response)
        return response

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Client(Connection):
    """A connection that said hello, proved who it is and chose a bucket."""

    # How many the bucket has.
    vbuckets = 1024
    FEATURES = (F_SEQNO, F_XATTR, F_XERROR, F_SELECT, F_SNAPPY, F_JSON, F_ALT, F_DURABILITY, F_PRESERVE)

    def __init__(self, address, port, username=None, password=None, bucket=None, features=FEATURES, **options):
        super().__init__(address, port, **options)
        self.collections = F_COLLECTIONS in features
        if features:
            wanted = b"".join(struct.pack(">H", feature) for feature in features)
            self.must("hello", self.call(HELLO, key=b"settee-compat", value=wanted))
        if username is not None:
            proof = b"\0" + username.encode() + b"\0" + password.encode()
            self.must("authentication", self.call(SASL_AUTH, key=b"PLAIN", value=proof))
        if bucket is not None:
            self.must("select bucket", self.call(SELECT_BUCKET, key=bucket.encode()))

    @staticmethod
    def must(what, response):
        if response.status != OK:
            raise Refused(what, response)
        return response

    def on(self, opcode, key, **fields):
        """An operation on a document of the default collection."""
        return self.call(opcode, key=(b"\0" + key) if self.collections else key, vb=vbucket_of(key, self.vbuckets), **fields)

    def set(self, key, value, flags=0, expiry=0, **fields):
        return self.on(SET, key, extras=struct.pack(">II", flags, expiry), value=value, **fields)

    def get(self, key):
        return self.on(GET, key)

    def delete(self, key, **fields):
        return self.on(DELETE, key, **fields)

    def meta(self, key):
        """(deleted, flags, expiry, rev, cas), or None when nothing is known of the key."""
        response = self.on(GET_META, key, extras=b"\x02")
        if response.status == NOT_FOUND:
            return None
        self.must("get meta", response)
        deleted, flags, expiry, rev = struct.unpack(">IIIQ", response.extras[:20])
        return deleted, flags, expiry, rev, response.cas

    def persisted(self, key, seqno):
        """Wait until the key's vBucket has `seqno` on disk."""
        return self.call(SEQNO_PERSISTENCE, vb=vbucket_of(key, self.vbuckets), extras=struct.pack(">Q", seqno))

    def stats(self, group=b"", **fields):
        self.send(frame(STAT, key=group, **fields))
        found = {}
        while True:
            response = self.must("stats", self.receive())
            if not response.key and not response.value:
                return found
            found[response.key.decode()] = response.value.decode()
