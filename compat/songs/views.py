"""The published view over the song data set: how many songs are electronic, whatever happens to the nodes.

Three nodes have the set and the view. A count is asked for, with `stale=false`, after the load, after all nodes were killed (-9), after
random updates and deletions, and after the failover of a node that was killed, without and with `replicaIndex`. Then it is asked for in
the middle of and after the rebalance that recovers that node, and of one that takes it out. Every answer has to be the exact number, or an explicit error while nodes are
changed; after each step it has to be exact.
"""

import base64
import http.client
import json
import random
import re
import subprocess
import time

from settee import ROOT, documents, kv
from settee.cluster import Cluster
from settee.node import PASSWORD, USERNAME, binary, scratch

BUCKET = "songs"
DESIGN = "songs"
VIEW = "electronic"
TAG = "electronic"
MAP = ROOT / "crates/cli/src/songs/electronic.js"
# Queries give up after their own time; the index of what was lost with a node may take longer.
EXACT_WITHIN_S = 400
QUERY_S = 60
CHANGES_MAX = 10_000
TAGLESS = 3


class Wrong(Exception):
    """A count is not what it has to be."""


class Songs:
    """A cluster with the set and the view, and how many rows that has to have."""

    def __init__(self, cluster, count, vbuckets, rng):
        self.cluster, self.count, self.vbuckets, self.rng = cluster, count, vbuckets, rng
        self.electronic = None
        self.clients = {}
        self.asked = self.errors = 0

    # Documents

    def close(self):
        for client in self.clients.values():
            client.close()
        self.clients.clear()

    def client(self, key):
        address = self.map[kv.vbucket_of(key, self.vbuckets)][0]
        if address not in self.clients:
            self.clients[address] = self.connect(next(node for node in self.cluster.nodes if node.address == address))
        return self.clients[address]

    def connect(self, node):
        return documents.connect(node, BUCKET, (kv.F_SEQNO, kv.F_XERROR, kv.F_JSON), vbuckets=self.vbuckets)

    def look_at_map(self):
        self.close()
        self.map = self.cluster.map(BUCKET)

    def load(self, tool):
        told = tool("load", self.cluster[0].address, BUCKET, self.count)
        self.electronic = int(re.search(r"exactly (\d+) of them tagged", told)[1])
        self.look_at_map()

    def keys(self):
        """All of the set's, in its order."""
        command = [str(binary()), "songs", "--keys", "--count", str(self.count)]
        return subprocess.run(command, check=True, capture_output=True).stdout.split()

    def change(self, changes):
        """Random updates and deletions of songs, of which some lose or get the tag, and documents that the function fails on."""
        chosen = self.rng.sample(self.keys(), changes)
        for key in chosen:
            client = self.client(key)
            song = json.loads(client.must("get", client.get(key)).value)
            was = sum(tag[0] == TAG for tag in song["tags"])
            chance = self.rng.random()
            if chance < 0.3:
                client.must("delete", client.delete(key))
                now = 0
            else:
                if chance < 0.6:
                    song["tags"] = [tag for tag in song["tags"] if tag[0] != TAG]
                elif chance < 0.9 and not was:
                    song["tags"].append([TAG, "100"])
                song["changed"] = True
                now = sum(tag[0] == TAG for tag in song["tags"])
                client.must("set", client.set(key, json.dumps(song).encode()))
            self.electronic += now - was
        self.tagless = {f"without-tags-{number}" for number in range(TAGLESS)}
        for docid in self.tagless:
            client = self.client(docid.encode())
            client.must("set", client.set(docid.encode(), b'{"title":"no tags"}'))

    def wait_persisted(self):
        def is_quiet():
            waiting = 0
            for node in self.cluster.nodes:
                if node.address in self.cluster.members():
                    with self.connect(node) as client:
                        waiting += int(client.stats()["ep_diskqueue_items"])
            return waiting == 0

        self.cluster.wait("everything is on the disks", is_quiet, 300)

    # The view

    def http(self, node, method, path, body=None):
        connection = http.client.HTTPConnection(node.address, node.ports["capi"], timeout=2 * QUERY_S)
        login = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def publish(self):
        views = {VIEW: {"map": MAP.read_text().rstrip(), "reduce": "_count"}}
        status, text = self.http(self.cluster[0], "PUT", f"/{BUCKET}/_design/{DESIGN}", json.dumps({"views": views}))
        if status != 201:
            raise Wrong(f"the view is refused: {status} {text}")

    def ask(self, nodes):
        """The count as a node tells it; or None where that is an explicit error. A wrong one is the end."""
        node = self.rng.choice(nodes)
        path = f"/{BUCKET}/_design/{DESIGN}/_view/{VIEW}?stale=false&connection_timeout={QUERY_S * 1000}"
        self.asked += 1
        try:
            status, text = self.http(node, "GET", path)
            told = json.loads(text) if status == 200 else None
        except OSError:
            told = None
        if told is None or "errors" in told:
            self.errors += 1
            return None
        found = sum(row["value"] for row in told["rows"])
        if found != self.electronic:
            raise Wrong(f"{node.address} counts {found} electronic songs in place of {self.electronic}")
        return found

    def members(self):
        known = self.cluster.members()
        active = [node for node in self.cluster.nodes if known.get(node.address, {}).get("clusterMembership") == "active"]
        return [node for node in active if node.alive()]

    def exact(self, after):
        """Every node tells the exact count, within a bound."""
        began, members = time.monotonic(), self.members()
        for node in members:
            while self.ask([node]) is None:
                if time.monotonic() - began > EXACT_WITHIN_S:
                    raise Wrong(f"{after}: {node.address} has no exact count within {EXACT_WITHIN_S} s")
        took = time.monotonic() - began
        print(f"  {after}: {self.electronic} electronic songs on {len(members)} nodes, {took:.1f} s", flush=True)

    def rebalance(self, what, **more):
        """Counts while it goes on, of which some have to be exact."""
        asked, errors, began = self.asked, self.errors, time.monotonic()
        removed = more.get("remove", [])
        stay = [node for node in self.members() if node not in removed]
        self.cluster.start_rebalance(**more)
        while self.cluster.task()["status"] == "running" or self.asked == asked:
            self.ask(stay)
        self.cluster.wait_rebalanced()
        asked, errors = self.asked - asked, self.errors - errors
        if asked == errors:
            raise Wrong(f"{what}: each of {asked} answers tells an error")
        took = time.monotonic() - began
        print(f"  {what}: {took:.1f} s, {asked} counts meanwhile, of which {errors} told an error", flush=True)
        self.exact(f"after {what}")
        self.look_at_map()

    def kill(self):
        self.wait_persisted()
        self.close()
        for node in self.cluster.nodes:
            node.kill()
        for node in self.cluster.nodes:
            node.start(timeout=120)
        self.cluster.wait_healthy(BUCKET, timeout=300)
        self.exact("after kill -9 of all")

    def info(self, node):
        status, text = self.http(node, "GET", f"/{BUCKET}/_design/{DESIGN}/_info")
        if status != 200:
            raise Wrong(f"_info answers {status}")
        return json.loads(text)["view_index"]

    def fail_over(self, replica_index):
        """A node is killed and failed over. What was lost with it is served, and indexed, by the others."""
        victim = self.cluster.nodes[-1]
        left = self.cluster.nodes[:-1]
        self.cluster.wait_replicated(BUCKET, timeout=300)
        if replica_index:
            copies = {node: sum(node.address in chain[1:] for chain in self.map) for node in left}
            indexed = lambda: all(self.info(node)["replica_vbuckets"] >= copies[node] for node in left)  # noqa: E731
            self.cluster.wait("the copies are indexed", indexed, EXACT_WITHIN_S)
        begun = lambda: sum(self.info(node)["vbuckets_begun"] for node in left)  # noqa: E731
        before = begun()
        self.close()
        victim.kill()
        self.cluster.fail_over(victim)
        self.exact(f"after a failover {'with' if replica_index else 'without'} replicaIndex")
        built = begun() - before
        if (built == 0) != replica_index:
            raise Wrong(f"{built} vBuckets were indexed from their beginning after the failover")
        self.look_at_map()

    def recover(self):
        """The node that was failed over comes back with nothing of the bucket."""
        node = self.cluster.nodes[-1]
        node.start()
        self.cluster.wait_member(node, status="healthy")
        self.cluster.recover(node, "full")

    def check_errors(self):
        """Documents that the function fails on are left out, and listed by the nodes that have them."""
        listed = set()
        for node in self.members():
            status, text = self.http(node, "GET", f"/{BUCKET}/_design/{DESIGN}/_errors")
            told = json.loads(text)["views"][VIEW] if status == 200 else {"last": []}
            listed |= {mistake["id"] for mistake in told["last"]}
        if not self.tagless <= listed:
            raise Wrong(f"of {sorted(self.tagless)} only {sorted(listed)} are listed")
        print(f"  {len(self.tagless)} documents without tags are left out, and listed", flush=True)


def prove(count, address, tool, quota_mb, vbuckets, seed=None):
    """All of it, on clusters of its own."""
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    print(f"the view over {count} songs, seed {seed}", flush=True)
    rng, began = random.Random(seed), time.monotonic()
    for replica_index in (False, True):
        with Cluster(address, scratch(f"songs-views-{int(replica_index)}"), 3) as cluster:
            cluster.form(memoryQuota=quota_mb)
            cluster.auto_failover(False)
            more = {"numVBuckets": vbuckets, "replicaIndex": int(replica_index)}
            cluster.rest.create_bucket(BUCKET, quota_mb=quota_mb, replicas=1, **more)
            cluster.wait_healthy(BUCKET)
            songs = Songs(cluster, count, vbuckets, rng)
            songs.publish()
            songs.load(tool)
            songs.exact("after the load")
            if not replica_index:
                songs.kill()
                changes = min(CHANGES_MAX, count // 20)
                songs.change(changes)
                songs.exact(f"after {changes} random updates and deletions")
                songs.check_errors()
            songs.fail_over(replica_index)
            if not replica_index:
                songs.recover()
                songs.rebalance("a rebalance from 2 to 3 nodes")
                songs.rebalance("a rebalance from 3 to 2 nodes", remove=[cluster[1]])
            songs.close()
            told = f"  {songs.asked} counts, of which {songs.errors} told an error"
            print(f"{told}; {time.monotonic() - began:.0f} s so far", flush=True)
