"""What is made of what was seen of rebalances: what was sent, how good a guess of their end was, and what others noticed."""

import re
from collections import Counter

# What a counter of STAT `dcp` is of. The text of the rest is the connection's.
PREFIX = "eq_dcpq:"
SENT = re.compile(rf"{PREFIX}(replication:.*):(items_sent|total_bytes_sent)")
# Of a task that is paced by it.
PACED = "one copy at a time"
# What a rebalance says of its end is judged once so much of it is done.
JUDGED_FROM = 0.1


class Links:
    """What producers have sent to other nodes since the first look. A connection that closes takes its counters with it, so
    it takes looks in between; what it sent after the last of them is missed."""

    def __init__(self):
        self.counters, self.sent = {}, Counter()

    def look(self, node, stats):
        for name, value in stats.items():
            if found := SENT.fullmatch(name):
                link, counter = found.groups()
                key, now = (node, link, counter, stats[f"{PREFIX}{link}:created"]), int(value)
                before = self.counters.get(key, 0)
                # A connection that was made anew, within the same second even, begins at nothing.
                self.sent[counter] += now - before if now >= before else now
                self.counters[key] = now

    def begin(self):
        self.sent.clear()


def eta_errors(move):
    """How far each thing that a rebalance said of its end was off, as a share of what it took."""
    told = [look["at"] + look["eta"] for look in judged(move) if look["eta"] is not None]
    return [abs(end - move["seconds"]) / move["seconds"] for end in told]


def progress_error(move):
    """How far what it said was done was off at worst from the share of its time that was over."""
    return max((abs(look["done"] - look["at"] / move["seconds"]) for look in judged(move)), default=None)


def judged(move):
    return [look for look in move["looks"] if look["done"] >= JUDGED_FROM]


def paced(move):
    """Of the looks at a rebalance, the share in which it went one copy at a time."""
    looks = move["looks"]
    return sum(PACED in (look["waits_for"] or "") for look in looks) / max(1, len(looks))


def above(run, objective):
    """Of a run's seconds, the share in which the 99th percentile was above an objective."""
    seconds = run["seconds_p99_us"]
    return sum(p99 > objective for p99 in seconds) / max(1, len(seconds))
