"""Sub-document requests and results, byte by byte."""

import struct

WHOLE_GET, WHOLE_SET, WHOLE_DELETE = 0x00, 0x01, 0x04
GET, EXISTS, DICT_ADD, DICT_UPSERT, DELETE, REPLACE = 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA
PUSH_LAST, PUSH_FIRST, INSERT, ADD_UNIQUE, COUNTER = 0xCB, 0xCC, 0xCD, 0xCE, 0xCF
MULTI_LOOKUP, MULTI_MUTATION, GET_COUNT, BODY_FROM_XATTR = 0xD0, 0xD1, 0xD2, 0xD3

# Of paths, then of documents.
CREATE_PARENTS, XATTR, EXPAND, BINARY = 0x01, 0x04, 0x10, 0x20
CREATE, ADD, DELETED, CREATE_AS_DELETED, REVIVE, REPLICA = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20

XATTR_INVALID = 0x87
PATH_MISSING, MISMATCH, PATH_INVALID, PATH_TOO_BIG, TOO_DEEP, CANNOT_INSERT, NOT_JSON = range(0xC0, 0xC7)
NUMBER_RANGE, DELTA_INVALID, PATH_EXISTS, VALUE_TOO_DEEP, INVALID_COMBO, MULTI_FAILURE = range(0xC7, 0xCD)
SUCCESS_DELETED, INVALID_FLAGS, INVALID_KEYS, UNKNOWN_MACRO, UNKNOWN_VATTR = range(0xCD, 0xD2)
CANNOT_MODIFY_VATTR, MULTI_FAILURE_DELETED, INVALID_ORDER, UNKNOWN_VATTR_MACRO = range(0xD2, 0xD6)
ONLY_REVIVE_DELETED, DELETED_HAS_NO_VALUE, NOT_BINARY = range(0xD6, 0xD9)


def options(doc=0, expiry=None):
    """Extras of a multi-path request."""
    return (b"" if expiry is None else struct.pack(">I", expiry)) + (bytes([doc]) if doc else b"")


def single(path, value=b"", flags=0, doc=0, expiry=None):
    """Extras and value of a single-path request."""
    return struct.pack(">HB", len(path), flags) + options(doc, expiry), path + value


def lookups(specs):
    """The value of a MULTI_LOOKUP: (opcode, path[, flags]) each."""
    return b"".join(_lookup(*spec) for spec in specs)


def _lookup(opcode, path, flags=0):
    return struct.pack(">BBH", opcode, flags, len(path)) + path


def mutations(specs):
    """The value of a MULTI_MUTATION: (opcode, path[, value[, flags]]) each."""
    return b"".join(_mutation(*spec) for spec in specs)


def _mutation(opcode, path, value=b"", flags=0):
    return struct.pack(">BBHI", opcode, flags, len(path), len(value)) + path + value


def lookup_results(value):
    """(status, value) of each spec."""
    results = []
    while value:
        status, size = struct.unpack(">HI", value[:6])
        results.append((status, value[6 : 6 + size]))
        value = value[6 + size :]
    return results
