"""Clients that know one address and nothing of vBuckets use the whole bucket through port 11211 of any node, while nodes
come and go."""

import time

import bmemcached
import pytest
from conftest import VBUCKETS
from pymemcache.client.base import Client
from settee import kv
from writers import Kill, writing

MEMBERS = 4
BUCKET = "cache"
DOCUMENTS = 400
SHOWN = 3
CALM_SECONDS = 2.0
# Long enough that a busy machine does not fail over anybody who is alive.
AUTO_FAILOVER_SECONDS = 3
# How much longer it may take until everybody is answered again: to notice, to agree, and to promote the replicas.
FAILING_OVER_SECONDS = 5.0
# Within what the other nodes know of a change that one of them tells of.
NOTICE_SECONDS = 1.0


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


def check_unnoticed(writers, began, ended):
    """Nothing was wrong, nothing failed, and every writer was there while it happened."""
    for writer in writers:
        wrong, _ = writer.judged()
        assert (wrong[:SHOWN], writer.failures()[:SHOWN]) == ([], []), writer.name
        assert writer.answered(began, ended) > 0, writer.name


def unnoticed(cluster, prefix, through, **change):
    """A rebalance beside writers through the nodes that are members before and after it."""
    with writing(through, prefix) as writers:
        wait_rounds(cluster, writers)
        began = time.monotonic()
        cluster.rebalance(**change)
        ended = time.monotonic()
        wait_rounds(cluster, writers)
    for reader in cluster.nodes:
        if reader.address in cluster.members():
            read_all(writers, reader)
    check_unnoticed(writers, began, ended)


def test_a_rebalance_out_goes_unnoticed(cluster, bucket):
    unnoticed(cluster, "out", cluster.nodes[:3], remove=[cluster[3]])
    assert len(cluster.members()) == 3


def test_a_rebalance_in_goes_unnoticed(cluster, bucket):
    comes = cluster[3]
    cluster.wait("it is nobody's", lambda: comes.rest.request("GET", "/pools/default").status == 404, 30)
    cluster.add(comes)
    unnoticed(cluster, "in", cluster.nodes[:3])
    assert len(cluster.members()) == 4


def read_all(writers, node):
    """What all of them have written, through this node by the other protocol."""
    for writer in writers:
        writer.read_all("text" if writer.protocol == "binary" else "binary", node)


def wait_rounds(cluster, writers):
    """Until each has been through some of its documents again, and through all of them once."""
    wanted = [writer.rounds + 1 for writer in writers]

    def have_been():
        return all(writer.rounds >= rounds for writer, rounds in zip(writers, wanted, strict=True))

    cluster.wait("every writer has been through its documents", have_been, 120)


def test_a_node_dies_is_failed_over_by_the_cluster_and_recovered(cluster, bucket, capsys):
    dies = cluster[3]
    cluster.wait_healthy(BUCKET)
    cluster.auto_failover(True, timeout=AUTO_FAILOVER_SECONDS)
    with writing(cluster.nodes, "killed") as writers:
        wait_rounds(cluster, writers)
        actives = [chain[0] for chain in cluster.map(BUCKET)]
        replicated = cluster.wait_replicated(BUCKET)
        killed = time.monotonic()
        dies.kill()
        cluster.wait_member(dies, clusterMembership="inactiveFailed")
        failed_over = time.monotonic()
        cluster.auto_failover(False)
        survivors = [writer for writer in writers if writer.node is not dies]
        wait_rounds(cluster, survivors)
        dies.start()
        cluster.wait_member(dies, status="healthy")
        # It has its old documents on disk, and a port: what it answers counts, if it answers.
        time.sleep(CALM_SECONDS)
        cluster.recover(dies)
        cluster.rebalance()
        recovered = time.monotonic()
        cluster.wait_healthy(BUCKET)
        time.sleep(CALM_SECONDS)
        wait_rounds(cluster, writers)
    for reader in cluster.nodes:
        read_all(writers, reader)

    def lost_its_active(key):
        return actives[kv.vbucket_of(key.encode(), VBUCKETS)] == dies.address

    kill = Kill(at=killed, replicated=replicated)
    last = 0.0
    for writer in writers:
        wrong, undone = writer.judged(kill, lost_its_active)
        assert not wrong, wrong[:SHOWN]
        failures, survives = writer.failures(), writer in survivors
        # A client of the dead node itself has to wait until it is a member again.
        until = (failed_over if survives else recovered) + NOTICE_SECONDS
        others = [event for event in failures if event.ended < killed or event.began > until]
        assert not others, (writer.name, killed, failed_over, recovered, others[:SHOWN])
        assert writer.answered(until) > 0, writer.name
        window = failures[-1].ended - killed if failures else 0.0
        last = max(last, window if survives else 0.0)
        with capsys.disabled():
            print(f"\n{writer.name}: {len(failures)} errors, the last {window:.1f} s after the kill; {undone} undone", end="")
    with capsys.disabled():
        print(f"\nfailed over after {failed_over - killed:.1f} s, recovered after {recovered - killed:.1f} s")
    assert last <= AUTO_FAILOVER_SECONDS + FAILING_OVER_SECONDS


def test_a_flush_through_one_node_empties_them_all(cluster, bucket):
    clients = [text(node) for node in cluster.nodes]
    for number, key in enumerate(keys("flushed")):
        assert clients[number % len(clients)].set(key, "x")
    for client in clients:
        assert client.flush_all()
        for other in clients:
            assert other.get_many(keys("flushed")) == {}
            assert other.set("after", "x") and other.get("after") == b"x"
