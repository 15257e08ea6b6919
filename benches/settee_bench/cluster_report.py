"""Tables of what a cluster costs and how it moves."""

from statistics import median

from .moves import above, eta_errors, paced, progress_error
from .pressure_report import steps_table
from .report import spread, table

PERCENTILES = ("p50", "p99", "p99.9")
# What a rebalance says of its end is right if it is no further off.
RIGHT_WITHIN = 0.2


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
        rows.append([nodes_of(case), f"{median([run['ops_per_sec'] for run in runs]):,.0f}",
                     figure([run["cpu_us"] for run in runs], 2), figure(net, 2), f"{median(net) / ones[case['rate']]:.2f}",
                     medians(runs, "read"), medians(runs, "write")])
    idle = ", ".join(f"{one['nodes']}: {median(one['shares']):.1%}" for one in results["idle"])
    lead = (f"{measured_in(results)} All nodes share one core. Of it they take together with nothing to do (nodes: share): {idle}. As "
            f"controls, that part of the load, of the {results['connections']} connections and of the records that one of the most nodes has: "
            "on one node alone, and on as many at once that are no cluster, with a client each.")
    return f"{lead}\n\n{table(header, rows)}"


def nodes_of(case):
    nodes, part = case["nodes"], case["part"]
    if part == 1:
        return str(nodes)
    return f"control: {'one alone' if nodes == 1 else f'{nodes} apart'}, 1/{part} of {case['rate']:,}{'' if nodes == 1 else ' each'}"


def measured_in(results):
    return f"{rounds(results['rounds']).capitalize()} of {results['seconds']:g} s."


def replication_table(results):
    header = ["copies", "CPU us/set, all nodes", "x no replica", "set us p50 / p99 / p99.9"]
    rows, one = [], None
    for case in results["cases"]:
        runs = case["runs"]
        net = [run["net_cpu_us"] for run in runs]
        one = one or median(net)
        rows.append([case["case"], figure(net, 2), f"{median(net) / one:.2f}", medians(runs, "write")])
    lead = (f"{measured_in(results)} {results['rate']:,} sets/s of 750 to 1,250 B on three nodes that share a core, persistent. CPU is without the "
            f"{results['idle']:.1%} of a core that the nodes take with nothing to do.")
    return f"{lead}\n\n{table(header, rows)}"


def rebalance_table(results):
    """What was moved and how fast, then what the load beside it noticed."""
    plain = median(results["plain_mb_per_s"])
    header = ["rebalance", "seconds", "MB/s", "plain copy MB/s", "share of it", "copies moved / least", "MB sent / least",
              "documents sent / least", *FORECAST]
    objective = results["objective"]
    rows, beside = [], [besides("before", results["before"], objective, "")]
    for name, moves in rebalances_by_name(results).items():
        column = {key: [move[key] for move in moves] for key in moves[0]}
        speed = median(column["mb_per_s"])
        rows.append([name, figure(column["seconds"], 1), f"{speed:,.0f}", f"{plain:,.0f}", f"{speed / plain:.0%}",
                     over(column["copies"], column["least"]), over(column["sent_mb"], column["least_mb"]),
                     over(column["sent_documents"], column["least_documents"]), *forecasts(moves)])
        beside.append(besides(name, column["during"], objective, f"{median([paced(move) for move in moves]):.0%}"))
    lead = (f"{results['records']:,} records with one replica on three nodes, a fourth comes and goes, beside "
            f"{results['rate']:,} operations/s (90 % gets); {rounds(results['rounds'])} of each. The nodes share a core; the plain copy (the "
            f"same bytes from a file through a socket into a file, synced at its end) has that core for itself. The disk takes "
            f"{results['disk_mb_per_s']:,.0f} MB/s from front to back.")
    second = ["beside it", "get us p50 / p99 / p99.9", "set us", f"seconds with p99 above {objective / 1e3:g} ms",
              "one copy at a time", "errors", "not my vBucket"]
    return f"{lead}\n\n{table(header, rows)}\n\n{table(second, beside)}"


FORECAST = ["progress off by at worst", "ETA off by at worst", "looks at it that are off by more than a fifth"]


def forecasts(moves):
    """How good what rebalances said of themselves was."""
    errors = [error for move in moves for error in eta_errors(move)]
    progress = [error for error in map(progress_error, moves) if error is not None]
    worst = [f"{max(found):.0%}" if found else "never said" for found in (progress, errors)]
    return [*worst, f"{sum(error > RIGHT_WITHIN for error in errors)} of {len(errors)}"]


def forecast_table(results):
    """The same where disks are what a rebalance waits for."""
    rows = [[name, figure([move["seconds"] for move in moves], 1), f"{median([move['mb_per_s'] for move in moves]):,.0f}",
             *forecasts(moves)] for name, moves in rebalances_by_name(results).items()]
    lead = (f"{results['records']:,} records with one replica on three nodes, a fourth comes and goes, beside {results['rate']:,} "
            f"operations/s (90 % gets), each disk held to {results['disk_mb']} MB/s; {rounds(results['rounds'])} of each, begun when all that "
            "was written before is on disk.")
    return f"{lead}\n\n{table(['rebalance', 'seconds', 'MB/s', *FORECAST], rows)}"


def rebalances_by_name(results):
    named = {}
    for move in results["moves"]:
        objective = f", objective {move['objective'] / 1e3:g} ms" if move["objective"] else ""
        named.setdefault(f"{move['way']}{objective}", []).append(move)
    return named


def besides(name, runs, objective, one_at_a_time):
    seconds = [above(run, objective) for run in runs]
    return [name, medians(runs, "read"), medians(runs, "write"), f"{median(seconds):.0%}", one_at_a_time,
            str(sum(run["errors"] for run in runs)), f"{median([run['not_mine'] for run in runs]):,.0f}"]


def over(found, least):
    """Medians, and the worst ratio of them."""
    worst = max(one / other for one, other in zip(found, least))
    return f"{median(found):,.0f} / {median(least):,.0f}: {worst:.3f}"


def rounds(number):
    return "one round" if number == 1 else f"{number} rounds"


def outages_table(subject, results):
    header = ["rounds", "first write taken, ms", "slowest", "all vBuckets take writes, ms", "slowest"]

    def milliseconds(row, name):
        values = [round[name] * 1e3 for round in row]
        return [f"{median(values):,.0f}", f"{max(values):,.0f}"]

    rows = [[way, str(len(row)), *milliseconds(row, "first"), *milliseconds(row, "all")]
            for way, row in results["rows"].items()]
    return table([subject, *header], rows)


# Beside the table, or nobody understands why what is asked for at once takes longer than what a cluster has to notice first.
BY_HAND = """The cluster itself is told to wait for {timeout} s; by hand it is meanwhile told to wait for 30 s, which is the default, or to \
fail nobody over. By hand and with the default it takes longer because of leases: where automatic failover is on, a node may serve for 70 % of \
that wait after it was last heard, 5 s at most. A dead one cannot say that it has stopped, so nobody takes its place before: of 30 s that is \
after 5 s, of 1 s after 0.7 s. A new leader does not know what the dead one has promised, and counts from its own beginning. Where automatic \
failover is off there are no leases: a second of silence is enough, and a node that is cut off and not dead serves on meanwhile, below \
durability level majority."""


def failover_table(results):
    lead = ("Since the kill -9 of one of four nodes (a quarter of the vBuckets, one replica). "
            f"{BY_HAND.format(timeout=results['timeout'])}")
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
    rows = [[str(row["buckets"]), *(f"{value:.2%}" for value in (median(row["cpu"]), max(row["cpu"]))),
             *(f"{value:.1f}" for value in (median(row["resident_mb"]), max(row["resident_mb"])))] for row in results["rows"]]
    rows.append(["each one more", *(f"{value:.3%}" for value in each_more(results["rows"], "cpu")),
                 *(f"{value:.1f}" for value in each_more(results["rows"], "resident_mb"))])
    lead = (f"{results['nodes']} nodes, and empty buckets of {results['vbuckets']:,} vBuckets with {results['replicas']} replicas; "
            f"{results['seconds']:g} s each.")
    return f"{lead}\n\n{table(['buckets', 'CPU of a node, median', 'most', 'resident MiB, median', 'most'], rows)}"


def each_more(rows, name):
    """What one more bucket adds to a node: to the median of all nodes, and to the node that takes most."""
    fewest, most = rows[0], rows[-1]
    return [(whole(most[name]) - whole(fewest[name])) / (most["buckets"] - fewest["buckets"]) for whole in (median, max)]


TABLES = (
    ("spread", "The same load on more nodes", spread_table),
    ("replication", "What copies cost", replication_table),
    ("rebalance", "Rebalance", rebalance_table),
    ("forecast", "Rebalance where disks are slow", forecast_table),
    ("failover", "Failover", failover_table),
    ("split", "A split of the network", split_table),
    ("writes", "Steps of writes with a replica, half resident", writes_table),
    ("reads", "Steps of reads with a replica, half resident", reads_table),
    ("idle", "Nodes with nothing to do", idle_table),
)


def circumstances(env):
    """When and where all of this was measured."""
    return (f"{env['date']}, commit {env['commit']}, {env['machine']}; load average before the run "
            f"{env['load_average_before']:.1f}.")
