"""What tables of clusters say of rounds, controls and differences."""

import unittest

from . import cluster_report

MICROSECONDS = {"count": 10, "p50": 100, "p99": 6_000, "p99.9": 9_000}
RUN = {"read": MICROSECONDS, "write": MICROSECONDS, "seconds_p99_us": [4_000, 6_000, 7_000, 1_000], "errors": 1, "not_mine": 40}
MOVE = {
    "way": "in", "objective": 0, "seconds": 20.0, "copies": 512, "least": 512, "mb_per_s": 50.0, "least_mb": 1_000.0,
    "sent_mb": 1_060.0, "least_documents": 1_000, "sent_documents": 1_010, "during": RUN, "looks": [],
}


def look(at, done, eta, waits_for=None):
    return {"at": at, "done": done, "eta": eta, "waits_for": waits_for}


class Table(unittest.TestCase):
    def test_rounds_are_told_together_and_objectives_apart(self):
        rebalances = [MOVE, {**MOVE, "objective": 5_000, "looks": [look(10, 0.5, 5)]}, {**MOVE, "seconds": 30.0, "sent_mb": 1_100.0}]
        results = {"records": 2, "rate": 4_000, "rounds": 2, "objective": 5_000, "before": [RUN], "moves": rebalances,
                   "plain_mb_per_s": [500.0], "disk_mb_per_s": 900.0}
        table = cluster_report.rebalance_table(results)
        self.assertIn("| in | 25.0 ± 20 % | 50 | 500 | 10% | 512 / 512: 1.000 | 1,080 / 1,000: 1.100 | 1,010 / 1,000: 1.010 | "
                      "never said |", table)
        self.assertIn("| in, objective 5 ms | 20.0 ± 0 % | 50 | 500 | 10% | 512 / 512: 1.000 | 1,060 / 1,000: 1.060 | "
                      "1,010 / 1,000: 1.010 | 25% |", table)
        self.assertIn("| before | 100 / 6,000 / 9,000 | 100 / 6,000 / 9,000 | 50% |  | 1 | 40 |", table)
        self.assertIn("| in | 100 / 6,000 / 9,000 | 100 / 6,000 / 9,000 | 50% | 0% | 2 | 40 |", table)


if __name__ == "__main__":
    unittest.main()
