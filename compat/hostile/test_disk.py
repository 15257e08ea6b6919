"""Disks that are full or lie, and a second process that wants the same one. Each test has a server of its own."""

import contextlib
import os
import struct
import subprocess
import time
import unittest
from pathlib import Path

from case import NODE
from settee import kv
from settee.node import PASSWORD, USERNAME, Node, NodeError, scratch
from settee.validated import ValidatedLoad

ADDRESS = "127.0.31.28"
BUCKET = "disk"
MIB = 1024 * 1024


def client(node):
    return kv.Client(node.address, node.ports["kv"], USERNAME, PASSWORD, BUCKET)


def patient_client(node, seconds=10):
    until = time.monotonic() + seconds
    while True:
        try:
            return client(node)
        except (kv.Refused, kv.Closed, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def value_of(number, size):
    """Different for every document and incompressible, so that it can be found on disk."""
    return f"<document {number}>".encode() + os.urandom(size)


class SecondProcess(unittest.TestCase):
    def test_is_refused(self):
        second = Node(ADDRESS, scratch("second"))
        second.data = NODE.data
        try:
            with self.assertRaises(NodeError) as refused:
                second.start(timeout=10)
            self.assertIn("the server ended with", str(refused.exception))
            self.assertRegex(second.tail().lower(), "lock|in use|another process")
        finally:
            second.kill()
        NODE.assert_alive()
        self.assertEqual(NODE.rest.get("/pools").status, 200)


@contextlib.contextmanager
def small_disk(path, mib):
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "settee-compat", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        raise unittest.SkipTest("NOT TESTED: a full disk, because mounting a small one is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class FullDisk(unittest.TestCase):
    def test_writes_fail_for_now_reads_go_on_and_it_heals(self):
        folder = scratch("full-disk")
        with small_disk(folder / "disk", 512):
            node = Node(ADDRESS, folder)
            node.data = folder / "disk" / "data"
            with node:
                node.initialise()
                node.rest.create_bucket(BUCKET, quota_mb=1024)
                ballast = folder / "disk" / "ballast"
                ballast.write_bytes(bytes(256 * MIB))
                # Other clients meanwhile: refused as well, but not told anything wrong.
                beside = ValidatedLoad(node, BUCKET, seconds=15, durability="persistToMajority")
                with beside, client(node) as connection:
                    self.fill_and_heal(node, connection, ballast)
                node.stop()
                node.start()
                with patient_client(node) as connection:
                    self.assertEqual(connection.get(b"first").value, b"before the flood")
                    self.assertEqual(connection.get(b"healed").value, b"yes")

    def fill_and_heal(self, node, connection, ballast):
        stored = connection.must("store", connection.set(b"first", b"before the flood"))
        connection.must("persist", connection.persisted(b"first", stored.token[1]))
        refused = self.write_until_refused(connection)
        self.assertEqual(refused, kv.TEMPORARY_FAILURE)
        for _ in range(100):
            self.assertEqual(connection.get(b"first").value, b"before the flood")
        self.assertEqual(connection.get(b"fill-0").status, kv.OK)
        node.assert_alive()
        ballast.unlink()
        until = time.monotonic() + 20
        while True:
            response = connection.set(b"healed", b"yes", framing=kv.durability(kv.PERSIST_ACTIVE))
            if response.status == kv.OK:
                return
            self.assertIn(response.status, (kv.TEMPORARY_FAILURE, 0xA2, 0xA3))
            self.assertLess(time.monotonic(), until, "space is back, writes are not")
            time.sleep(0.05)

    @staticmethod
    def write_until_refused(connection, limit_mib=900):
        """Fill the disk; the status of the first write that stays refused for a second."""
        value = os.urandom(64 * 1024)
        refused_since = None
        number = 0
        while number < limit_mib * 16:
            response = connection.set(f"fill-{number}".encode(), value)
            if response.status == kv.OK:
                refused_since = None
                number += 1
                continue
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since > 1:
                return response.status
            time.sleep(0.005)
        raise AssertionError(f"{limit_mib} MiB fit on a disk of 256")


class BucketInTheWay(unittest.TestCase):
    def test_is_opened_as_soon_as_it_can_be(self):
        node = Node(ADDRESS, scratch("in-the-way"))
        try:
            node.start()
            node.initialise()
            for name in (BUCKET, "other"):
                node.rest.create_bucket(name, quota_mb=128)
            with client(node) as connection:
                connection.must("store", connection.set(b"kept", b"all along"))
            uuid = node.rest.get(f"/pools/default/buckets/{BUCKET}").json["uuid"]
            node.stop()
            folder = node.data / "buckets" / uuid
            away = node.directory / "away"
            folder.rename(away)
            folder.write_text("not a folder")
            node.start()
            with self.assertRaises(kv.Refused):
                client(node)
            other = kv.Client(node.address, node.ports["kv"], USERNAME, PASSWORD, "other")
            with other as connection:
                connection.must("store", connection.set(b"k", b"the others go on"))
            folder.unlink()
            away.rename(folder)
            with patient_client(node, seconds=30) as connection:
                self.assertEqual(connection.get(b"kept").value, b"all along")
            node.stop()
        finally:
            node.kill()


class CorruptSegment(unittest.TestCase):
    COUNT = 2000

    def test_is_found_and_named_and_the_rest_is_served(self):
        folder = scratch("corrupt")
        node = Node(ADDRESS, folder)
        node.start()
        node.initialise()
        node.rest.create_bucket(BUCKET, quota_mb=256)
        values = {f"doc-{n}".encode(): value_of(n, 4000) for n in range(self.COUNT)}
        with client(node) as connection:
            for key, value in values.items():
                connection.must("store", connection.set(key, value))
        node.stop()
        victim = b"doc-1000"
        segment = self.flip(node.data, values[victim])
        try:
            node.start()
            with patient_client(node) as connection:
                wrong = [key for key, value in values.items() if self.read(connection, key) != value]
                self.assertEqual(wrong, [victim], "documents that differ or cannot be read")
                response = connection.get(victim)
                self.assertNotIn(response.status, (kv.OK, kv.NOT_FOUND), "unreadable is neither readable nor absent")
                # The rest goes on, writing included.
                connection.must("store", connection.set(b"doc-1001", b"new"))
                self.assertEqual(connection.get(b"doc-1001").value, b"new")
                # What is written anew is there again, and stays.
                connection.must("heal", connection.set(victim, b"made anew"))
                self.assertEqual(connection.get(victim).value, b"made anew")
            node.stop()
            node.start()
            with patient_client(node) as connection:
                self.assertEqual(connection.get(victim).value, b"made anew")
            self.assertIn(segment.name, node.log.read_text(), "the log names the segment")
            node.stop()
        finally:
            node.kill()

    @staticmethod
    def read(connection, key):
        """The value; None when the server says that it cannot be read, or has none."""
        response = connection.get(key)
        return response.value if response.status == kv.OK else None

    def flip(self, data, value):
        """Change one byte in the middle of a value where it lies on disk; says in which file."""
        for path in sorted(Path(data).rglob("*")):
            if not path.is_file():
                continue
            content = path.read_bytes()
            at = content.find(value)
            if at >= 0:
                at += len(value) // 2
                with open(path, "r+b") as file:
                    file.seek(at)
                    file.write(struct.pack("B", content[at] ^ 0x40))
                return path
        self.fail("the value was not found in any file: is it compressed on disk?")
