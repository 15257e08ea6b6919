"""What it costs to see a node, as a table."""

import statistics

from .report import spread, table

# In percent of the processor.
AIM = 2.0
NODES = ("off", "on", "off again")


def cost(case):
    """By how many percent of the processor the node with everything costs more, and by how many both others differ.

    Each round is judged by itself. A machine's speed may change within minutes, and hardly does within a round.
    """
    rounds = list(zip(*([run["cpu_us_per_op"] for run in case["runs"][name]] for name in NODES)))
    more = [2 * on / (off + again) - 1 for off, on, again in rounds]
    noise = [2 * (off - again) / (off + again) for off, _, again in rounds]
    return statistics.median(more) * 100, abs(statistics.median(noise)) * 100


def tables(found):
    """Everything that is known, and whether the aim is met."""
    rows = []
    for case in found:
        columns = [[run["cpu_us_per_op"] for run in case["runs"][name]] for name in NODES]
        more, noise = cost(case)
        figures = [f"{statistics.median(column):.3f} ± {spread(column):.0f} %" for column in columns]
        rows.append([case["case"], *figures, f"{more:+.1f} %", f"{noise:.1f} %"])
    header = ["case", "off, CPU us/op", "on, CPU us/op", "off again, CPU us/op", "on costs", "off differs from off again by"]
    all_costs = [cost(case) for case in found]
    mean, noise = (statistics.mean(column) for column in zip(*all_costs))
    verdict = "is met" if mean + noise < AIM else "is not met" if mean - noise >= AIM else "cannot be judged: let the machine rest"
    return f"{table(header, rows)}\n\nOn average {mean:+.1f} %, at a noise of {noise:.1f} %. The aim of less than {AIM:g} % {verdict}.\n"


def rest(percents):
    """What the nodes take while clients ask nothing."""
    figures = ", ".join(f"{name} {percents[name]:.1f} %" for name in NODES)
    return f"At rest a node takes this much of a core: {figures}.\n"
