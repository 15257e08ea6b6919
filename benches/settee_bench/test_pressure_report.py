"""A step that was not accepted says what may explain it, and no other does."""

import unittest

from . import pressure_report

LATENCIES = {"count": 0}
STEP = {
    "accepted": True, "carried_out": 1.0, "flat": True, "sets": 40, "gets": 10, "unsent": 0, "temporary": 0, "failures": {},
    "queue_first": 0, "queue_middle": 0, "queue_last": 0, "queue_most": 0, "set_us": LATENCIES, "get_us": LATENCIES,
    "fetched_per_get": 0.5, "pressure_step": 0, "drained_in": 1.0, "temporary_reasons": {}, "recovered_in": None,
    "disk": {"free_first": 9e9, "free_least": 2e9, "taken_most": 7e9}, "compaction": {"mean": 0.25, "most": 0.5},
}
PRESSED = {
    **STEP, "accepted": False, "carried_out": 0.9, "temporary": 50, "unsent": 1_000, "failures": {"Busy (0x85)": 2},
    "temporary_reasons": {"The disk is full": 10, "More is written than the disk takes": 40},
}
SILENT = {**STEP, "accepted": False, "flat": False, "disk": None, "compaction": None}
PART = {"records": 1, "quota_mb": 1, "resident": 50, "seconds": 1, "maximum": 1, "copies": 1, "factor": 1}


class Explanations(unittest.TestCase):
    def lines(self, **part):
        table = pressure_report.steps_table({**PART, **part}, ["40", "60"])
        return [line for line in table.splitlines() if line.lstrip().startswith("- ")]

    def test_what_was_accepted_needs_none(self):
        self.assertEqual(self.lines(rows=[STEP, STEP], overload=STEP, after=STEP), [])

    def test_what_was_not_says_what_was_seen(self):
        self.assertEqual(self.lines(rows=[STEP, PRESSED], overload=SILENT, after=STEP), [
            "- 60 was not accepted:",
            '  - temporary failures 40 times "More is written than the disk takes", 10 times "The disk is full"',
            "  - 2 errors Busy (0x85)",
            "  - 1,000 operations never sent",
            "  - free disk space 9.0 GB at first, 2.0 GB at least, data 7.0 GB at most",
            "  - compaction took 25% of a core, 50% in its busiest second",
            "- 150 was not accepted:",
            "  - the queue for the disk grew",
        ])


if __name__ == "__main__":
    unittest.main()
