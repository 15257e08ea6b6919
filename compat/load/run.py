"""`settee load` against a node: what it writes is there, its counts add up however many processes share a run, property
files of other generators run unchanged, DCP brings back every document, and a kill -9 under validation loses nothing
that was acknowledged as durable.

`compat/run load`
"""

import base64
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from settee.node import PASSWORD, USERNAME, Node, binary, scratch
from settee.validated import ValidatedLoad

BUCKET = "load"
RECORDS = 20_000

HISTORIC = """\
db=com.yahoo.ycsb.db.MembaseClient
memcached.address=192.168.1.1
memcached.port=11211
histogram.buckets=20
recordcount=2000
operationcount=4000
workload=com.yahoo.ycsb.workloads.MemcachedCoreWorkload
memgetproportion=0.100
memupdateproportion=0.0
valuelength=2048
requestdistribution=zipfian
threadcount=8
"""
YCSB = """\
recordcount=2000
operationcount=4000
workload=site.ycsb.workloads.CoreWorkload
readproportion=0.5
updateproportion=0.3
insertproportion=0.1
readmodifywriteproportion=0.1
requestdistribution=zipfian
"""


def command(node, *words):
    line = [binary(), "load", *words, "--host", node.address]
    if "-b" not in words:
        line += ["-b", BUCKET]
    return [str(word) for word in line]


def environment():
    return {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}


def load(node, *words):
    done = subprocess.run(command(node, *words), capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def report(node, *words):
    return json.loads(load(node, *words, "--json"))


def filled_and_drained(node):
    filled = report(node, "--populate", "-n", RECORDS, "--pipeline", 16)
    assert (filled["stored"], filled["verified"]["misses"]) == (RECORDS, 0), filled
    drained = json.loads(load(node, "drain", "-c", 4, "--json"))
    assert drained["documents"] == RECORDS, drained


def counts_add_up(node):
    """Every operation that was due is in exactly one row, whichever process carried it out."""
    mix = "get=6,set=2,cas=1,mget=1"
    for more in ([], ["--threads", 2], ["--processes", 2]):
        run = report(node, "--rate", 2000, "--seconds", 2, "-n", RECORDS, "--mix", mix, "--warmup", 0, *more)
        ended = sum(op["ok"] + op["misses"] + op["errors"] for op in run["operations"].values())
        assert ended + run["unsent"] == 4000, (more, run)
        in_intervals = sum(interval["ops"] + interval["errors"] for interval in run["intervals"])
        assert in_intervals == ended and run["errors"] == run["corrupt"] == 0, (more, run)
        rows = sum(op["ok_us"]["count"] for op in run["operations"].values())
        assert rows == run["split_us"]["queue"]["count"], (more, run)


def property_files(node):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("historic", HISTORIC), ("ycsb", YCSB)):
            path = Path(folder, name)
            path.write_text(text)
            words = ["-P", path]
            assert report(node, *words, "--stage", "load")["stored"] == 2000
            run = report(node, *words)
            assert (run["ops"], run["errors"]) == (4000, 0), run
        lines = load(node, "-P", Path(folder, "historic"), "--historic").splitlines()
        rows = [int(line.rsplit(",", 1)[1]) for line in lines if " - " in line or "] >" in line]
        operations = next(int(line.rsplit(",", 1)[1]) for line in lines if "[GET] Operations" in line)
        assert sum(rows) == operations == 4000, lines


def queries_in_a_mix(node):
    """Rows of a view are asked for beside reads and writes, with figures of their own; an answer that is none is an error."""
    views = {"views": {"all": {"map": "function (doc, meta) { emit(meta.id, null); }"}}}
    address = f"http://{node.address}:{node.ports['capi']}/{BUCKET}/_design/every"
    login = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}
    request = urllib.request.Request(address, json.dumps(views).encode(), headers, method="PUT")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201, answer.status
    # The index is built first: an answer that lacks rows is an error.
    whole = f"{address}/_view/all?stale=false&limit=0&connection_timeout=600000"
    with urllib.request.urlopen(urllib.request.Request(whole, headers=headers)) as answer:
        told = json.loads(answer.read())
        assert "errors" not in told and told["total_rows"] >= RECORDS, told
    mix = ["--mix", "get=6,set=2,query=2", "-n", RECORDS, "--seconds", 2, "--warmup", 0]
    asked = [*mix, "--query", "every/all?key={key}&stale=ok"]
    for more in (["--rate", 500], ["--rate", 500, "--processes", 2], ["--closed", "-c", 4, "--pipeline", 2]):
        run = report(node, *asked, *more)
        operations = run["operations"]
        query, everything = operations["query"]["ok"], sum(op["ok"] + op["misses"] for op in operations.values())
        assert 0.1 * everything < query < 0.3 * everything and run["errors"] == 0, (more, run)
        assert operations["query"]["ok_us"]["count"] == query, (more, run)
    refused = command(node, *mix, "--query", "every/nothing", "--rate", 100, "--json")
    done = subprocess.run(refused, capture_output=True, text=True, check=False, env=environment())
    query = json.loads(done.stdout)["operations"]["query"]
    assert done.returncode != 0 and query["ok"] == 0 and query["errors"] > 0, done.stdout


def validated_through_kills(node):
    with ValidatedLoad(node, BUCKET, seconds=8, durability="persistToMajority") as told:
        for _ in range(3):
            time.sleep(2)
            node.kill()
            node.start()
    assert told.report["reconnects"] > 0, told.report


def main():
    with Node(os.environ["SETTEE_ADDRESS"], scratch("load")) as node:
        node.initialise()
        node.rest.create_bucket(BUCKET, quota_mb=256)
        for check in (filled_and_drained, counts_add_up, property_files, queries_in_a_mix, validated_through_kills):
            began = time.monotonic()
            check(node)
            print(f"{check.__name__}: ok in {time.monotonic() - began:.1f} s", flush=True)
        node.assert_alive()


if __name__ == "__main__":
    main()
