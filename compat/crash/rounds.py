"""Crash rounds: clients write, the server gets kill -9 at a random moment, starts again, and is held to its word.

    compat/run crash [--rounds 50] [--seed N] [--writers 4] [--documents 60]

Three rounds of four are written by a raw client, the fourth by the official Python SDK. Every round prints its seed; `--seed S --rounds 1` repeats the choices of that round, though not the moment the
kernel gave each thread. The data directory lives through all rounds, so later ones recover from what earlier
ones left behind. Rules: model.py; what the clients do: writer.py. At the end the same is asked of `settee load --validate`.
"""

import argparse
import collections
import os
import random
import struct
import sys
import time

from model import Broken, judge_vbuckets
from sdk import SdkWriter
from settee import kv
from settee.node import Node, NodeError, scratch
from settee.validated import ValidatedLoad, Violated
from writer import BUCKET, VBUCKETS, Writer, connect


def read(client, document):
    """(value, flags, expiry, cas), or None."""
    response = client.call(kv.GET, key=document.key, vb=document.vb)
    if response.status == kv.NOT_FOUND:
        return None
    client.must(f"get {document.key!r}", response)
    meta = client.call(kv.GET_META, key=document.key, vb=document.vb, extras=b"\x02")
    if meta.status == kv.NOT_FOUND:
        return None  # its time came between the two questions
    deleted, flags, expiry, _rev = struct.unpack(">IIIQ", meta.extras[:20])
    if deleted:
        return None
    if (flags, meta.cas) != (struct.unpack(">I", response.extras)[0], response.cas):
        raise Broken(f"{document.key!r}: GET and GET_META disagree")
    return response.value, flags, expiry, response.cas


def connect_patiently(node, seconds=10.0):
    until = time.monotonic() + seconds
    while True:
        try:
            return connect(node)
        except (kv.Refused, kv.Closed, OSError):
            node.assert_alive()
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def check(node, documents):
    with connect_patiently(node) as client:
        founds = []
        for document in documents:
            found = read(client, document)
            document.judge(found, time.time())
            founds.append(found)
        judge_vbuckets(documents)
        for document, found in zip(documents, founds):
            document.settle(found)
    return sum(found is not None for found in founds)


def one_round(node, kind, writers_documents, seed):
    chance = random.Random(seed)
    writers = [kind(node, name, documents, chance.getrandbits(64)) for name, documents in writers_documents.items()]
    for writer in writers:
        writer.start()
    time.sleep(chance.uniform(0.05, 0.8) + (0.3 if kind is SdkWriter else 0))
    node.assert_alive()
    node.kill()
    counts = collections.Counter()
    for writer in writers:
        writer.join(15)
        if writer.is_alive():
            raise Broken("a client still waits for an answer of a dead server")
        if writer.broken:
            raise writer.broken
        counts.update(writer.counts)
    return counts


def validated(node, seed):
    """More clients at once than the model follows, killed in quick succession; `settee load` knows what it may read."""
    chance = random.Random(seed)
    with ValidatedLoad(node, BUCKET, seconds=12, durability="persistToMajority") as load:
        for _ in range(5):
            time.sleep(chance.uniform(0.5, 2.0))
            node.assert_alive()
            node.kill()
            node.start()
    if not load.report["reconnects"]:
        raise Broken("the load noticed nothing of the kills")
    return load.report["ops"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--documents", type=int, default=60, help="per writer")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}, {arguments.rounds} rounds", flush=True)
    node = Node(os.environ.get("SETTEE_ADDRESS", "127.0.31.6"), scratch("crash"))
    owned = {f"w{n}": Writer.documents_for(f"w{n}", arguments.documents) for n in range(arguments.writers)}
    everything = [document for documents in owned.values() for document in documents]
    node.start()
    try:
        node.initialise()
        node.rest.create_bucket(BUCKET, quota_mb=256, numVBuckets=VBUCKETS)
        total = collections.Counter()
        for number in range(arguments.rounds):
            round_seed = seed + number
            kind = SdkWriter if number % 4 == 3 else Writer
            counts = one_round(node, kind, owned, round_seed)
            total.update(counts)
            unknown = sum(len(document.versions) - 1 for document in everything)
            started = node.start()
            alive = check(node, everything)
            print(
                f"round {number + 1:3} seed {round_seed}: {sum(counts.values()):5} operations, {unknown:4} versions "
                f"without a promise, up again in {started * 1000:4.0f} ms, {alive} documents, every promise kept",
                flush=True,
            )
        print(f"validated: {validated(node, seed)} operations through 5 kills, every promise kept", flush=True)
        node.stop()
        node.start()
        check(node, everything)
        node.stop()
        print("operations:", ", ".join(f"{name} {count}" for name, count in sorted(total.items())))
        print(f"rounds: {arguments.rounds} passed, 0 failed")
    except (Broken, Violated, NodeError, kv.Refused) as error:
        print(f"\n{error}", file=sys.stderr)
        print(f"repeat with: compat/run crash --seed {seed}", file=sys.stderr)
        print("rounds: 0 passed, 1 failed")
        sys.exit(1)
    finally:
        node.kill()


if __name__ == "__main__":
    main()
