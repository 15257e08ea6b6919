"""Replicas on a node whose disk is far slower than that of the active ones: writers are paced before the gap grows without end, none
of them is refused, and the replicas catch up from where they are once nothing keeps them from it."""

import os
import threading
import time

import pytest
from settee import kv
from settee.cluster import Cluster
from settee.documents import connect
from settee.node import scratch

ADDRESS = os.environ.get("SETTEE_ADDRESS", "127.0.31.30")
BUCKET = "uneven"
SLOW_BYTES_PER_SEC = 2_000_000
# What is offered, and what of it can be waiting for the slow disk in memory.
OFFERED_BYTES_PER_SEC = 8_000_000
QUOTA_MB = 100
VALUE_BYTES = 16_384
# Until what is taken in has come down to what the other disk takes; what was taken in before that is twice as much and more.
SETTLING_SECONDS = 70
WATCHED_SECONDS = 20
CATCH_UP_SECONDS = 120


@pytest.fixture
def cluster():
    with Cluster(ADDRESS, scratch("cluster-slow-follower"), 2) as cluster:
        cluster[1].options += ["--disk-bytes-per-sec", SLOW_BYTES_PER_SEC]
        cluster.form()
        cluster.rest.create_bucket(BUCKET, quota_mb=QUOTA_MB, replicas=1)
        yield cluster


class Writer(threading.Thread):
    """Writes documents that are all new into vBuckets whose active copy is on one node, at a constant rate."""

    def __init__(self, cluster, node):
        super().__init__(daemon=True)
        self.client = connect(node, BUCKET)
        server_map = cluster.rest.get(f"/pools/default/buckets/{BUCKET}").json["vBucketServerMap"]
        index = next(at for at, name in enumerate(server_map["serverList"]) if name.startswith(f"{node.address}:"))
        self.actives = {vb for vb, chain in enumerate(server_map["vBucketMap"]) if chain[0] == index}
        self.number, self.written = 0, 0
        self.refused = set()
        self.is_over = threading.Event()

    def new_key(self):
        while True:
            self.number += 1
            key = b"document-%d" % self.number
            if kv.vbucket_of(key) in self.actives:
                return key

    def run(self):
        began = time.monotonic()
        while not self.is_over.is_set():
            status = self.client.set(self.new_key(), os.urandom(VALUE_BYTES)).status
            if status != kv.OK:
                self.refused.add(status)
            self.written += VALUE_BYTES
            ahead = self.written / OFFERED_BYTES_PER_SEC - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
            else:
                # What it was held back for is not made up for.
                began -= ahead

    def finish(self):
        self.is_over.set()
        self.join()


class Behind:
    """How far the copies are behind that follow a node."""

    def __init__(self, node):
        self.client = connect(node, BUCKET)

    def items(self):
        return int(self.client.stats(b"dcp")["ep_dcp_replica_items_remaining"])

    def seqnos(self):
        """How far the node has come in every vBucket."""
        return {name: value for name, value in self.client.stats(b"vbucket-seqno").items() if name.endswith(":high_seqno")}

    def step(self):
        return self.client.stats()["ep_pressure_step"]


def test_writers_are_paced_by_copies_on_a_slow_node(cluster):
    fast, slow = cluster.nodes
    behind, writer = Behind(fast), Writer(cluster, fast)
    writer.start()
    cluster.wait("writers are paced", lambda: behind.step() == "3", 120)
    cluster.wait("its log says why", lambda: "copies on other nodes" in fast.log.read_text(), 20)
    time.sleep(SETTLING_SECONDS)
    written = writer.written
    time.sleep(WATCHED_SECONDS)
    rate = (writer.written - written) / WATCHED_SECONDS
    print(f"{rate / 1e6:.1f} MB/s taken in, {behind.items()} documents behind", end=" ")
    writer.finish()
    assert not writer.refused, writer.refused
    assert rate < 1.5 * SLOW_BYTES_PER_SEC, "the gap goes on growing"
    # On a disk that is no slower than the other.
    slow.kill()
    slow.options.clear()
    slow.start()
    cluster.wait_healthy(BUCKET)
    replicas = Behind(slow)
    cluster.wait("the copies catch up", lambda: behind.seqnos() == replicas.seqnos(), CATCH_UP_SECONDS)
