"""Views, as the SDK makes and asks them."""

from datetime import timedelta

import pytest
from couchbase.exceptions import DesignDocumentNotFoundException
from couchbase.management.views import DesignDocument, DesignDocumentNamespace, View
from couchbase.options import ViewOptions
from couchbase.views import ViewOrdering

COUNT = 60
PATIENCE = timedelta(seconds=20)


@pytest.fixture(params=["plain", "tls"])
def songs(request, plain, secure, key):
    """A bucket with documents whose ids begin with `key`, and a design document of that name, published."""
    bucket = (plain if request.param == "plain" else secure).bucket("main")
    for number in range(COUNT):
        bucket.default_collection().upsert(f"{key}-{number:02}", {"n": number, "artist": f"Ä{number % 4}"})
    emit = f"function (doc, meta) {{ if (meta.id.indexOf('{key}') == 0) emit(doc.artist, doc.n); }}"
    views = {"rows": View(map=emit), "sum": View(map=emit, reduce="_sum")}
    manager = bucket.view_indexes()
    manager.upsert_design_document(DesignDocument(name=key, views=views), DesignDocumentNamespace.DEVELOPMENT)
    manager.publish_design_document(key)
    yield bucket
    for space in (DesignDocumentNamespace.DEVELOPMENT, DesignDocumentNamespace.PRODUCTION):
        manager.drop_design_document(key, space)


def ask(bucket, design, view, **options):
    """Rows and metadata of a query that has all that was written before."""
    # Release 4.6.3 of the client sends nothing for `scan_consistency`, so the parameter is given as it goes over the wire.
    options = {"raw": {"stale": "false"}, "timeout": PATIENCE} | options
    result = bucket.view_query(design, view, ViewOptions(namespace=DesignDocumentNamespace.PRODUCTION, **options))
    return list(result.rows()), result.metadata()


def test_rows_and_ranges(songs, key):
    rows, metadata = ask(songs, key, "rows")
    assert metadata.total_rows() == COUNT
    assert [(row.key, row.id) for row in rows] == sorted(
        (f"Ä{number % 4}", f"{key}-{number:02}") for number in range(COUNT)
    )
    rows, _ = ask(songs, key, "rows", startkey="Ä1", endkey="Ä3", inclusive_end=False)
    assert {row.key for row in rows} == {"Ä1", "Ä2"} and len(rows) == COUNT // 2
    rows, _ = ask(songs, key, "rows", key="Ä2", limit=2, skip=1)
    assert [row.value for row in rows] == [6, 10]
    rows, _ = ask(songs, key, "rows", keys=["Ä3", "Ä0", "B"])
    assert [row.key for row in rows] == ["Ä3"] * (COUNT // 4) + ["Ä0"] * (COUNT // 4)
    rows, _ = ask(songs, key, "rows", order=ViewOrdering.DESCENDING, limit=1)
    assert rows[0].id == f"{key}-59"


def test_reductions(songs, key):
    rows, _ = ask(songs, key, "sum", reduce=True)
    assert [row.value for row in rows] == [sum(range(COUNT))]
    rows, _ = ask(songs, key, "sum", reduce=True, group=True)
    assert {row.key: row.value for row in rows} == {f"Ä{n}": sum(range(n, COUNT, 4)) for n in range(4)}


def test_a_query_has_what_was_written_before(songs, key):
    for number in range(10):
        songs.default_collection().upsert(f"{key}-new", {"n": 100 + number, "artist": f"new {number}"})
        rows, _ = ask(songs, key, "rows", key=f"new {number}")
        assert [row.value for row in rows] == [100 + number]
    songs.default_collection().remove(f"{key}-new")
    assert ask(songs, key, "rows", limit=1)[1].total_rows() == COUNT


def test_pages_by_the_id_of_a_row(songs, key):
    seen, options = [], {}
    while True:
        rows, _ = ask(songs, key, "rows", limit=8, **options)
        seen += [row.id for row in rows[:7]]
        if len(rows) < 8:
            break
        options = {"startkey": rows[7].key, "startkey_docid": rows[7].id}
    assert len(seen) == len(set(seen)) == COUNT


def test_what_is_not_there(songs, key):
    # The client takes every 404 of this port for that.
    for design, view in ((key, "none"), ("none", "rows")):
        with pytest.raises(DesignDocumentNotFoundException):
            ask(songs, design, view)
    with pytest.raises(DesignDocumentNotFoundException):
        songs.view_indexes().get_design_document("none", DesignDocumentNamespace.PRODUCTION)
