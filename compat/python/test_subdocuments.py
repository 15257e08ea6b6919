"""Parts of documents, extended attributes, and reads that the SDK makes of them."""

import time
from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import (
    CasMismatchException,
    DocumentExistsException,
    DocumentLockedException,
    DocumentNotFoundException,
    DocumentNotJsonException,
    DocumentUnretrievableException,
    InvalidArgumentException,
    InvalidValueException,
    NumberTooBigException,
    PathExistsException,
    PathInvalidException,
    PathMismatchException,
    PathNotFoundException,
    PathTooBigException,
    UnAmbiguousTimeoutException,
)
from couchbase.options import GetOptions, MutateInOptions, UpsertOptions
from couchbase.subdocument import LookupInMacro, MutationMacro, StoreSemantics
from couchbase.transcoder import RawBinaryTranscoder

SONG = {
    "title": "Águas de Março",
    "year": 1972,
    "by": [{"name": "Elis"}, {"name": "Tom"}],
    "deep": {"er": {}},
}


@pytest.fixture
def song(collection, key):
    collection.upsert(key, SONG)
    return key


def looked_up(collection, key, *specs):
    return collection.lookup_in(key, specs)


def attribute(collection, key, path, kind=str):
    return looked_up(collection, key, SD.get(path, xattr=True)).content_as[kind](0)


def test_lookups(collection, song):
    read = looked_up(
        collection,
        song,
        SD.get("title"),
        SD.get("by[-1].name"),
        SD.exists("year"),
        SD.count("by"),
        SD.get_full(),
    )
    assert [read.content_as[str](0), read.content_as[str](1), read.exists(2)] == [
        "Águas de Março",
        "Tom",
        True,
    ]
    assert (read.content_as[int](3), read.content_as[dict](4)) == (2, SONG)
    assert read.cas == collection.get(song).cas


def test_what_lookups_do_not_find(collection, song, key):
    read = looked_up(
        collection, song, SD.get("none"), SD.exists("none"), SD.get("year.x"), SD.count("year"), SD.get("by[")
    )
    for index, error in enumerate(
        [PathNotFoundException, None, PathMismatchException, PathMismatchException, PathInvalidException]
    ):
        if error is None:
            assert not read.exists(index)
        else:
            with pytest.raises(error):
                read.content_as[str](index)
    with pytest.raises(PathTooBigException):
        looked_up(collection, song, SD.get(".".join("a" * 40))).content_as[str](0)
    with pytest.raises(DocumentNotFoundException):
        looked_up(collection, f"{key}-none", SD.get("a"))
    collection.upsert(song, b"\x00", UpsertOptions(transcoder=RawBinaryTranscoder()))
    with pytest.raises(DocumentNotJsonException):
        looked_up(collection, song, SD.get("a")).content_as[str](0)


def test_every_mutation(collection, song):
    stored = collection.mutate_in(
        song,
        [
            SD.insert("label.name", "Philips", create_parents=True),
            SD.upsert("year", 1974),
            SD.replace("title", "Waters of March"),
            SD.remove("deep"),
            SD.array_append("by", {"name": "César"}, "and", "others"),
            SD.array_prepend("by", 0),
            SD.array_insert("by[1]", "in"),
            SD.array_addunique("tags", "bossa", create_parents=True),
            SD.increment("plays", 41),
            SD.decrement("plays", 1),
            SD.increment("plays", 2),
        ],
    )
    assert [stored.content_as[int](index) for index in (8, 9, 10)] == [41, 40, 42]
    by = [0, "in", {"name": "Elis"}, {"name": "Tom"}, {"name": "César"}, "and", "others"]
    expected = {
        "title": "Waters of March",
        "year": 1974,
        "by": by,
        "label": {"name": "Philips"},
        "tags": ["bossa"],
        "plays": 42,
    }
    read = collection.get(song)
    assert (read.content_as[dict], read.cas) == (expected, stored.cas)
    assert stored.mutation_token().sequence_number > 0


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (SD.insert("title", 1), PathExistsException),
        (SD.upsert("a.b", 1), PathNotFoundException),
        (SD.upsert("by.x", 1), PathMismatchException),
        (SD.replace("none", 1), PathNotFoundException),
        (SD.remove("none"), PathNotFoundException),
        (SD.array_append("title", 1), PathMismatchException),
        (SD.array_insert("by[9]", 1), PathNotFoundException),
        (SD.array_insert("by", 1), PathInvalidException),
        (SD.array_addunique("by", 1), PathMismatchException),
        (SD.increment("title", 1), PathMismatchException),
        (SD.increment("year", 2**63 - 1), InvalidValueException),
    ],
)
def test_one_failure_undoes_everything(collection, song, spec, error):
    with pytest.raises(error):
        collection.mutate_in(song, [SD.upsert("title", "changed"), spec])
    assert collection.get(song).content_as[dict] == SONG


def test_limits(collection, song):
    with pytest.raises(InvalidArgumentException):
        collection.lookup_in(song, [SD.get("title")] * 17)
    collection.upsert(song, {"n": 2**63})
    with pytest.raises(NumberTooBigException):
        collection.mutate_in(song, [SD.increment("n", 1)])


def test_store_semantics(collection, key):
    upsert = [SD.upsert("a.b", 1, create_parents=True)]
    with pytest.raises(DocumentNotFoundException):
        collection.mutate_in(key, upsert)
    collection.mutate_in(key, upsert, MutateInOptions(store_semantics=StoreSemantics.INSERT))
    with pytest.raises(DocumentExistsException):
        collection.mutate_in(key, upsert, MutateInOptions(store_semantics=StoreSemantics.INSERT))
    collection.mutate_in(key, [SD.increment("n", 1)], MutateInOptions(store_semantics=StoreSemantics.UPSERT))
    assert collection.get(key).content_as[dict] == {"a": {"b": 1}, "n": 1}
    other = f"{key}-array"
    collection.mutate_in(
        other, [SD.array_append("", 1)], MutateInOptions(store_semantics=StoreSemantics.UPSERT)
    )
    assert collection.get(other).content_as[list] == [1]


def test_cas_and_locks(collection, song):
    cas = collection.get(song).cas
    collection.mutate_in(song, [SD.upsert("year", 1)], MutateInOptions(cas=cas))
    with pytest.raises(CasMismatchException):
        collection.mutate_in(song, [SD.upsert("year", 2)], MutateInOptions(cas=cas))
    lock = collection.get_and_lock(song, timedelta(seconds=15)).cas
    with pytest.raises((DocumentLockedException, UnAmbiguousTimeoutException)):
        collection.mutate_in(
            song, [SD.upsert("year", 3)], MutateInOptions(timeout=timedelta(milliseconds=500))
        )
    assert looked_up(collection, song, SD.get("year")).content_as[int](0) == 1
    collection.mutate_in(song, [SD.upsert("year", 4)], MutateInOptions(cas=lock))


def test_expiry(collection, song):
    specs = [SD.upsert("year", 1)]
    collection.mutate_in(song, specs, MutateInOptions(expiry=timedelta(seconds=1000)))
    read = collection.get(song, GetOptions(with_expiry=True))
    assert abs(read.expiry_time.timestamp() - time.time() - 1000) < 5
    collection.mutate_in(song, specs, MutateInOptions(preserve_expiry=True))
    assert collection.get(song, GetOptions(with_expiry=True)).expiry_time == read.expiry_time
    collection.mutate_in(song, specs)
    assert collection.get(song, GetOptions(with_expiry=True)).expiry_time is None
    collection.mutate_in(song, specs, MutateInOptions(expiry=timedelta(seconds=1)))
    until = time.monotonic() + 5
    while collection.exists(song).exists:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_projections(collection, song):
    read = collection.get(song, GetOptions(project=["title", "by[0].name", "none"], with_expiry=True))
    assert read.content_as[dict] == {"title": "Águas de Março", "by": [{"name": "Elis"}]}
    many = {f"field{n}": n for n in range(40)}
    collection.upsert(song, many)
    assert collection.get(song, GetOptions(project=list(many)[:30])).content_as[dict] == dict(
        list(many.items())[:30]
    )


def test_replicas_are_the_active_alone(collection, song):
    read = collection.lookup_in_any_replica(song, [SD.get("year")])
    assert (read.content_as[int](0), read.is_replica) == (1972, False)
    assert [
        each.content_as[int](0) for each in collection.lookup_in_all_replicas(song, [SD.get("year")])
    ] == [1972]
    assert collection.get_any_replica(song).content_as[dict] == SONG
    with pytest.raises(DocumentUnretrievableException):
        collection.lookup_in_any_replica(f"{song}-none", [SD.get("year")])


def test_extended_attributes(collection, song):
    collection.mutate_in(
        song,
        [
            SD.upsert("user.deep", {"n": 1}, xattr=True, create_parents=True),
            SD.insert("_system", [1], xattr=True),
            SD.increment("counter", 5, xattr=True),
            SD.array_append("_system", 2, xattr=True),
            SD.upsert("year", 1973),
        ],
    )
    read = looked_up(
        collection,
        song,
        SD.get("user.deep.n", xattr=True),
        SD.get("_system", xattr=True),
        SD.exists("none", xattr=True),
        SD.get("year"),
    )
    assert (read.content_as[int](0), read.content_as[list](1), read.exists(2), read.content_as[int](3)) == (
        1,
        [1, 2],
        False,
        1973,
    )
    assert collection.get(song).content_as[dict] == {**SONG, "year": 1973}
    collection.replace(song, {"whole": True})
    assert attribute(collection, song, "$XTOC", list) == ["user", "_system", "counter"]
    collection.mutate_in(song, [SD.remove("user", xattr=True)])
    with pytest.raises(PathNotFoundException):
        attribute(collection, song, "user")


def test_virtual_attributes(collection, song):
    cas = collection.get(song).cas
    read = looked_up(
        collection,
        song,
        *(
            SD.get(macro(), xattr=True)
            for macro in (
                LookupInMacro.document,
                LookupInMacro.cas,
                LookupInMacro.expiry_time,
                LookupInMacro.is_deleted,
                LookupInMacro.value_size_bytes,
                LookupInMacro.last_modified,
                LookupInMacro.rev_id,
                LookupInMacro.seq_no,
            )
        ),
    )
    about = read.content_as[dict](0)
    assert about["CAS"] == read.content_as[str](1) == f"0x{cas:016x}"
    assert (read.content_as[int](2), read.content_as[bool](3)) == (0, False)
    assert about["value_bytes"] == read.content_as[int](4) > 0
    assert abs(int(read.content_as[str](5)) - time.time()) < 60
    assert int(read.content_as[str](6)) >= 1
    assert (int(read.content_as[str](7), 16), about["datatype"]) == (int(about["seqno"], 16), ["json"])
    assert attribute(collection, song, "$vbucket.HLC.mode") in ("real", "logical")


def test_macros(collection, song):
    stored = collection.mutate_in(
        song,
        [
            SD.upsert("m.cas", MutationMacro.cas(), xattr=True, create_parents=True),
            SD.upsert("m.seqno", MutationMacro.seq_no(), xattr=True),
            SD.upsert("m.crc", MutationMacro.value_crc32c(), xattr=True),
        ],
    )
    macros = attribute(collection, song, "m", dict)
    assert SD.convert_macro_cas_to_cas(macros["cas"]) == stored.cas
    assert int(macros["seqno"], 16) == stored.mutation_token().sequence_number
    assert macros["crc"] == attribute(collection, song, "$document.value_crc32c")


def test_attributes_vanish_with_their_document(collection, song):
    collection.mutate_in(song, [SD.upsert("user", 1, xattr=True), SD.upsert("_system", 1, xattr=True)])
    collection.remove(song)
    with pytest.raises(DocumentNotFoundException):
        looked_up(collection, song, SD.get("user", xattr=True))
    collection.insert(song, {})
    with pytest.raises(PathNotFoundException):
        attribute(collection, song, "user")


def test_durable_mutations(main, key):
    collection = main.default_collection()
    durable = ServerDurability(Durability.PERSIST_TO_MAJORITY)
    options = MutateInOptions(store_semantics=StoreSemantics.UPSERT, durability=durable)
    stored = collection.mutate_in(key, [SD.upsert("a", 1), SD.increment("n", 3)], options)
    assert stored.content_as[int](1) == 3
    assert collection.get(key).content_as[dict] == {"a": 1, "n": 3}


def test_large_documents(main, key):
    collection = main.default_collection()
    large = {f"field{n}": "x" * 1000 for n in range(5000)}
    collection.upsert(key, large)
    read = looked_up(collection, key, SD.get("field4999"), SD.count(""))
    assert (read.content_as[str](0), read.content_as[int](1)) == ("x" * 1000, 5000)
    collection.mutate_in(key, [SD.upsert("field2500", "y"), SD.remove("field0")])
    del large["field0"]
    assert collection.get(key).content_as[dict] == {**large, "field2500": "y"}
