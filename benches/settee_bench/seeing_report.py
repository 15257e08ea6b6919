"""What it costs to see a node, as a table."""

import statistics

from .report import table

# In percent of the processor.
AIM = 2.0
# In MiB.
MEMORY_AIM = 64
# A turn of 20 ms with fewer operations was not one of the measurement.
BUSY_OPERATIONS = 200


def turns_of(path, offset):
    """The turns that were written behind a place of the file, and that were busy: nanoseconds and operations, out and in."""
    with open(path, encoding="ascii") as file:
        file.seek(offset)
        lines = [[int(number) for number in line.split()] for line in file if line.endswith("\n")]
    return [line for line in lines if len(line) == 4 and min(line[1], line[3]) >= BUSY_OPERATIONS]


def cost(turns):
    """By how many percent of the processor an operation costs more with everything than without, and twice the error of that.

    Each pair of turns is judged by itself. Their median is taken, since what runs beside operations falls into some of them. Its error is
    that of a median, by the distance of the quartiles.
    """
    more = [(nanos / count) / (nanos_out / count_out) - 1 for nanos_out, count_out, nanos, count in turns]
    low, middle, high = statistics.quantiles(more, n=4)
    deviation = (high - low) / 1.349
    return middle * 100, 2 * 1.2533 * deviation / len(more) ** 0.5 * 100


def nanos(turns, column):
    """Nanoseconds of an operation."""
    return statistics.median(turn[column] / turn[column + 1] for turn in turns)


def memory(found):
    """By how much more memory a node has with everything, which holds the same documents as the one without."""
    on, off = (found["memory"][name] for name in ("on", "off"))
    verdict = "is met" if on - off < MEMORY_AIM else "is not met"
    return (
        f"Resident memory: with everything {on:.1f} MiB, without {off:.1f} MiB, a difference of {on - off:+.1f} MiB. "
        f"The aim of less than {MEMORY_AIM} MiB {verdict}."
    )


def tables(found):
    """Everything that is known, and whether the aim is met."""
    rows, costs = [], []
    for case in found["cases"]:
        turns = case["turns"]
        more, error = cost(turns)
        costs.append((more, error))
        figures = [f"{nanos(turns, column):,.0f}" for column in (0, 2)]
        rows.append([case["case"], *figures, f"{more:+.2f} %", f"{error:.2f} %", f"{len(turns):,}"])
    header = ["case", "without, CPU ns/op", "with, CPU ns/op", "costs", "within", "pairs of turns"]
    beside = found["beside"]
    more_beside = beside["on, busy"] - beside["off, busy"]
    operations = statistics.mean(more for more, _ in costs)
    error = sum(error**2 for _, error in costs) ** 0.5 / len(costs)
    mean = operations + more_beside
    verdict = "is met" if mean + error < AIM else "is not met" if mean - error >= AIM else "cannot be judged: measure for longer"
    threads = ", ".join(f"{name} {percent:.2f} %" for name, percent in beside.items())
    return (
        f"{table(header, rows)}\n\nOther threads take this much of a core: {threads}.\n\n"
        f"Operations cost {operations:+.2f} % on average, within {error:.2f} %, and other threads {more_beside:+.2f} %. "
        f"Altogether that is {mean:+.2f} %. The aim of less than {AIM:g} % {verdict}.\n\n{memory(found)}\n"
    )
