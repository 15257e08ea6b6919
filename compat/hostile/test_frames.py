"""The binary protocol, said wrong in every way: the protocol's error, or the end of that connection."""

import socket
import struct

from case import ADDRESS, ARENA, ATTACKER, NODE, HostileCase, attacker, drain
from settee import kv
from settee.node import PASSWORD, USERNAME

MIB = 1024 * 1024
SET_EXTRAS = struct.pack(">II", 0, 0)
KEY = b"frames"
VB = kv.vbucket_of(KEY)


class WrongRequests(HostileCase):
    """One connection per test; it must answer NOOP afterwards unless it had to be closed."""

    def setUp(self):
        super().setUp()
        self.client = attacker()
        self.client.must("store", self.client.set(KEY, b"1"))

    def tearDown(self):
        self.client.close()
        super().tearDown()

    def refused(self, statuses, opcode, **fields):
        if isinstance(statuses, int):
            statuses = (statuses,)
        fields.setdefault("vb", VB)
        response = self.client.call(opcode, **fields)
        self.assertIn(response.status, statuses, f"opcode 0x{opcode:02x} {str(fields)[:200]}: {response.value[:100]}")
        self.client.must("noop", self.client.call(kv.NOOP))
        return response

    def closed(self, data):
        self.client.send(data)
        self.assertTrue(drain(self.client.socket), "the connection stays open")

    def test_keys(self):
        for opcode, extras in [(kv.GET, b""), (kv.SET, SET_EXTRAS), (kv.DELETE, b""), (kv.GET_META, b"\x02")]:
            self.refused(kv.INVALID, opcode, key=b"", extras=extras)
            self.refused(kv.INVALID, opcode, key=b"k" * 251, extras=extras)
            self.refused(kv.INVALID, opcode, key=b"k" * 60_000, extras=extras)

    def test_extras_and_values(self):
        self.refused(kv.INVALID, kv.GET, key=KEY, extras=b"1234")
        self.refused(kv.INVALID, kv.GET, key=KEY, value=b"value")
        self.refused(kv.INVALID, kv.SET, key=KEY, value=b"no extras")
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=b"1234567", value=b"short extras")
        self.refused(kv.INVALID, kv.DELETE, key=KEY, extras=b"1234")
        self.refused(kv.INVALID, kv.INCREMENT, key=KEY, extras=b"\0" * 19)
        self.refused(kv.INVALID, kv.APPEND, key=KEY, extras=SET_EXTRAS, value=b"x")
        self.refused(kv.INVALID, kv.TOUCH, key=KEY)
        self.refused(kv.INVALID, kv.ADD, key=KEY, extras=SET_EXTRAS, cas=7)
        self.refused(kv.INVALID, kv.NOOP, key=KEY)
        self.refused(kv.INVALID, kv.HELLO, key=b"odd", value=b"\0\4\0")
        self.refused(kv.INVALID, kv.OBSERVE, value=b"\0\0\0\xffshort")
        self.refused(kv.INVALID, kv.SEQNO_PERSISTENCE, extras=b"1234")

    def test_lengths_that_contradict_each_other(self):
        # Key and extras longer than the body that was announced.
        header = struct.pack(">BBHBBHIIQ", 0x80, kv.GET, 100, 0, 0, VB, 10, 1, 0)
        self.client.send(header + b"x" * 10)
        try:
            self.assertEqual(self.client.receive().status, kv.INVALID)
        except kv.Closed:
            pass

    def test_magic(self):
        self.closed(kv.frame(kv.NOOP, magic=0x42) + b"\0" * 24)

    def test_response_instead_of_request(self):
        self.closed(kv.frame(kv.NOOP, magic=0x81) + kv.frame(kv.QUIT))

    def test_unknown_opcodes(self):
        for opcode in (0xE9, 0xEF):
            self.refused((kv.UNKNOWN_COMMAND, kv.NOT_SUPPORTED), opcode)

    def test_framing(self):
        self.refused(kv.UNKNOWN_FRAME, kv.GET, key=KEY, framing=b"\xe0")
        self.refused((kv.INVALID, 0xA0), kv.SET, key=KEY, extras=SET_EXTRAS, framing=b"\x11\x09")
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=SET_EXTRAS, framing=b"\x13\x01\x00\x00")
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=SET_EXTRAS, framing=b"\x13\x01\xff\xff")
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=SET_EXTRAS, framing=b"\x13\x01")
        self.refused((kv.INVALID, kv.UNKNOWN_FRAME), kv.GET, key=KEY, framing=b"\xff\xff")

    def test_vbuckets(self):
        for vb in (1024, 5000, 0xFFFF):
            self.refused(kv.NOT_MY_VBUCKET, kv.GET, key=KEY, vb=vb)

    def test_too_large_a_value(self):
        self.refused(kv.TOO_BIG, kv.SET, key=KEY, extras=SET_EXTRAS, value=bytes(20 * MIB + 1))

    def test_too_large_a_frame(self):
        header = struct.pack(">BBHBBHIIQ", 0x80, kv.SET, len(KEY), 8, 0, VB, 31 * MIB, 1, 0)
        self.closed(header)

    def test_the_largest_frame_anyone_can_announce(self):
        header = struct.pack(">BBHBBHIIQ", 0x80, kv.SET, len(KEY), 8, 0, VB, 0xFFFFFFFF, 1, 0)
        self.closed(header)

    def test_broken_compression(self):
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=SET_EXTRAS, value=b"\xff" * 100, datatype=2)
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=SET_EXTRAS, value=b"", datatype=2)
        # A block that promises 1 GiB.
        bomb = b"\x80\x80\x80\x80\x04" + b"\x00a" + b"\xfe\x01\x00" * 1000
        self.refused((kv.INVALID, kv.TOO_BIG), kv.SET, key=KEY, extras=SET_EXTRAS, value=bomb, datatype=2)

    def test_datatypes_that_do_not_exist(self):
        self.refused(kv.INVALID, kv.SET, key=KEY, extras=SET_EXTRAS, value=b"x", datatype=0xF8)

    def test_counting_words(self):
        self.client.must("store", self.client.set(KEY, b"words"))
        self.refused(0x06, kv.INCREMENT, key=KEY, extras=struct.pack(">QQI", 1, 0, 0))

    def test_every_opcode_with_an_empty_frame(self):
        """Whatever it does, it does not hang: the NOOP behind it is answered, or the connection closed."""
        for opcode in range(256):
            if opcode == kv.NOOP:
                continue
            with attacker() as client:
                client.send(kv.frame(opcode, opaque=opcode) + kv.frame(kv.NOOP, opaque=999))
                try:
                    while client.receive().opaque != 999:
                        pass
                except kv.Closed:
                    pass


class Collections(HostileCase):
    def test_collection_prefixes(self):
        with attacker(features=(kv.F_COLLECTIONS, kv.F_XERROR, kv.F_SELECT)) as client:
            for key, status in [
                (b"\x00" + KEY, kv.NOT_FOUND),
                (b"\x81\x00" + KEY, kv.INVALID),  # not the shortest form
                (b"\xff\xff\xff\xff\xff\xff" + KEY, kv.INVALID),
                (b"\x80", kv.INVALID),
                (b"\x00", kv.INVALID),
                (b"\x7f" + KEY, 0x88),
            ]:
                response = client.call(kv.GET, key=key, vb=VB)
                self.assertEqual(response.status, status, key)
            client.must("noop", client.call(kv.NOOP))


class Strangers(HostileCase):
    """What is possible before anyone has said who they are: nothing."""

    def test_no_data_without_authentication(self):
        for opcode, fields in [
            (kv.GET, {"key": KEY}),
            (kv.SET, {"key": KEY, "extras": SET_EXTRAS, "value": b"x"}),
            (kv.SELECT_BUCKET, {"key": ARENA.encode()}),
            (kv.CLUSTER_CONFIG, {}),
            (kv.STAT, {}),
            (kv.FLUSH, {}),
        ]:
            with kv.Connection(ADDRESS, NODE.ports["kv"]) as client:
                try:
                    self.assertNotEqual(client.call(opcode, **fields).status, kv.OK, hex(opcode))
                except kv.Closed:
                    pass

    def test_broken_authentication(self):
        for mechanism, proof in [
            (b"PLAIN", b""),
            (b"PLAIN", b"\0\0"),
            (b"PLAIN", b"no zero"),
            (b"PLAIN", b"\0" + ATTACKER.encode() + b"\0wrong"),
            (b"SCRAM-SHA512", b"n,,"),
            (b"SCRAM-SHA512", b"n,,n=,r="),
            (b"SCRAM-SHA256", b"\xff" * 5000),
            (b"NONSENSE", b"x"),
            (b"", b""),
            (b"PLAIN", b"\0" * (1 << 20)),
        ]:
            with kv.Connection(ADDRESS, NODE.ports["kv"]) as client:
                try:
                    first = client.call(kv.SASL_AUTH, key=mechanism, value=proof)
                    self.assertNotEqual(first.status, kv.OK, (mechanism, proof[:40]))
                    second = client.call(kv.SASL_STEP, key=mechanism, value=b"c=biws,r=x,p=AAAA")
                    self.assertNotEqual(second.status, kv.OK)
                except kv.Closed:
                    pass

    def test_a_bucket_of_somebody_else(self):
        with attacker() as client:
            self.assertEqual(client.call(kv.SELECT_BUCKET, key=b"health").status, kv.NO_ACCESS)
            self.assertEqual(client.call(kv.SELECT_BUCKET, key=b"no-such-bucket").status, kv.NO_ACCESS)


class RandomFrames(HostileCase):
    """Valid conversations with some bytes changed. After the end of input, the server closes."""

    def conversation(self):
        pieces = []
        for number in range(self.random.randrange(1, 6)):
            key = f"fuzz{self.random.randrange(50)}".encode()
            pieces.append(
                self.random.choice(
                    [
                        kv.frame(kv.GET, key=key, vb=kv.vbucket_of(key)),
                        kv.frame(kv.SET, key=key, vb=kv.vbucket_of(key), extras=SET_EXTRAS, value=b'{"a":1}'),
                        kv.frame(
                            kv.SET,
                            key=key,
                            vb=kv.vbucket_of(key),
                            extras=SET_EXTRAS,
                            value=b"x" * 300,
                            framing=kv.durability(1, 5000),
                        ),
                        kv.frame(kv.INCREMENT, key=key, vb=kv.vbucket_of(key), extras=struct.pack(">QQI", 1, 5, 0)),
                        kv.frame(kv.OBSERVE, value=struct.pack(">HH", 3, len(key)) + key),
                        kv.frame(kv.HELLO, key=b"x", value=struct.pack(">5H", *self.random.sample(range(40), 5))),
                        kv.frame(kv.GET_META, key=key, vb=kv.vbucket_of(key), extras=b"\x02"),
                        kv.frame(0xD0, key=key, vb=kv.vbucket_of(key), value=b"\xc5\0\0\1a"),
                        kv.frame(0x22, key=b"PLAIN", value=b"x"),
                    ]
                )
            )
        return b"".join(pieces)

    def mutate(self, data):
        data = bytearray(data)
        for _ in range(self.random.randrange(1, 5)):
            at = self.random.randrange(len(data))
            data[at] = self.random.choice([0, 1, 0x7F, 0x80, 0xFF, self.random.randrange(256)])
        if self.random.random() < 0.3:
            del data[self.random.randrange(len(data)) :]
        return bytes(data)

    def test_as_a_stranger(self):
        for _ in range(500):
            self.throw(socket.create_connection((ADDRESS, NODE.ports["kv"]), 10))

    def test_as_a_user(self):
        for _ in range(500):
            self.throw(attacker().socket)

    def test_on_the_memcached_port(self):
        for _ in range(300):
            self.throw(socket.create_connection((ADDRESS, NODE.ports["memcached"]), 10))

    def throw(self, connection):
        data = self.mutate(self.conversation())
        with connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                return
            self.assertTrue(drain(connection), f"still open after {data.hex()}")


class Passwords(HostileCase):
    def guess(self, user, password):
        with kv.Connection(ADDRESS, NODE.ports["kv"]) as client:
            return client.call(kv.SASL_AUTH, key=b"PLAIN", value=f"\0{user}\0{password}".encode()).status

    def test_guessing_gets_slow_and_does_not_lock_others_out(self):
        attacker().close()
        kv.Client(ADDRESS, NODE.ports["kv"], USERNAME, PASSWORD, ARENA).close()
        answers = [self.guess(ATTACKER, f"guess{number}") for number in range(30)]
        self.assertEqual(answers[:5], [kv.AUTH_ERROR] * 5)
        self.assertLess(answers.count(kv.AUTH_ERROR), 10, "most are not even checked")
        self.assertEqual(set(answers), {kv.AUTH_ERROR, kv.TEMPORARY_FAILURE})
        for number in range(100):
            self.assertNotEqual(self.guess(f"nobody{number}", "guess"), kv.OK)
        kv.Client(ADDRESS, NODE.ports["kv"], USERNAME, PASSWORD, ARENA).close()
        attacker().close()
