"""Scopes and collections: made, used, limited and dropped while the client is connected."""

import time
import uuid
from datetime import timedelta

import pytest
from couchbase.exceptions import (
    CollectionAlreadyExistsException,
    CollectionNotFoundException,
    CouchbaseException,
    DocumentNotFoundException,
    ScopeAlreadyExistsException,
    ScopeNotFoundException,
    UnAmbiguousTimeoutException,
)
from couchbase.management.collections import CreateCollectionSettings
from couchbase.options import GetOptions, UpsertOptions


@pytest.fixture(params=["plain-main", "tls-main", "plain-ephemeral"])
def bucket(request, plain, secure):
    transport, name = request.param.split("-")
    return (plain if transport == "plain" else secure).bucket(name)


@pytest.fixture
def scope(bucket):
    name = "s" + uuid.uuid4().hex[:10]
    bucket.collections().create_scope(name)
    yield name
    bucket.collections().drop_scope(name)


def test_life_of_a_collection(bucket, scope, key):
    manager = bucket.collections()
    manager.create_collection(scope, "songs")
    manager.create_collection(scope, "artists")
    names = {s.name: {c.name for c in s.collections} for s in manager.get_all_scopes()}
    assert names[scope] == {"songs", "artists"}
    assert "_default" in names["_default"]
    songs, artists = (bucket.scope(scope).collection(name) for name in ("songs", "artists"))
    songs.upsert(key, {"in": "songs"})
    artists.upsert(key, {"in": "artists"})
    bucket.default_collection().upsert(key, {"in": "default"})
    assert songs.get(key).content_as[dict] == {"in": "songs"}
    assert artists.get(key).content_as[dict] == {"in": "artists"}
    artists.remove(key)
    assert songs.exists(key).exists and not artists.exists(key).exists
    manager.drop_collection(scope, "songs")
    assert bucket.default_collection().get(key).content_as[dict] == {"in": "default"}
    # Clients look the name up again and again until their time is over.
    with pytest.raises((UnAmbiguousTimeoutException, CollectionNotFoundException)):
        songs.get(key, GetOptions(timeout=timedelta(milliseconds=700)))


def test_a_new_collection_of_the_same_name_is_empty(bucket, scope, key):
    manager = bucket.collections()
    manager.create_collection(scope, "again")
    bucket.scope(scope).collection("again").upsert(key, 1)
    manager.drop_collection(scope, "again")
    manager.create_collection(scope, "again")
    fresh = bucket.scope(scope).collection("again")
    with pytest.raises(DocumentNotFoundException):
        fresh.get(key, GetOptions(timeout=timedelta(seconds=5)))
    fresh.insert(key, 2)


def test_longest_keys(bucket, scope):
    bucket.collections().create_collection(scope, "long")
    collection = bucket.scope(scope).collection("long")
    longest = "k" * 246
    collection.upsert(longest, 1)
    assert collection.get(longest).content_as[int] == 1
    with pytest.raises(CouchbaseException):
        collection.upsert("k" * 251, 1, UpsertOptions(timeout=timedelta(seconds=1)))


def test_expiry_of_a_collection(bucket, scope, key):
    settings = CreateCollectionSettings(max_expiry=timedelta(seconds=1))
    bucket.collections().create_collection(scope, "brief", settings)
    specs = [c for s in bucket.collections().get_all_scopes() if s.name == scope for c in s.collections]
    assert [(spec.name, spec.max_expiry) for spec in specs] == [("brief", timedelta(seconds=1))]
    brief = bucket.scope(scope).collection("brief")
    brief.upsert(key, 1)
    brief.upsert(key + "-capped", 1, UpsertOptions(expiry=timedelta(hours=1)))
    time.sleep(2.5)
    assert not brief.exists(key).exists
    assert not brief.exists(key + "-capped").exists


def test_names_that_are_taken_or_missing(bucket, scope):
    manager = bucket.collections()
    manager.create_collection(scope, "one")
    with pytest.raises(CollectionAlreadyExistsException):
        manager.create_collection(scope, "one")
    with pytest.raises(ScopeAlreadyExistsException):
        manager.create_scope(scope)
    with pytest.raises(CollectionNotFoundException):
        manager.drop_collection(scope, "two")
    with pytest.raises(ScopeNotFoundException):
        manager.create_collection("nowhere", "one")
    with pytest.raises(ScopeNotFoundException):
        manager.drop_scope("nowhere")


def test_unknown_collection_ends_in_time(bucket, key):
    missing = bucket.scope("_default").collection("missing")
    began = time.monotonic()
    with pytest.raises((UnAmbiguousTimeoutException, CollectionNotFoundException)):
        missing.get(key, GetOptions(timeout=timedelta(milliseconds=700)))
    assert time.monotonic() - began < 5
