"""Connections for the tests. The server and its buckets are there already: see `compat/run`."""

import os
import uuid
from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions, ClusterTimeoutOptions
from far_away import FarAway

ADDRESS = os.environ["SETTEE_ADDRESS"]
USERNAME = os.environ["SETTEE_USERNAME"]
PASSWORD = os.environ["SETTEE_PASSWORD"]
CERTIFICATE = os.environ["SETTEE_CERTIFICATE"]


def connect(scheme="couchbase", username=USERNAME, password=PASSWORD, **options):
    """An unmodified client: nothing is set but what a user would set."""
    secure = {"cert_path": CERTIFICATE} if scheme == "couchbases" else {}
    timeouts = ClusterTimeoutOptions(kv_timeout=timedelta(seconds=10), kv_durable_timeout=timedelta(seconds=10))
    authenticator = PasswordAuthenticator(username, password, **secure)
    cluster = Cluster.connect(
        f"{scheme}://{ADDRESS}", ClusterOptions(authenticator, timeout_options=timeouts, **options)
    )
    cluster.wait_until_ready(timedelta(seconds=10))
    return cluster


@pytest.fixture(scope="session", autouse=True)
def far_away(request):
    """A client behind a slow link. A node asks it a minute after its start what it has measured: other tests go on meanwhile."""
    if not any(item.path.name == "test_telemetry.py" for item in request.session.items):
        yield None
        return
    with FarAway() as far_away:
        yield far_away


@pytest.fixture(scope="session")
def plain():
    cluster = connect("couchbase")
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def secure():
    cluster = connect("couchbases")
    yield cluster
    cluster.close()


@pytest.fixture(params=["plain-main", "tls-main", "plain-ephemeral"])
def collection(request, plain, secure):
    """The default collection of a bucket, over every way to get there."""
    transport, bucket = request.param.split("-")
    return (plain if transport == "plain" else secure).bucket(bucket).default_collection()


@pytest.fixture
def main(plain):
    return plain.bucket("main")


@pytest.fixture
def key():
    return f"python-{uuid.uuid4().hex}"
