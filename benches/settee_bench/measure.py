"""The cases. Every figure comes from `settee load`, which checks what it reads back and fails on any error."""

import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from settee.node import PASSWORD, USERNAME, binary

from .servers import BUCKET, DEFINITIONS, pinned

KEY_BYTES = 36
OPERATIONS = {"get": 100, "set": 0, "mixed": 90}
VALUE_BYTES = [100, 1000]
CONNECTIONS = [50, 500]
PIPELINES = [1, 16]
CHURN_SIZES = (50, 1500)
CHURN_ROUNDS = 5
SUBDOC_BYTES = [1000, 20_000]
SUBDOC_CASES = [
    ("get whole", ["--mix", "get=1"]),
    ("get first field", ["--mix", "subget=1", "--path", "version"]),
    ("get last field", ["--mix", "subget=1", "--path", "field"]),
    ("replace whole", ["--mix", "replace=1"]),
    ("change last field", ["--mix", "subset=1", "--path", "field"]),
]
SPAN_CONNECTIONS = [1, 2, 4, 8, 16, 32, 64]
SPAN_SHARES = [0.15, 0.8, 1.0]
# Field reports know idle buckets that are slower than busy ones.
SPAN_IDLE_RATES = [1, 2, 100, 10_000]
SPAN_IDLE_OPS = 30
DURABILITY_LEVELS = ["none", "majority", "majorityAndPersistActive", "persistToMajority"]
DURABLE_WRITERS = [1, 10, 100]
DRAIN_CONNECTIONS = [1, 4, 8]
DRAIN_SOURCES = [
    ("settee", "memory", []),
    ("settee-persistent", "disk", ["--disk-only"]),
]


def progress(text):
    print(text, file=sys.stderr, flush=True)


def load(options, server, *more):
    """One run of `settee load` on the client's core."""
    protocol = server.protocol or options.protocol
    command = [binary(), "load", "--json", "--protocol", protocol, "--key-bytes", KEY_BYTES]
    command += ["--host", server.host, "--port", server.port, "--server-pid", server.process_id, *more]
    return run(options, server, command)


def couchbase(options, server, *more):
    """The same over Couchbase's protocol, where Settee is measured against itself."""
    command = [binary(), "load", *more, "--json", "--host", server.host, "--server-pid", server.process_id]
    command += ["-u", USERNAME, "-p", PASSWORD, "-b", BUCKET]
    return run(options, server, command)


def run(options, server, command):
    with pinned(options.client_core):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{server.name}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def fill(options, server, records, value_bytes):
    load(options, server, "--populate", "--records", records, "--value-bytes", value_bytes, "--pipeline", 16)


def rate(options):
    """Throughput, latency and CPU per operation; the servers take turns in every round of a case."""
    cases = []
    for value_bytes in VALUE_BYTES:
        with ExitStack() as stack:
            servers = [stack.enter_context(DEFINITIONS[name](options)) for name in options.servers]
            for server in servers:
                progress(f"filling {server.name} with {options.records} x {value_bytes} B")
                fill(options, server, options.records, value_bytes)
                server.settle()
            for operation, connections, pipeline in case_list(options, value_bytes):
                name = case_name(operation, value_bytes, connections, pipeline)
                progress(name)
                runs = compare(options, servers, operation, value_bytes, connections, pipeline)
                cases.append({"case": name, "operation": operation, "value_bytes": value_bytes,
                              "connections": connections, "pipeline": pipeline, "runs": runs})
    return cases


def case_list(options, value_bytes):
    for operation in OPERATIONS:
        for connections in CONNECTIONS:
            for pipeline in PIPELINES:
                if options.cases in case_name(operation, value_bytes, connections, pipeline):
                    yield operation, connections, pipeline


def case_name(operation, value_bytes, connections, pipeline):
    return f"{operation} {value_bytes} B, {connections} connections, pipeline {pipeline}"


def compare(options, servers, operation, value_bytes, connections, pipeline):
    """The servers in turns, by `settee load compare`; what a flusher still has to do after the last reply belongs to
    the operations that caused it."""
    command = [binary(), "load", "compare", "--json", "--filled", "--rounds", options.rounds, "--closed"]
    for server in servers:
        address = f"{server.protocol or options.protocol}://{server.host}:{server.port}#{server.process_id}"
        command += ["--compare", f"{server.name}={address}"]
    command += ["--records", options.records, "--key-bytes", KEY_BYTES, "--value-bytes", value_bytes]
    command += ["--connections", connections, "--pipeline", pipeline, "--gets", OPERATIONS[operation]]
    command += ["--seconds", options.seconds, "--warmup", 0.5]
    result = run(options, servers[0], command)
    for target in result["targets"]:
        if any(one["misses"] for one in target["rounds"]):
            raise SystemExit(f"{target['name']}: records that were stored are not found")
    return {target["name"]: target["rounds"] for target in result["targets"]}


def memory(options):
    """Resident bytes per item beyond key and value: a fresh process per size."""
    cases = []
    for value_bytes in VALUE_BYTES:
        for name in options.servers:
            with DEFINITIONS[name](options) as server:
                progress(f"memory: {server.name}, {options.items} x {value_bytes} B")
                server.settle()
                before = server.resident_bytes()
                fill(options, server, options.items, value_bytes)
                server.settle()
                used = server.resident_bytes() - before
                cases.append({"server": server.name, "value_bytes": value_bytes, "items": options.items,
                              "overhead_bytes": used / options.items - KEY_BYTES - value_bytes})
    return cases


def churn(options):
    """Resident bytes over live bytes after every record was overwritten several times with another size."""
    cases = []
    items, sizes = options.items // 2, f"{CHURN_SIZES[0]}-{CHURN_SIZES[1]}"
    live = items * (KEY_BYTES + statistics.mean(CHURN_SIZES))
    for name in options.servers:
        with DEFINITIONS[name](options) as server:
            progress(f"churn: {server.name}, {items} x {sizes} B, overwritten {CHURN_ROUNDS} times")
            server.settle()
            before = server.resident_bytes()
            fill(options, server, items, sizes)
            server.settle()
            filled = server.resident_bytes() - before
            load(options, server, "--records", items, "--value-bytes", sizes, "--pipeline", 16, "--closed", "--gets", 0,
                 "--ops", items * CHURN_ROUNDS, "--warmup", 0)
            server.settle()
            # A defragmenter that works in the background gets the time it would have on an idle server.
            time.sleep(5 if items >= 100_000 else 0)
            churned = server.resident_bytes() - before
            cases.append({"server": server.name, "items": items, "sizes": sizes,
                          "filled_ratio": filled / live, "churned_ratio": churned / live})
    return cases


def subdoc(options):
    """One field of a document against the whole of it: over the wire, and in the server."""
    cases = []
    for value_bytes in SUBDOC_BYTES:
        records = min(options.records, 2_000_000_000 // value_bytes // 20)
        shape = ["--records", records, "--value", "json", "--value-bytes", value_bytes]
        with DEFINITIONS["settee"](options) as server:
            progress(f"sub-documents of {value_bytes} B: filling")
            couchbase(options, server, "--populate", "--pipeline", 16, *shape)
            server.settle()
            for name, flags in SUBDOC_CASES:
                if options.cases not in name:
                    continue
                progress(f"{name}, {value_bytes} B")
                runs = []
                for _ in range(options.rounds):
                    result = couchbase(options, server, "--closed", *flags, "--seconds", options.seconds,
                                       "--warmup", 0.5, "--verify", 0, *shape)
                    runs.append(figures(result, server.settle()))
                cases.append({"case": name, "value_bytes": value_bytes, "runs": runs})
    return cases


def durable(options):
    """Writes that are acknowledged when they are durable: the more writers, the more of them share a sync."""
    cases = []
    with DEFINITIONS["settee-persistent"](options) as server:
        records = ["--records", min(options.records, 100_000), "--value-bytes", 1000]
        couchbase(options, server, "--populate", "--pipeline", 16, *records)
        server.settle()
        for level in DURABILITY_LEVELS:
            for writers in DURABLE_WRITERS:
                if options.cases not in level:
                    continue
                progress(f"durable writes: {level}, {writers} writers")
                runs = []
                for _ in range(options.rounds):
                    durability = ["--durability", level] if level != "none" else []
                    result = couchbase(options, server, "--closed", "--gets", 0, "-c", writers, *durability,
                                       "--seconds", options.seconds, "--warmup", 0.2, "--verify", 0, *records)
                    measured = figures(result, server.settle())
                    measured["writes_per_sync"] = result["server_figures"].get("writes per sync", 0)
                    runs.append(measured)
                cases.append({"level": level, "writers": writers, "runs": runs})
    return cases


def drain(options):
    """A bucket over DCP from its beginning to now: from memory (ephemeral), and from disk."""
    cases = []
    for value_bytes in VALUE_BYTES:
        for name, source, flags in DRAIN_SOURCES:
            if options.cases not in source:
                continue
            with DEFINITIONS[name](options) as server:
                progress(f"drain from {source}: filling with {options.records} x {value_bytes} B")
                couchbase(options, server, "--populate", "--pipeline", 16, "--records", options.records,
                          "--value-bytes", value_bytes)
                server.settle()
                for connections in DRAIN_CONNECTIONS:
                    progress(f"drain from {source}, {connections} connections")
                    runs = []
                    for _ in range(options.rounds):
                        result = couchbase(options, server, "drain", "-c", connections, *flags)
                        if result["documents"] != options.records:
                            raise SystemExit(f"{result['documents']} of {options.records} documents were streamed")
                        runs.append({
                            "documents_per_sec": result["documents_per_sec"],
                            "megabytes_per_sec": result["megabytes_per_sec"],
                            "cpu_us_per_document": result["server_cpu_seconds"] * 1e6 / result["documents"],
                        })
                        server.settle()
                    cases.append({"source": source, "value_bytes": value_bytes, "connections": connections,
                                  "runs": runs})
    return cases


def span(options):
    """The whole range of a server: threads of the client, shares of the measured maximum, and almost nothing."""
    cases = []
    records = ["--records", min(options.records, 100_000), "--value-bytes", 1000]
    with DEFINITIONS["settee"](options) as server:
        couchbase(options, server, "--populate", "--pipeline", 16, *records)

        def measure(name, *flags):
            if options.cases not in name:
                return 0
            progress(name)
            runs = []
            for _ in range(options.rounds):
                result = couchbase(options, server, "--gets", 100, "--verify", 0, *records, *flags)
                runs.append(figures(result, 0))
            cases.append({"case": name, "runs": runs})
            return statistics.median(one["ops_per_sec"] for one in runs)

        seconds = ["--seconds", options.seconds]
        for connections in SPAN_CONNECTIONS:
            measure(f"closed, {connections} connections", "--closed", "-c", connections, *seconds)
        # Users who come by themselves do not pipeline: theirs is the maximum without.
        most = measure("closed, 50 connections", "--closed", "-c", 50, *seconds)
        for share in SPAN_SHARES:
            rate = ["--rate", max(1, most * share), "--poisson", "-c", 50, "--pipeline", 4]
            measure(f"{share:.0%} of the maximum", *rate, *seconds)
        for rate in SPAN_IDLE_RATES:
            idle = ["--rate", rate, "-c", 50, "--warmup", 0, "--seconds", max(options.seconds, SPAN_IDLE_OPS / rate)]
            measure(f"{rate} a second", *idle)
    return cases


def figures(result, tail):
    """What tables show of a run; `tail` is the CPU time that the server took after its last reply."""
    latencies = result["write_us" if result["stored"] > result["hits"] else "read_us"]
    return {
        "ops_per_sec": result["ops_per_sec"],
        "cpu_us_per_op": (result["server_cpu_seconds"] + tail) * 1e6 / result["ops"],
        "p50_us": latencies["p50"], "p99_us": latencies["p99"], "p99.9_us": latencies["p99.9"],
    }


def environment(options):
    def output(*command):
        # Parts of Settee alone do without the other servers.
        if shutil.which(command[0]) is None:
            return "not installed"
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    with open("/proc/cpuinfo") as cpuinfo:
        model = next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), "unknown")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": output("git", "rev-parse", "--short", "HEAD"),
        "memcached": output("memcached", "--version"),
        "machine": f"{model}, {os.cpu_count()} cores, Linux {platform.release()}",
        "protocol": options.protocol, "rounds": options.rounds, "seconds": options.seconds,
        "records": options.records, "load_average_before": os.getloadavg()[0],
    }
