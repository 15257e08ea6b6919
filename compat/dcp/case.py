"""The server whose memory is watched."""

import os
import random
import time
import unittest

from settee import documents
from settee.node import Node, scratch

SEED = int(os.environ.get("SETTEE_SEED", random.SystemRandom().getrandbits(32)))
NODE = Node(os.environ.get("SETTEE_ADDRESS", "127.0.31.12"), scratch("dcp"))
BUCKET = "stream"
QUOTA_MB = 256


def start():
    NODE.start()
    NODE.initialise()
    NODE.rest.create_bucket(BUCKET, quota_mb=QUOTA_MB)


def memory_mib():
    with open(f"/proc/{NODE.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def sockets():
    """Descriptors of connections: files come and go with what is written."""
    folder = f"/proc/{NODE.pid}/fd"
    found = 0
    for number in os.listdir(folder):
        try:
            found += os.readlink(f"{folder}/{number}").startswith("socket:")
        except FileNotFoundError:
            continue
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(f"{SEED}/{self.id()}")

    def tearDown(self):
        NODE.assert_alive()

    def connect(self):
        client = documents.connect(NODE, BUCKET)
        self.addCleanup(client.close)
        return client

    def eventually(self, what, condition, seconds=15.0):
        """Wait for a condition; its last answer (something true)."""
        limit = time.monotonic() + seconds
        while not (answer := condition()):
            if time.monotonic() > limit:
                self.fail(f"{what}: not within {seconds} s")
            time.sleep(0.05)
        return answer
