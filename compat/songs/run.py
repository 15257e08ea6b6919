"""The full song data set through a kill -9: loaded over the network, killed once everything is persisted, read back
byte for byte by the tool that generated it; before that, what is promised of an empty node (below 64 MiB with a
1024-vBucket bucket), after it, in its place, a bucket several times larger than its memory quota, of which every document
is served.

Then the published view over a part of the set: see `views`.

`compat/run songs [--count N]`; `compat/run songs --views [--count N]` has the view alone, over the whole set (up to ten minutes)
"""

import argparse
import os
import subprocess
import sys
import time

import views
from settee.kv import Client
from settee.node import PASSWORD, USERNAME, Node, binary, scratch

BUCKET = "songs"
FULL_SET = 943_347
# The whole set stays in memory: this proves the log and the warm-up.
QUOTA_MB = 3500
# 200,000 songs are about 470 MB of JSON: at most every fourth value fits.
SMALL_BUCKET = "small"
SMALL_QUOTA_MB = 128
SMALL_COUNT = 200_000
# The view over a part of the set, in each run. With --views the whole set is on three nodes, with a copy of each document.
VIEWS_COUNT = 10_000
# Quota of a node in MiB, and vBuckets.
VIEWS_SMALL = (256, 64)
VIEWS_LARGE = (2500, 1024)
RESIDENT_MIB_MAX = 64
PERSIST_WITHIN_S = 60


def tool(action, address, bucket, count):
    """What it prints, which is shown too."""
    command = [binary(), "songs", action, "--host", address, "--bucket", bucket, "--count", str(count)]
    environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
    done = subprocess.run([str(part) for part in command], check=True, env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    return done.stdout


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def connect(node, bucket):
    return Client(node.address, node.ports["kv"], USERNAME, PASSWORD, bucket)


def check_larger_than_memory(node):
    node.rest.create_bucket(SMALL_BUCKET, quota_mb=SMALL_QUOTA_MB)
    tool("load", node.address, SMALL_BUCKET, SMALL_COUNT)
    tool("verify", node.address, SMALL_BUCKET, SMALL_COUNT)
    stats = connect(node, SMALL_BUCKET).stats()
    used, quota = int(stats["mem_used"]) >> 20, int(stats["ep_max_size"]) >> 20
    print(f"larger than memory: {used} MiB of {quota} used, {stats['ep_num_non_resident']} values on disk only")
    if used > quota or int(stats["ep_num_non_resident"]) == 0:
        sys.exit("nothing was ejected, or not enough")


def wait_until_persisted(node):
    """Nothing is waiting for the disk, twice in a row."""
    client = connect(node, BUCKET)
    deadline = time.monotonic() + PERSIST_WITHIN_S
    quiet = 0
    while quiet < 2:
        if time.monotonic() > deadline:
            sys.exit(f"documents still wait for the disk after {PERSIST_WITHIN_S} s")
        waiting = int(client.stats()["ep_diskqueue_items"])
        quiet = quiet + 1 if waiting == 0 else 0
        time.sleep(0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=FULL_SET)
    parser.add_argument("--views", action="store_true", help="the view alone, over the whole of the set")
    parser.add_argument("--seed", type=int, help="of the random changes of --views")
    arguments = parser.parse_args()
    count, address = arguments.count, os.environ["SETTEE_ADDRESS"]
    if arguments.views:
        large = count > VIEWS_COUNT
        views.prove(count, address, tool, *(VIEWS_LARGE if large else VIEWS_SMALL), arguments.seed)
        return
    node = Node(address, scratch("songs"))
    try:
        node.start()
        node.initialise(memoryQuota=QUOTA_MB)
        node.rest.create_bucket(BUCKET, quota_mb=QUOTA_MB)
        empty = resident_mib(node.pid)
        print(f"resident with one empty bucket: {empty:.1f} MiB")
        if empty > RESIDENT_MIB_MAX:
            sys.exit(f"more than {RESIDENT_MIB_MAX} MiB")
        tool("load", address, BUCKET, count)
        wait_until_persisted(node)
        node.kill()
        print(f"killed; ready again after {node.start() * 1000:.0f} ms")
        tool("verify", address, BUCKET, count)
        # The disk need not hold both sets at once.
        node.rest.delete_bucket(BUCKET)
        check_larger_than_memory(node)
        node.stop()
    finally:
        node.kill()
    views.prove(min(count, VIEWS_COUNT), address, tool, *VIEWS_SMALL)


if __name__ == "__main__":
    main()
