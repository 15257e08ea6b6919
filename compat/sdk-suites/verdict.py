"""Compares what a suite answered with what its selection file says it has to answer.

A selection file (JSON) names what is not selected, by reason, and which selected tests are known to fail or to skip
themselves, each with its reason. Names may be patterns (`*`). Nothing may be left over on either side: a test that is
expected to fail and passes, a pattern that fits no test, a skip nobody wrote down all fail the run, so that the file
cannot grow stale. Only tests that race against themselves may end either way.
"""

import fnmatch
import re

PASSED, FAILED, SKIPPED, MISSING = "passed", "failed", "skipped", "no result"


class Selection:
    """What a selection file says about the tests of one suite."""

    def __init__(self, told, tests):
        self.tests = sorted(set(tests))
        self.stale = []
        self.not_selected = self._reasons(told["not_selected"])
        self.selected = [test for test in self.tests if test not in self.not_selected]
        self.unsteady = self._reasons(told["may_fail"])
        self.expected = {
            FAILED: self._reasons(told["expected_to_fail"]),
            SKIPPED: self._reasons(told["expected_to_skip"]),
        }

    def fits(self, pattern):
        """The tests that a pattern names; only `*` is special, since names have brackets."""
        told = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        found = [test for test in self.tests if told.fullmatch(test)]
        if not found:
            self.stale.append(f"no test is called {pattern}")
        return found

    def _reasons(self, groups):
        return {test: why for why, patterns in groups.items() for p in patterns for test in self.fits(p)}

    def expect_skips(self, groups, said):
        """Skips that are known by what the suite gives as its reason."""
        for why, patterns in groups.items():
            for pattern in patterns:
                found = [test for test, text in said.items() if fnmatch.fnmatchcase(text, pattern)]
                self.expected[SKIPPED].update(dict.fromkeys(found, why))
                if not found:
                    self.stale.append(f"no test skips itself because of {pattern}")


def judge(title, selection, results):
    """Prints the table of a run; how many answers differ from what was expected."""
    wrong = list(selection.stale)
    counts = dict.fromkeys((PASSED, FAILED, SKIPPED, MISSING), 0)
    for test in selection.selected:
        result = results.get(test, MISSING)
        counts[result] += 1
        expected = next((kind for kind, tests in selection.expected.items() if test in tests), PASSED)
        if result != expected and not (result == FAILED and test in selection.unsteady):
            wrong.append(f"{test}: {result}, expected: {expected}")

    print(f"\n{title}: {len(selection.tests)} tests, {len(selection.selected)} selected")
    print("  " + ", ".join(f"{number} {kind}" for kind, number in counts.items() if number or kind != MISSING))
    _by_reason("not selected", selection.not_selected)
    for kind, tests in selection.expected.items():
        known = tests | selection.unsteady if kind == FAILED else tests
        _by_reason(kind, {test: why for test, why in known.items() if results.get(test) == kind})
    for line in wrong:
        print(f"  UNEXPECTED {line}")
    print(f"{counts[PASSED]} passed, {len(wrong)} failed, {counts[SKIPPED]} skipped", flush=True)
    return len(wrong)


def _by_reason(heading, reasons):
    tests_of = {}
    for test, why in reasons.items():
        tests_of.setdefault(why, []).append(test)
    for why, tests in sorted(tests_of.items()):
        print(f"  {heading}: {len(tests):4}  {why}")
