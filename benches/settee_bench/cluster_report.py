"""Tables of what a cluster costs and how it moves."""

from statistics import median

from .pressure_report import steps_table
from .report import spread, table

PERCENTILES = ("p50", "p99", "p99.9")


def figure(values, digits=0):
    return f"{median(values):,.{digits}f} ± {spread(values):.0f} %"


def medians(runs, kind):
    """Of the latencies of a kind of operation."""
    if not all(run[kind]["count"] for run in runs):
        return ""
    return " / ".join(f"{median([run[kind][name] for run in runs]):,.0f}" for name in PERCENTILES)


def spread_table(results):
    header = ["nodes", "ops/s", "CPU us/op, all nodes", "less what they need idle", "x one node", "get us p50 / p99 / p99.9",
              "set us"]
    rows, ones = [], {}
    for case in results["cases"]:
        runs = case["runs"]
        net = [run["net_cpu_us"] for run in runs]
        ones.setdefault(case["rate"], median(net))
        rows.append([str(case["nodes"]), f"{median([run['ops_per_sec'] for run in runs]):,.0f}",
                     figure([run["cpu_us"] for run in runs], 2), figure(net, 2), f"{median(net) / ones[case['rate']]:.2f}",
                     medians(runs, "read"), medians(runs, "write")])
    idle = ", ".join(f"{one['nodes']}: {median(one['shares']):.1%}" for one in results["idle"])
    lead = f"All nodes share one core. Of it they take together with nothing to do (nodes: share): {idle}."
    return f"{lead}\n\n{table(header, rows)}"


def replication_table(results):
    header = ["copies", "CPU us/set, all nodes", "x no replica", "set us p50 / p99 / p99.9"]
    rows, one = [], None
    for case in results["cases"]:
        runs = case["runs"]
        net = [run["net_cpu_us"] for run in runs]
        one = one or median(net)
        rows.append([case["case"], figure(net, 2), f"{median(net) / one:.2f}", medians(runs, "write")])
    lead = (f"{results['rate']:,} sets/s of 750 to 1,250 B on three nodes that share a core, persistent; less the "
            f"{results['idle']:.1%} of a core that the nodes take with nothing to do.")
    return f"{lead}\n\n{table(header, rows)}"


def rebalance_table(results):
    header = ["rebalance", "seconds", "copies moved / least", "MB/s", "plain copy MB/s", "share of it", "get us p50 / p99 / p99.9",
              "set us", "errors", "not my vBucket"]
    before = results["before"]
    rows = [["before", "", "", "", "", "", medians([before], "read"), medians([before], "write"), "0", ""]]
    for move in results["moves"]:
        rows.append([move["way"], f"{move['seconds']:.1f}", f"{move['copies']:,} / {move['least']:,}",
                     f"{move['mb_per_s']:,.0f}", f"{move['plain_mb_per_s']:,.0f}",
                     f"{move['mb_per_s'] / move['plain_mb_per_s']:.0%}", medians([move["during"]], "read"),
                     medians([move["during"]], "write"), str(move["errors"]), f"{move['not_mine']:,}"])
    lead = (f"{results['records']:,} records with one replica on three nodes, a fourth comes and goes, beside "
            f"{results['rate']:,} operations/s (90 % gets). The nodes share a core; the plain copy (the same bytes from a file "
            f"through a socket into a file, synced at its end) has that core for itself. The disk takes "
            f"{results['disk_mb_per_s']:,.0f} MB/s from front to back.")
    return f"{lead}\n\n{table(header, rows)}"


def outages_table(subject, results):
    header = ["rounds", "first write taken, ms", "slowest", "all vBuckets take writes, ms", "slowest"]

    def milliseconds(row, name):
        values = [round[name] * 1e3 for round in row]
        return [f"{median(values):,.0f}", f"{max(values):,.0f}"]

    rows = [[way, str(len(row)), *milliseconds(row, "first"), *milliseconds(row, "all")]
            for way, row in results["rows"].items()]
    return table([subject, *header], rows)


def failover_table(results):
    lead = (f"Since the kill -9 of one of four nodes (a quarter of the vBuckets, one replica); the cluster itself is told to "
            f"wait for {results['timeout']} s.")
    return f"{lead}\n\n{outages_table('failover', results)}"


def split_table(results):
    lead = (f"One of three nodes (one replica) is cut off from the others and not from clients; the cluster is told to wait for "
            f"{results['timeout']} s where it fails the node over, and for 30 s where the cut ends before.")
    return f"{lead}\n\n{outages_table('split', results)}"


def writes_table(results):
    return steps_table(results, ["20", "30", "40", "50"], overload="75")


def reads_table(results):
    return steps_table(results, ["25", "50", "75", "100"])


def idle_table(results):
    rows = [[f"{results['nodes']} nodes, {results['vbuckets']:,} vBuckets, {results['replicas']} replicas",
             *(f"{value:.2%}" for value in (median(results["cpu"]), max(results["cpu"]))),
             *(f"{value:.0f}" for value in (median(results["resident_mb"]), max(results["resident_mb"])))]]
    return table(["at rest", "CPU of a node, median", "most", "resident MiB, median", "most"], rows)


TABLES = (
    ("spread", "The same load on more nodes", spread_table),
    ("replication", "What copies cost", replication_table),
    ("rebalance", "Rebalance", rebalance_table),
    ("failover", "Failover", failover_table),
    ("split", "A split of the network", split_table),
    ("writes", "Steps of writes with a replica, half resident", writes_table),
    ("reads", "Steps of reads with a replica, half resident", reads_table),
    ("idle", "Nodes with nothing to do", idle_table),
)


def circumstances(env):
    """When and where all of this was measured."""
    return (f"{env['date']}, commit {env['commit']}, {env['machine']}; {env['rounds']} rounds of {env['seconds']:g} s; load "
            f"average before the run {env['load_average_before']:.1f}.")
