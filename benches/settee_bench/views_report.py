"""Tables of what views cost, beside their aims."""

from statistics import mean, median

from .report import table

# What is asked of views. A ratio is to what V8 does with the same function in the same run.
PUBLISHED_RATIO, WHOLE_RATIO, IGNORING_RATE = 1.2, 0.4, 500_000
COUNT_MS, KEY_RATE, PAGE_MB = 2.0, 5_000, 200
FRESH_MS, BESIDE_RATIO, SIZE_RATIO = 50.0, 1.5, 1.3
# So much is what the allocator and the kernel make of the same memory from one process to the next.
MEMORY_BYTES = 2.0
FUNCTIONS = {"published": "the published function", "whole": "one that needs the whole document",
             "ignores": "one that ignores it", "tens": "the same, with ten rows of each key"}


def rate(one, documents):
    """Documents per second of the processor."""
    return documents / max(one["cpu_seconds"], 1e-9)


def by_v8(case):
    return mean(run["documents"] / max(run["cpu_seconds"], 1e-9) for run in case["v8"])


def verdict(is_met):
    return "met" if is_met else "missed"


def build_aims(results):
    for case in results["cases"]:
        own, what = rate(case, results["documents"]), FUNCTIONS[case["design"]]
        if case["v8"]:
            aim = PUBLISHED_RATIO if case["design"] == "published" else WHOLE_RATIO
            ratio = own / by_v8(case)
            yield (f"building, {what}: documents/s of a core over V8's", f"≥ {aim}",
                   f"{ratio:.2f} ({own:,.0f} over {by_v8(case):,.0f})", verdict(ratio >= aim))
        elif case["design"] == "ignores":
            yield f"building, {what}: documents/s of a core", f"≥ {IGNORING_RATE:,}", f"{own:,.0f}", verdict(own >= IGNORING_RATE)
    # Of rows that have less than the id of their document most of an index is ids.
    for case in results["cases"]:
        ratio = case["disk_bytes"] / max(case["emitted_bytes"], 1)
        yield (f"size of the index, {FUNCTIONS[case['design']]}: bytes per byte of keys and values", f"≤ {SIZE_RATIO}", f"{ratio:.2f}",
               verdict(ratio <= SIZE_RATIO))


def query_aims(results):
    for case in results["cases"]:
        name, cpu = case["case"], max(case["cpu_seconds"], 1e-9)
        if name.startswith("_count"):
            yield f"{name}: p99", f"< {COUNT_MS:g} ms", f"{case['alone']['p99']:.2f} ms", verdict(case["alone"]["p99"] < COUNT_MS)
        elif name.startswith("key="):
            own = case["queries"] / cpu
            yield f"{name}: queries/s of a core", f"≥ {KEY_RATE:,}", f"{own:,.0f}", verdict(own >= KEY_RATE)
        else:
            own = case["bytes"] / cpu / 1e6
            yield f"{name}: MB/s of a core", f"≥ {PAGE_MB}", f"{own:,.0f}", verdict(own >= PAGE_MB)


def fresh_aims(results):
    yield (f"`stale=false` right after a write, at {results['writes_per_sec']:,.0f} writes/s: p99", f"< {FRESH_MS:g} ms",
           f"{results['p99']:.1f} ms", verdict(results["p99"] < FRESH_MS))


def p99s(rounds, which, kind):
    return median(one[which][kind]["p99"] for one in rounds)


def beside_aims(results):
    rounds = results["rounds"]
    for kind, name in (("read_us", "gets"), ("write_us", "sets")):
        ratio = p99s(rounds, "beside", kind) / max(p99s(rounds, "without", kind), 1e-9)
        told = verdict(ratio <= BESIDE_RATIO)
        if not all(one["was_built_throughout"] for one in rounds):
            told = "not judged: a build ended before the load did"
        yield f"{name} beside a build: p99 over that without", f"≤ {BESIDE_RATIO}", f"{ratio:.2f}", told


def nodes_aims(results):
    first, last = results["cases"][0], results["cases"][-1]
    if first is last:
        return
    for one, other in zip(first["cases"], last["cases"]):
        yield (f"{one['case']}: median on {last['nodes']} nodes over that on {first['nodes']}", "what the merge costs",
               f"{other['p50'] / one['p50']:.2f} ({other['p50']:.2f} over {one['p50']:.2f} ms)", "shown")


def memory_aims(results):
    if len(results["cases"]) < 2:
        return
    impossible, without = results["cases"][:2]
    more = without["mem_used"] - impossible["mem_used"]
    yield ("memory of an item where no view is, over that where none is possible", "the same", f"{more:+.1f} bytes",
           verdict(abs(more) <= MEMORY_BYTES))


AIMS = {"build": build_aims, "queries": query_aims, "fresh": fresh_aims, "beside": beside_aims, "nodes": nodes_aims,
        "memory": memory_aims}


def aims(results):
    """What was asked for and what was found, of all parts that were measured; and why others were not, or not wholly."""
    found = [row for part, tell in AIMS.items() if results.get(part) for row in tell(results[part])]
    failed = results.get("failures", {}).items()
    return found + [(f"part {part}", "", text.replace("\n", " ").replace("|", "/"), "not measured to its end") for part, text in failed]


def aims_table(rows):
    return table(["what", "aim", "result", ""], [list(row) for row in rows])


def build_table(results):
    documents, rows = results["documents"], []
    for case in results["cases"]:
        own = rate(case, documents)
        rows.append([FUNCTIONS[case["design"]], f"{case['rows']:,}", f"{own:,.0f}", f"{documents / case['seconds']:,.0f}",
                     f"{by_v8(case):,.0f}" if case["v8"] else "", f"{own / by_v8(case):.2f}" if case["v8"] else "",
                     f"{case['disk_bytes'] / 1e6:,.1f}", f"{case['disk_bytes'] / max(case['emitted_bytes'], 1):.2f}"])
    lead = (f"{documents:,} songs, from disk, one index at a time. A node has one core for itself and its processes, and so has V8, which has "
            "the songs in memory. Seconds of the processor are all there are from the design document to the commit.")
    header = ["function", "rows", "documents/s of a core", "by the clock, until the answer", "V8, of a core", "x V8", "index MB",
              "x keys and values"]
    return f"{lead}\n\n{table(header, rows)}"


def query_table(results):
    rows = []
    for case in results["cases"]:
        alone, cpu = case["alone"], max(case["cpu_seconds"], 1e-9)
        rows.append([case["case"], *(f"{alone[name]:.2f}" for name in ("p50", "p99", "most")), f"{case['queries'] / case['seconds']:,.0f}",
                     f"{case['queries'] / cpu:,.0f}", f"{case['bytes'] / cpu / 1e6:,.0f}"])
    header = ["query", "one at a time: p50 ms", "p99", "most", "eight at a time: queries/s", "of a core", "MB/s of a core"]
    return table(header, rows)


def fresh_table(results):
    header = ["writes/s beside it", "queries", "p50 ms", "p99", "most"]
    return table(header, [[f"{results['writes_per_sec']:,.0f}", f"{results['queries']:,}",
                           *(f"{results[name]:.1f}" for name in ("p50", "p99", "most"))]])


def beside_table(results):
    rows = [[name, *(f"{one[which][kind][share]:,.0f}" for kind in ("read_us", "write_us") for share in ("p50", "p99"))]
            for one in results["rounds"] for name, which in (("without", "without"), ("beside a build", "beside"))]
    lead = f"{results['rate']:,} operations/s in an open loop, 90 % gets, {results['seconds']:g} s each, by turns."
    return f"{lead}\n\n{table(['', 'get us p50', 'p99', 'set us p50', 'p99'], rows)}"


def nodes_table(results):
    rows = [[one["case"], str(case["nodes"]), f"{one['p50']:.2f}", f"{one['p99']:.2f}", f"{one['cpu_us']:,.0f}"]
            for case in results["cases"] for one in case["cases"]]
    rows.sort(key=lambda row: row[0])
    lead = (f"{results['documents']:,} songs, {results['rate']} queries/s in all, one at a time, asked of each node by turns. All nodes share one core. "
            "What nodes need with nothing to do is taken off the last column.")
    return f"{lead}\n\n{table(['query', 'nodes', 'p50 ms', 'p99', 'CPU us of all nodes'], rows)}"


def memory_table(results):
    rows = [[case["case"], f"{case['items']:,}", f"{case['resident']:.1f}", f"{case['mem_used']:.1f}"] for case in results["cases"]]
    return table(["bucket", "items", "resident bytes per item beyond key and value", "by the bucket's account"], rows)


TABLES = (
    ("aims", "Views: aims", aims_table), ("build", "Building indexes", build_table), ("queries", "Queries on one node", query_table),
    ("fresh", "Right after a write", fresh_table), ("beside", "Documents beside a build", beside_table),
    ("nodes", "Queries on more nodes", nodes_table), ("memory", "Memory of an item", memory_table),
)


def circumstances(env):
    return (f"{env['date']}, commit {env['commit']}, {env['machine']}; node {env['node']}; {env['documents']:,} songs; load average before "
            f"the run {env['load_average_before']:.1f}.")
