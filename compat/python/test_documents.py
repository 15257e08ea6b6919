"""Every key-value call of the SDK, over plain and TLS, on a persistent and a memory-only bucket."""

import time
from datetime import timedelta

import pytest
from couchbase.exceptions import (
    CasMismatchException,
    CouchbaseException,
    DocumentExistsException,
    DocumentLockedException,
    DocumentNotFoundException,
    DocumentNotLockedException,
    InvalidArgumentException,
    AmbiguousTimeoutException,
    UnAmbiguousTimeoutException,
)
from couchbase.options import (
    AppendOptions,
    DecrementOptions,
    DeltaValue,
    GetOptions,
    IncrementOptions,
    InsertOptions,
    PrependOptions,
    RemoveOptions,
    ReplaceOptions,
    SignedInt64,
    UpsertOptions,
)
from couchbase.transcoder import LegacyTranscoder, RawBinaryTranscoder, RawJSONTranscoder, RawStringTranscoder

SHORT = timedelta(milliseconds=800)


def gone_within(collection, key, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not collection.exists(key).exists:
            return True
        time.sleep(0.1)
    return False


def test_upsert_and_get(collection, key):
    stored = collection.upsert(key, {"title": "Aguas de março", "year": 1972, "tags": ["bossa", None, True]})
    read = collection.get(key)
    assert read.content_as[dict] == {"title": "Aguas de março", "year": 1972, "tags": ["bossa", None, True]}
    assert read.cas == stored.cas != 0


def test_insert_only_once(collection, key):
    collection.insert(key, {"n": 1})
    with pytest.raises(DocumentExistsException):
        collection.insert(key, {"n": 2})
    assert collection.get(key).content_as[dict] == {"n": 1}


def test_replace_needs_the_document(collection, key):
    with pytest.raises(DocumentNotFoundException):
        collection.replace(key, {"n": 1})
    first = collection.insert(key, {"n": 1})
    second = collection.replace(key, {"n": 2}, ReplaceOptions(cas=first.cas))
    assert second.cas > first.cas
    with pytest.raises(CasMismatchException):
        collection.replace(key, {"n": 3}, ReplaceOptions(cas=first.cas))
    assert collection.get(key).content_as[dict] == {"n": 2}


def test_remove_with_cas(collection, key):
    first = collection.insert(key, 1)
    second = collection.upsert(key, 2)
    with pytest.raises((CasMismatchException, DocumentExistsException)):
        collection.remove(key, RemoveOptions(cas=first.cas))
    collection.remove(key, RemoveOptions(cas=second.cas))
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)
    with pytest.raises(DocumentNotFoundException):
        collection.remove(key)
    again = collection.insert(key, 3)
    assert again.cas > second.cas


def test_exists(collection, key):
    assert not collection.exists(key).exists
    cas = collection.insert(key, 1).cas
    found = collection.exists(key)
    assert found.exists and found.cas == cas
    collection.remove(key)
    assert not collection.exists(key).exists


def test_relative_expiry(collection, key):
    collection.upsert(key, {"short": "lived"}, UpsertOptions(expiry=timedelta(seconds=1)))
    assert collection.exists(key).exists
    assert gone_within(collection, key, 4)
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)
    collection.insert(key, {"born": "again"})


def test_absolute_expiry_far_away(collection, key):
    collection.insert(key, 1, InsertOptions(expiry=timedelta(days=40)))
    assert collection.get(key).content_as[int] == 1


def test_touch_and_get_and_touch(collection, key):
    collection.upsert(key, {"n": 1})
    before = collection.get(key).cas
    assert collection.touch(key, timedelta(seconds=60)).cas != before
    touched = collection.get_and_touch(key, timedelta(seconds=1))
    assert touched.content_as[dict] == {"n": 1}
    assert gone_within(collection, key, 4)
    with pytest.raises(DocumentNotFoundException):
        collection.touch(key, timedelta(seconds=1))
    with pytest.raises(DocumentNotFoundException):
        collection.get_and_touch(key, timedelta(seconds=1))


def test_preserve_expiry(collection, key):
    collection.upsert(key, 1, UpsertOptions(expiry=timedelta(seconds=2)))
    collection.upsert(key, 2, UpsertOptions(preserve_expiry=True))
    collection.replace(key, 3, ReplaceOptions(preserve_expiry=True))
    assert collection.get(key).content_as[int] == 3
    assert gone_within(collection, key, 5)


def test_a_mutation_clears_expiry(collection, key):
    collection.upsert(key, 1, UpsertOptions(expiry=timedelta(seconds=1)))
    collection.upsert(key, 2)
    time.sleep(2.1)
    assert collection.get(key).content_as[int] == 2


def test_counters(collection, key):
    binary = collection.binary()
    with pytest.raises(DocumentNotFoundException):
        # A negative start value means: do not create.
        binary.increment(key, IncrementOptions(delta=DeltaValue(1), initial=SignedInt64(-1)))
    assert binary.increment(key, IncrementOptions(initial=SignedInt64(10))).content == 10
    assert binary.increment(key, IncrementOptions(delta=DeltaValue(32))).content == 42
    assert binary.decrement(key, DecrementOptions(delta=DeltaValue(2))).content == 40
    assert binary.decrement(key, DecrementOptions(delta=DeltaValue(100))).content == 0
    assert collection.get(key).content_as[int] == 0
    collection.upsert(key, {"not": "a number"})
    with pytest.raises(CouchbaseException):
        binary.increment(key)


def test_append_and_prepend(collection, key):
    raw = RawBinaryTranscoder()
    binary = collection.binary()
    with pytest.raises(CouchbaseException):
        binary.append(key, b"x")
    cas = collection.upsert(key, b"middle", UpsertOptions(transcoder=raw)).cas
    binary.append(key, b"-end", AppendOptions(cas=cas))
    binary.prepend(key, b"start-")
    assert collection.get(key, GetOptions(transcoder=raw)).content_as[bytes] == b"start-middle-end"
    with pytest.raises(CasMismatchException):
        binary.prepend(key, b"never", PrependOptions(cas=cas))


def test_locks(collection, key):
    collection.upsert(key, {"n": 1})
    locked = collection.get_and_lock(key, timedelta(seconds=15))
    assert locked.content_as[dict] == {"n": 1}
    # Reads go on, and do not give the lock away.
    seen = collection.get(key)
    assert seen.content_as[dict] == {"n": 1} and seen.cas != locked.cas
    with pytest.raises((DocumentLockedException, AmbiguousTimeoutException, UnAmbiguousTimeoutException)):
        collection.upsert(key, {"n": 2}, UpsertOptions(timeout=SHORT))
    with pytest.raises((DocumentLockedException, CasMismatchException)):
        collection.unlock(key, locked.cas + 1)
    collection.unlock(key, locked.cas)
    with pytest.raises(DocumentNotLockedException):
        collection.unlock(key, locked.cas)
    again = collection.get_and_lock(key, timedelta(seconds=15))
    collection.replace(key, {"n": 3}, ReplaceOptions(cas=again.cas))
    collection.upsert(key, {"n": 4})


def test_locks_end_by_themselves(collection, key):
    collection.upsert(key, 1)
    collection.get_and_lock(key, timedelta(seconds=1))
    # The SDK tries again while the document is locked.
    collection.upsert(key, 2, UpsertOptions(timeout=timedelta(seconds=5)))
    with pytest.raises(DocumentNotFoundException):
        collection.get_and_lock(key + "-missing", timedelta(seconds=1))
    with pytest.raises(DocumentNotFoundException):
        collection.unlock(key + "-missing", 7)


def test_replica_reads_without_replicas(collection, key):
    collection.upsert(key, {"n": 1})
    got = collection.get_any_replica(key)
    assert got.content_as[dict] == {"n": 1} and not got.is_replica
    assert [each.is_replica for each in collection.get_all_replicas(key)] == [False]


def test_transcoders(collection, key):
    for transcoder, value in [
        (RawBinaryTranscoder(), bytes(range(256))),
        (RawStringTranscoder(), "naïve ☃ 🎵"),
        (RawJSONTranscoder(), b'{"raw":  [1, 2.5e3]}'),
        (LegacyTranscoder(), "legacy text"),
    ]:
        collection.upsert(key, value, UpsertOptions(transcoder=transcoder))
        assert collection.get(key, GetOptions(transcoder=transcoder)).value == value
    for value in [None, True, 0, -1.5, "", [], {}, [[[1]]], "é"]:
        collection.upsert(key, value)
        assert collection.get(key).value == value


def test_mutation_tokens(collection, key):
    first = collection.upsert(key, 1).mutation_token()
    second = collection.upsert(key, 2).mutation_token()
    assert first.partition_id == second.partition_id
    assert first.partition_uuid == second.partition_uuid != 0
    assert second.sequence_number > first.sequence_number > 0
    assert collection.remove(key).mutation_token().sequence_number > second.sequence_number


def test_keys_of_all_sorts(collection, key):
    for odd in [key + " with space", key + "/☃/ключ/鍵", "x" * (250 - len(key)) + key, key + "\x01\x7f"]:
        collection.upsert(odd, {"key": odd})
        assert collection.get(odd).content_as[dict] == {"key": odd}
        collection.remove(odd)


def test_keys_too_long(collection):
    with pytest.raises(InvalidArgumentException):
        collection.upsert("k" * 251, 1)
    with pytest.raises(InvalidArgumentException):
        collection.get("k" * 1000)


def test_multi_operations(collection, key):
    documents = {f"{key}-{n}": {"n": n, "text": "lorem ipsum " * (n % 50)} for n in range(2000)}
    assert collection.upsert_multi(documents).all_ok
    read = collection.get_multi(list(documents) + [key + "-missing"], return_exceptions=True)
    assert not read.all_ok
    assert {name: result.value for name, result in read.results.items()} == documents
    assert isinstance(read.exceptions[key + "-missing"], DocumentNotFoundException)
    assert collection.remove_multi(list(documents)).all_ok
    assert not any(result.exists for result in collection.exists_multi(list(documents)).results.values())
