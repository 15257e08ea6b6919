"""Durable writes: on one node without replicas they work, and where they cannot, the error says why."""

from datetime import timedelta

import pytest
from couchbase.durability import ClientDurability, Durability, PersistToExtended, ReplicateTo, ServerDurability
from couchbase.exceptions import (
    CouchbaseException,
    DurabilityImpossibleException,
    DurabilityInvalidLevelException,
    InvalidArgumentException,
)
from couchbase.management.buckets import BucketSettings, CreateBucketSettings
from couchbase.options import IncrementOptions, InsertOptions, RemoveOptions, ReplaceOptions, SignedInt64, UpsertOptions

from test_management import eventually

LEVELS = [Durability.MAJORITY, Durability.MAJORITY_AND_PERSIST_TO_ACTIVE, Durability.PERSIST_TO_MAJORITY]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("transport", ["plain", "secure"])
def test_durable_writes_without_replicas(request, transport, key, level):
    collection = request.getfixturevalue(transport).bucket("main").default_collection()
    durability = ServerDurability(level)
    first = collection.insert(key, {"n": 1}, InsertOptions(durability=durability))
    assert collection.get(key).cas == first.cas
    second = collection.upsert(key, {"n": 2}, UpsertOptions(durability=durability))
    third = collection.replace(key, {"n": 3}, ReplaceOptions(durability=durability, cas=second.cas))
    assert collection.get(key).content_as[dict] == {"n": 3}
    collection.remove(key, RemoveOptions(durability=durability, cas=third.cas))
    assert not collection.exists(key).exists
    options = IncrementOptions(initial=SignedInt64(5), durability=durability)
    assert collection.binary().increment(key + "-n", options).content == 5


def test_many_durable_writes(main, key):
    collection = main.default_collection()
    persisted = UpsertOptions(
        durability=ServerDurability(Durability.PERSIST_TO_MAJORITY), timeout=timedelta(seconds=10)
    )
    for n in range(100):
        collection.upsert(f"{key}-{n % 10}", n, persisted)
    assert [collection.get(f"{key}-{n}").content_as[int] for n in range(10)] == list(range(90, 100))


@pytest.mark.parametrize("level", LEVELS)
def test_impossible_with_absent_replicas(plain, key, level):
    collection = plain.bucket("replicated").default_collection()
    collection.upsert(key, 1)
    with pytest.raises(DurabilityImpossibleException):
        collection.upsert(key, 2, UpsertOptions(durability=ServerDurability(level)))
    assert collection.get(key).content_as[int] == 1


def test_memory_cannot_persist(plain, key):
    collection = plain.bucket("ephemeral").default_collection()
    collection.upsert(key, 1, UpsertOptions(durability=ServerDurability(Durability.MAJORITY)))
    for level in LEVELS[1:]:
        with pytest.raises(DurabilityInvalidLevelException):
            collection.upsert(key, 2, UpsertOptions(durability=ServerDurability(level)))


def test_a_bucket_that_insists(plain, key):
    manager, name = plain.buckets(), f"insists-{key[-12:]}"
    minimum = Durability.MAJORITY_AND_PERSIST_TO_ACTIVE
    manager.create_bucket(
        CreateBucketSettings(name=name, ram_quota_mb=100, num_replicas=0, minimum_durability_level=minimum)
    )
    try:
        assert manager.get_bucket(name).minimum_durability_level == minimum
        collection = eventually(lambda: plain.bucket(name).default_collection())
        eventually(lambda: collection.upsert(key, 1))
        collection.replace(key, 2)
        assert collection.get(key).content_as[int] == 2
        beyond_reach = BucketSettings(name=name, num_replicas=1, minimum_durability_level=Durability.MAJORITY)
        with pytest.raises(InvalidArgumentException):
            manager.update_bucket(beyond_reach)
        nothing = BucketSettings(name=name, num_replicas=1, minimum_durability_level=Durability.NONE)
        manager.update_bucket(nothing)
        assert manager.get_bucket(name).minimum_durability_level == Durability.NONE
        collection.upsert(key, 4)
        with pytest.raises(DurabilityImpossibleException):
            collection.upsert(key, 5, UpsertOptions(durability=ServerDurability(Durability.MAJORITY)))
    finally:
        manager.drop_bucket(name)


def test_observed_persistence(main, key):
    collection = main.default_collection()
    durability = ClientDurability(ReplicateTo.NONE, PersistToExtended.ACTIVE)
    stored = collection.upsert(key, {"n": 1}, UpsertOptions(durability=durability))
    assert collection.get(key).cas == stored.cas
    collection.remove(key, RemoveOptions(durability=durability))
    assert not collection.exists(key).exists


def test_observing_more_copies_than_there_are(main, key):
    with pytest.raises(CouchbaseException):
        durability = ClientDurability(ReplicateTo.ONE, PersistToExtended.TWO)
        main.default_collection().upsert(key, 1, UpsertOptions(durability=durability, timeout=timedelta(seconds=2)))


def test_reads_of_any_copy_when_replicas_are_absent(plain, key):
    collection = plain.bucket("replicated").default_collection()
    collection.upsert(key, {"n": 1})
    got = collection.get_any_replica(key)
    assert got.content_as[dict] == {"n": 1} and not got.is_replica
