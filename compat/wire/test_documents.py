"""Data opcodes with their quiet forms, field by field."""

import json
import struct
import time

from case import WireCase
from settee import kv

COUNTER = struct.Struct(">QQI")
U32, U64 = struct.Struct(">I"), struct.Struct(">Q")
NEVER = 0xFFFFFFFF
LOCKED_CAS = 0xFFFFFFFFFFFFFFFF


class Reads(WireCase):
    def test_get_and_its_relatives(self):
        stored = self.stored(b"value", flags=0xDEADBEEF)
        for opcode, key in [(kv.GET, b""), (kv.GETK, self.key), (kv.GETQ, b""), (0x0D, self.key)]:
            got = self.on(opcode)
            self.assertEqual((got.extras, got.key, got.value), (b"\xde\xad\xbe\xef", key, b"value"))
            self.assertEqual(got.cas, stored.cas)

    def test_misses(self):
        self.on(kv.GET, kv.NOT_FOUND)
        missed = self.client.call(kv.GETK, key=self.key, vb=kv.vbucket_of(self.key))
        self.assertEqual(missed.status, kv.NOT_FOUND)

    def test_quiet_gets_say_nothing_about_misses(self):
        vb = kv.vbucket_of(self.key)
        for opcode in (kv.GETQ, 0x0D):
            self.client.send(kv.frame(opcode, key=self.key, vb=vb))
        self.client.send(kv.frame(0x1E, key=self.key, vb=vb, extras=U32.pack(10)))
        self.assertEqual(self.client.call(kv.NOOP).opcode, kv.NOOP)

    def test_get_and_touch(self):
        self.stored(flags=5)
        for opcode in (kv.GAT, 0x1E):
            got = self.on(opcode, extras=U32.pack(100))
            self.assertEqual((got.extras, got.value), (U32.pack(5), b"value"))
        deleted, flags, expiry, _, _ = self.client.meta(self.key)
        self.assertAlmostEqual(expiry, time.time() + 100, delta=2)
        self.assertEqual((deleted, flags), (0, 5))
        self.on(kv.TOUCH, extras=U32.pack(0))
        self.assertEqual(self.client.meta(self.key)[2], 0)

    def test_random_document(self):
        self.stored()
        got = self.client.must("random", self.client.call(kv.GET_RANDOM))
        self.assertTrue(got.key)
        self.assertEqual(len(got.extras), 4)


class Mutations(WireCase):
    def test_answers_carry_cas_and_token(self):
        first = self.stored()
        second = self.on(kv.DELETE)
        self.assertEqual(first.token[0], second.token[0])
        self.assertLess(first.token[1], second.token[1])
        self.assertLess(first.cas, second.cas)
        self.assertEqual((first.value, first.key), (b"", b""))

    def test_no_token_unless_asked(self):
        plain = self.connect(())
        self.assertEqual(plain.set(self.key, b"x").extras, b"")

    def test_quiet_forms(self):
        vb = kv.vbucket_of(self.key)
        flags_expiry = bytes(8)
        quiet = [
            (kv.SETQ, flags_expiry, b"1"),
            (0x13, flags_expiry, b"10"),
            (0x15, COUNTER.pack(5, 0, 0), b""),
            (0x16, COUNTER.pack(1, 0, 0), b""),
            (0x19, b"", b"7"),
            (0x1A, b"", b"1"),
        ]
        for opcode, extras, value in quiet:
            self.client.send(kv.frame(opcode, key=self.key, vb=vb, extras=extras, value=value))
        # 10 + 5 - 1 = 14, then 147, then 1147. The one that fails is the one that speaks.
        self.client.send(kv.frame(0x12, key=self.key, vb=vb, extras=flags_expiry, value=b"x", opaque=77))
        response = self.client.receive()
        self.assertEqual((response.status, response.opaque), (kv.EXISTS, 77))
        self.assertEqual(self.client.get(self.key).value, b"1147")
        self.client.send(kv.frame(0x14, key=self.key, vb=vb))
        self.on(kv.GET, kv.NOT_FOUND)
        self.client.send(kv.frame(0x14, key=self.key, vb=vb, opaque=78))
        response = self.client.receive()
        self.assertEqual((response.status, response.opaque), (kv.NOT_FOUND, 78))

    def test_add_and_replace(self):
        self.on(kv.REPLACE, kv.NOT_FOUND, extras=bytes(8), value=b"x")
        self.on(kv.ADD, extras=bytes(8), value=b"x")
        self.on(kv.ADD, kv.EXISTS, extras=bytes(8), value=b"x")
        cas = self.on(kv.REPLACE, extras=bytes(8), value=b"y").cas
        self.on(kv.REPLACE, kv.EXISTS, extras=bytes(8), value=b"z", cas=cas + 1)
        self.on(kv.REPLACE, extras=bytes(8), value=b"z", cas=cas)
        self.on(kv.SET, kv.NOT_FOUND, key=self.key + b"2", extras=bytes(8), value=b"z", cas=cas)
        self.on(kv.DELETE, kv.EXISTS, cas=cas)

    def test_counters(self):
        self.on(kv.INCREMENT, kv.NOT_FOUND, extras=COUNTER.pack(1, 5, NEVER))
        made = self.on(kv.INCREMENT, extras=COUNTER.pack(1, 5, 0))
        self.assertEqual((U64.unpack(made.value)[0], made.token is not None), (5, True))
        self.assertEqual(U64.unpack(self.on(kv.INCREMENT, extras=COUNTER.pack(10, 0, 0)).value)[0], 15)
        self.assertEqual(U64.unpack(self.on(kv.DECREMENT, extras=COUNTER.pack(100, 0, 0)).value)[0], 0)
        self.assertEqual(self.client.get(self.key).value.strip(), b"0")
        self.stored(b"18446744073709551615")
        self.assertEqual(U64.unpack(self.on(kv.INCREMENT, extras=COUNTER.pack(2, 0, 0)).value)[0], 1)
        self.stored(b"words")
        self.on(kv.INCREMENT, 0x06, extras=COUNTER.pack(1, 0, 0))

    def test_append_keeps_flags_and_expiry(self):
        self.on(kv.APPEND, kv.NOT_STORED, value=b"x")
        self.on(kv.PREPEND, kv.NOT_STORED, value=b"x")
        expiry = int(time.time()) + 1000
        self.stored(b"b", flags=9, expiry=expiry)
        self.on(kv.APPEND, value=b"c")
        self.on(kv.PREPEND, value=b"a")
        got = self.client.get(self.key)
        self.assertEqual((got.value, got.extras), (b"abc", U32.pack(9)))
        self.assertEqual(self.client.meta(self.key)[2], expiry)

    def test_expiry_forms(self):
        now = int(time.time())
        for given, meant in [(0, 0), (100, now + 100), (2_592_000, now + 2_592_000), (now + 5, now + 5)]:
            self.stored(expiry=given)
            self.assertAlmostEqual(self.client.meta(self.key)[2], meant, delta=1)
        self.stored(b"past", expiry=now - 100)
        self.on(kv.GET, kv.NOT_FOUND)

    def test_preserved_expiry(self):
        expiry = int(time.time()) + 1000
        self.stored(expiry=expiry)
        self.stored(b"kept", framing=b"\x50")
        self.assertEqual(self.client.meta(self.key)[2], expiry)
        self.stored(b"cleared")
        self.assertEqual(self.client.meta(self.key)[2], 0)

    def test_revisions_grow_through_deletions(self):
        self.stored()
        self.stored()
        self.assertEqual(self.client.meta(self.key)[3], 2)
        self.on(kv.DELETE)
        deleted, _, _, rev, _ = self.client.meta(self.key)
        self.assertEqual((deleted, rev), (1, 3))
        self.stored()
        self.assertEqual(self.client.meta(self.key)[3], 4)


class Locks(WireCase):
    def test_life_of_a_lock(self):
        self.stored()
        locked = self.on(kv.GETL, extras=U32.pack(15))
        self.assertEqual(self.client.get(self.key).cas, LOCKED_CAS)
        self.on(kv.GETL, kv.LOCKED)
        self.on(kv.SET, kv.LOCKED, extras=bytes(8), value=b"x")
        self.on(kv.DELETE, kv.LOCKED)
        self.on(kv.TOUCH, kv.LOCKED, extras=U32.pack(5))
        self.on(kv.UNLOCK, kv.LOCKED, cas=locked.cas + 1)
        self.on(kv.UNLOCK, cas=locked.cas)
        self.on(kv.UNLOCK, 0x0E, cas=locked.cas)
        self.on(kv.UNLOCK, kv.NOT_FOUND, key=self.key + b"2", cas=1)
        again = self.on(kv.GETL)
        self.on(kv.SET, extras=bytes(8), value=b"released", cas=again.cas)
        self.stored(b"free")

    def test_statuses_for_old_clients(self):
        old = self.connect(())
        old.must("set", old.set(self.key, b"x"))
        locked = old.must("lock", old.on(kv.GETL, self.key, extras=U32.pack(15)))
        self.assertEqual(old.on(kv.GETL, self.key).status, kv.TEMPORARY_FAILURE)
        self.assertEqual(old.set(self.key, b"y").status, kv.EXISTS)
        self.assertEqual(old.on(kv.UNLOCK, self.key, cas=locked.cas + 1).status, kv.TEMPORARY_FAILURE)
        refused = old.on(kv.GETL, self.key)
        self.assertEqual(refused.value, b"Temporary failure")


class Persistence(WireCase):
    def test_observe(self):
        stored = self.stored()
        self.assertEqual(self.client.persisted(self.key, stored.token[1]).status, kv.OK)
        vb = kv.vbucket_of(self.key)
        missing = self.key + b"-missing"
        asked = b"".join(
            struct.pack(">HH", kv.vbucket_of(key), len(key)) + key for key in (self.key, missing)
        )
        value = self.client.must("observe", self.client.call(kv.OBSERVE, value=asked)).value
        at = 4 + len(self.key)
        self.assertEqual(struct.unpack(">HH", value[:4]), (vb, len(self.key)))
        self.assertEqual(struct.unpack(">BQ", value[at : at + 9]), (0x01, stored.cas))
        self.assertEqual(value[-9], 0x80)

    def test_observe_seqno(self):
        stored = self.stored()
        uuid, seqno = stored.token
        self.client.must("persist", self.client.persisted(self.key, seqno))
        response = self.client.must("observe", self.on(kv.OBSERVE_SEQNO, key=b"", value=U64.pack(uuid), vb=None))
        branch, vb, again, persisted, current = struct.unpack(">BHQQQ", response.value)
        self.assertEqual((branch, vb, again), (0, kv.vbucket_of(self.key), uuid))
        self.assertGreaterEqual(persisted, seqno)
        self.assertGreaterEqual(current, persisted)
        self.on(kv.OBSERVE_SEQNO, kv.NOT_FOUND, key=b"", value=U64.pack(uuid ^ 1), vb=None)

    def on(self, opcode, status=kv.OK, key=None, vb=0, **fields):
        if vb is None:  # the vBucket of our key, although no key is sent
            response = self.client.call(opcode, vb=kv.vbucket_of(self.key), **fields)
            self.assertEqual(response.status, status, response.value)
            return response
        return super().on(opcode, status, key, **fields)

    def test_all_seqnos(self):
        stored = self.stored()
        value = self.client.must("seqnos", self.client.call(kv.ALL_SEQNOS)).value
        seqnos = dict(struct.iter_unpack(">HQ", value))
        self.assertEqual(len(seqnos), 1024)
        self.assertGreaterEqual(seqnos[kv.vbucket_of(self.key)], stored.token[1])


class Datatypes(WireCase):
    def test_the_server_looks_for_itself(self):
        for value, sent, seen in [(b'{"a":[1]}', 0, 1), (b"plain", 1, 0), (b'"s"', 0, 1), (b"{", 1, 0), (b"12", 0, 1)]:
            self.stored(value, datatype=sent)
            self.assertEqual(self.client.get(self.key).datatype, seen, value)
        old = self.connect(())
        self.stored(b"{}")
        self.assertEqual(old.get(self.key).datatype, 0)

    def test_compressed_values(self):
        text = json.dumps({"text": "lorem ipsum " * 4}).encode()
        block = bytes([len(text), 60 << 2, len(text) - 1]) + text  # Snappy: one literal
        self.assertLess(len(text), 128)
        self.stored(block, datatype=2)
        got = self.client.get(self.key)
        self.assertIn((got.datatype, got.value), [(3, block), (1, text)])
        plain = self.connect((kv.F_JSON, kv.F_XERROR))
        self.assertEqual((plain.get(self.key).datatype, plain.get(self.key).value), (1, text))
        self.on(kv.APPEND, value=b" ")
        self.assertEqual(plain.get(self.key).value, text + b" ")
