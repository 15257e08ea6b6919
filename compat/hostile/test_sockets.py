"""Clients that are slow, half dead, stopped, or too many."""

import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time

from case import ADDRESS, ARENA, ATTACKER, ATTACKER_PASSWORD, NODE, HostileCase, attacker, memory_kib
from settee import kv

MIB = 1024 * 1024


class SlowClients(HostileCase):
    def test_byte_by_byte(self):
        with attacker() as client:
            key = b"drip"
            request = kv.frame(
                kv.SET, key=key, vb=kv.vbucket_of(key), extras=struct.pack(">II", 1, 0), value=b"drop by drop", opaque=5
            )
            for byte in request:
                client.send(bytes([byte]))
                time.sleep(0.002)
            self.assertEqual(client.receive().status, kv.OK)
            self.assertEqual(client.get(key).value, b"drop by drop")

    def test_half_open_connections(self):
        stuck = []
        try:
            for number in range(300):
                name = ("kv", "kv_tls", "memcached", "mgmt", "mgmt_tls", "capi")[number % 6]
                connection = socket.create_connection((ADDRESS, NODE.ports[name]), 10)
                connection.sendall(b"\x80\x01\x00" if number % 2 else b"G")
                stuck.append(connection)
            self.assert_healthy()
        finally:
            for connection in stuck:
                connection.close()

    def test_clients_that_ask_but_never_read(self):
        """Replies are bounded per connection: 1,600 MiB are asked for, nobody reads."""
        with attacker() as client:
            key, value = b"large", os.urandom(MIB)
            client.must("store", client.set(key, value))
        before = memory_kib(NODE.pid)
        request = kv.frame(kv.GET, key=key, vb=kv.vbucket_of(key))
        readers = [attacker() for _ in range(8)]
        try:
            for reader in readers:
                reader.send(request * 200)
            time.sleep(1)
            grown = (memory_kib(NODE.pid) - before) // 1024
            self.assertLess(grown, 300, "MiB grown for clients that do not read")
            self.assert_healthy()
            # A client that starts to read gets every answer, whole.
            for _ in range(200):
                self.assertEqual(readers[0].receive().value, value)
        finally:
            for reader in readers:
                reader.close()

    def test_clients_that_store_large_values_and_vanish(self):
        key = b"vanish"
        whole = kv.frame(kv.SET, key=key, vb=kv.vbucket_of(key), extras=bytes(8), value=bytes(10 * MIB))
        before = memory_kib(NODE.pid)
        for _ in range(30):
            client = attacker()
            client.send(whole[: 5 * MIB])
            client.close()
        time.sleep(0.5)
        self.assertLess((memory_kib(NODE.pid) - before) // 1024, 200, "MiB kept for clients that are gone")

    def test_resets_in_the_middle(self):
        for number in range(500):
            client = socket.create_connection((ADDRESS, NODE.ports["kv"]), 10)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(kv.frame(kv.HELLO, key=b"reset", value=b"\0\4")[: 5 + number % 30])
            client.close()

    def test_stopped_clients(self):
        """SIGSTOP in the middle of a conversation, SIGCONT later: nothing is lost, nobody else waits."""
        program = textwrap.dedent(
            f"""
            from settee import kv
            client = kv.Client({ADDRESS!r}, {NODE.ports["kv"]}, {ATTACKER!r}, {ATTACKER_PASSWORD!r}, {ARENA!r})
            for number in range(30_000):
                if number == 200:
                    print("started", flush=True)
                assert client.set(b"stopped", b"%d" % number).status == 0
            assert client.get(b"stopped").value == b"29999"
            print("done", flush=True)
            """
        )
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(process.stdout.readline(), "started\n")
            for _ in range(3):
                process.send_signal(signal.SIGSTOP)
                self.assert_healthy()
                time.sleep(0.3)
                process.send_signal(signal.SIGCONT)
                time.sleep(0.1)
            self.assertEqual(process.stdout.readline(), "done\n")
            self.assertEqual(process.wait(10), 0)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def test_a_pipeline_of_everything(self):
        """20,000 requests in one go, read only afterwards."""
        with attacker() as client:
            keys = [f"pipe{n}".encode() for n in range(10_000)]
            sets = b"".join(
                kv.frame(kv.SET, key=k, vb=kv.vbucket_of(k), extras=bytes(8), value=k, opaque=n)
                for n, k in enumerate(keys)
            )
            gets = b"".join(kv.frame(kv.GET, key=k, vb=kv.vbucket_of(k), opaque=n) for n, k in enumerate(keys))
            client.send(sets)
            for _ in keys:
                self.assertEqual(client.receive().status, kv.OK)
            client.send(gets)
            for _ in keys:
                response = client.receive()
                self.assertEqual(response.value, keys[response.opaque])


class Flood(HostileCase):
    """As many connections as this machine allows, up to 30,000, from several source addresses."""

    WANTED = 30_000
    SOURCES = [f"127.0.40.{n}" for n in range(1, 9)]

    def test_connections(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        wanted = min(self.WANTED, limit - 200)
        with kv.Client(ADDRESS, NODE.ports["kv"], ATTACKER, ATTACKER_PASSWORD, ARENA) as old_friend:
            connections = []
            try:
                refused = self.open(connections, wanted)
                answered = self.answered(connections)
                print(f"[{wanted} tried, {refused} refused, {answered} answered] ", end="", flush=True)
                self.assertGreater(answered, wanted * 3 // 4, "connections that were served")
                # Those who were there before, and the administrator, are served on.
                old_friend.must("store", old_friend.set(b"friend", b"x"))
                self.assertEqual(NODE.rest.get("/pools/default").status, 200)
            finally:
                for connection in connections:
                    connection.close()
        self.wait_for_room()

    def open(self, connections, wanted):
        refused = 0
        for number in range(wanted):
            connection = socket.socket()
            try:
                connection.settimeout(10)
                connection.bind((self.SOURCES[number % len(self.SOURCES)], 0))
                connection.connect((ADDRESS, NODE.ports["kv"]))
                connection.sendall(kv.frame(kv.HELLO, key=b"flood", value=b"\0\4"))
                connections.append(connection)
            except OSError:
                connection.close()
                refused += 1
        return refused

    def answered(self, connections):
        """How many were answered their HELLO within a while."""
        poll = select.poll()
        waiting = {connection.fileno(): connection for connection in connections}
        for number in waiting:
            poll.register(number, select.POLLIN)
        answered = 0
        until = time.monotonic() + 20
        while waiting and time.monotonic() < until:
            for number, _ in poll.poll(1000):
                poll.unregister(number)
                connection = waiting.pop(number)
                try:
                    answered += len(connection.recv(100)) >= 24
                except OSError:
                    pass
        return answered

    def wait_for_room(self):
        until = time.monotonic() + 20
        while True:
            try:
                kv.Client(ADDRESS, NODE.ports["kv"], ATTACKER, ATTACKER_PASSWORD, ARENA).close()
                return
            except (OSError, kv.Closed, kv.Refused):
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
