"""A rebalance beside a load goes one copy at a time while the bucket's operations miss its objective, and as ever while they
keep it. The task says which. Objectives are a parameter of the bucket, or have an error budget."""

import os
import subprocess
from contextlib import contextmanager

import pytest
from settee.node import PASSWORD, USERNAME, binary

MEMBERS = 1
LOAD = ["--mix", "set=1", "--rate", 2000, "--connections", 32, "--records", 20_000]
# Until it is told to stop.
LOAD += ["--warmup", 0, "--seconds", 600, "--control", "-"]
# Enough for a hundredth of what a node answers within a second to mean something.
BUSY_OPS_PER_SEC = 500
PACED = "one copy at a time"


@contextmanager
def load(cluster, bucket):
    """Runs for as long as the block lasts, and fails no operation."""
    command = [binary(), "load", *LOAD, "--host", cluster[0].address, "-b", bucket]
    environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    try:
        path = f"/pools/default/buckets/{bucket}"
        cluster.wait("it is busy", lambda: cluster.rest.get(path).json["basicStats"]["opsPerSec"] > BUSY_OPS_PER_SEC, 60)
        yield
        told, _ = process.communicate("stop\n")
        assert process.returncode == 0, told
    finally:
        process.kill()
        process.wait()


def takes_in(cluster, node):
    """Rebalances a node in. What the task has said meanwhile that it waits for."""
    waits = set()

    def ended():
        task = cluster.task()
        waits.add(task.get("settee", {}).get("waitsFor"))
        return task["status"] == "notRunning" and not task["statusIsStale"]

    cluster.add(node)
    cluster.start_rebalance()
    cluster.wait("the rebalance ends", ended, 300)
    # By now; this tells whether it has failed.
    cluster.wait_rebalanced()
    return {words for words in waits if words is not None}


# The slowest hundredth of writes is never as quick as the first, and nothing that is answered takes as long as the second. Nodes
# tell once a second how quick they were: the first rebalance has to take longer than that.
@pytest.mark.parametrize(("objective_us", "vbuckets", "paced"), [(1, 1024, True), (60_000_000, 64, False)])
def test_a_rebalance_is_paced_by_the_objective(cluster, objective_us, vbuckets, paced):
    bucket = f"objective-{objective_us}"
    cluster.rest.create_bucket(bucket, numVBuckets=vbuckets, latencyObjectiveUs=objective_us)
    new = next(node for node in cluster.nodes if node.address not in cluster.members())
    with load(cluster, bucket):
        waits = takes_in(cluster, new)
    assert any(PACED in words for words in waits) == paced, waits
    assert all(f"its objective is {objective_us}" in words for words in waits if PACED in words), waits
    cluster.rest.delete_bucket(bucket)


# A thousandth of the writes may take longer than 8 us; far more than 14.4 times as many do.
def test_a_rebalance_is_paced_by_an_objective_with_an_error_budget(cluster):
    bucket = "objective-budget"
    cluster.rest.create_bucket(bucket, numVBuckets=1024)
    cluster.rest.ok("PUT", f"/settee/slo/{bucket}/writes", {"operation": "set", "latencyUs": 8, "targetPercent": 99.9})
    new = next(node for node in cluster.nodes if node.address not in cluster.members())
    with load(cluster, bucket):
        waits = takes_in(cluster, new)
    assert any(PACED in words and "its objective is 8" in words for words in waits), waits
    cluster.rest.delete_bucket(bucket)
