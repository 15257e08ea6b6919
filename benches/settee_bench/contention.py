"""What disturbs whom: scans and the working set, compaction and the front end, a bucket that is tortured and its neighbours,
a million documents that expire at once, and how long anything of that holds what requests need.
"""

import itertools
import statistics
import time

from .pressed import Pressed, Sampler, attempt, finish, sequential_write_mb_per_s, shape, written_bytes
from .pressed import KEY_BYTES, VALUE_BYTES_MEAN
from .pressure import CONNECTIONS, progress
from .servers import BUCKET

SCAN_RATIO = 0.2
SCANS = 3
SCAN_WINDOWS = 3
# Sets/s as a share of the maximum, for the latencies with and without compaction.
COMPACTION_SHARE = 0.5
# A second in which compaction used less of a core than this was one without.
COMPACTION_BUSY = 0.02
QUIET_RATE = 2_000
QUIET_MB = 100
# Quiet buckets: what kind, and how many records. Of the last one's values about half fit its memory.
QUIET = {"quiet persistent": ("couchbase", 20_000), "quiet cache": ("ephemeral", 20_000), "half on disk": ("couchbase", 140_000)}
TORTURED_MB = 100
# Operations/s beside the documents that expire, and the records that those are about.
EXPIRY_RATE = 10_000
EXPIRY_RECORDS = 20_000
# Filling them takes less than this for a million, and so they all expire in the same second.
EXPIRY_FILL_SECONDS_PER_MILLION = 90
# Before that second, and after the last is gone.
EXPIRY_CALM_SECONDS = 10
# Seconds that a million may take to go.
EXPIRY_TIMEOUT = 60
# What STAT `runtimes` tells of.
HOUSEKEEPING = ("ItemPager", "ExpiredItemPager", "DefragmenterTask", "Commit")
# Records of the writers: what fits, and what does not.
NEIGHBOURS = {"a busy bucket": 20_000, "a tortured bucket": 10_000_000}
WRITERS = 3
WRITER = ["--connections", 4, "--pipeline", 4]


def scan(options):
    """Zipf reads with a fifth of the values in memory; between them, every record is read once. Does the working set
    survive that?"""
    with Pressed(options, SCAN_RATIO, policy=options.policy) as server:
        progress("scan resistance: filling")
        found = server.fill()
        window = ["--closed", "--gets", 100, "--distribution", "zipf", *CONNECTIONS, "--warmup", 0, "--seconds",
                  options.seconds, *shape(options.pressure_records)]

        # Another sequence of keys in every window, or the next one would find what this one has fetched.
        seeds = itertools.count(1)

        def hits():
            before = server.stats()["fetched"]
            result = attempt(options, server, *window, "--seed", next(seeds))
            return 1 - (server.stats()["fetched"] - before) / result["ops"]

        # The pager needs a while to learn what is hot.
        learnt = [hits() for _ in range(SCAN_WINDOWS * 2)]
        rounds = []
        for number in range(SCANS):
            before = statistics.mean(hits() for _ in range(SCAN_WINDOWS))
            progress(f"scan {number + 1} of {SCANS}")
            attempt(options, server, "--closed", "--gets", 100, "--distribution", "each", *CONNECTIONS, "--warmup", 0,
                    *shape(options.pressure_records), "--ops", options.pressure_records)
            after = [hits() for _ in range(SCAN_WINDOWS)]
            rounds.append({"before": before, "after": after})
        return {"resident": found, "quota_mb": server.quota, "window": options.seconds, "learnt": learnt,
                "rounds": rounds}


def compaction(options):
    """Sustained overwrites: how many reach the disk against what it takes at best, how often each byte is written, and
    what compaction does to the front end."""
    with Pressed(options, 1.0) as server:
        disk = sequential_write_mb_per_s(server.directory)
        progress(f"the disk takes {disk:.0f} MB/s from front to back; filling")
        server.fill()
        before, began = written_bytes(server.process_id), time.monotonic()
        result = attempt(options, server, "--closed", "--gets", 0, *CONNECTIONS, *shape(options.pressure_records),
                         "--seconds", options.step_seconds, "--warmup", 0)
        server.drain()
        taken = time.monotonic() - began
        server.settle()
        written, payload = written_bytes(server.process_id) - before, result["ops"] * (KEY_BYTES + VALUE_BYTES_MEAN)
        most = result["ops"] / taken
    # A fresh log, so that there are seconds without compaction at first.
    with Pressed(options, 1.0) as server:
        server.fill()
        progress(f"maximum {most:,.0f} sets/s; half of it with and without compaction")
        with Sampler(server) as sampler:
            calm = attempt(options, server, "--rate", most * COMPACTION_SHARE, "--gets", 50, *CONNECTIONS, "--warmup", 0,
                           *shape(options.pressure_records), "--seconds", options.step_seconds)
        sampler.align(calm)
    return {"disk_mb_per_s": disk, "sets_per_sec": most, "payload_mb_per_s": payload / taken / 1e6,
            "written_per_byte": written / payload, "rate": most * COMPACTION_SHARE,
            **beside_compaction(calm["intervals"], sampler.samples)}


def beside_compaction(intervals, samples):
    """Percentiles by second, apart by whether compaction ran in it; medians over such seconds."""
    busy = {int(one["at"]): two["compaction_cpu"] - one["compaction_cpu"] > COMPACTION_BUSY
            for one, two in zip(samples, samples[1:])}
    sides = {True: [], False: []}
    for interval in intervals:
        second = int(interval["second"])
        # A second at the border has something of both.
        if interval["ops"] and len({busy.get(second + shift) for shift in (-1, 0, 1) if second + shift in busy}) == 1:
            sides[busy.get(second, False)].append(interval)

    def medians(side):
        return {name: statistics.median(one[name] for one in side) for name in ("p50_us", "p99_us", "p99.9_us")}

    return {"with": medians(sides[True]) if sides[True] else None, "seconds_with": len(sides[True]),
            "without": medians(sides[False]) if sides[False] else None, "seconds_without": len(sides[False])}


def neighbours(options):
    """Quiet buckets, one of them a cache, one with half of its values on disk: by themselves, beside a busy bucket that has
    room, and beside one that the same writers fill far beyond its memory. Whatever the second and the third differ in is
    not the processor's doing."""
    with Pressed(options, 1.0, name="neighbours") as server:
        rest = server.node.rest
        rest.delete_bucket(BUCKET)
        rest.ok("POST", "/pools/default", {"memoryQuota": len(QUIET) * QUIET_MB + TORTURED_MB + 256})
        for name, (kind, records) in QUIET.items():
            rest.create_bucket(name.replace(" ", "-"), quota_mb=QUIET_MB, kind=kind)
            attempt(options, server, "--populate", *shape(records), bucket=name.replace(" ", "-"))
        sides = {"nothing": {"quiet": all_quiet(options, server)}}
        for side, records in NEIGHBOURS.items():
            progress(f"beside it: {side}")
            rest.create_bucket(BUCKET, quota_mb=TORTURED_MB, kind="couchbase")
            # Their own core must be free whenever those that measure want it.
            writers = [attempt(options, server, "--closed", "--gets", 0, *WRITER, *shape(records), "--warmup", 0,
                               "--seconds", options.step_seconds, "--seed", seed, start=True, nice=19)
                       for seed in range(WRITERS)]
            # Until it has filled up, it is like any other.
            time.sleep(options.step_seconds / 4)
            measured = all_quiet(options, server)
            done = [finish(writer) for writer in writers]
            sides[side] = {"quiet": measured, "sets_per_sec": sum(one["ops"] for one in done) / options.step_seconds,
                           "temporary": sum(one["temporary_failures"] for one in done)}
            rest.delete_bucket(BUCKET)
        return {"rate": QUIET_RATE, "quota_mb": TORTURED_MB, "sides": sides}


def all_quiet(options, server):
    """The quiet buckets at the same time."""
    runs = {name: attempt(options, server, "--rate", QUIET_RATE, "--gets", 80, "--connections", 10, *shape(records),
                          "--seconds", options.step_seconds / 2, bucket=name.replace(" ", "-"), start=True)
            for name, (_, records) in QUIET.items()}
    results = {name: finish(run) for name, run in runs.items()}
    return {name: {"get_us": one["read_us"], "set_us": one["write_us"], "errors": one["errors"] + one["unsent"],
                   "temporary": one["temporary_failures"]} for name, one in results.items()}


def expiry(options):
    """As many documents as there are records expire in the same second, while others are read and written at a steady
    rate: its latencies before that, from then on until the last is gone, and after."""
    with Pressed(options, 1.0, name="expiry") as server:
        fill_seconds = max(15, EXPIRY_FILL_SECONDS_PER_MILLION * options.pressure_records / 1e6)
        calm = min(EXPIRY_CALM_SECONDS, options.step_seconds)
        attempt(options, server, "--populate", "--key-prefix", "steady-", *shape(EXPIRY_RECORDS))
        # Absolute, as whatever is beyond 30 days.
        due = int(time.time() + fill_seconds + 2 * calm)
        progress(f"{options.pressure_records} documents that expire in {due - time.time():.0f} s")
        attempt(options, server, "--populate", "--pipeline", 16, "--expiry", due, *shape(options.pressure_records))
        server.drain()
        if time.time() > due - calm:
            raise SystemExit("filling took longer than allowed for: nothing could be measured before")
        items = server.items()
        time.sleep(max(0.0, due - calm - time.time()))
        before = server.runtimes()
        seconds = calm * 2 + EXPIRY_TIMEOUT * options.pressure_records / 1e6
        began = time.time()
        run = attempt(options, server, "--rate", EXPIRY_RATE, "--gets", 80, "--connections", 20, "--key-prefix", "steady-",
                      *shape(EXPIRY_RECORDS), "--seconds", seconds, "--warmup", 0, start=True)
        gone = None
        while time.time() < began + seconds - calm:
            time.sleep(0.1)
            if gone is None and time.time() >= due and server.items() <= EXPIRY_RECORDS:
                gone = time.time()
        result = finish(run)
        # What it took to connect is not part of the run's own seconds.
        late = max(0.0, time.time() - began - seconds)
        marks = {"before": (0, due - began - late), "during": (due - began - late, (gone or began + seconds) - began - late),
                 "after": ((gone or began + seconds) - began - late, seconds)}
        return {"documents": items - EXPIRY_RECORDS, "rate": EXPIRY_RATE, "gone_in": gone and gone - due,
                "errors": result["errors"] + result["unsent"], "temporary": result["temporary_failures"],
                "sides": {name: between(result["intervals"], *mark) for name, mark in marks.items()},
                "holds": holds(before, server.runtimes())}


def between(intervals, begin, end):
    """Median and worst percentiles of the seconds between two moments; those at the border count for the shorter side."""
    grace = 1 if end - begin < 2 else 0
    inside = [one for one in intervals
              if one["ops"] and begin - grace <= one["second"] and one["second"] + 1 <= end + grace]
    return {"seconds": len(inside)} | {
        name: (statistics.median(one[name] for one in inside), max(one[name] for one in inside)) if inside else None
        for name in ("p50_us", "p99_us", "p99.9_us")}


def locks(options):
    """How long the housekeeper and the flusher keep a lock that requests need, or run in one go: half of the data in memory,
    everything overwritten and read at random, some of it expiring."""
    with Pressed(options, 0.5, policy=options.policy) as server:
        progress("locks: filling")
        server.fill()
        before = server.runtimes()
        result = attempt(options, server, "--closed", "--mix", "set=50,get=50", "--expiry", 10, "--connections", 50, "--pipeline",
                         4, *shape(options.pressure_records), "--seconds", options.step_seconds, "--warmup", 0)
        return {"ops_per_sec": result["ops_per_sec"], "seconds": options.step_seconds, "policy": options.policy,
                "holds": holds(before, server.runtimes())}


def holds(before, after):
    """Per kind of step the microseconds of processor time that one took: how many, percentiles, the longest. All are lower
    bounds of the histogram's step, the longest is an upper one."""
    rows = {}
    for name in HOUSEKEEPING:
        steps = []
        for key, count in after.items():
            head, _, bounds = key.rpartition("_")
            if head == name and "," in bounds:
                low, high = map(int, bounds.split(","))
                steps.append((low, high, int(count) - int(before.get(key, 0))))
        steps = sorted(step for step in steps if step[2] > 0)
        total = sum(step[2] for step in steps)
        if not total:
            continue

        def at(share):
            seen = itertools.accumulate(step[2] for step in steps)
            return next(step[0] for step, sum_ in zip(steps, seen) if sum_ >= share * total)

        rows[name] = {"count": total, "p50_us": at(0.5), "p99_us": at(0.99), "p99.9_us": at(0.999), "most_us": steps[-1][1],
                      "above_1_ms": sum(step[2] for step in steps if step[0] >= 1000)}
    return rows
