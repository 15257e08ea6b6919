"""Tables of what pressure does."""

from .report import table

PERCENTILES = ("p50", "p95", "p99", "p99.9")
# Half as much again as the machine can do.
OVERLOAD = "150"


def latencies(summary):
    return " / ".join(f"{summary[name]:,.0f}" for name in PERCENTILES) if summary["count"] else ""


def duration(seconds):
    return "never" if seconds is None else f"{seconds:.1f} s"


def step_row(name, row, rest=None):
    rest = duration(row["drained_in"]) if rest is None else rest
    status = "accepted" if row["accepted"] else "not accepted"
    return [
        name, f"{row['sets']:,.0f}", f"{row['gets']:,.0f}", f"{status}, {row['carried_out']:.1%}",
        f"{row['queue_first']:,.0f} / {row['queue_middle']:,.0f} / {row['queue_last']:,.0f} / {row['queue_most']:,.0f}",
        latencies(row["set_us"]), latencies(row["get_us"]), f"{row['fetched_per_get']:.2f}",
        f"{row['temporary']:,}", f"{row['pressure_step']:.0f}", rest,
    ]


STEP_HEADER = [
    "step (thousands)", "sets/s", "gets/s", "status, carried out in time", "queue first / middle / last third / most",
    "set us p50 / p95 / p99 / p99.9", "get us", "fetches per get", "temporary failures", "pressure step", "queue gone in",
]


def steps_table(results, names, overload=OVERLOAD):
    persisted = "once" if results["copies"] == 1 else f"by {results['copies']} nodes"
    lead = (f"{results['records']:,} records, quota {results['quota_mb']} MiB, {results['resident']:.0f} % resident after "
            f"filling; {results['seconds']:g} s a step; maximum {results['maximum']:,.0f} sets/s, each "
            f"persisted {persisted}, so factor {results['factor']:.2f}.")
    rows = [step_row(name, row) for name, row in zip(names, results["rows"])]
    if "overload" in results:
        rows += [step_row(overload, results["overload"], "not waited for"),
                 step_row(f"{names[0]} at once after", results["after"])]
        recovered = duration(results["after"]["recovered_in"])
        lead += f" After {overload} the queue was as short as in the step {names[0]} after {recovered}."
    return "\n\n".join([lead, table(STEP_HEADER, rows), *explanations(results, names, overload)])


def explanations(results, names, overload):
    """A list of the steps that were not accepted, or nothing."""
    steps = [*zip(names, results["rows"])]
    if "overload" in results:
        steps += [(overload, results["overload"]), (f"{names[0]} at once after", results["after"])]
    refused = [f"- {name} was not accepted:{explanation(row)}" for name, row in steps if not row["accepted"]]
    return ["\n".join(refused)] if refused else []


def explanation(row):
    """Why a step may not have been accepted, as far as was looked at: a list below it."""
    told = [f"{count:,} times \"{words}\"" for words, count in by_count(row["temporary_reasons"])]
    parts = [f"temporary failures {', '.join(told)}"] if told else []
    parts += [f"{count:,} errors {name}" for name, count in by_count(row["failures"])]
    if row["unsent"]:
        parts.append(f"{row['unsent']:,} operations never sent")
    if not row["flat"]:
        parts.append("the queue for the disk grew")
    if disk := row["disk"]:
        parts.append(f"free disk space {gigabytes(disk['free_first'])} at first, {gigabytes(disk['free_least'])} at least, data "
                     f"{gigabytes(disk['taken_most'])} at most")
    if compaction := row["compaction"]:
        parts.append(f"compaction took {compaction['mean']:.0%} of a core, {compaction['most']:.0%} in its busiest second")
    return "".join(f"\n  - {part}" for part in parts)


def by_count(counts):
    return sorted(counts.items(), key=lambda item: -item[1])


def gigabytes(number):
    return f"{number / 1e9:.1f} GB"


def writes_table(results):
    return steps_table(results, ["40", "60", "80", "100"])


def reads_table(results):
    return steps_table(results, ["25", "50", "75", "100"])


def resident_table(cases):
    header = ["resident", "eviction", "keys", "quota MiB", "gets/s", "CPU us/get", "fetches per get",
              "at half of that: us p50 / p95 / p99 / p99.9"]
    rows = [[f"{c['found']:.0f} % (aim {c['ratio']:.0%})", c["policy"], c["distribution"], str(c["quota_mb"]),
             f"{c['ops_per_sec']:,.0f}", f"{c['cpu_us_per_op']:.2f}", f"{c['fetched_per_get']:.3f}",
             latencies(c["calm_us"])] for c in cases]
    return table(header, rows)


def scan_table(results):
    window = results["window"]
    header = ["scan", f"hit rate before ({window:g} s windows)", "first window after", "second", "third"]
    rows = [[str(number + 1), f"{one['before']:.1%}", *(f"{rate:.1%}" for rate in one["after"])]
            for number, one in enumerate(results["rounds"])]
    lead = (f"Zipf 0.99 with {results['resident']:.0f} % of the values resident (quota {results['quota_mb']} MiB); while "
            f"learning: {', '.join(f'{rate:.1%}' for rate in results['learnt'])}.")
    return f"{lead}\n\n{table(header, rows)}"


def compaction_table(results):
    lead = (
        f"Uniform overwrites: {results['sets_per_sec']:,.0f} persisted sets/s are {results['payload_mb_per_s']:.0f} MB/s of "
        f"keys and values; the disk takes {results['disk_mb_per_s']:.0f} MB/s from front to back. Bytes written per byte: "
        f"{results['written_per_byte']:.2f}. At half of that rate (half sets, half gets), medians over seconds:"
    )
    rows = [[side, str(results[f"seconds_{side}"]),
             *(f"{results[side][name]:,.0f}" if results[side] else "" for name in ("p50_us", "p99_us", "p99.9_us"))]
            for side in ("without", "with")]
    return f"{lead}\n\n{table(['compaction', 'seconds', 'p50 us', 'p99 us', 'p99.9 us'], rows)}"


def neighbours_table(results):
    header = ["bucket", "beside it", "get us p50 / p95 / p99 / p99.9", "set us", "errors", "temporary failures"]
    rows = []
    for name in results["sides"]["nothing"]["quiet"]:
        for side, found in results["sides"].items():
            one = found["quiet"][name]
            rows.append([name, side, latencies(one["get_us"]), latencies(one["set_us"]), str(one["errors"]),
                         str(one["temporary"])])
    others = "; ".join(f"{side} took {found['sets_per_sec']:,.0f} sets/s ({found['temporary']:,} temporary failures)"
                       for side, found in results["sides"].items() if "sets_per_sec" in found)
    lead = f"{results['rate']:,} operations/s on each quiet bucket; of {results['quota_mb']} MiB each, {others}."
    return f"{lead}\n\n{table(header, rows)}"


def expiry_table(results):
    gone = duration(results["gone_in"])
    lead = (f"{results['documents']:,} documents expire in one second, beside {results['rate']:,} operations/s on others "
            f"(80 % gets); the last was gone after {gone}. {results['errors']} errors, {results['temporary']} temporary failures. "
            f"Median and worst second:")
    header = ["", "seconds", "p50 us", "p99 us", "p99.9 us"]
    rows = [[name, str(side["seconds"]), *("{:,.0f} / {:,.0f}".format(*side[key]) if side[key] else ""
             for key in ("p50_us", "p99_us", "p99.9_us"))] for name, side in results["sides"].items()]
    return f"{lead}\n\n{table(header, rows)}\n\n{holds_table(results['holds'])}"


def holds_table(holds):
    header = ["processor time of a step", "steps", "p50 us", "p99 us", "p99.9 us", "longest below us", "above 1 ms"]
    rows = [[name, f"{one['count']:,}", *(f"{one[key]:,}" for key in ("p50_us", "p99_us", "p99.9_us", "most_us", "above_1_ms"))]
            for name, one in holds.items()]
    return table(header, rows)


def locks_table(results):
    lead = (f"Half of the values in memory ({results['policy']}), {results['ops_per_sec']:,.0f} operations/s, half of them sets "
            f"that expire, for {results['seconds']:g} s.")
    return f"{lead}\n\n{holds_table(results['holds'])}"


TABLES = (
    ("writes", "Steps of writes at half-resident data", writes_table),
    ("reads", "Steps of reads at half-resident data", reads_table),
    ("resident", "Less and less in memory", resident_table),
    ("scan", "A scan through the working set", scan_table),
    ("compaction", "Compaction", compaction_table),
    ("neighbours", "Quiet buckets beside a tortured one", neighbours_table),
    ("expiry", "Everything expires at once", expiry_table),
    ("locks", "What holds a lock, and for how long", locks_table),
)
