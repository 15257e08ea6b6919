"""Nodes are added, die, come back and leave, and what was written stays."""

import pytest
from conftest import VBUCKETS
from pymemcache.client.base import Client
from settee import documents, kv

MEMBERS = 1
BUCKET = "main"
COUNT = 500


@pytest.fixture(scope="module")
def bucket(cluster):
    cluster.rest.create_bucket(
        BUCKET, replicas=1, numVBuckets=VBUCKETS, legacyMemcachedPort=1, legacyPasswordless=1
    )
    stored = [(kv.SET, 0, f"doc-{n}".encode(), {"extras": bytes(8), "value": str(n).encode()}) for n in range(COUNT)]
    with documents.connect(cluster[0], BUCKET, vbuckets=VBUCKETS) as client:
        for request, response in documents.pipeline(client, stored):
            client.must(f"store {request[2]!r}", response)


def check_documents(cluster):
    """All are there, read through one node, and REST comes to count them (nodes tell their figures once a second)."""
    client = Client((cluster.any_node().address, 11211), timeout=10, connect_timeout=5)
    found = client.get_many([f"doc-{number}" for number in range(COUNT)])
    client.close()
    assert found == {f"doc-{number}": str(number).encode() for number in range(COUNT)}

    def counted():
        return cluster.rest.get(f"/pools/default/buckets/{BUCKET}").json["basicStats"]["itemCount"] == COUNT

    cluster.wait("every document is counted", counted, 30)


def test_two_nodes_are_taken_in(cluster, bucket):
    for node in cluster.nodes[1:3]:
        cluster.add(node)
    assert {m["clusterMembership"] for m in cluster.members().values()} == {"active", "inactiveAdded"}
    assert not cluster.pool()["balanced"]
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    assert cluster.pool()["balanced"]
    check_documents(cluster)
    chains = cluster.rest.get(f"/pools/default/b/{BUCKET}").json["vBucketServerMap"]["vBucketMap"]
    assert all(len(set(chain)) == 2 and -1 not in chain for chain in chains)
    actives = [sum(chain[0] == node for chain in chains) for node in range(3)]
    assert max(actives) - min(actives) <= 1, actives


def test_every_node_tells_the_same(cluster, bucket):
    told = [node.rest.get("/pools/default").json for node in cluster.nodes[:3]]
    names = [sorted(node["otpNode"] for node in pool["nodes"]) for pool in told]
    assert names[0] == names[1] == names[2]
    assert len({pool["clusterName"] for pool in told}) == 1


def test_a_bucket_is_compacted_on_every_node(cluster, bucket):
    path = f"/pools/default/buckets/{BUCKET}/controller/compactBucket"
    cluster[1].rest.ok("POST", path)
    cluster[2].pause()
    answer = cluster[1].rest.request("POST", path)
    cluster[2].resume()
    assert (answer.status, cluster[2].address in answer.text) == (500, True), answer.text
    cluster.wait_healthy(BUCKET)


def test_a_dead_node_is_failed_over_and_recovered(cluster, bucket):
    dead = cluster[2]
    dead.kill()
    cluster.wait_member(dead, status="unhealthy")
    cluster.fail_over(dead)
    cluster.wait_member(dead, clusterMembership="inactiveFailed")
    check_documents(cluster)
    dead.start()
    # It was active when it was last told anything. What is to become of it is for the others to say.
    form = {"otpNode": dead.name, "recoveryType": "delta"}
    answer = dead.rest.request("POST", "/controller/setRecoveryType", form)
    assert (answer.status, "was failed over" in answer.text) == (400, True), answer.text
    cluster.recover(dead)
    cluster.wait_member(dead, status="healthy")
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    check_documents(cluster)


def test_a_node_leaves_gracefully_and_can_join_again(cluster, bucket):
    leaves = cluster[2]
    cluster.rebalance(remove=[leaves])
    assert len(cluster.members()) == 2
    check_documents(cluster)
    cluster.wait("it is nobody's", lambda: leaves.rest.request("GET", "/pools/default").status == 404, 30)
    cluster.add(leaves)
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    check_documents(cluster)
