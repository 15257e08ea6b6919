"""Clients that know one address and nothing of vBuckets use the whole bucket through port 11211 of any node, while nodes
come and go."""

import threading

import bmemcached
import pytest
from conftest import VBUCKETS
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

MEMBERS = 4
BUCKET = "cache"
DOCUMENTS = 400


@pytest.fixture(scope="module")
def bucket(cluster):
    cluster.rest.create_bucket(
        BUCKET, replicas=1, flushEnabled=1, legacyMemcachedPort=1, legacyPasswordless=1, numVBuckets=VBUCKETS
    )
    cluster.wait_healthy(BUCKET)


def text(node):
    return Client((node.address, 11211), timeout=5, connect_timeout=5, default_noreply=False)


def keys(prefix):
    return [f"{prefix}-{number}" for number in range(DOCUMENTS)]


def test_what_one_node_stores_every_node_reads(cluster, bucket):
    writers = [text(node) for node in cluster.nodes]
    for number, key in enumerate(keys("text")):
        assert writers[number % len(writers)].set(key, str(number))
    for reader in writers:
        for number, key in enumerate(keys("text")):
            assert reader.get(key) == str(number).encode()
        found = reader.get_many(keys("text"))
        assert len(found) == DOCUMENTS
    assert writers[0].set("counter", "10")
    for reader in writers:
        reader.incr("counter", 1)
    assert writers[0].get("counter") == b"14"


def test_binary_clients_do_the_same(cluster, bucket):
    clients = [bmemcached.Client((f"{node.address}:11211",), compression=None, socket_timeout=5) for node in cluster.nodes]
    for number, key in enumerate(keys("binary")):
        assert clients[number % len(clients)].set(key, str(number))
    for client in clients:
        assert client.get_multi(keys("binary")) == {key: str(number) for number, key in enumerate(keys("binary"))}
        assert client.incr("binary-counter", 1, default=0) is not None
        client.disconnect_all()


class Writer(threading.Thread):
    """Writes and reads back through one node until it is told to stop; keeps what went wrong."""

    def __init__(self, node, prefix):
        super().__init__(daemon=True)
        self.client, self.prefix = text(node), prefix
        self.stopping = threading.Event()
        self.operations, self.failures, self.wrong = 0, [], []

    def run(self):
        while not self.stopping.is_set():
            key, value = f"{self.prefix}-{self.operations % DOCUMENTS}", str(self.operations).encode()
            try:
                self.client.set(key, value)
                got = self.client.get(key)
                if got != value:
                    self.wrong.append((key, value, got))
            except (MemcacheError, OSError) as error:
                self.failures.append(repr(error))
            self.operations += 1

    def stop(self):
        self.stopping.set()
        self.join()


def test_a_rebalance_goes_unnoticed(cluster, bucket):
    leaves = cluster[3]
    writers = [Writer(node, f"moved-{number}") for number, node in enumerate(cluster.nodes[:3])]
    for writer in writers:
        writer.start()
    try:
        cluster.rebalance(remove=[leaves])
    finally:
        for writer in writers:
            writer.stop()
    for writer in writers:
        assert writer.operations > 100
        assert not writer.wrong and not writer.failures
    assert len(cluster.members()) == 3


def test_a_flush_through_one_node_empties_them_all(cluster, bucket):
    members = cluster.nodes[:3]
    clients = [text(node) for node in members]
    for number, key in enumerate(keys("flushed")):
        assert clients[number % len(clients)].set(key, "x")
    for client in clients:
        assert client.flush_all()
        for other in clients:
            assert other.get_many(keys("flushed")) == {}
            assert other.set("after", "x") and other.get("after") == b"x"
