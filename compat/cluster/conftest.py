"""A cluster for each file of tests: four nodes unless the file asks for more, as many of them members as it asks for."""

import os

import pytest
from settee.cluster import Cluster
from settee.node import scratch

ADDRESS = os.environ.get("SETTEE_ADDRESS", "127.0.31.30")
NODES = 4
VBUCKETS = 64


@pytest.fixture(scope="module")
def cluster(request):
    name = request.module.__name__.removeprefix("test_")
    nodes = Cluster(ADDRESS, scratch(f"cluster-{name}"), getattr(request.module, "NODES", NODES))
    failed = request.session.testsfailed
    try:
        nodes.form(members=request.module.MEMBERS)
        yield nodes
        if request.session.testsfailed == failed:
            nodes.stop()
    finally:
        nodes.kill()
