"""A cluster behind mapped ports: `network=external` reaches it by the alternate address and by nothing else."""

from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions
from settee.mapped import Mapped
from settee.node import PASSWORD, USERNAME, Node, scratch

OWN, OUTSIDE = "127.0.31.23", "127.0.31.24"
KV, MGMT = 21210, 28091


@pytest.fixture(scope="module")
def node():
    with Node(OWN, scratch("alternate")) as node:
        node.initialise()
        node.rest.create_bucket("outside")
        # As `couchbase-cli setting-alternate-address --set` sends it.
        node.rest.ok(
            "PUT", "/node/controller/setupAlternateAddresses/external", {"hostname": OUTSIDE, "kv": KV, "mgmt": MGMT}
        )
        yield node


def use(address, key):
    """A document written and read back by a client that was given this address."""
    cluster = Cluster.connect(address, ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD)))
    try:
        cluster.wait_until_ready(timedelta(seconds=10))
        collection = cluster.bucket("outside").default_collection()
        for number in range(50):
            collection.upsert(f"{key}-{number}", {"number": number})
            assert collection.get(f"{key}-{number}").content_as[dict] == {"number": number}
        return [bucket.name for bucket in cluster.buckets().get_all_buckets()]
    finally:
        cluster.close()


def test_clients_outside_use_nothing_but_the_alternate_address(node, key):
    kv, mgmt = Mapped(OUTSIDE, KV, (OWN, 11210)), Mapped(OUTSIDE, MGMT, (OWN, 8091))
    assert use(f"couchbase://{OUTSIDE}:{KV}?network=external", key) == ["outside"]
    assert kv.connections > 1 and mgmt.connections > 0, "the ports outside were used for documents and for management"
    before = kv.connections + mgmt.connections
    assert use(f"couchbase://{OWN}?network=default", key) == ["outside"]
    assert kv.connections + mgmt.connections == before, "a client inside does not leave"
