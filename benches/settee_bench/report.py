"""Medians, spreads and ratios as Markdown tables, each in a section that says when and where it was measured."""

import re
from itertools import pairwise
from statistics import median

BEGIN, END = "<!-- results: written by benches/run --update-docs -->", "<!-- end of results -->"
REFERENCE = "memcached"


def spread(values):
    """Half the range over the median, in per cent: how far the rounds were apart."""
    middle = median(values)
    return (max(values) - min(values)) / 2 / middle * 100 if middle else 0.0


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def rate_table(cases):
    header = ["case", "server", "CPU us/op", "x memcached", "ops/s", "p50 us", "p99 us", "p99.9 us"]
    rows = []
    for case in cases:
        reference = None
        for server, runs in case["runs"].items():
            column = {key: [run[key] for run in runs] for key in runs[0]}
            cpu = median(column["cpu_us_per_op"])
            reference = cpu if server == REFERENCE else reference
            ratio = f"{cpu / reference:.2f}" if reference and server != REFERENCE else ""
            rows.append([
                case["case"] if server == next(iter(case["runs"])) else "",
                server,
                f"{cpu:.2f} ± {spread(column['cpu_us_per_op']):.0f} %",
                ratio,
                f"{median(column['ops_per_sec']):,.0f} ± {spread(column['ops_per_sec']):.0f} %",
                *(f"{median(column[key]):,.0f}" for key in ("p50_us", "p99_us", "p99.9_us")),
            ])
    return table(header, rows)


def memory_table(cases):
    rows = [[c["server"], f"{c['value_bytes']} B", f"{c['items']:,}", f"{c['overhead_bytes']:.1f}"] for c in cases]
    return table(["server", "values", "items", "bytes per item beyond key and value"], rows)


def churn_table(cases):
    rows = [
        [c["server"], f"{c['items']:,}", c["sizes"], f"{c['filled_ratio']:.2f}", f"{c['churned_ratio']:.2f}"]
        for c in cases
    ]
    return table(["server", "items", "value bytes", "resident / live, filled", "resident / live, after churn"], rows)


def one(runs, key, digits=0):
    values = [run[key] for run in runs]
    return f"{median(values):,.{digits}f} ± {spread(values):.0f} %"


LATENCIES = ("p50_us", "p99_us", "p99.9_us")


def subdoc_table(cases):
    header = ["case", "document", "ops/s", "CPU us/op", "p50 us", "p99 us", "p99.9 us"]
    rows = [[c["case"], f"{c['value_bytes']:,} B", one(c["runs"], "ops_per_sec"), one(c["runs"], "cpu_us_per_op", 2),
             *(f"{median([run[key] for run in c['runs']]):,.0f}" for key in LATENCIES)] for c in cases]
    return table(header, rows)


def span_table(cases):
    header = ["load", "ops/s", "p50 us", "p99 us", "p99.9 us"]
    rows = [[c["case"], one(c["runs"], "ops_per_sec"),
             *(f"{median([run[key] for run in c['runs']]):,.0f}" for key in LATENCIES)] for c in cases]
    return table(header, rows)


def durable_table(cases):
    header = ["level", "writers", "writes/s", "writes per sync", "CPU us/write", "p50 us", "p99 us", "p99.9 us"]
    rows = [[c["level"], str(c["writers"]), one(c["runs"], "ops_per_sec"),
             f"{median([run['writes_per_sync'] for run in c['runs']]):,.1f}", one(c["runs"], "cpu_us_per_op", 2),
             *(f"{median([run[key] for run in c['runs']]):,.0f}" for key in LATENCIES)] for c in cases]
    return table(header, rows)


def drain_table(cases):
    header = ["from", "values", "connections", "documents/s", "MB/s", "CPU us/document"]
    rows = [[c["source"], f"{c['value_bytes']:,} B", str(c["connections"]), one(c["runs"], "documents_per_sec"),
             one(c["runs"], "megabytes_per_sec"), one(c["runs"], "cpu_us_per_document", 2)] for c in cases]
    return table(header, rows)


TABLES = (
    ("rate", "Rates", rate_table), ("memory", "Memory per item", memory_table), ("churn", "Churn", churn_table),
    ("subdoc", "Sub-documents (memory only)", subdoc_table), ("durable", "Durable writes", durable_table),
    ("drain", "DCP", drain_table), ("span", "The whole range (GET of 1,000 B)", span_table),
)


def circumstances(env):
    """When and where all of this was measured."""
    return (f"{env['date']}, commit {env['commit']}, {env['memcached']}, {env['machine']}. {env['protocol'].capitalize()} protocol, "
            f"{env['rounds']} rounds of {env['seconds']:g} s over {env['records']:,} records. Load average before the "
            f"run: {env['load_average_before']:.1f}.")


def markdown(results, tables, measured, level):
    """A section for each part of which there are results. `tables` are (part, title, builder), headings of this level."""
    return "\n\n".join(
        f"{'#' * level} {title}\n\n{measured}\n\n{build(results[part]).strip()}"
        for part, title, build in tables if results.get(part)
    ) + "\n"


def sections(text, level):
    """By title, each heading of this level with what follows it."""
    heading = re.compile(rf"^#{{{level}}} (.*)$", re.MULTILINE)
    starts = [found.start() for found in heading.finditer(text)]
    parts = [text[start:end].strip() for start, end in pairwise([*starts, len(text)])]
    return {heading.match(part)[1]: part for part in parts}


def update(path, fresh, tables, level, marker=BEGIN):
    """Puts fresh sections between a marker and the next end, in the order of `tables`. What was not measured this time
    stays as it is."""
    head, begin, rest = path.read_text().partition(marker)
    before, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path} lacks the markers {marker} and {END}")
    parts = {**sections(before, level), **sections(fresh, level)}
    titles = [title for _, title, _ in tables]
    order = [title for title in titles if title in parts] + [title for title in parts if title not in titles]
    path.write_text("\n\n".join([f"{head}{marker}", *(parts[title] for title in order), f"{END}{tail}"]))
