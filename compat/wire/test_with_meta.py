"""SET_, ADD_ and DELETE_WITH_META and GET_META: what replication from another cluster sends, field by field."""

import struct
import time

from case import REST, WireCase
from settee import kv

SETQ_WITH_META, ADDQ_WITH_META, DELETEQ_WITH_META = 0xA3, 0xA5, 0xA9
SUBDOC_GET, SUBDOC_SUCCESS_DELETED = 0xC5, 0xCD
SKIP, ACCEPT_LWW, REGENERATE, FORCE, EXPIRATION = 0x08, 0x02, 0x04, 0x01, 0x10
JSON, SNAPPY, XATTR = 1, 2, 4
CAS_INVALID, XATTR_INVALID = 0x0F, 0x87


def attributes(**pairs):
    """The section of extended attributes in front of a body."""
    section = b""
    for key, value in pairs.items():
        pair = key.encode() + b"\0" + value + b"\0"
        section += struct.pack(">I", len(pair)) + pair
    return struct.pack(">I", len(section)) + section


def compressed(value):
    """A Snappy block of one literal."""
    assert 0 < len(value) <= 256
    length = bytes([len(value) & 0x7F | 0x80, len(value) >> 7]) if len(value) > 127 else bytes([len(value)])
    return length + bytes([60 << 2, len(value) - 1]) + value


class WithMetaCase(WireCase):
    def setUp(self):
        super().setUp()
        self.cas = int(time.time() * 1e9) & ~0xFFFF

    def send(self, status, cas, rev, options=None, opcode=kv.SET_WITH_META, value=b"meta", expiry=0, **fields):
        extras = struct.pack(">IIQQ", 3, expiry, rev, cas)
        extras += b"" if options is None else struct.pack(">I", options)
        return self.on(opcode, status, extras=extras, value=value, **fields)

    def delete(self, status, cas, rev, options=None, value=b"", **fields):
        return self.send(status, cas, rev, options, kv.DELETE_WITH_META, value, **fields)

    def datatype(self):
        """What GET_META tells on top, asked so."""
        return self.client.must("meta", self.client.on(kv.GET_META, self.key, extras=b"\x02")).extras[20]

    def attribute(self, path):
        """(status, value) of an attribute, of a tombstone too."""
        extras = struct.pack(">HBB", len(path), 4, 4)
        response = self.client.on(SUBDOC_GET, self.key, extras=extras, value=path)
        return response.status, response.value


class WithMeta(WithMetaCase):
    def test_the_winner_is_kept_as_it_is(self):
        cas = self.cas
        stored = self.send(kv.OK, cas, 10)
        self.assertEqual(stored.cas, cas)
        self.assertTrue(stored.token)
        deleted, flags, _, rev, kept = self.client.meta(self.key)
        self.assertEqual((deleted, flags, rev, kept), (0, 3, 10, cas))
        self.send(kv.EXISTS, cas + 0x10000, 9)
        self.send(kv.EXISTS, cas, 10)
        self.send(kv.OK, cas, 10, FORCE)
        self.send(kv.OK, cas, 10, SKIP)
        self.send(kv.OK, cas, 11)
        self.send(kv.EXISTS, cas, 12, opcode=kv.ADD_WITH_META)
        self.delete(kv.EXISTS, cas, 5)
        self.delete(kv.OK, cas, 20)
        self.assertEqual(self.client.meta(self.key)[0], 1)
        self.send(kv.OK, cas, 30, opcode=kv.ADD_WITH_META)
        self.stored(b"on top")
        self.assertEqual(self.client.meta(self.key)[3], 31)

    def test_lengths_of_extras(self):
        meta = struct.pack(">IIQQ", 3, 0, 1, self.cas)
        for extras in (b"", meta[:-1], meta + b"\0", meta + b"\0\0\0", meta + bytes(7)):
            self.on(kv.SET_WITH_META, kv.INVALID, extras=extras, value=b"x")
        # The section that servers of long ago put behind the value is cut off.
        self.on(kv.SET_WITH_META, extras=meta + b"\0\x04", value=b"valueMETA")
        self.assertEqual(self.on(kv.GET).value, b"value")
        self.on(kv.SET_WITH_META, kv.INVALID, extras=meta + b"\0\x09", value=b"short")
        options = struct.pack(">IH", SKIP, 2)
        self.on(kv.SET_WITH_META, extras=meta + options, value=b"otherXX")
        self.assertEqual(self.on(kv.GET).value, b"other")

    def test_quiet_forms_say_nothing_of_success(self):
        meta = struct.pack(">IIQQ", 3, 0, 1, self.cas)
        vb = kv.vbucket_of(self.key)
        for opcode, value in ((ADDQ_WITH_META, b"1"), (SETQ_WITH_META, b"2"), (DELETEQ_WITH_META, b"")):
            extras = meta + struct.pack(">I", SKIP)
            self.client.send(kv.frame(opcode, key=self.key, vb=vb, extras=extras, value=value))
        self.assertEqual(self.client.call(kv.NOOP).opcode, kv.NOOP)
        self.assertEqual(self.client.meta(self.key)[0], 1)
        response = self.client.call(SETQ_WITH_META, key=self.key, vb=vb, extras=meta, value=b"loses")
        self.assertEqual((response.opcode, response.status), (SETQ_WITH_META, kv.EXISTS))

    def test_options(self):
        self.send(kv.INVALID, self.cas, 1, ACCEPT_LWW)
        self.send(kv.INVALID, self.cas, 1, REGENERATE)
        made = self.send(kv.OK, 5, 7, REGENERATE | SKIP)
        self.assertGreaterEqual(made.cas, self.cas)
        self.assertEqual(self.client.meta(self.key)[3:], (7, made.cas))
        self.delete(kv.OK, made.cas, 8, EXPIRATION)
        self.assertEqual(self.client.meta(self.key)[0], 1)

    def test_cas_values_that_cannot_be(self):
        for cas in (0, 0xFFFFFFFFFFFFFFFF, self.cas + 2 * 3600 * 10**9):
            self.send(CAS_INVALID, cas, 1)
            self.delete(CAS_INVALID, cas, 1)

    def test_a_cas_for_the_local_document(self):
        local = self.stored(b"local")
        self.assertEqual(self.with_local_cas(local.cas ^ 1).status, kv.EXISTS)
        self.assertEqual(self.with_local_cas(local.cas).status, kv.OK)
        self.assertEqual(self.with_local_cas(local.cas).status, kv.EXISTS)

    def with_local_cas(self, cas):
        extras = struct.pack(">IIQQ", 3, 0, 50, self.cas - 10**9) + struct.pack(">I", SKIP)
        return self.client.on(kv.SET_WITH_META, self.key, extras=extras, value=b"x", cas=cas)

    def test_expiry_is_absolute(self):
        at = int(time.time()) + 1000
        self.send(kv.OK, self.cas, 1, expiry=at)
        self.assertEqual(self.client.meta(self.key)[2], at)
        self.delete(kv.OK, self.cas, 2, expiry=at - 5000)
        self.assertEqual(self.client.meta(self.key)[2], at - 5000, "when it was deleted there")

    def test_what_json_is_is_found_out(self):
        self.send(kv.OK, self.cas, 1, value=b'{"a":1}')
        self.assertEqual(self.datatype(), JSON)
        self.send(kv.OK, self.cas, 2, value=b"no json", datatype=JSON)
        self.assertEqual(self.datatype(), 0)
        self.send(kv.OK, self.cas, 3, value=compressed(b'{"a":[1,2,3]}'), datatype=SNAPPY)
        self.assertEqual(self.datatype(), JSON | SNAPPY)
        self.send(kv.INVALID, self.cas, 4, value=b"no block", datatype=SNAPPY)
        self.send(kv.OK, self.cas, 5, value=b"", datatype=JSON)
        self.assertEqual((self.datatype(), self.on(kv.GET).value), (0, b""))


class Attributes(WithMetaCase):
    def test_they_come_with_the_value(self):
        value = attributes(_sync=b'{"rev":3}', user=b"[1]") + b'{"body":1}'
        self.send(kv.OK, self.cas, 1, value=value, datatype=XATTR)
        self.assertEqual(self.datatype(), XATTR | JSON)
        self.assertEqual(self.on(kv.GET).value, b'{"body":1}')
        self.assertEqual(self.attribute(b"_sync.rev"), (kv.OK, b"3"))
        self.assertEqual(self.attribute(b"user[0]"), (kv.OK, b"1"))
        self.send(kv.OK, self.cas, 2, value=compressed(value), datatype=XATTR | SNAPPY)
        self.assertEqual(self.attribute(b"user[0]"), (kv.OK, b"1"))
        self.send(kv.OK, self.cas, 3, value=attributes() + b"bare", datatype=XATTR)
        self.assertEqual((self.datatype(), self.on(kv.GET).value), (0, b"bare"))

    def test_malformed_ones_are_refused(self):
        good = attributes(a=b"1")
        for value in (
            b"\0\0",
            b"\0\0\0\xff" + good[4:],
            good[:-1] + b"1",
            attributes(a=b"nope"),
            attributes(a=b""),
            attributes(**{"": b"1"}),
            attributes(**{"-a": b"1"}),
            attributes(**{"sixteen_bytes_xx": b"1"}),
            struct.pack(">I", 18) + good[4:] + good[4:],
        ):
            self.send(XATTR_INVALID, self.cas, 1, value=value, datatype=XATTR)
        self.on(kv.GET, kv.NOT_FOUND)

    def test_the_systems_have_a_limit_of_their_own(self):
        large = b'"' + b"x" * (1 << 20) + b'"'
        self.send(kv.INVALID, self.cas, 1, value=attributes(_sync=large), datatype=XATTR)
        self.send(kv.OK, self.cas, 1, value=attributes(user=large), datatype=XATTR)

    def test_deletions_have_attributes_and_nothing_else(self):
        value = attributes(_sync=b"1", user=b"2")
        self.send(kv.OK, self.cas, 1, value=value + b"body", datatype=XATTR)
        self.delete(kv.OK, self.cas, 2)
        self.assertEqual(self.attribute(b"_sync"), (SUBDOC_SUCCESS_DELETED, b"1"), "the system's stay")
        self.assertEqual(self.attribute(b"user")[0], 0xC0)
        self.delete(kv.OK, self.cas, 3, value=attributes(_sync=b"3", user=b"4") + b"body", datatype=XATTR)
        self.assertEqual(self.attribute(b"_sync"), (SUBDOC_SUCCESS_DELETED, b"3"))
        self.assertEqual(self.attribute(b"user"), (SUBDOC_SUCCESS_DELETED, b"4"), "kept as the other cluster has it")
        self.assertEqual(self.datatype(), XATTR)
        self.delete(kv.OK, self.cas, 4, value=b"a body and no attributes")
        self.assertEqual(self.attribute(b"_sync"), (SUBDOC_SUCCESS_DELETED, b"3"))


class LastWriteWins(WithMetaCase):
    BUCKET = "wire-lww"

    @classmethod
    def setUpClass(cls):
        REST.create_bucket(cls.BUCKET, conflictResolutionType="lww")

    @classmethod
    def tearDownClass(cls):
        REST.delete_bucket(cls.BUCKET)

    def setUp(self):
        super().setUp()
        self.client = self.connect(bucket=self.BUCKET)

    def test_time_decides(self):
        later = self.cas + 10**6
        for options in (None, 0, SKIP, FORCE):
            self.send(kv.INVALID, self.cas, 1, options)
        self.send(kv.OK, self.cas, 9, ACCEPT_LWW)
        self.send(kv.EXISTS, self.cas - 0x10000, 10, ACCEPT_LWW)
        self.send(kv.OK, later, 1, ACCEPT_LWW)
        self.send(kv.OK, later, 2, ACCEPT_LWW)
        self.delete(kv.EXISTS, self.cas, 99, ACCEPT_LWW)
        self.delete(kv.OK, later + 1, 1, ACCEPT_LWW)
        self.assertEqual(self.client.meta(self.key)[0], 1)
        self.send(kv.OK, 5, 1, REGENERATE | SKIP)
