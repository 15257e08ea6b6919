"""Steps of writes and of reads at half-resident data, and the sweep of resident ratios.

The steps are those of a published test that no rate of it was accepted in: 40, 60, 80, 100 thousand sets/s with 10
thousand gets/s, and 25, 50, 75, 100 thousand gets/s with 10 thousand sets/s. They are scaled by one factor, the
measured maximum of persisted sets/s over 100,000, which is fixed before the first step; a set that two nodes write to
their disks is two persisted sets. A step is accepted if at least 99 % of what was offered was carried out in its time,
nothing was refused for good, and the queue for the disk did not grow.
"""

import statistics
import sys
from itertools import pairwise

from .pressed import Pressed, Sampler, attempt, shape

HALF = 0.5
WRITE_STEPS = [(40_000, 10_000), (60_000, 10_000), (80_000, 10_000), (100_000, 10_000)]
READ_STEPS = [(10_000, 25_000), (10_000, 50_000), (10_000, 75_000), (10_000, 100_000)]
OVERLOAD = (150_000, 10_000)
SCALE = 100_000
ACCEPTED = 0.99
CONNECTIONS = ["--connections", 50, "--pipeline", 16]
RATIOS = [1.0, 0.5, 0.2, 0.05]
# Of the maximum just measured: busy, and not at the limit.
CALM = 0.5


def progress(text):
    print(text, file=sys.stderr, flush=True)


def half_resident(options):
    node = Pressed(options, HALF, policy=options.policy)
    progress(f"{options.pressure_records} records, quota {node.quota} MiB: filling")
    return node


def maximum(options, server):
    """Sets/s that become persistent with everything that the client can offer, once the queue for the disk is as long as it gets;
    what it still grows by is taken off."""
    def fast(seconds):
        return attempt(options, server, "--closed", "--gets", 0, *CONNECTIONS, *shape(options.pressure_records),
                       "--seconds", seconds, "--warmup", 0)

    fast(options.step_seconds / 8)
    before = server.stats()["queue"]
    result = fast(options.step_seconds / 4)
    grown = server.stats()["queue"] - before
    most = (result["ops"] - max(0, grown)) / result["seconds"]
    progress(f"maximum: {most:,.0f} sets/s, persisted by {server.copies}")
    return most


def scaled_steps(options, server, steps):
    """Steps whose rates are scaled to what this machine can do, fixed before the first."""
    resident = server.fill()
    most = maximum(options, server)
    # What that has left behind, on the way to disk and on it, is none of the first step's.
    server.drain()
    server.settle()
    factor = most * server.copies / SCALE
    rows = [step(options, server, factor, *rates) for rates in steps]
    return {"maximum": most, "copies": server.copies, "factor": factor, "resident": resident, "quota_mb": server.quota,
            "records": options.pressure_records, "seconds": options.step_seconds, "rows": rows}


def writes(options):
    """Steps of sets, then half as much again as the largest, and what is left of it afterwards."""
    with half_resident(options) as server:
        return overloaded_steps(options, server, WRITE_STEPS, OVERLOAD)


def reads(options):
    """Steps of gets of which half have to come from disk."""
    with half_resident(options) as server:
        return scaled_steps(options, server, READ_STEPS)


def overloaded_steps(options, server, steps, overload):
    """Scaled steps; what the overload leaves behind meets the first of them again at once: does it recover without a
    rest?"""
    told = scaled_steps(options, server, steps)
    factor, rows = told["factor"], told["rows"]
    over = step(options, server, factor, *overload, rest=False)
    after = step(options, server, factor, *steps[0])
    after["recovered_in"] = recovery(after, rows[0])
    return {**told, "overload": over, "after": after}


def recovery(after, calm):
    """Seconds until the queue was, give or take a second's sets, no longer than it ever was in a calm step of the same
    rate; None if it never was."""
    bound = calm["queue_most"] + calm["sets"]
    return next((second for second, queue in after["series"] if queue <= bound), None)


def step(options, server, factor, sets, gets, rest=True):
    """One rate for its time, and then a rest until the queue is gone, if there shall be one."""
    rates = {"sets": sets * factor, "gets": gets * factor}
    progress(f"offering {rates['sets']:,.0f} sets/s and {rates['gets']:,.0f} gets/s")
    before = server.stats()
    with Sampler(server) as sampler:
        result = attempt(options, server, "--rate", sum(rates.values()), "--mix", f"set={sets},get={gets}",
                         *CONNECTIONS, *shape(options.pressure_records), "--seconds", options.step_seconds,
                         "--warmup", 0)
    sampler.align(result)
    after = server.stats()
    row = judged(result, sampler, rates, options.step_seconds)
    row |= circumstances(result, sampler.samples) | {
        "fetched_per_get": (after["fetched"] - before["fetched"]) / max(1, result["hits"]),
        "resident": (before["resident"], after["resident"]), "refused": after["refused"] - before["refused"],
        "pressure_step": max(sampler.column("step"), default=0),
        "series": [(sample["at"], sample["queue"]) for sample in sampler.samples],
        "by_second": by_second(result["intervals"], sampler.samples),
        "drained_in": server.drain() if rest else None,
    }
    progress(f"  {verdict(row)}: {row['carried_out']:.1%}, queue {row['queue_first']:,.0f} -> {row['queue_last']:,.0f}")
    return row


def circumstances(result, samples):
    """What may explain a step that was not accepted: what refused operations were told, the disk, and of a core what
    compaction took, on the average and in its busiest second. Nothing of the latter two where the server did not answer."""
    told = {"failures": result["failures"], "temporary_reasons": result["temporary_failure_reasons"]}
    if len(samples) < 2:
        return {**told, "disk": None, "compaction": None}
    free, shares = [sample["disk_free"] for sample in samples], compaction_shares(samples)
    disk = {"free_first": free[0], "free_least": min(free), "taken_most": max(sample["disk_taken"] for sample in samples)}
    return {**told, "disk": disk, "compaction": {"mean": statistics.mean(shares.values()), "most": max(shares.values())}}


def by_second(intervals, samples):
    """What each second was like, and how much of a core compaction took in it: where do the tails come from?"""
    shares = compaction_shares(samples)
    return [{**{name: interval[name] for name in ("second", "ops", "p50_us", "p99_us", "max_us")},
             "compaction": shares.get(int(interval["second"]))} for interval in intervals]


def compaction_shares(samples):
    """How much of a core compaction took, by the second from which on it did."""
    return {int(one["at"]): (two["compaction_cpu"] - one["compaction_cpu"]) / (two["at"] - one["at"])
            for one, two in pairwise(samples)}


def verdict(row):
    return "accepted" if row["accepted"] else "not accepted"


def judged(result, sampler, rates, seconds):
    """What came of a step. What was answered after its time was late: it does not count as carried out."""
    offered = sum(rates.values()) * seconds
    in_time = sum(interval["ops"] for interval in result["intervals"] if interval["second"] < seconds)
    queue = [sample["queue"] for sample in sampler.samples if sample["at"] <= seconds]
    # A server that does not say how long its queue is has not shown that it is flat.
    told = len(queue) >= seconds / 2
    queue = queue or [0]
    third = max(1, len(queue) // 3)
    middle, last = statistics.mean(queue[third:2 * third] or queue), statistics.mean(queue[-third:])
    # A flush takes what has come since the last one, so the queue goes up and down by that much all the time.
    flat = told and last <= middle + rates["sets"]
    share = in_time / offered
    return {
        **rates, "carried_out": share, "flat": flat, "errors": result["errors"], "unsent": result["unsent"],
        "accepted": share >= ACCEPTED and flat and not result["errors"] and not result["unsent"],
        "temporary": result["temporary_failures"],
        "queue_first": queue[0], "queue_middle": middle, "queue_last": last, "queue_most": max(queue),
        "set_us": result["write_us"], "get_us": result["read_us"],
    }


def resident(options):
    """The same reads with ever less in memory: what does a value on disk cost, and what do those in memory pay?"""
    cases = []
    for policy in options.policies:
        for ratio in RATIOS:
            with Pressed(options, ratio, policy=policy) as server:
                progress(f"resident ratio {ratio:.0%}, {policy}: filling")
                found = server.fill()
                for distribution in ("uniform", "zipf"):
                    cases.append({"policy": policy, "ratio": ratio, "found": found, "distribution": distribution,
                                  "quota_mb": server.quota, **sweep(options, server, distribution)})
    return cases


def sweep(options, server, distribution):
    """As fast as it goes, and at half of that."""
    common = ["--gets", 100, "--distribution", distribution, *shape(options.pressure_records), "--seconds",
              options.seconds * 3]
    before = server.stats()
    fast = attempt(options, server, "--closed", *CONNECTIONS, "--warmup", 0, *common)
    after = server.stats()
    calm = attempt(options, server, "--rate", max(1, fast["ops_per_sec"] * CALM), *CONNECTIONS, *common)
    if fast["misses"] or calm["misses"] or fast["errors"] or calm["errors"]:
        raise SystemExit(f"{server.name}: records that were stored are not found, or errors: {fast['failures']}")
    return {
        "ops_per_sec": fast["ops_per_sec"], "cpu_us_per_op": fast["server_cpu_us_per_op"],
        "fetched_per_get": (after["fetched"] - before["fetched"]) / fast["ops"],
        "calm_rate": calm["rate"], "calm_us": calm["read_us"],
    }
