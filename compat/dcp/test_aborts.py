"""Consumers that vanish in mid-stream, ten thousand of them, while documents are written and validated."""

import multiprocessing
import os
import random
import socket
import struct
import time

from case import BUCKET, NODE, SEED, Case, sockets, memory_mib
from settee import dcp, documents, kv
from settee.node import PASSWORD, USERNAME
from settee.validated import ValidatedLoad

CONNECTIONS = int(os.environ.get("SETTEE_ABORTS", "10000"))
PROCESSES = 4
# Enough to have touched every allocator and cache once.
WARM_UP = 1000
STREAMS = 8
# What a leak of one and a half kilobytes by each of them would be.
LEAK_MIB = 15
HELD = (
    "ep_dcp_count", "ep_checkpoint_memory_cursors", "ep_backfill_memory", "settee_cursors", "settee_backfills",
    "settee_pins", "settee_pinned_bytes",
)  # fmt: skip


def opening(name, window, chance):
    """Everything a consumer says until its streams run, in one go."""
    features = b"".join(struct.pack(">H", feature) for feature in documents.FEATURES)
    controls = [("enable_noop", "true"), ("connection_buffer_size", window)]
    stream = struct.pack(">IIQQQQQ", 0, 0, 0, dcp.FOREVER, 0, 0, 0)
    said = [
        kv.frame(kv.HELLO, key=b"abort", value=features),
        kv.frame(kv.SASL_AUTH, key=b"PLAIN", value=f"\0{USERNAME}\0{PASSWORD}".encode()),
        kv.frame(kv.SELECT_BUCKET, key=BUCKET.encode()),
        kv.frame(dcp.OPEN, key=name.encode(), extras=struct.pack(">II", 0, dcp.PRODUCER)),
    ]
    said += [kv.frame(dcp.CONTROL, key=key.encode(), value=str(value).encode()) for key, value in controls]
    vbs = chance.sample(range(1024), STREAMS)
    said += [kv.frame(dcp.STREAM_REQUEST, vb=vb, extras=stream, value=b'{"uid":"0"}') for vb in vbs]
    return b"".join(said)


def abort_many(seed, count, address, port, read):
    """Opens connections one after the other and drops each at some point of its stream."""
    chance = random.Random(seed)
    for number in range(count):
        with socket.create_connection((address, port), 30) as connection:
            # Half of them are reset, with data in flight; the others end as a process that exits does.
            if chance.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            window, wanted, got = chance.choice((1000, 100_000_000)), chance.choice((0, 100, 1000, 20_000)), 0
            connection.sendall(opening(f"abort-{seed}-{number % 50}", window, chance))
            wanted = min(wanted, window)
            while got < wanted and (piece := connection.recv(1 << 14)):
                got += len(piece)
            with read.get_lock():
                read.value += got


def run(count, seed):
    """Bytes that the consumers read."""
    read = multiprocessing.Value("Q", 0)
    processes = [
        multiprocessing.Process(
            target=abort_many, args=(seed + n, count // PROCESSES, NODE.address, NODE.ports["kv"], read)
        )
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0, "a client was not served"
    return read.value


class Aborts(Case):
    def held(self):
        """What streams hold in the server; empty when there is nothing."""
        with documents.connect(NODE, BUCKET) as client:
            stats = client.stats(b"dcp") | client.stats()
        return {name: stats[name] for name in HELD if int(stats[name])}

    def test_everything_is_given_back(self):
        with documents.connect(NODE, BUCKET) as client:
            sets = [
                (kv.SET, 0, f"aborts-{n}".encode(), {"extras": bytes(8), "value": bytes(1000)}) for n in range(20_000)
            ]
            for _, response in documents.pipeline(client, sets):
                self.assertEqual(response.status, kv.OK)
        self.abort(WARM_UP, 5, SEED)
        # The load itself makes the process grow, but once. What connections leave behind comes each time.
        grown = [self.grows_by(SEED + 100)]
        if grown[0] >= LEAK_MIB:
            grown.append(self.grows_by(SEED + 200))
        self.assertLess(min(grown), LEAK_MIB, "MiB in each round")

    def abort(self, count, seconds, seed):
        """Consumers abort beside a writer and a validated load. Returns how many bytes they had read."""
        writer = documents.Writer(NODE, BUCKET, [0], SEED, documents=2000)
        writer.start()
        try:
            began = time.monotonic()
            with ValidatedLoad(NODE, BUCKET, seconds=seconds) as load:
                read = run(count, seed)
                took = time.monotonic() - began
        finally:
            writer.finish()
        self.assertEqual(load.report["errors"], 0, "operations beside them")
        self.eventually("every cursor, backfill, pin and stream is gone", lambda: not self.held())
        aborted = f"{count} consumers aborted in {took:.0f} s after {read >> 20} MiB"
        print(f"{aborted}, {writer.done} writes meanwhile", flush=True)
        return read

    def grows_by(self, seed):
        """MiB that the node takes more once its consumers have aborted."""
        memory, connections = memory_mib(), sockets()
        read = self.abort(CONNECTIONS, 20, seed)
        self.assertGreater(read, CONNECTIONS * 1000, "they were in mid-stream")
        self.eventually("every connection is closed", lambda: sockets() <= connections)
        grown = memory_mib() - memory
        print(f"memory {memory:.0f} MiB {grown:+.0f} MiB", flush=True)
        return grown
