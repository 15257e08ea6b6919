"""Range scans of a collection, as the SDK asks for them: over every vBucket."""

import time
import uuid

import pytest
from couchbase.exceptions import CouchbaseException, FeatureUnavailableException
from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.mutation_state import MutationState
from couchbase.options import ScanOptions

IDS = [f"song-{number:03}" for number in range(200)]


@pytest.fixture(scope="module", params=["plain", "tls"])
def songs(request, plain, secure):
    """A collection of 200 songs and another document, and the state after the last write."""
    bucket = (plain if request.param == "plain" else secure).bucket("main")
    name = "scan" + uuid.uuid4().hex[:10]
    bucket.collections().create_collection("_default", name)
    collection = bucket.scope("_default").collection(name)
    for _ in range(100):
        try:
            collection.upsert("other", {})
            break
        except CouchbaseException:
            time.sleep(0.1)
    results = [collection.upsert(key, {"id": key}) for key in IDS]
    yield collection, MutationState(*results)
    bucket.collections().drop_collection("_default", name)


def ids(collection, kind, **options):
    return sorted(item.id for item in collection.scan(kind, ScanOptions(concurrency=16, **options)))


def test_everything_with_contents(songs):
    collection, state = songs
    found = {item.id: item for item in collection.scan(RangeScan(), ScanOptions(consistent_with=state))}
    assert sorted(found) == ["other", *IDS]
    for key in IDS:
        assert found[key].content_as[dict] == {"id": key} and found[key].cas != 0


def test_ranges_and_prefixes(songs):
    collection, _ = songs
    assert ids(collection, PrefixScan("song-1"), ids_only=True) == IDS[100:]
    assert ids(collection, RangeScan(ScanTerm(IDS[10]), ScanTerm(IDS[20]))) == IDS[10:21]
    assert ids(collection, RangeScan(ScanTerm(IDS[10], True), ScanTerm(IDS[20], True)), ids_only=True) == IDS[11:20]
    assert ids(collection, PrefixScan("nothing")) == []
    assert ids(collection, PrefixScan("song-"), batch_item_limit=1, batch_byte_limit=0) == IDS


def test_samples(songs):
    collection, _ = songs
    assert len(ids(collection, SamplingScan(30, 7), ids_only=True)) == 30
    assert ids(collection, SamplingScan(1000, 7)) == ["other", *IDS]


def test_an_ephemeral_bucket_has_none(plain):
    with pytest.raises(FeatureUnavailableException):
        list(plain.bucket("ephemeral").default_collection().scan(RangeScan()))
