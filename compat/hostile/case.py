"""The server under attack and the well-behaved client that has to be served meanwhile."""

import os
import random
import resource
import socket
import ssl
import time
import unittest

from settee import kv
from settee.node import PASSWORD, USERNAME, Node, scratch

ADDRESS = os.environ.get("SETTEE_ADDRESS", "127.0.31.7")
SEED = int(os.environ.get("SETTEE_SEED", random.SystemRandom().getrandbits(32)))
NODE = Node(ADDRESS, scratch("hostile"))
ARENA = "arena"
HEALTH = "health"
# What the attackers log in as: all data of one bucket, nothing else.
ATTACKER, ATTACKER_PASSWORD = "attacker", "attacker-pass"

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def start():
    NODE.start()
    NODE.initialise()
    NODE.rest.create_bucket(HEALTH, legacyMemcachedPort=1, legacyPasswordless=1)
    NODE.rest.create_bucket(ARENA, quota_mb=512)
    roles = f"data_reader[{ARENA}],data_writer[{ARENA}]"
    NODE.rest.ok("PUT", f"/settings/rbac/users/local/{ATTACKER}", {"password": ATTACKER_PASSWORD, "roles": roles})


def stop():
    NODE.stop()


def attacker(**options):
    """Logs in; where too many of the attackers' logins have failed, once they are checked again (ten seconds at most)."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return kv.Client(ADDRESS, NODE.ports["kv"], ATTACKER, ATTACKER_PASSWORD, ARENA, **options)
        except kv.Refused as refused:
            if refused.status != kv.TEMPORARY_FAILURE or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def trusting_context():
    """TLS without looking at the certificate; whether it is right is another suite's question."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def memory_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise OSError("no VmRSS")


def drain(connection, seconds=10.0):
    """Read until the server closes; False if it does not within the time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


class HostileCase(unittest.TestCase):
    """Checks after each test that everybody else is served."""

    def setUp(self):
        self.random = random.Random(f"{SEED}/{self.id()}")
        self.pid = NODE.pid

    def tearDown(self):
        self.assert_healthy()

    def assert_healthy(self):
        NODE.assert_alive()
        self.assertEqual(NODE.pid, self.pid)
        for secure in (False, True):
            port = NODE.ports["kv_tls" if secure else "kv"]
            context = trusting_context() if secure else None
            with kv.Client(ADDRESS, port, USERNAME, PASSWORD, HEALTH, context=context) as client:
                value = self.random.randbytes(100)
                client.must("store", client.set(b"healthy", value))
                self.assertEqual(client.must("read", client.get(b"healthy")).value, value)
        self.assertEqual(NODE.rest.get("/pools/default").status, 200)
        with socket.create_connection((ADDRESS, NODE.ports["memcached"]), 10) as text:
            text.sendall(b"set healthy 0 0 2\r\nok\r\nget healthy\r\n")
            self.assertEqual(read_lines(text, 4), [b"STORED", b"VALUE healthy 0 2", b"ok", b"END"])


def read_lines(connection, count):
    """At least `count` lines, and whatever came with them."""
    data = b""
    while data.count(b"\r\n") < count:
        piece = connection.recv(4096)
        if not piece:
            break
        data += piece
    return data.removesuffix(b"\r\n").split(b"\r\n")
