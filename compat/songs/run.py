"""The full song data set through a kill -9: loaded over the network, killed once everything is persisted, read back
byte for byte by the tool that generated it. Then what the README promises of an empty node: ready within 100 ms,
below 64 MiB with a 1024-vBucket bucket.

`compat/run songs [--count N]`
"""

import argparse
import os
import subprocess
import sys
import time

from settee.kv import Client
from settee.node import PASSWORD, USERNAME, Node, binary, scratch

BUCKET = "songs"
FULL_SET = 943_347
# The whole set stays in memory: this proves the log; the eviction tests prove the rest.
QUOTA_MB = 4096
RESIDENT_MIB_MAX = 64
PERSIST_WITHIN_S = 60


def tool(action, address, count):
    command = [binary(), "songs", action, "--host", address, "--bucket", BUCKET, "--count", str(count)]
    environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
    subprocess.run([str(part) for part in command], check=True, env=environment)


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def wait_until_persisted(node):
    """Nothing is waiting for the disk, twice in a row."""
    client = Client(node.address, node.ports["kv"], USERNAME, PASSWORD, BUCKET)
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
    count = parser.parse_args().count
    address = os.environ["SETTEE_ADDRESS"]
    node = Node(address, scratch("songs"))
    try:
        node.start()
        node.initialise(memoryQuota=QUOTA_MB)
        node.rest.create_bucket(BUCKET, quota_mb=QUOTA_MB)
        empty = resident_mib(node.pid)
        print(f"resident with one empty bucket: {empty:.1f} MiB")
        if empty > RESIDENT_MIB_MAX:
            sys.exit(f"more than {RESIDENT_MIB_MAX} MiB")
        tool("load", address, count)
        wait_until_persisted(node)
        node.kill()
        print(f"killed; ready again after {node.start() * 1000:.0f} ms")
        tool("verify", address, count)
        node.stop()
    finally:
        node.kill()


if __name__ == "__main__":
    main()
