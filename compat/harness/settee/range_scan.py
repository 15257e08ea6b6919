"""Range scans on raw frames: what to ask for, and what the answers hold."""

import base64
import json
import struct
from dataclasses import dataclass

from settee import kv

CREATE, CONTINUE, CANCEL = 0xDA, 0xDB, 0xDC
CANCELLED, MORE, COMPLETE, BUSY, UUID_NOT_EQUAL = 0xA5, 0xA6, 0xA7, 0x85, 0xA8
LAST = b"\xf4\x8f\xbf\xbf"


def between(start=b"", end=LAST, start_name="start", end_name="end"):
    return {start_name: base64.b64encode(start).decode(), end_name: base64.b64encode(end).decode()}


def create(client, vb, datatype=1, **config):
    return client.call(CREATE, vb=vb, value=json.dumps(config).encode(), datatype=datatype)


def limits(scan, items=0, millis=0, size=0):
    return scan + struct.pack(">III", items, millis, size)


def ask(client, vb, scan, **wanted):
    client.send(kv.frame(CONTINUE, vb=vb, extras=limits(scan, **wanted), opaque=77))


def resume(client, vb, scan, **wanted):
    """One CONTINUE: everything it brought, and the status of its last answer."""
    ask(client, vb, scan, **wanted)
    found = []
    while True:
        response = client.receive()
        if response.status in (kv.OK, MORE, COMPLETE):
            found += decode(response)
        if response.status != kv.OK:
            return found, response.status


def cancel(client, vb, scan):
    return client.call(CANCEL, vb=vb, extras=scan)


def drain(client, vb, scan, **wanted):
    """Everything to the end, and how many times it had to be asked for."""
    found, status, times = [], MORE, 0
    while status == MORE:
        more, status = resume(client, vb, scan, **wanted)
        found += more
        times += 1
    assert status == COMPLETE, hex(status)
    return found, times


@dataclass(frozen=True)
class Document:
    key: bytes
    value: bytes
    flags: int
    expiry: int
    seqno: int
    cas: int
    datatype: int


def decode(response):
    """Keys, or documents, as the extras say."""
    (kind,) = struct.unpack(">I", response.extras)
    rest, found = response.value, []
    while rest:
        if kind == 0:
            key, rest = _counted(rest)
            found.append(key)
        else:
            meta, rest = struct.unpack(">IIQQB", rest[:25]), rest[25:]
            key, rest = _counted(rest)
            value, rest = _counted(rest)
            found.append(Document(key, value, *meta))
    return found


def _counted(data):
    length = shift = at = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return data[at : at + length], data[at + length :]
