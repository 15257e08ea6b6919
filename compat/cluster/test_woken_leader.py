"""The node that leads the cluster is frozen for longer than it takes to fail it over, and woken. A reader that asks nobody else never
sees an old value after a newer one was written by a majority: by then others serve what the woken node takes for its own."""

import threading
import time

import pytest
from conftest import VBUCKETS
from settee import documents, kv

MEMBERS = 3
NODES = 3
BUCKET = "register"
TIMEOUT_SECONDS = 5
ROUNDS = 3
KEYS = [f"key-{number}".encode() for number in range(64)]
# Longer than an automatic failover takes after its timeout, and longer than a woken node needs to hear of it.
FAILOVER_SECONDS = 30.0
READING_SECONDS = 4.0


@pytest.fixture(scope="module")
def bucket(cluster):
    cluster.rest.create_bucket(BUCKET, replicas=2, numVBuckets=VBUCKETS)
    cluster.wait_healthy(BUCKET)
    cluster.auto_failover(True, TIMEOUT_SECONDS, max_count=ROUNDS)


def leader_of(cluster):
    name = cluster.rest.get("/pools/default/terseClusterInfo").json["orchestrator"]
    return next(node for node in cluster.nodes if node.name == name)


def connect(node):
    return documents.connect(node, BUCKET, vbuckets=VBUCKETS)


def write(cluster, value, nodes):
    """Writes every key at its active node, by a majority; who has just been elected may refuse for a moment."""
    clients = {node.address: connect(node) for node in nodes}

    def written(key):
        vb = kv.vbucket_of(key, VBUCKETS)
        fields = {"framing": kv.durability(kv.MAJORITY), "extras": bytes(8), "value": value}
        client = clients[cluster.map(BUCKET)[vb][0]]
        return client.call(kv.SET, key=b"\0" + key, vb=vb, **fields).status == kv.OK

    for key in KEYS:
        cluster.wait(f"{key!r} is written", lambda: written(key), FAILOVER_SECONDS)
    for client in clients.values():
        client.close()


class PinnedReader(threading.Thread):
    """Reads keys of one node, again and again, whatever maps say."""

    def __init__(self, node, keys):
        super().__init__()
        self.client = connect(node)
        self.keys = keys
        self.seen = {}
        self.refused = 0
        self.ended = False

    def run(self):
        while not self.ended:
            for key in self.keys:
                response = self.client.call(kv.GET, key=b"\0" + key, vb=kv.vbucket_of(key, VBUCKETS))
                if response.status == kv.OK:
                    self.seen[response.value] = self.seen.get(response.value, 0) + 1
                else:
                    self.refused += 1

    def stop(self):
        self.ended = True
        self.join()
        self.client.close()


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_woken_leader_serves_nothing_that_is_old(cluster, bucket, turn):
    old, new = f"old-{turn}".encode(), f"new-{turn}".encode()
    write(cluster, old, cluster.nodes)
    cluster.wait_replicated(BUCKET)
    # Nobody is failed over before every node has said that it knows.
    time.sleep(2)
    leader = leader_of(cluster)
    others = [node for node in cluster.nodes if node is not leader]
    chains = cluster.map(BUCKET)
    own = [key for key in KEYS if chains[kv.vbucket_of(key, VBUCKETS)][0] == leader.address]
    assert own
    reader = PinnedReader(leader, own)
    leader.pause()
    # It is asked while it sleeps, and answers first of all when it wakes.
    reader.start()
    try:
        cluster.wait_member(leader, FAILOVER_SECONDS, clusterMembership="inactiveFailed")
        cluster.wait("the others serve", lambda: serves_all(cluster, others), FAILOVER_SECONDS)
        before = dict(reader.seen)
        write(cluster, new, others)
        leader.resume()
        time.sleep(READING_SECONDS)
    finally:
        if leader.paused:
            leader.resume()
        reader.stop()
    stale = {value: count - before.get(value, 0) for value, count in reader.seen.items() if value != new}
    assert not any(stale.values()), stale
    assert reader.refused, "it was asked, and said no"
    cluster.recover(leader)
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)


def serves_all(cluster, nodes):
    """Whether every vBucket has an active copy on one of these nodes."""
    addresses = {node.address for node in nodes}
    return all(chain[0] in addresses for chain in cluster.map(BUCKET))
