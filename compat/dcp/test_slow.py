"""Consumers that do not read while the bucket changes under them."""

import struct

from case import BUCKET, NODE, Case, memory_mib
from settee import dcp, documents, kv

VALUE_BYTES = 4000
DOCUMENTS = 5000
ROUNDS = 8
SLOW = 6


class SlowConsumers(Case):
    def write_round(self, client, number):
        """Overwrites every document; nobody is refused, however far behind the consumers are."""
        value = struct.pack(">I", number) + self.random.randbytes(VALUE_BYTES)
        sets = [
            (kv.SET, 0, f"slow-{index}".encode(), {"extras": bytes(8), "value": value}) for index in range(DOCUMENTS)
        ]
        refused = 0
        for _, response in documents.pipeline(client, sets):
            refused += response.status != kv.OK
        self.assertEqual(refused, 0)

    def consumer(self, number, flags=dcp.PRODUCER):
        """All vBuckets from the beginning; nothing is read but the answers, and the window lets everything through."""
        consumer = dcp.Consumer(
            NODE, BUCKET, f"slow-{number}", flags, automatic=False, controls=(("connection_buffer_size", 1 << 30),)
        )
        self.addCleanup(consumer.close)
        extras = struct.pack(">IIQQQQQ", 0, 0, 0, dcp.FOREVER, 0, 0, 0)
        consumer.send(
            b"".join(
                kv.frame(dcp.STREAM_REQUEST, vb=vb, opaque=vb, extras=extras, value=b'{"uid":"0"}')
                for vb in range(1024)
            )
        )
        return consumer

    def test_memory_is_bounded_writers_go_on_and_nothing_is_missed(self):
        client = self.connect()
        self.write_round(client, 0)
        before = memory_mib()
        consumers = [self.consumer(number) for number in range(SLOW)]
        for number in range(1, ROUNDS):
            self.write_round(client, number)
        written = DOCUMENTS * ROUNDS * VALUE_BYTES / (1 << 20)
        grown = memory_mib() - before
        print(f"{written:.0f} MiB written, {grown:.0f} MiB grown with {SLOW} consumers that do not read", flush=True)
        self.assertLess(grown, written / 2 + 20)
        targets = documents.high_seqnos(client)
        keys = [(0, f"slow-{index}".encode()) for index in range(DOCUMENTS)]
        truth = documents.read_all(client, keys)
        for consumer in consumers:
            ledger = dcp.Ledger().catch_up(Opened(consumer), targets, 60)
            versions = ledger.versions()
            self.assertEqual(set(versions), {b"\0" + key for _, key in keys})
            for (_, key), (_, cas, _, _, _, value) in truth.items():
                message = versions[b"\0" + key]
                self.assertEqual((message.cas, message.value), (cas, value))
            consumer.close()


class Opened:
    """A consumer whose answers to stream requests have not been read yet."""

    def __init__(self, consumer):
        self.consumer = consumer

    def next(self, seconds):
        while True:
            message = self.consumer.next(seconds)
            if message is None or message.magic in dcp.REQUEST_MAGIC:
                return message
            if message.status != kv.OK:
                raise kv.Refused("stream request", message)
