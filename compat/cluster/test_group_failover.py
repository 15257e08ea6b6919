"""A server group that is lost is failed over as one, though its nodes are not lost in the same moment; the other group serves on."""

import time

import pytest
from conftest import VBUCKETS
from pymemcache.client.base import Client

MEMBERS = 1
NODES = 5
BUCKET = "racks"
DOCUMENTS = {f"doc-{number}": str(number).encode() for number in range(500)}
EAST = "east"
TIMEOUT_SECONDS = 5
# Between the ends of two nodes of a group, as of two machines that lose their power.
APART_SECONDS = 0.6


def client_of(node):
    return Client((node.address, 11211), timeout=10, connect_timeout=5, default_noreply=False)


@pytest.fixture(scope="module")
def east(cluster):
    """Two of five nodes, in a group of their own."""
    cluster.rest.ok("POST", "/pools/default/serverGroups", {"name": EAST})
    for node in cluster.nodes[1:3]:
        cluster.add(node)
    for node in cluster.nodes[3:]:
        cluster.add(node, group=EAST)
    cluster.rest.create_bucket(
        BUCKET, replicas=1, numVBuckets=VBUCKETS, legacyMemcachedPort=1, legacyPasswordless=1
    )
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    client = client_of(cluster[0])
    for key, value in DOCUMENTS.items():
        assert client.set(key, value)
    client.close()
    cluster.wait_replicated(BUCKET)
    return cluster.nodes[3:]


def test_both_are_failed_over_as_one_event(cluster, east):
    form = {"enabled": "true", "timeout": TIMEOUT_SECONDS, "maxCount": 1, "failoverServerGroup": "true"}
    cluster.rest.ok("POST", "/settings/autoFailover", form)
    # Nobody is failed over before every node has said that it knows.
    time.sleep(2)
    east[0].kill()
    time.sleep(APART_SECONDS)
    east[1].kill()
    for node in east:
        cluster.wait_member(node, clusterMembership="inactiveFailed")
    assert cluster.rest.get("/settings/autoFailover").json["count"] == 1


def test_what_they_had_is_served_by_the_others(cluster, east):
    left = {node.address for node in cluster.nodes[:3]}
    assert {chain[0] for chain in cluster.map(BUCKET)} == left
    client = client_of(cluster[0])
    assert client.get_many(list(DOCUMENTS)) == DOCUMENTS
    assert client.set_many(DOCUMENTS) == []
    client.close()


def test_they_come_back(cluster, east):
    for node in east:
        node.start()
    cluster.wait_members(status="healthy")
    for node in east:
        cluster.recover(node)
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    assert {chain[0] for chain in cluster.map(BUCKET)} == {node.address for node in cluster.nodes}
