"""Delta recovery: of what the node still has, only what was changed without it comes again. Full recovery has all of it sent."""

import threading

import pytest
from conftest import VBUCKETS
from pymemcache.client.base import Client
from settee import documents, kv

MEMBERS = 3
BUCKET = "kept"
COUNT = 2000
MEANWHILE = 30
CHANGED = [f"kept-{number}" for number in range(0, COUNT, COUNT // MEANWHILE)]
# Full recovery sends at least so many times as much.
TIMES = 10


@pytest.fixture(scope="module")
def expected(cluster):
    """The documents, by key."""
    cluster.rest.create_bucket(
        BUCKET, replicas=1, numVBuckets=VBUCKETS, legacyMemcachedPort=1, legacyPasswordless=1
    )
    cluster.wait_healthy(BUCKET)
    values = {f"kept-{number}": f"{number}-first" for number in range(COUNT)}
    write(cluster, values)
    return values


def write(cluster, values):
    client = Client((cluster.any_node().address, 11211), timeout=30, connect_timeout=5, default_noreply=False)
    assert client.set_many(values) == []
    client.close()


def read(node, keys):
    client = Client((node.address, 11211), timeout=30, connect_timeout=5)
    found = client.get_many(list(keys))
    client.close()
    return {key: value.decode() for key, value in found.items()}


def stats(node, group=b""):
    with documents.connect(node, BUCKET) as client:
        return client.stats(group)


def number_of(node):
    """Which of the members it is, as the names of its connections have it: those to nodes that it follows."""
    consumers = [name for name, value in stats(node, b"dcp").items() if name.endswith(":type") and value == "consumer"]
    return consumers[0].split("->")[1].split(":")[0]


class Sent(threading.Thread):
    """Documents that the other nodes send to one, from now on. Connections come and go: each counts with the most it has said."""

    def __init__(self, cluster, to, number):
        super().__init__(daemon=True)
        self.senders = [node for node in cluster.nodes[:MEMBERS] if node is not to]
        self.number = number
        self.seen = {}
        self.error = None
        self.stopping = threading.Event()

    def look(self):
        for node in self.senders:
            told = stats(node, b"dcp")
            for name, value in told.items():
                connection, _, fact = name.removeprefix("eq_dcpq:").rpartition(":")
                if fact == "items_sent" and connection.startswith("replication:") and f"->{self.number}:" in connection:
                    which = node.address, connection, told[f"eq_dcpq:{connection}:created"]
                    self.seen[which] = max(self.seen.get(which, 0), int(value))

    def run(self):
        try:
            while not self.stopping.wait(0.05):
                self.look()
        except (OSError, kv.Closed) as error:
            self.error = error

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.join()
        assert self.error is None, f"not everything was seen: {self.error}"
        self.look()

    @property
    def items(self):
        return sum(self.seen.values())


def is_on_disk(node):
    return stats(node)["ep_diskqueue_items"] == "0"


def recovered(cluster, node, kind, expected):
    """Kills a node, fails it over, changes a few documents, has it recovered. How many documents it was sent for that."""
    cluster.wait_replicated(BUCKET)
    cluster.wait("everything is on disk", lambda: is_on_disk(node), 60)
    number = number_of(node)
    node.kill()
    cluster.wait_member(node, status="unhealthy")
    cluster.fail_over(node)
    changed = {key: f"{key}-{kind}" for key in CHANGED}
    write(cluster, changed)
    expected |= changed
    node.start()
    cluster.wait_member(node, status="healthy")
    with Sent(cluster, node, number) as sent:
        cluster.recover(node, kind)
        cluster.rebalance()
        cluster.wait_healthy(BUCKET)
        cluster.wait_replicated(BUCKET)
    assert cluster.pool()["balanced"]
    assert node.address in {chain[0] for chain in cluster.map(BUCKET)}
    assert read(node, expected) == expected
    return sent.items


def test_delta_recovery_sends_what_was_changed(cluster, expected, capsys):
    node = cluster[2]

    def held(keys):
        chains = cluster.map(BUCKET)
        return sum(node.address in chains[kv.vbucket_of(key.encode(), VBUCKETS)] for key in keys)

    everything, changed = held(expected), held(CHANGED)
    delta = recovered(cluster, node, "delta", expected)
    full = recovered(cluster, node, "full", expected)
    with capsys.disabled():
        print(f"\ndelta recovery sent {delta} documents, full recovery {full}; of {everything} it held, {changed} were changed")
    # The other nodes place what it lost as they like: nearly the same.
    assert full > everything * 0.8
    assert changed <= delta < full / TIMES
