"""Distributed transactions: they live in the client, on top of extended attributes and tombstones."""

import random
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import couchbase.subdocument as SD
import pytest
from conftest import ADDRESS, PASSWORD, USERNAME
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import (
    CouchbaseException,
    DocumentNotFoundException,
    TransactionExpired,
    TransactionFailed,
)
from couchbase.options import TransactionOptions
from settee.node import Node, scratch
from transaction_client import connect, transfer

CLIENT = Path(__file__).with_name("transaction_client.py")
# Of the server that is killed; the one of the suite goes on.
OWN_ADDRESS = "127.0.31.10"
ACCOUNTS = 4


@pytest.fixture(scope="module")
def client():
    cluster = connect(ADDRESS, USERNAME, PASSWORD)
    yield cluster
    cluster.close()


@pytest.fixture(params=["main", "ephemeral"])
def bucket(request):
    return request.param


@pytest.fixture
def documents(client, bucket):
    return client.bucket(bucket).default_collection()


@pytest.fixture
def durable(client):
    return client.bucket("main").default_collection()


@contextmanager
def doomed(mode, address, bucket, prefix, seconds):
    """A client process, killed at the end."""
    command = [sys.executable, str(CLIENT), mode, address, USERNAME, PASSWORD, bucket, prefix, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "staged\n"
            yield process
        finally:
            process.kill()


def eventually(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.2)


def is_staged(collection, key):
    return collection.lookup_in(key, [SD.exists("txn", xattr=True)]).exists(0)


def content(collection, key):
    return collection.get(key).content_as[dict]


@pytest.fixture
def run(client, bucket):
    """Runs a transaction at the highest level that the bucket has."""
    level = Durability.MAJORITY if bucket == "ephemeral" else Durability.PERSIST_TO_MAJORITY
    options = TransactionOptions(durability=ServerDurability(level))
    return lambda logic: client.transactions.run(logic, options)


def stubbornly(run, logic):
    """This SDK leaves it to the application to run a transaction again that met another one."""
    until = time.monotonic() + 120
    while True:
        try:
            return run(logic)
        except TransactionFailed:
            assert time.monotonic() < until


def test_commit(run, documents, key):
    documents.upsert(f"{key}-a", {"n": 1})
    documents.upsert(f"{key}-b", {"n": 1})

    def logic(attempt):
        a, b = attempt.get(documents, f"{key}-a"), attempt.get(documents, f"{key}-b")
        attempt.replace(a, {"n": a.content_as[dict]["n"] + 1})
        attempt.remove(b)
        attempt.insert(documents, f"{key}-c", {"n": 3})
        assert attempt.get(documents, f"{key}-a").content_as[dict] == {"n": 2}, "own writes are read"
        assert attempt.get(documents, f"{key}-c").content_as[dict] == {"n": 3}
        assert content(documents, f"{key}-a") == {"n": 1}, "others see nothing yet"
        assert not documents.exists(f"{key}-c").exists
        assert is_staged(documents, f"{key}-a")

    run(logic)
    assert content(documents, f"{key}-a") == {"n": 2}
    assert content(documents, f"{key}-c") == {"n": 3}
    assert not documents.exists(f"{key}-b").exists
    for name in (f"{key}-a", f"{key}-c"):
        assert not is_staged(documents, name)


def test_rollback(run, documents, key):
    documents.upsert(f"{key}-a", {"n": 1})
    documents.upsert(f"{key}-b", {"n": 1})

    def logic(attempt):
        attempt.replace(attempt.get(documents, f"{key}-a"), {"n": 2})
        attempt.remove(attempt.get(documents, f"{key}-b"))
        attempt.insert(documents, f"{key}-c", {"n": 3})
        raise RuntimeError("changed my mind")

    with pytest.raises(TransactionFailed):
        run(logic)
    for name in (f"{key}-a", f"{key}-b"):
        assert content(documents, name) == {"n": 1}
        assert not is_staged(documents, name)
    assert not documents.exists(f"{key}-c").exists
    documents.insert(f"{key}-c", {"n": 4})
    assert content(documents, f"{key}-c") == {"n": 4}


def test_inserted_again_after_rollback_and_removal(run, documents, key):
    def insert(attempt):
        attempt.insert(documents, key, {"round": len(rounds)})
        if len(rounds) % 2:
            raise RuntimeError("changed my mind")

    rounds = []
    for _ in range(6):
        if len(rounds) % 2:
            with pytest.raises(TransactionFailed):
                run(insert)
            with pytest.raises(DocumentNotFoundException):
                documents.get(key)
        else:
            run(insert)
            assert content(documents, key) == {"round": len(rounds)}
            run(lambda attempt: attempt.remove(attempt.get(documents, key)))
        rounds.append(None)


def test_a_write_in_between_is_noticed(run, documents, key):
    documents.upsert(key, {"n": 1})
    attempts = []

    def logic(attempt):
        read = attempt.get(documents, key)
        if not attempts:
            documents.upsert(key, {"n": 10})
        attempts.append(read.content_as[dict]["n"])
        attempt.replace(read, {"n": attempts[-1] + 1})

    with pytest.raises(TransactionFailed):
        run(logic)
    assert (content(documents, key), is_staged(documents, key)) == ({"n": 10}, False)
    run(logic)
    assert (attempts, content(documents, key)) == ([1, 10], {"n": 11})


def test_writers_of_one_document_wait_for_each_other(run, documents, key):
    documents.upsert(key, {"n": 0})
    failures = []

    def add(attempt):
        read = attempt.get(documents, key)
        attempt.replace(read, {"n": read.content_as[dict]["n"] + 1})

    def work():
        try:
            for _ in range(5):
                stubbornly(run, add)
        except (AssertionError, CouchbaseException) as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, content(documents, key)) == ([], {"n": 20})


def test_a_transaction_that_takes_too_long(client, durable, key):
    durable.upsert(key, {"n": 1})

    def logic(attempt):
        attempt.replace(attempt.get(durable, key), {"n": 2})
        time.sleep(1.5)
        attempt.get(durable, key)

    with pytest.raises((TransactionExpired, TransactionFailed)):
        client.transactions.run(logic, TransactionOptions(timeout=timedelta(seconds=1)))
    assert content(durable, key) == {"n": 1}
    # Whether the attempt was rolled back by itself, or forgotten by a clean-up that came in between and left its change
    # staged: it is in nobody's way.
    stubbornly(client.transactions.run, lambda attempt: attempt.replace(attempt.get(durable, key), {"n": 3}))
    assert content(durable, key) == {"n": 3}
    assert not is_staged(durable, key)


def test_what_a_killed_client_staged_is_in_nobodys_way(client, durable, key):
    for name in ("replaced", "removed"):
        durable.upsert(f"{key}-{name}", {"n": 1})
    look_after(client, durable)
    with doomed("stage", ADDRESS, "main", key, 2) as process:
        assert is_staged(durable, f"{key}-replaced")
        process.kill()
    assert (content(durable, f"{key}-replaced"), content(durable, f"{key}-removed")) == ({"n": 1}, {"n": 1})

    def logic(attempt):
        for name in ("replaced", "removed"):
            attempt.replace(attempt.get(durable, f"{key}-{name}"), {"n": 3})
        attempt.insert(durable, f"{key}-inserted", {"n": 3})

    stubbornly(client.transactions.run, logic)
    for name in ("replaced", "removed", "inserted"):
        assert content(durable, f"{key}-{name}") == {"n": 3}
        assert not is_staged(durable, f"{key}-{name}")


def await_commit(collection, key):
    """Wait until the attempt that has staged a change of this document is committed: from there on it counts."""
    staged = collection.lookup_in(key, [SD.get("txn", xattr=True)]).content_as[dict](0)
    state = [SD.get(f"attempts.{staged['id']['atmpt']}.st", xattr=True)]
    until = time.monotonic() + 30
    while time.monotonic() < until:
        record = collection.lookup_in(staged["atr"]["id"], state)
        if not record.exists(0) or record.content_as[str](0) == "COMMITTED":
            return
    raise AssertionError("no commit in time")


def test_what_a_killed_client_committed_is_finished_by_another(client, durable, key):
    names = [f"{key}-{number}" for number in range(300)]
    for name in names:
        durable.upsert(name, {"n": 1})
    look_after(client, durable)
    with doomed("commit", ADDRESS, "main", key, 10) as process:
        # The one that is staged last, and stays so the longest.
        await_commit(durable, names[-1])
        process.kill()
    print(sum(is_staged(durable, name) for name in names), "documents were left")
    eventually(lambda: not any(is_staged(durable, name) for name in names))
    assert all(content(durable, name) == {"n": 2} for name in names)


def open_accounts(collection, prefix):
    for number in range(ACCOUNTS):
        collection.upsert(f"{prefix}-{number}", {"balance": 100})


def look_after(cluster, collection):
    """A client cleans up after others in the collections that it has changed something in itself."""
    stubbornly(
        cluster.transactions.run, lambda attempt: attempt.insert(collection, f"other-{uuid.uuid4().hex}", {})
    )


def settled(cluster, collection, prefix):
    """The sum of all accounts, as one last transaction that writes all of them finds it."""
    names = [f"{prefix}-{number}" for number in range(ACCOUNTS)]
    look_after(cluster, collection)

    def touch(attempt):
        for name in names:
            read = attempt.get(collection, name)
            attempt.replace(read, read.content_as[dict])

    stubbornly(cluster.transactions.run, touch)
    assert not any(is_staged(collection, name) for name in names)
    return sum(content(collection, name)["balance"] for name in names)


def test_money_is_conserved_when_clients_are_killed(client, durable, key):
    open_accounts(durable, key)
    dice = random.Random(1)
    for _ in range(3):
        with doomed("transfers", ADDRESS, "main", key, 2):
            time.sleep(0.2 + dice.random() / 2)
    assert settled(client, durable, key) == 100 * ACCOUNTS
    transfer(client, durable, f"{key}-0", f"{key}-1")
    assert settled(client, durable, key) == 100 * ACCOUNTS


def test_money_is_conserved_when_the_server_is_killed(key):
    dice = random.Random(2)
    with Node(OWN_ADDRESS, scratch("transactions")) as node:
        node.initialise()
        node.rest.create_bucket("main")
        cluster = connect(OWN_ADDRESS, USERNAME, PASSWORD)
        collection = cluster.bucket("main").default_collection()
        open_accounts(collection, key)
        time.sleep(2)
        with doomed("transfers", OWN_ADDRESS, "main", key, 5):
            for _ in range(4):
                time.sleep(0.3 + dice.random())
                node.kill()
                node.start()
        cluster.wait_until_ready(timedelta(seconds=20))
        # How old an attempt is, clients learn from this clock: it must not stand still in the future until the time has
        # caught up with it.
        clock = collection.lookup_in(f"{key}-0", [SD.get("$vbucket.HLC.now", xattr=True)]).content_as[str](0)
        assert int(clock) <= time.time() + 3
        assert settled(cluster, collection, key) == 100 * ACCOUNTS
        cluster.close()
