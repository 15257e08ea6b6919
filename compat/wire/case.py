"""Connections to the server that `compat/run wire` started."""

import os
import time
import unittest
import uuid

from settee import kv
from settee.rest import Rest

ADDRESS = os.environ["SETTEE_ADDRESS"]
USERNAME, PASSWORD = os.environ["SETTEE_USERNAME"], os.environ["SETTEE_PASSWORD"]
BUCKET = "main"
REST = Rest(ADDRESS, 8091, USERNAME, PASSWORD)


def client(features=kv.Client.FEATURES, bucket=BUCKET, **options):
    return kv.Client(ADDRESS, 11210, USERNAME, PASSWORD, bucket, features, **options)


def eventually(holds, seconds=20):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.05)


class WireCase(unittest.TestCase):
    """A connection with the features most SDKs ask for, and a key nobody else uses."""

    FEATURES = kv.Client.FEATURES

    def setUp(self):
        self.key = f"wire-{uuid.uuid4().hex}".encode()
        self.client = self.connect(self.FEATURES)

    def connect(self, features=FEATURES, **options):
        made = client(features, **options)
        self.addCleanup(made.close)
        return made

    def on(self, opcode, status=kv.OK, key=None, **fields):
        response = self.client.on(opcode, self.key if key is None else key, **fields)
        self.assertEqual(response.status, status, f"opcode 0x{opcode:02x}: {response.value[:200]}")
        return response

    def stored(self, value=b"value", **fields):
        response = self.client.set(self.key, value, **fields)
        self.assertEqual(response.status, kv.OK, response.value)
        return response
