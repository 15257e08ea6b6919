"""The judge of what plain memcached clients saw knows right from wrong."""

import pytest
from writers import Event, Kill, judge

# Everything is replicated at 10, the node is killed at 11.
KILL = Kill(at=11.0, replicated=10.0)


def written(value, at, failure=None):
    return Event("set", value, at - 0.01, at, failure)


def read(value, at, failure=None):
    return Event("get", value, at - 0.01, at, failure)


RIGHT = {
    "nothing yet": ([read(None, 1)], 0),
    "what was written": ([written("a", 1), read("a", 2)], 0),
    "what was left in doubt": ([written("a", 1), written("b", 2, "lost"), read("b", 3)], 0),
    "or was not done": ([written("a", 1), written("b", 2, "lost"), read("a", 3)], 0),
    "a read that failed": ([written("a", 1), read(None, 2, "lost")], 0),
    "undone by the kill": ([written("a", 9), written("b", 10.5), read("a", 15), read("a", 16)], 1),
    "half undone": ([written("a", 9), written("b", 10.5), written("c", 10.6), read("b", 15)], 1),
    "asked before the kill, answered after it": ([written("a", 9), written("b", 10.9), Event("get", "a", 10.95, 15)], 1),
    "acknowledged, and heard a little late": ([written("a", 9), written("b", 11.2), read("a", 15)], 1),
    "not undone": ([written("a", 9), written("b", 10.5), read("b", 15)], 0),
    "written again": ([written("a", 9), written("b", 10.5), written("c", 15), read("c", 16)], 0),
}

WRONG = {
    "lost": [written("a", 1), read(None, 2)],
    "stale": [written("a", 1), written("b", 2), read("a", 3)],
    "never written": [written("a", 1), read("x", 2)],
    "in doubt, and overwritten": [written("a", 1, "lost"), written("b", 2), read("a", 3)],
    "replicated, and lost": [written("a", 8), written("b", 9), read("a", 15)],
    "older than what was replicated": [written("a", 8), written("b", 9), written("c", 10.5), read("a", 15)],
    "gone altogether": [written("a", 9), written("b", 10.5), read(None, 15)],
    "undone before the kill": [written("a", 9), written("b", 10.5), read("a", 10.9)],
    "undone after it was seen": [written("a", 9), written("b", 10.5), read("b", 15), read("a", 16)],
    "back again after it was undone": [written("a", 9), written("b", 10.5), read("a", 15), read("b", 16)],
    "written after the failover, and lost": [written("a", 9), written("b", 15), read("a", 16)],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right(name):
    events, undone = RIGHT[name]
    assert judge(events, KILL) == ([], undone)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name):
    wrong, _ = judge(WRONG[name], KILL)
    assert [event for event, _ in wrong] == WRONG[name][-1:]


@pytest.mark.parametrize("name", [name for name, (_, undone) in RIGHT.items() if undone])
def test_a_kill_elsewhere_excuses_nothing(name):
    events, _ = RIGHT[name]
    assert judge(events)[0]
