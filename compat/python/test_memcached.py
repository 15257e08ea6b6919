"""Port 11211: memcached clients that never heard of Couchbase, on the bucket that was opened for them; on one of type
couchbase and on one of type memcached, which has a node of its own."""

import time

import bmemcached
import pytest
from conftest import ADDRESS
from couchbase.options import GetOptions
from couchbase.transcoder import RawBinaryTranscoder
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError, MemcacheUnknownCommandError
from settee.node import Node, scratch


# Of the node whose port 11211 serves a bucket of type memcached.
MEMCACHED_ADDRESS = "127.0.31.22"


@pytest.fixture(scope="module")
def memcached_node():
    with Node(MEMCACHED_ADDRESS, scratch("memcached")) as node:
        node.initialise()
        node.rest.create_bucket("cache", kind="memcached", legacyMemcachedPort=1, legacyPasswordless=1)
        yield node


@pytest.fixture(params=["couchbase", "memcached"])
def server(request):
    if request.param == "couchbase":
        return ADDRESS
    return request.getfixturevalue("memcached_node").address


@pytest.fixture
def text(server):
    client = Client((server, 11211), timeout=5, connect_timeout=5, default_noreply=False)
    yield client
    client.close()


@pytest.fixture
def binary(server):
    client = bmemcached.Client((f"{server}:11211",), compression=None, socket_timeout=5)
    yield client
    client.disconnect_all()


def test_text_storage(text, key):
    assert text.get(key) is None
    assert text.set(key, b"one")
    assert text.get(key) == b"one"
    assert not text.add(key, b"two")
    assert text.replace(key, b"three")
    assert text.append(key, b"!") and text.prepend(key, b"!")
    assert text.get(key) == b"!three!"
    assert text.delete(key) and not text.delete(key)
    assert not text.replace(key, b"gone") and not text.append(key, b"gone")
    assert text.add(key, b"back")


def test_text_cas(text, key):
    text.set(key, b"one")
    value, cas = text.gets(key)
    assert value == b"one"
    assert text.cas(key, b"two", cas) is True
    assert text.cas(key, b"three", cas) is False
    assert text.cas(key + "-missing", b"x", cas) is None
    assert text.get(key) == b"two"


def test_text_counters(text, key):
    assert text.incr(key, 1) is None
    text.set(key, b"10")
    assert text.incr(key, 5) == 15
    assert text.decr(key, 20) == 0
    text.set(key, b"ten")
    with pytest.raises(MemcacheError):
        text.incr(key, 1)


def test_text_many_and_noreply(text, key):
    names = {f"{key}-{n}": f"value {n}".encode() for n in range(500)}
    assert text.set_many(names, noreply=True) == []
    assert text.get_many(list(names) + ["absent"]) == names
    assert len(text.gets_many(list(names)[:10])) == 10
    assert text.delete_many(list(names), noreply=True)
    assert text.get_many(list(names)) == {}


def test_text_expiry(text, key):
    text.set(key, b"short", expire=1)
    text.set(key + "-2", b"long", expire=1)
    assert text.touch(key + "-2", expire=100)
    got = text.raw_command(f"gat 100 {key}-2".encode(), end_tokens=b"END\r\n")
    assert got.split(b"\r\n")[1] == b"long"
    assert not text.touch(key + "-missing", expire=1)
    time.sleep(2.2)
    assert text.get(key) is None
    assert text.get(key + "-2") == b"long"


def test_text_server_commands(text):
    assert text.version()
    stats = text.stats()
    assert b"pid" in stats and b"curr_items" in stats


def test_text_large_value(text, key):
    value = bytes(1024 * 1024 - 1)
    assert text.set(key, value)
    assert text.get(key) == value


def test_binary_storage(binary, key):
    assert binary.get(key) is None
    assert binary.set(key, "one")
    assert binary.get(key) == "one"
    assert not binary.add(key, "two")
    assert binary.replace(key, "three")
    value, cas = binary.gets(key)
    assert value == "three"
    assert binary.cas(key, "four", cas)
    assert not binary.cas(key, "five", cas)
    assert binary.delete(key)
    assert binary.get(key) is None


def test_binary_many_and_counters(binary, key):
    names = {f"{key}-{n}": f"value {n}" for n in range(200)}
    assert not binary.set_multi(names)
    assert binary.get_multi(list(names) + ["absent"]) == names
    assert binary.delete_multi(list(names))
    assert binary.incr(key, 1, default=7) == 7
    assert binary.incr(key, 3) == 10
    assert binary.decr(key, 20) == 0


def test_binary_expiry_and_stats(binary, key):
    assert binary.set(key, "short", time=1)
    time.sleep(2.2)
    assert binary.get(key) is None
    assert any("pid" in stats for stats in binary.stats().values())


@pytest.mark.parametrize("server", ["couchbase"], indirect=True)
def test_both_protocols_see_the_same_documents(text, binary, plain, key):
    text.set(key, b"shared")
    assert binary.get(key) in ("shared", b"shared")
    class AnyFlags(RawBinaryTranscoder):
        def decode_value(self, value, flags):
            return value

    collection = plain.bucket("cache").default_collection()
    assert collection.get(key, GetOptions(transcoder=AnyFlags())).value == b"shared"


def test_garbage_is_answered_and_does_not_hurt(text, key):
    text.set(key, b"still here")
    with pytest.raises(MemcacheUnknownCommandError):
        text.raw_command(b"bogus command")
    text.close()
    assert text.get(key) == b"still here"
