"""The official SDK reads replicas: beside the active copy, and without it while its node is dead and nobody has been failed
over."""

from datetime import timedelta

import couchbase.subdocument as subdocument
import pytest
from conftest import VBUCKETS
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster as Sdk
from couchbase.exceptions import DocumentNotFoundException, DocumentUnretrievableException, UnAmbiguousTimeoutException
from couchbase.options import ClusterOptions, GetAllReplicasOptions, GetAnyReplicaOptions, GetOptions
from settee import kv
from settee.cluster import PASSWORD, USERNAME

MEMBERS = 3
BUCKET = "copies"
# All vBuckets of a bucket with 64 have some.
COUNT = 300
PATIENCE = timedelta(seconds=1)
# The SDK asks for the map every 2.5 s if nobody tells it of a new one.
PATIENCE_WITH_A_FAILOVER = timedelta(seconds=10)


@pytest.fixture(scope="module")
def bucket(cluster):
    cluster.rest.create_bucket(BUCKET, replicas=1, numVBuckets=VBUCKETS)
    cluster.wait_healthy(BUCKET)


@pytest.fixture(scope="module")
def collection(cluster, bucket):
    seeds = ",".join(node.address for node in cluster.nodes[:MEMBERS])
    sdk = Sdk.connect(f"couchbase://{seeds}", ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD)))
    sdk.wait_until_ready(timedelta(seconds=20))
    collection = sdk.bucket(BUCKET).default_collection()
    for number in range(COUNT):
        collection.upsert(key(number), {"n": number})
    cluster.wait_replicated(BUCKET)
    yield collection
    sdk.close()


def key(number):
    return f"copied-{number}"


def copies(cluster):
    """The addresses of every document's copies, the active one first."""
    chains = cluster.map(BUCKET)
    return [chains[kv.vbucket_of(key(number).encode(), VBUCKETS)] for number in range(COUNT)]


def with_active_on(cluster, node):
    return [number for number, (active, _) in enumerate(copies(cluster)) if active == node.address]


def all_copies(collection, number):
    """What all replicas say, as (value, whether a replica said so)."""
    found = collection.get_all_replicas(key(number), GetAllReplicasOptions(timeout=PATIENCE))
    return sorted((each.content_as[dict]["n"], each.is_replica) for each in found)


def test_the_active_copy_and_its_replica_are_read(cluster, collection):
    for number in range(COUNT):
        assert all_copies(collection, number) == [(number, False), (number, True)]
        assert collection.get_any_replica(key(number)).content_as[dict] == {"n": number}


def test_paths_are_read_of_replicas(cluster, collection):
    specs = [subdocument.get("n"), subdocument.exists("x")]
    for number in range(0, COUNT, 10):
        found = list(collection.lookup_in_all_replicas(key(number), specs))
        assert sorted(each.is_replica for each in found) == [False, True]
        assert [(each.content_as[int](0), each.exists(1)) for each in found] == [(number, False)] * 2
        assert collection.lookup_in_any_replica(key(number), specs).content_as[int](0) == number


def test_a_replica_has_what_was_changed_and_not_what_was_deleted(cluster, collection):
    collection.upsert("changes", {"n": -1})
    collection.upsert("changes", {"n": -2})
    collection.upsert("goes", {"n": 0})
    collection.remove("goes")
    cluster.wait_replicated(BUCKET)
    found = list(collection.get_all_replicas("changes"))
    assert [each.content_as[dict] for each in found] == [{"n": -2}] * 2
    for absent in ("goes", "never-was"):
        with pytest.raises(DocumentNotFoundException):
            list(collection.get_all_replicas(absent))
        with pytest.raises(DocumentUnretrievableException):
            collection.get_any_replica(absent)


def test_replicas_are_read_while_the_active_node_is_dead(cluster, collection):
    dead = cluster[2]
    cluster.auto_failover(False)
    where, lost = copies(cluster), with_active_on(cluster, dead)
    assert COUNT / 6 < len(lost) < COUNT / 2
    dead.kill()
    cluster.wait_member(dead, status="unhealthy")
    for number in range(COUNT):
        left = [address != where[number][0] for address in where[number] if address != dead.address]
        answer = collection.get_any_replica(key(number), GetAnyReplicaOptions(timeout=PATIENCE))
        assert answer.content_as[dict] == {"n": number}
        assert answer.is_replica in left
    for number in lost[:3]:
        with pytest.raises(UnAmbiguousTimeoutException):
            collection.get(key(number), GetOptions(timeout=PATIENCE))
        assert all_copies(collection, number) == [(number, True)]
    assert cluster.members()[dead.address]["clusterMembership"] == "active"


def test_after_the_failover_the_replica_is_the_active_copy(cluster, collection):
    dead = cluster[2]
    lost = with_active_on(cluster, dead)
    assert lost
    cluster.fail_over(dead)
    cluster.wait_member(dead, clusterMembership="inactiveFailed")
    for number in lost:
        found = collection.get(key(number), GetOptions(timeout=PATIENCE_WITH_A_FAILOVER))
        assert found.content_as[dict] == {"n": number}
        assert all_copies(collection, number) == [(number, False)]
