"""Values up to the limit and beyond, compressed and not, and thousands of operations under way at once."""

import asyncio
import os
from datetime import timedelta

import pytest
from acouchbase.cluster import Cluster as AsyncCluster
from conftest import ADDRESS, PASSWORD, USERNAME, connect
from couchbase.auth import PasswordAuthenticator
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException
from couchbase.options import (
    ClusterOptions,
    Compression,
    GetOptions,
    IncrementOptions,
    SignedInt64,
    UpsertOptions,
)
from couchbase.transcoder import RawBinaryTranscoder

MIB = 1024 * 1024
LIMIT = 20 * MIB
PATIENT = timedelta(seconds=30)


def put(collection, key, value):
    collection.upsert(key, value, UpsertOptions(transcoder=RawBinaryTranscoder(), timeout=PATIENT))


def read(collection, key):
    return collection.get(key, GetOptions(transcoder=RawBinaryTranscoder(), timeout=PATIENT)).value


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, MIB, LIMIT - 1, LIMIT])
def test_large_values(collection, key, size):
    value = os.urandom(size)
    put(collection, key, value)
    assert read(collection, key) == value
    collection.remove(key)


def test_larger_than_the_limit(collection, key):
    with pytest.raises(CouchbaseException) as refused:
        put(collection, key, os.urandom(LIMIT + 1))
    assert refused.value.error_code == 104, "value too large"
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)


def test_compressible_values_over_a_compressing_client(key):
    cluster = connect(compression=Compression.FORCE)
    other = connect(compression=Compression.NONE)
    try:
        value = b"all work and no play makes a dull document. " * 20_000
        ours, theirs = (c.bucket("main").default_collection() for c in (cluster, other))
        put(ours, key, value)
        # A client that did not ask for compression gets the plain value.
        assert read(theirs, key) == value
        assert read(ours, key) == value
        ours.binary().append(key, b"the end")
        assert read(theirs, key) == value + b"the end"
        # Ten times the limit would fit through the wire compressed, but not into a document.
        with pytest.raises(CouchbaseException):
            put(ours, key, b"\0" * (LIMIT + 1))
        ours.upsert(key, {"json": "x" * 10_000})
        assert theirs.get(key).content_as[dict] == {"json": "x" * 10_000}
    finally:
        cluster.close()
        other.close()


def test_thousands_of_operations_at_once(key):
    async def run():
        cluster = AsyncCluster(f"couchbase://{ADDRESS}", ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD)))
        bucket = cluster.bucket("main")
        await bucket.on_connect()
        collection = bucket.default_collection()
        wait = timedelta(seconds=30)
        names = [f"{key}-{n}" for n in range(5000)]
        options = UpsertOptions(timeout=wait)
        await asyncio.gather(*(collection.upsert(name, {"name": name}, options) for name in names))
        results = await asyncio.gather(*(collection.get(name, GetOptions(timeout=wait)) for name in names))
        assert [result.content_as[dict]["name"] for result in results] == names
        counter, one = f"{key}-counter", IncrementOptions(initial=SignedInt64(1), timeout=wait)
        await asyncio.gather(*(collection.binary().increment(counter, one) for _ in range(1000)))
        assert (await collection.get(counter)).content_as[int] == 1000
        await cluster.close()

    asyncio.run(run())
