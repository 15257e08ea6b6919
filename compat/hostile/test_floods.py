"""Floods by people who have no account: idle sockets, silent connections, wrong passwords.

Each test attacks as strangers did when the defence was not there yet, and asks what they broke: logins of administrators and users,
the lease of a node, the disk. Bounds are wide; without the defence they are missed by an order of magnitude.
"""

import itertools
import json
import socket
import threading
import time

from case import ADDRESS, ARENA, ATTACKER, HostileCase, NODE
from settee import kv
from settee.cluster import Cluster
from settee.node import PASSWORD, USERNAME, Node, scratch

MIB = 1024 * 1024
# Where the attackers sit, apart from everybody else.
SOURCES = [f"127.0.41.{n}" for n in range(1, 9)]


def silent(address, port, count, sources=SOURCES):
    """Sockets that say nothing; as many as the server takes."""
    opened = []
    for source, _ in zip(itertools.cycle(sources), range(count)):
        try:
            opened.append(socket.create_connection((address, port), 5, (source, 0)))
        except OSError:
            pass
    return opened


def close(sockets):
    for each in sockets:
        each.close()


def plain(user, password):
    return kv.frame(kv.SASL_AUTH, key=b"PLAIN", value=f"\0{user}\0{password}".encode())


def eventually(what, seconds, attempt):
    """What `attempt` returns, once it raises nothing."""
    until = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except (OSError, kv.Closed, kv.Refused) as error:
            if time.monotonic() > until:
                raise AssertionError(f"{what}: not within {seconds} s") from error
        time.sleep(0.1)


class IdleSockets(HostileCase):
    def test_idle_sockets_on_the_management_port_lock_no_administrator_out(self):
        idle = silent(ADDRESS, NODE.ports["mgmt"], 1500)
        try:
            self.assertGreater(len(idle), 1000)
            for _ in range(20):
                answer = eventually("an administrator's request", 20, lambda: NODE.rest.get("/pools/default"))
                self.assertEqual(answer.status, 200)
        finally:
            close(idle)

    def test_silent_connections_free_their_places_for_logins(self):
        """As many as there are places, on a node with few of them."""
        with Node("127.0.31.84", scratch("hostile-places"), ["--connections-max", "300"]) as node:
            node.initialise()
            node.rest.create_bucket("places")
            idle = silent(node.address, node.ports["kv"], 400)
            try:
                self.assertGreater(len(idle), 290)
                for _ in range(10):
                    login = lambda: kv.Client(node.address, node.ports["kv"], USERNAME, PASSWORD, "places")
                    eventually("a login", 30, login).close()
            finally:
                close(idle)


class Leases(HostileCase):
    """Three nodes that fail one another over after five seconds, and 1,200 idle sockets on each one's management port."""

    def test_idle_sockets_cost_no_node_its_lease(self):
        cluster = Cluster("127.0.31.81", scratch("hostile-leases"), 3)
        idle = []
        try:
            cluster.form()
            rest = cluster[0].rest
            rest.create_bucket("kept", replicas=1)
            rest.ok("POST", "/settings/autoFailover", {"enabled": "true", "timeout": 5, "maxCount": 1})
            for node in cluster.nodes:
                idle += silent(node.address, node.ports["mgmt"], 1200)
            self.assertGreater(len(idle), 2000)
            # One that was away for a moment has to get through to the others again.
            cluster[1].pause()
            time.sleep(2.5)
            cluster[1].resume()
            keys = self.a_key_of_each(rest)
            until = time.monotonic() + 8
            while time.monotonic() < until:
                for address, key in keys.items():
                    eventually(f"a write to {address}", 20, lambda: self.write(address, key))
                # The oldest make room: this process may have so many files only.
                close(idle[:50])
                idle = idle[50:] + silent(cluster[0].address, cluster[0].ports["mgmt"], 50)
            settings = eventually("settings", 20, lambda: rest.get("/settings/autoFailover")).json
            self.assertEqual(settings["count"], 0, "a node was failed over")
        finally:
            close(idle)
            for node in cluster.nodes:
                node.kill()
        for node in cluster.nodes:
            self.assertEqual(node.panics(), [])

    def a_key_of_each(self, rest):
        """For each node a key that it is to serve, once every vBucket is served somewhere."""
        def found():
            vbuckets = rest.get("/pools/default/b/kept").json["vBucketServerMap"]
            servers = [server.rsplit(":", 1)[0] for server in vbuckets["serverList"]]
            keys = {}
            for key in (f"key{number}".encode() for number in range(500)):
                active = vbuckets["vBucketMap"][kv.vbucket_of(key, len(vbuckets["vBucketMap"]))][0]
                if active >= 0:
                    keys.setdefault(servers[active], key)
            if len(keys) < 3:
                raise OSError(json.dumps(servers))
            return keys

        return eventually("a map", 20, found)

    def write(self, address, key):
        with kv.Client(address, 11210, USERNAME, PASSWORD, "kept", timeout=5) as client:
            client.must("store", client.set(key, b"x"))


class FailedLogins(HostileCase):
    def written(self):
        """Bytes of the log and of the audit trail."""
        files = [NODE.log, *NODE.data.glob("audit*.log")]
        return sum(file.stat().st_size for file in files if file.exists())

    def flood(self, source, until, outcomes):
        """Wrong passwords as fast as they are taken, a hundred in one go."""
        wrong = plain("nobody", "wrong") * 100
        while time.monotonic() < until:
            try:
                with kv.Connection(ADDRESS, NODE.ports["kv"], source=source) as client:
                    client.send(wrong)
                    for _ in range(100):
                        outcomes.append(client.receive().status)
            except (OSError, kv.Closed):
                pass

    def run_floods(self, seconds, target, sources):
        until, outcomes = time.monotonic() + seconds, []
        threads = [threading.Thread(target=target, args=(source, until, outcomes)) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    def test_failed_logins_do_not_fill_the_disk(self):
        before = self.written()
        outcomes = self.run_floods(6, self.flood, SOURCES)
        grown = (self.written() - before) / MIB
        print(f"[{len(outcomes)} answers, {grown:.2f} MiB written] ", end="", flush=True)
        self.assertNotIn(kv.OK, outcomes)
        self.assertLess(grown, 5, "MiB of logs")

    def guess(self, source, until, outcomes):
        """Passwords of a user that exists, one after the other."""
        for number in itertools.count():
            if time.monotonic() > until:
                return
            try:
                with kv.Connection(ADDRESS, NODE.ports["kv"], source=source) as client:
                    client.send(plain(ATTACKER, f"guess{number}"))
                    outcomes.append(client.receive().status)
            except (OSError, kv.Closed):
                pass

    def test_few_guesses_are_checked_and_users_log_in_meanwhile(self):
        logins = []

        def logged_in(_, until, __):
            while time.monotonic() < until:
                began = time.monotonic()
                kv.Client(ADDRESS, NODE.ports["kv"], USERNAME, PASSWORD, ARENA).close()
                logins.append(time.monotonic() - began)

        friend = threading.Thread(target=logged_in, args=(None, time.monotonic() + 6, None))
        friend.start()
        # Sixteen guessers behind one address.
        outcomes = self.run_floods(6, self.guess, SOURCES[:1] * 16)
        friend.join()
        checked = outcomes.count(kv.AUTH_ERROR)
        print(f"[{len(outcomes)} guesses, {checked} checked, {len(logins)} logins] ", end="", flush=True)
        self.assertNotIn(kv.OK, outcomes)
        self.assertLess(checked, 200, "guesses that were checked within six seconds")
        self.assertGreater(len(logins), 5)
        self.assertLess(max(logins), 5, "seconds that a login took")
