"""What a cluster costs: more nodes, replicas, steps of load with a replica, and nodes that have nothing to do."""

import time
from statistics import median

from .nodes import Nodes, NodesApart, PressedNodes
from .pressed import attempt, finish, shape
from .pressure import HALF, READ_STEPS, overloaded_steps, progress, scaled_steps
from .servers import BUCKET, cpu_seconds, resident_bytes

NODE_COUNTS = [1, 2, 4, 8]
# The same for every number of nodes, and a multiple of each.
SPREAD_CONNECTIONS = 48
SPREAD_RATES = [5_000, 20_000]
# Of the sets whose price with and without replicas is compared.
REPLICATION_RATE = 5_000
REPLICATION_CASES = [
    ("no replica", 0, []),
    ("1 replica", 1, []),
    ("2 replicas", 2, []),
    ("1 replica, durable in the memory of a majority", 1, ["--durability", "majority"]),
    ("2 replicas, durable in the memory of a majority", 2, ["--durability", "majority"]),
]
WRITE_STEPS = [(20_000, 0), (30_000, 0), (40_000, 0), (50_000, 0)]
# Half as much again: every set is written twice.
WRITE_OVERLOAD = (75_000, 0)
IDLE_NODES, IDLE_REPLICAS = 10, 2
# How many buckets there are, and the quota of each.
IDLE_BUCKETS, IDLE_QUOTA_MB = [1, 5], 100


def clean(result):
    """A run that no error belongs into."""
    if result["errors"] or result["misses"] or result["unsent"]:
        raise SystemExit(f"errors, misses or operations that were not sent: {result['failures']}, {result['unsent']}")
    return result


def populate(options, server, bucket=BUCKET, records=None):
    clean(attempt(options, server, "--populate", "--pipeline", 16, *shape(records or options.records), bucket=bucket))
    server.settle()


def spread(options):
    """The same load on ever more nodes. As controls, the share of it that one of the most has: on one node alone, and on as many
    that are no cluster. Rounds are outermost, so that a noisy neighbour hits all of it."""
    most = max(options.node_counts)
    kinds = [*((count, 1) for count in options.node_counts), (1, most), (most, most)]
    cases = {(count, rate, part): [] for rate in options.spread_rates for count, part in kinds}
    idle = {count: [] for count in options.node_counts}
    for number in range(options.rounds):
        for count in options.node_counts:
            progress(f"{count} nodes, round {number + 1}")
            with Nodes(options, count, {BUCKET: {}}) as server:
                populate(options, server)
                idle[count].append(server.idle_cpu(options.seconds))
                for (nodes, rate, part), runs in cases.items():
                    if nodes == count and not nodes == part == most:
                        result = attempt(options, server, *shared(options, rate, part))
                        runs.append(cost(clean(result), idle[count][-1]))
        progress(f"{most} nodes apart, round {number + 1}")
        for rate, run in apart(options, most).items():
            cases[most, rate, most].append(run)
    return {"cases": [{"nodes": count, "rate": rate, "part": part, "runs": runs} for (count, rate, part), runs in cases.items()],
            "idle": [{"nodes": count, "shares": shares} for count, shares in idle.items()],
            "rounds": options.rounds, "seconds": options.seconds, "connections": SPREAD_CONNECTIONS}


def shared(options, rate, part):
    """Flags of that part of the load."""
    return ["--rate", rate / part, "--connections", SPREAD_CONNECTIONS // part, "--gets", 90, "--seconds", options.seconds,
            *shape(options.records // part)]


def apart(options, count):
    """By rate, what it costs where each of so many nodes, which know nothing of one another, has its part of the load to itself."""
    with NodesApart(options, count, {BUCKET: {}}) as server:
        for node in server.each():
            clean(attempt(options, node, "--populate", "--pipeline", 16, *shape(options.records // count)))
        server.settle()
        idle, found = server.idle_cpu(options.seconds), {}
        for rate in options.spread_rates:
            loads = [attempt(options, node, *shared(options, rate, count), start=True) for node in server.each()]
            # What all of them need with nothing to do is taken off in equal parts.
            found[rate] = at_once([cost(clean(finish(load)), idle / count) for load in loads])
        return found


def at_once(runs):
    """Of loads on a node each, one figure: per operation and in sum what they are, of latencies the median one."""
    operations = sum(run["ops_per_sec"] for run in runs)

    def per_operation(name):
        return sum(run[name] * run["ops_per_sec"] for run in runs) / operations

    def middle(kind):
        return {name: median([run[kind][name] for run in runs]) for name in runs[0][kind]}

    return {"cpu_us": per_operation("cpu_us"), "net_cpu_us": per_operation("net_cpu_us"), "ops_per_sec": operations,
            "read": middle("read"), "write": middle("write")}


def cost(result, idle=0.0):
    """What an operation took of the servers' processors, with and without what the nodes need for themselves, and of the
    client's patience."""
    operations = result["ops"]
    reads = result["read_us"] if result["read_us"]["count"] else result["write_us"]
    return {
        "cpu_us": result["server_cpu_us_per_op"],
        "net_cpu_us": result["server_cpu_us_per_op"] - idle * result["seconds"] / operations * 1e6,
        "ops_per_sec": result["ops_per_sec"], "read": reads, "write": result["write_us"],
    }


def replication(options):
    """Sets at one rate, with ever more copies; the cases take turns on one cluster."""
    buckets = {f"copies-{replicas}": {"replicas": replicas, "quota_mb": options.quota_mb}
               for replicas in sorted({replicas for _, replicas, _ in REPLICATION_CASES})}
    runs = {name: [] for name, _, _ in REPLICATION_CASES}
    with Nodes(options, 3, buckets) as server:
        for bucket in buckets:
            populate(options, server, bucket)
        idle = server.idle_cpu(options.seconds)
        for number in range(options.rounds):
            for name, replicas, flags in REPLICATION_CASES:
                progress(f"{name}, round {number + 1}")
                result = attempt(options, server, "--rate", options.replication_rate, "--gets", 0, "--connections", 48,
                                 "--seconds", options.seconds, *shape(options.records), *flags, bucket=f"copies-{replicas}")
                runs[name].append(cost(clean(result), idle))
                server.settle()
    return {"cases": [{"case": name, "runs": column} for name, column in runs.items()],
            "rate": options.replication_rate, "idle": idle, "rounds": options.rounds, "seconds": options.seconds}


def writes(options):
    """Steps of sets with a replica."""
    with PressedNodes(options, HALF) as server:
        progress(f"{options.pressure_records} records, each on two nodes of {server.quota} MiB: filling")
        return overloaded_steps(options, server, WRITE_STEPS, WRITE_OVERLOAD)


def reads(options):
    """Steps of gets beside sets with a replica."""
    with PressedNodes(options, HALF) as server:
        progress(f"{options.pressure_records} records, each on two nodes of {server.quota} MiB: filling")
        return scaled_steps(options, server, READ_STEPS)


def idle(options):
    """Nodes with nothing to do: processor and memory of each, with one bucket and with more of them."""
    most = max(IDLE_BUCKETS)
    with Nodes(options, options.idle_nodes, {}, spare_mb=most * IDLE_QUOTA_MB) as server:
        rows, buckets = [], 0
        for count in IDLE_BUCKETS:
            for number in range(buckets, count):
                server.create_bucket(f"idle-{number + 1}", replicas=IDLE_REPLICAS, quota_mb=IDLE_QUOTA_MB)
            buckets = count
            server.settle()
            progress(f"{options.idle_nodes} nodes at rest, buckets: {count}")
            rows.append({"buckets": count, **at_rest(options, server)})
        return {"nodes": options.idle_nodes, "vbuckets": len(server.chains("idle-1")), "replicas": IDLE_REPLICAS,
                "seconds": options.idle_seconds, "rows": rows}


def at_rest(options, server):
    # By node: one of them leads.
    before, began = [cpu_seconds(pid) for pid in server.process_ids], time.monotonic()
    time.sleep(options.idle_seconds)
    seconds, after = time.monotonic() - began, [cpu_seconds(pid) for pid in server.process_ids]
    return {"cpu": [(now - then) / seconds for then, now in zip(before, after)],
            "resident_mb": [resident_bytes(pid) / 2**20 for pid in server.process_ids]}
