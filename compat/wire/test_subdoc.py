"""Sub-document opcodes, status by status."""

import json
import struct
import time

from case import ADDRESS, REST, WireCase
from settee import kv, subdoc
from settee.subdoc import (
    ADD,
    BINARY,
    CREATE,
    CREATE_AS_DELETED,
    CREATE_PARENTS,
    DELETED,
    EXPAND,
    REPLICA,
    REVIVE,
    XATTR,
)

DOCUMENT = {"name": "x", "list": [1, "two", {"three": 3}], "deep": {"er": True}, "n": 7}


class SubdocCase(WireCase):
    FEATURES = (*kv.Client.FEATURES, 0x15, 0x17, 0x19, 0x1C, 0x20, 0x21)

    def single(self, opcode, path, value=b"", status=kv.OK, flags=0, doc=0, expiry=None, **fields):
        extras, body = subdoc.single(path, value, flags, doc, expiry)
        return self.on(opcode, status, extras=extras, value=body, **fields)

    def lookup(self, *specs, status=kv.OK, doc=0, **fields):
        response = self.on(
            subdoc.MULTI_LOOKUP, status, extras=subdoc.options(doc), value=subdoc.lookups(specs), **fields
        )
        return subdoc.lookup_results(response.value)

    def mutate(self, *specs, status=kv.OK, doc=0, expiry=None, **fields):
        extras = subdoc.options(doc, expiry)
        return self.on(subdoc.MULTI_MUTATION, status, extras=extras, value=subdoc.mutations(specs), **fields)

    def fails(self, *specs, **fields):
        """(index, status) of the one failure of a multi-mutation."""
        response = self.mutate(*specs, status=subdoc.MULTI_FAILURE, **fields)
        return struct.unpack(">BH", response.value)

    def body(self):
        return json.loads(self.client.get(self.key).value)


class Lookups(SubdocCase):
    def setUp(self):
        super().setUp()
        self.stored(json.dumps(DOCUMENT).encode(), flags=0x02000006)

    def test_get(self):
        got = self.single(subdoc.GET, b"list[2].three")
        self.assertEqual((got.value, got.extras, got.datatype), (b"3", b"", 1))
        self.assertEqual(got.cas, self.client.get(self.key).cas)
        self.assertEqual(self.single(subdoc.GET, b"list[-1]").value, b'{"three": 3}')
        self.assertEqual(self.single(subdoc.GET, b"`name`").value, b'"x"')

    def test_exists_and_count(self):
        self.assertEqual(self.single(subdoc.EXISTS, b"deep.er").value, b"")
        self.assertEqual(self.single(subdoc.GET_COUNT, b"list").value, b"3")
        self.assertEqual(self.single(subdoc.GET_COUNT, b"").value, b"4")
        self.single(subdoc.GET_COUNT, b"n", status=subdoc.MISMATCH)

    def test_statuses(self):
        self.single(subdoc.GET, b"nothing", status=subdoc.PATH_MISSING)
        self.single(subdoc.EXISTS, b"list[9]", status=subdoc.PATH_MISSING)
        self.single(subdoc.GET, b"list.name", status=subdoc.MISMATCH)
        self.single(subdoc.GET, b"name[0]", status=subdoc.MISMATCH)
        self.single(subdoc.GET, b"list[", status=subdoc.PATH_INVALID)
        self.single(subdoc.GET, b".".join([b"a"] * 33), status=subdoc.PATH_TOO_BIG)
        self.single(subdoc.GET, b"a" * 1025, status=kv.INVALID)
        self.single(subdoc.GET, b"", status=kv.INVALID)
        self.single(subdoc.GET, b"n", b"value", status=kv.INVALID)
        self.single(subdoc.GET, b"n", status=kv.EXISTS, cas=1)
        self.single(subdoc.GET, b"n", status=kv.NOT_FOUND, key=self.key + b"2")
        self.stored(b"no json")
        self.single(subdoc.GET, b"a", status=subdoc.NOT_JSON)

    def test_several(self):
        specs = [
            (subdoc.GET, b"n"),
            (subdoc.EXISTS, b"deep"),
            (subdoc.GET_COUNT, b"list"),
            (subdoc.WHOLE_GET, b""),
        ]
        whole = json.dumps(DOCUMENT).encode()
        self.assertEqual(self.lookup(*specs), [(0, b"7"), (0, b""), (0, b"3"), (0, whole)])
        specs[1] = (subdoc.EXISTS, b"none")
        answers = self.lookup(*specs, status=subdoc.MULTI_FAILURE)
        self.assertEqual(answers, [(0, b"7"), (subdoc.PATH_MISSING, b""), (0, b"3"), (0, whole)])
        self.lookup(*[(subdoc.GET, b"n")] * 16)
        self.lookup(*[(subdoc.GET, b"n")] * 17, status=subdoc.INVALID_COMBO)
        self.lookup(status=subdoc.INVALID_COMBO)
        self.lookup((subdoc.DICT_ADD, b"n"), status=subdoc.INVALID_COMBO)
        self.lookup((subdoc.GET, b"n"), (subdoc.GET, b"x", XATTR), status=subdoc.INVALID_ORDER)

    def test_virtual_attributes(self):
        expiry = int(time.time()) + 1000
        # A new key's revision starts above the revisions of its vBucket's deleted keys, so it is not always 1.
        before = json.loads(self.single(subdoc.GET, b"$document.revid", flags=XATTR).value)
        stored = self.stored(b'{"a":1}', flags=77, expiry=expiry)
        [(status, text)] = self.lookup((subdoc.GET, b"$document", XATTR))
        about = json.loads(text)
        uuid, seqno = stored.token
        expected = {
            "CAS": f"0x{stored.cas:016x}",
            "vbucket_uuid": f"0x{uuid:016x}",
            "seqno": f"0x{seqno:016x}",
            "revid": str(int(before) + 1),
            "exptime": expiry,
            "flags": 77,
            "value_bytes": 7,
            "datatype": ["json"],
            "deleted": False,
            "last_modified": str(stored.cas // 10**9),
            "value_crc32c": about["value_crc32c"],
        }
        self.assertEqual((status, about), (0, expected))
        self.assertEqual(
            self.single(subdoc.GET, b"$document.exptime", flags=XATTR).value, str(expiry).encode()
        )
        hlc = json.loads(self.single(subdoc.GET, b"$vbucket", flags=XATTR).value)["HLC"]
        self.assertEqual((hlc["mode"], abs(int(hlc["now"]) - time.time()) < 5), ("real", True))
        self.single(subdoc.GET, b"$other", flags=XATTR, status=subdoc.UNKNOWN_VATTR)
        self.single(
            subdoc.DICT_UPSERT, b"$document.CAS", b"1", flags=XATTR, status=subdoc.CANNOT_MODIFY_VATTR
        )

    def test_attributes_take_a_feature(self):
        plain = self.connect((kv.F_XERROR,))
        extras, value = subdoc.single(b"x", b"", XATTR)
        self.assertEqual(plain.on(subdoc.GET, self.key, extras=extras, value=value).status, kv.NOT_SUPPORTED)

    def test_compressed_documents_are_looked_into(self):
        # One literal of seven bytes, as Snappy writes it.
        self.stored(b'\x07\x18{"a":1}', datatype=2)
        self.assertEqual(self.single(subdoc.GET, b"a").value, b"1")
        self.single(subdoc.DICT_UPSERT, b"b", b"2")
        self.assertEqual(self.body(), {"a": 1, "b": 2})

    def test_answers_have_a_bound(self):
        self.stored(b'"' + b"x" * (3 << 20) + b'"')
        self.lookup(*[(subdoc.WHOLE_GET, b"")] * 9)
        self.lookup(*[(subdoc.WHOLE_GET, b"")] * 16, status=kv.TOO_BIG)

    def test_there_are_no_replicas(self):
        self.lookup((subdoc.GET, b"n"), doc=REPLICA, status=kv.NOT_MY_VBUCKET)


class Mutations(SubdocCase):
    def setUp(self):
        super().setUp()
        self.stored(b'{"a":{"b":1},"list":[1,2]}', flags=0x02000006)

    def test_dictionaries(self):
        made = self.single(subdoc.DICT_ADD, b"c", b'"new"')
        self.assertEqual((made.value, made.token is not None), (b"", True))
        self.single(subdoc.DICT_ADD, b"c", b"1", status=subdoc.PATH_EXISTS)
        self.single(subdoc.DICT_UPSERT, b"c", b"null")
        self.single(subdoc.DICT_UPSERT, b"x.y", b"1", status=subdoc.PATH_MISSING)
        self.single(subdoc.DICT_UPSERT, b"x.y", b"1", flags=CREATE_PARENTS)
        self.single(subdoc.DICT_UPSERT, b"list.x", b"1", status=subdoc.MISMATCH)
        self.single(subdoc.DICT_UPSERT, b"c", b"nul", status=subdoc.CANNOT_INSERT)
        self.single(subdoc.REPLACE, b"a.b", b"2")
        self.single(subdoc.REPLACE, b"a.c", b"2", status=subdoc.PATH_MISSING)
        self.single(subdoc.DELETE, b"list[0]")
        self.single(subdoc.DELETE, b"c")
        self.single(subdoc.DELETE, b"c", status=subdoc.PATH_MISSING)
        self.assertEqual(self.body(), {"a": {"b": 2}, "list": [2], "x": {"y": 1}})
        self.assertEqual(self.client.get(self.key).extras, b"\x02\x00\x00\x06")
        flags = struct.pack(">II", 0, 7)
        extras, value = subdoc.single(b"a.b", b"3")
        self.on(subdoc.REPLACE, extras=extras + flags, value=value)
        self.assertEqual(self.client.get(self.key).extras, b"\0\0\0\x07")
        self.on(
            subdoc.MULTI_MUTATION,
            extras=flags + b"\x01",
            value=subdoc.mutations([(subdoc.DELETE, b"x")]),
            status=kv.INVALID,
        )
        self.on(subdoc.MULTI_MUTATION, extras=flags, value=subdoc.mutations([(subdoc.DELETE, b"x")]))

    def test_arrays(self):
        self.single(subdoc.PUSH_LAST, b"list", b"3,4")
        self.single(subdoc.PUSH_FIRST, b"list", b"0")
        self.single(subdoc.INSERT, b"list[1]", b'"in"')
        self.single(subdoc.INSERT, b"list[6]", b'"end"')
        self.single(subdoc.INSERT, b"list[9]", b"1", status=subdoc.PATH_MISSING)
        self.single(subdoc.INSERT, b"list[-1]", b"1", status=subdoc.PATH_INVALID)
        self.single(subdoc.ADD_UNIQUE, b"list", b"5")
        self.single(subdoc.ADD_UNIQUE, b"list", b"5", status=subdoc.PATH_EXISTS)
        self.single(subdoc.ADD_UNIQUE, b"list", b"{}", status=subdoc.CANNOT_INSERT)
        self.single(subdoc.PUSH_LAST, b"a", b"1", status=subdoc.MISMATCH)
        self.single(subdoc.PUSH_LAST, b"new", b"1", flags=CREATE_PARENTS)
        self.assertEqual(self.body()["list"], [0, "in", 1, 2, 3, 4, "end", 5])

    def test_counters(self):
        counted = self.single(subdoc.COUNTER, b"n", b"5")
        self.assertEqual((counted.value, counted.datatype), (b"5", 1))
        self.assertEqual(self.single(subdoc.COUNTER, b"n", b"-7").value, b"-2")
        for delta in (b"0", b"x", b"1.5", b"9223372036854775808"):
            self.single(subdoc.COUNTER, b"n", delta, status=subdoc.DELTA_INVALID)
        self.single(subdoc.COUNTER, b"a", b"1", status=subdoc.MISMATCH)
        self.single(subdoc.COUNTER, b"n", b"9223372036854775807")
        self.single(subdoc.COUNTER, b"n", b"9223372036854775807", status=subdoc.CANNOT_INSERT)
        self.stored(b'{"n":9223372036854775808}')
        self.single(subdoc.COUNTER, b"n", b"1", status=subdoc.NUMBER_RANGE)

    def test_several_or_none(self):
        before = self.body()
        failure = self.fails(
            (subdoc.DICT_UPSERT, b"x", b"1"), (subdoc.COUNTER, b"n", b"1"), (subdoc.DICT_ADD, b"a", b"1")
        )
        self.assertEqual((failure, self.body()), ((2, subdoc.PATH_EXISTS), before))
        done = self.mutate(
            (subdoc.DICT_UPSERT, b"x", b"1"), (subdoc.COUNTER, b"n", b"41"), (subdoc.COUNTER, b"n", b"1")
        )
        self.assertEqual(done.value, b"\x01\0\0\0\0\0\x0241" + b"\x02\0\0\0\0\0\x0242")
        self.assertEqual((done.datatype, done.cas), (0, self.client.get(self.key).cas))
        self.mutate((subdoc.DICT_UPSERT, b"x", b"1"), cas=done.cas - 1, status=kv.EXISTS)
        self.mutate((subdoc.DICT_UPSERT, b"x", b"1"), (subdoc.WHOLE_DELETE, b""), status=subdoc.INVALID_COMBO)
        self.mutate((subdoc.GET, b"x"), status=subdoc.INVALID_COMBO)

    def test_documents_are_created(self):
        missing = self.key + b"-new"
        self.mutate((subdoc.DICT_UPSERT, b"a", b"1"), key=missing, status=kv.NOT_FOUND)
        self.mutate((subdoc.DICT_UPSERT, b"a.b", b"1"), key=missing, doc=CREATE)
        self.mutate((subdoc.DICT_UPSERT, b"a.b", b"1"), key=missing, doc=ADD, status=kv.EXISTS)
        self.assertEqual(json.loads(self.client.get(missing).value), {"a": {"b": 1}})
        self.mutate((subdoc.DICT_UPSERT, b"a", b"1"), key=missing, doc=CREATE | ADD, status=kv.INVALID)
        self.single(subdoc.PUSH_LAST, b"", b"1", key=missing + b"2", doc=ADD)
        self.assertEqual(self.client.get(missing + b"2").value, b"[1]")
        self.mutate((subdoc.WHOLE_SET, b"", b"text"), key=missing + b"3", doc=ADD, expiry=100)
        got = self.client.get(missing + b"3")
        self.assertEqual((got.value, got.datatype), (b"text", 0))
        self.assertAlmostEqual(self.client.meta(missing + b"3")[2], time.time() + 100, delta=3)

    def test_expiry(self):
        path = (subdoc.DICT_UPSERT, b"x", b"1")
        self.mutate(path, expiry=1000)
        expiry = self.client.meta(self.key)[2]
        self.assertAlmostEqual(expiry, time.time() + 1000, delta=3)
        self.mutate(path, framing=b"\x50")
        self.assertEqual(self.client.meta(self.key)[2], expiry)
        self.mutate(path)
        self.assertEqual(self.client.meta(self.key)[2], 0)

    def test_locks(self):
        cas = self.on(kv.GETL).cas
        self.mutate((subdoc.DICT_UPSERT, b"x", b"1"), status=kv.LOCKED)
        self.mutate((subdoc.DICT_UPSERT, b"x", b"1"), cas=cas)
        self.on(kv.UNLOCK, 0x0E, cas=cas)
        self.on(kv.GETL)
        old = self.connect(())
        extras, value = subdoc.single(b"x", b"1")
        self.assertEqual(
            old.on(subdoc.DICT_UPSERT, self.key, extras=extras, value=value).status, kv.TEMPORARY_FAILURE
        )

    def test_durability(self):
        counter = (subdoc.COUNTER, b"n", b"1")
        done = self.mutate(counter, framing=kv.durability(kv.PERSIST_MAJORITY))
        self.assertEqual(done.value, b"\x00\0\0\0\0\0\x011")
        tombstone = self.mutate(
            (subdoc.DICT_UPSERT, b"x", b"1", XATTR),
            key=self.key + b"-t",
            doc=ADD | CREATE_AS_DELETED | DELETED,
            framing=kv.durability(kv.PERSIST_ACTIVE),
            status=subdoc.SUCCESS_DELETED,
        )
        self.assertIsNotNone(tombstone.token)

    def test_statistics(self):
        before = self.client.stats()
        self.single(subdoc.GET, b"list")
        self.mutate((subdoc.DICT_UPSERT, b"x", b"1"))
        after = self.client.stats()
        for name in ("cmd_subdoc_lookup", "cmd_subdoc_mutation", "cmd_get", "cmd_set"):
            self.assertGreater(int(after[name]), int(before[name]), name)


class Attributes(SubdocCase):
    def setUp(self):
        super().setUp()
        self.stored(b'{"a":1}', flags=5)

    def xattr(self, path, status=kv.OK, doc=0, flags=XATTR):
        return self.single(subdoc.GET, path, flags=flags, doc=doc, status=status).value

    def test_they_are_kept_apart_from_the_body(self):
        self.mutate(
            (subdoc.DICT_UPSERT, b"user.deep", b"1", XATTR | CREATE_PARENTS),
            (subdoc.DICT_UPSERT, b"_sys", b'"s"', XATTR),
            (subdoc.DICT_UPSERT, b"a", b"2"),
        )
        self.assertEqual(self.xattr(b"user"), b'{"deep":1}')
        self.assertEqual(self.xattr(b"$XTOC"), b'["user","_sys"]')
        got = self.client.get(self.key)
        self.assertEqual((got.value, got.datatype, got.extras), (b'{"a":2}', 1, b"\0\0\0\x05"))
        self.stored(b'{"b":1}')
        self.assertEqual(self.xattr(b"_sys"), b'"s"')
        self.single(subdoc.COUNTER, b"user.n", b"1", flags=XATTR)
        self.single(subdoc.DELETE, b"user", flags=XATTR)
        self.xattr(b"user", subdoc.PATH_MISSING)

    def test_keys(self):
        for bad in (b"-x", b"1234567890123456", b"_", b"", b".x", b"a\0"):
            self.single(subdoc.DICT_UPSERT, bad, b"1", flags=XATTR, status=subdoc.XATTR_INVALID)

    def test_flags_that_do_not_fit(self):
        self.single(subdoc.DICT_UPSERT, b"x", b"1", flags=EXPAND, status=subdoc.INVALID_FLAGS)
        self.single(subdoc.DICT_UPSERT, b"x", b"1", flags=BINARY, status=subdoc.INVALID_FLAGS)
        self.single(
            subdoc.DICT_UPSERT, b"x", b"1", flags=BINARY | EXPAND | XATTR, status=subdoc.INVALID_FLAGS
        )
        self.single(subdoc.DICT_UPSERT, b"x", b"1", flags=0x40, status=kv.INVALID)
        self.single(subdoc.DICT_UPSERT, b"x", b"1", doc=0x40, status=kv.INVALID)
        self.single(subdoc.GET, b"x", flags=CREATE_PARENTS, status=kv.INVALID)

    def test_macros(self):
        macro = XATTR | EXPAND | CREATE_PARENTS
        done = self.mutate(
            (subdoc.DICT_UPSERT, b"x.cas", b'"${Mutation.CAS}"', macro),
            (subdoc.DICT_UPSERT, b"x.seqno", b'"${Mutation.seqno}"', macro),
            (subdoc.DICT_UPSERT, b"x.crc", b'"${Mutation.value_crc32c}"', macro),
            (subdoc.DICT_UPSERT, b"x.exp", b'"${$document.exptime}"', macro),
        )
        found = json.loads(self.xattr(b"x"))
        self.assertEqual(found["cas"], "0x" + struct.pack("<Q", done.cas).hex())
        self.assertEqual(found["seqno"], f"0x{done.token[1]:016x}")
        self.assertEqual(found["crc"], json.loads(self.xattr(b"$document.value_crc32c")))
        self.assertEqual(found["exp"], 0)
        name = b'"${Mutation.other}"'
        self.single(subdoc.DICT_UPSERT, b"x", name, flags=XATTR | EXPAND, status=subdoc.UNKNOWN_MACRO)
        name = b'"${$document.other}"'
        self.single(subdoc.DICT_UPSERT, b"x", name, flags=XATTR | EXPAND, status=subdoc.UNKNOWN_VATTR_MACRO)

    def test_binary_values(self):
        self.single(subdoc.DICT_UPSERT, b"x", b"\0\xff", flags=XATTR | BINARY)
        self.assertEqual(self.xattr(b"x", flags=XATTR | BINARY), b"\0\xff")
        self.assertEqual(self.xattr(b"x"), b'"cb-content-base64-encoded:AP8="')
        self.single(subdoc.DICT_UPSERT, b"y", b"1", flags=XATTR)
        self.xattr(b"y", subdoc.NOT_BINARY, flags=XATTR | BINARY)
        self.single(subdoc.BODY_FROM_XATTR, b"x", flags=XATTR | BINARY)
        got = self.client.get(self.key)
        self.assertEqual((got.value, got.datatype), (b"\0\xff", 0))
        self.single(subdoc.BODY_FROM_XATTR, b"y", flags=XATTR)
        self.assertEqual(self.client.get(self.key).value, b"1")
        self.single(subdoc.BODY_FROM_XATTR, b"y", status=kv.INVALID)
        self.single(subdoc.BODY_FROM_XATTR, b"z", flags=XATTR, status=subdoc.PATH_MISSING)

    def test_limits(self):
        large = b'"' + b"x" * (1 << 20) + b'"'
        self.single(subdoc.DICT_UPSERT, b"_sys", large, flags=XATTR, status=kv.TOO_BIG)
        self.single(subdoc.DICT_UPSERT, b"user", large, flags=XATTR)

    def test_system_attributes_take_a_right(self):
        name = "wire-subdoc"
        path = f"/settings/rbac/users/local/{name}"
        REST.ok("PUT", path, {"password": "password", "roles": "data_reader[main],data_writer[main]"})
        self.addCleanup(REST.ok, "DELETE", path)
        self.mutate((subdoc.DICT_UPSERT, b"_sys", b"1", XATTR), (subdoc.DICT_UPSERT, b"user", b"2", XATTR))
        self.client = kv.Client(ADDRESS, 11210, name, "password", "main", self.FEATURES)
        self.addCleanup(self.client.close)
        self.assertEqual(self.xattr(b"user"), b"2")
        self.assertEqual(self.xattr(b"$XTOC"), b'["user"]')
        self.xattr(b"_sys", kv.NO_ACCESS)
        answers = self.lookup(
            (subdoc.GET, b"_sys", XATTR),
            (subdoc.GET, b"user", XATTR),
            (subdoc.GET, b"a"),
            status=subdoc.MULTI_FAILURE,
        )
        self.assertEqual(answers, [(kv.NO_ACCESS, b""), (kv.NO_ACCESS, b""), (0, b"1")])
        self.assertEqual(self.fails((subdoc.DICT_UPSERT, b"_sys", b"3", XATTR)), (0, kv.NO_ACCESS))


class Tombstones(SubdocCase):
    def both(self, persisted):
        """Every case in memory and from disk."""
        if persisted:
            uuid, seqno = self.last.token
            self.assertEqual(self.client.persisted(self.key, seqno).status, kv.OK)

    def test_system_attributes_stay(self):
        for persisted in (False, True):
            self.stored(b"{}")
            self.mutate(
                (subdoc.DICT_UPSERT, b"_sys", b"1", XATTR), (subdoc.DICT_UPSERT, b"user", b"2", XATTR)
            )
            self.last = self.on(kv.DELETE)
            self.both(persisted)
            self.lookup((subdoc.GET, b"_sys", XATTR), status=kv.NOT_FOUND)
            specs = [(subdoc.GET, b"_sys", XATTR), (subdoc.GET, b"$document.deleted", XATTR)]
            answers = self.lookup(*specs, doc=DELETED, status=subdoc.SUCCESS_DELETED)
            self.assertEqual(answers, [(0, b"1"), (0, b"true")])
            specs = [(subdoc.GET, b"user", XATTR), (subdoc.WHOLE_GET, b"")]
            answers = self.lookup(*specs, doc=DELETED, status=subdoc.MULTI_FAILURE_DELETED)
            self.assertEqual(answers, [(subdoc.PATH_MISSING, b"")] * 2)
            self.single(subdoc.GET, b"_sys", flags=XATTR, doc=DELETED, status=subdoc.SUCCESS_DELETED)
            self.single(subdoc.GET, b"user", flags=XATTR, doc=DELETED, status=subdoc.PATH_MISSING)
            self.assertEqual(self.client.meta(self.key)[0], 1)

    def test_created_changed_and_revived(self):
        staged = (subdoc.DICT_UPSERT, b"txn.doc", b'{"v":1}', XATTR | CREATE_PARENTS)
        self.last = self.mutate(staged, doc=ADD | CREATE_AS_DELETED | DELETED, status=subdoc.SUCCESS_DELETED)
        for persisted in (False, True):
            self.both(persisted)
            self.on(kv.GET, kv.NOT_FOUND)
            self.mutate(staged, doc=ADD | CREATE_AS_DELETED | DELETED, status=kv.EXISTS)
            self.mutate(staged, doc=DELETED, cas=self.last.cas - 1, status=kv.EXISTS)
            self.last = self.mutate(staged, doc=DELETED, cas=self.last.cas, status=subdoc.SUCCESS_DELETED)
        self.both(True)
        commit = [(subdoc.BODY_FROM_XATTR, b"txn.doc", b"", XATTR), (subdoc.DELETE, b"txn", b"", XATTR)]
        self.mutate(*commit, doc=DELETED, status=subdoc.DELETED_HAS_NO_VALUE)
        self.mutate(*commit, doc=REVIVE, status=kv.INVALID)
        self.mutate(*commit, doc=DELETED | REVIVE, cas=self.last.cas)
        self.assertEqual(self.client.get(self.key).value, b'{"v":1}')
        self.mutate(*commit, doc=DELETED | REVIVE, status=subdoc.ONLY_REVIVE_DELETED)

    def test_nothing_is_no_tombstone(self):
        self.lookup((subdoc.GET, b"x", XATTR), doc=DELETED, status=kv.NOT_FOUND)
        self.mutate((subdoc.DICT_UPSERT, b"x", b"1", XATTR), doc=DELETED, status=kv.NOT_FOUND)
        self.single(subdoc.DICT_UPSERT, b"x", b"1", flags=XATTR, doc=CREATE_AS_DELETED, status=kv.INVALID)
        self.single(subdoc.DICT_UPSERT, b"x", b"1", doc=ADD | CREATE_AS_DELETED, status=kv.INVALID)

    def test_documents_are_deleted_by_parts(self):
        self.stored(b"{}")
        set_system = (subdoc.DICT_UPSERT, b"_sys", b"1", XATTR)
        self.mutate(set_system, (subdoc.DICT_UPSERT, b"user", b"1", XATTR), (subdoc.WHOLE_DELETE, b""))
        self.on(kv.GET, kv.NOT_FOUND)
        answers = self.lookup((subdoc.GET, b"$XTOC", XATTR), doc=DELETED, status=subdoc.SUCCESS_DELETED)
        self.assertEqual(answers, [(0, b'["_sys"]')])
