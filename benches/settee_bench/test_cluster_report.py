"""What tables of clusters say of rounds, controls and differences."""

import tempfile
import unittest
from pathlib import Path

from . import cluster_report, report

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
        rebalances = [MOVE, {**MOVE, "objective": 5_000, "looks": [look(10, 0.4, 5), look(10, 0.5, 9)]}, {**MOVE, "seconds": 30.0, "sent_mb": 1_100.0}]
        results = {"records": 2, "rate": 4_000, "rounds": 2, "objective": 5_000, "before": [RUN], "moves": rebalances,
                   "plain_mb_per_s": [500.0], "disk_mb_per_s": 900.0}
        table = cluster_report.rebalance_table(results)
        self.assertIn("| in | 25.0 ± 20 % | 50 | 500 | 10% | 512 / 512: 1.000 | 1,080 / 1,000: 1.100 | 1,010 / 1,000: 1.010 | "
                      "never said | never said | 0 of 0 |", table)
        self.assertIn("| in, objective 5 ms | 20.0 ± 0 % | 50 | 500 | 10% | 512 / 512: 1.000 | 1,060 / 1,000: 1.060 | "
                      "1,010 / 1,000: 1.010 | 10% | 25% | 1 of 2 |", table)
        self.assertIn("| before | 100 / 6,000 / 9,000 | 100 / 6,000 / 9,000 | 50% |  | 1 | 40 |", table)
        self.assertIn("| in | 100 / 6,000 / 9,000 | 100 / 6,000 / 9,000 | 50% | 0% | 2 | 40 |", table)

    def test_slow_disks_have_a_table_of_their_own(self):
        moves = [{**MOVE, "looks": [look(10, 0.5, 9)]}, {**MOVE, "way": "out"}]
        results = {"records": 2, "rate": 400, "rounds": 1, "disk_mb": 15, "moves": moves}
        table = cluster_report.forecast_table(results)
        self.assertIn("| in | 20.0 ± 0 % | 50 | 0% | 5% | 0 of 1 |", table)
        self.assertIn("| out | 20.0 ± 0 % | 50 | never said | never said | 0 of 0 |", table)


class Idle(unittest.TestCase):
    def test_what_one_more_bucket_takes(self):
        rows = [{"buckets": 1, "cpu": [0.01, 0.02, 0.03], "resident_mb": [20, 20, 30]},
                {"buckets": 5, "cpu": [0.03, 0.04, 0.05], "resident_mb": [40, 40, 70]}]
        results = {"nodes": 3, "vbuckets": 1024, "replicas": 2, "seconds": 60, "rows": rows}
        self.assertIn("| each one more | 0.500% | 0.500% | 5.0 | 10.0 |", cluster_report.idle_table(results))


class Spread(unittest.TestCase):
    def test_controls_are_held_against_one_node_with_all_of_the_load(self):
        def case(nodes, part, cpu):
            run = {"net_cpu_us": cpu, "cpu_us": cpu + 1, "ops_per_sec": 5_000 / part, "read": MICROSECONDS, "write": MICROSECONDS}
            return {"nodes": nodes, "rate": 5_000, "part": part, "runs": [run]}

        results = {"cases": [case(1, 1, 20), case(8, 1, 25), case(1, 8, 30), case(8, 8, 22)], "idle": [{"nodes": 1, "shares": [0.01]}],
                   "rounds": 3, "seconds": 10.0, "connections": 48}
        table = cluster_report.spread_table(results)
        self.assertIn("| control: one alone, 1/8 of 5,000 | 625 | 31.00 ± 0 % | 30.00 ± 0 % | 1.50 |", table)
        self.assertIn("| control: 8 apart, 1/8 of 5,000 each | 625 | 23.00 ± 0 % | 22.00 ± 0 % | 1.10 |", table)
        self.assertTrue(table.startswith("3 rounds of 10 s. All nodes"), table)


class Outages(unittest.TestCase):
    ROWS = {"one of the others": [{"first": 0.5, "all": 1.0}, {"first": 1.5, "all": 2.0}]}

    def test_why_it_takes_longer_by_hand_is_said_beside_the_table(self):
        table = cluster_report.failover_table({"timeout": 1, "rows": self.ROWS})
        self.assertIn("| one of the others | 2 | 1,000 | 1,500 | 1,500 | 2,000 |", table)
        self.assertIn("because of leases", table.split("\n\n")[0])

    def test_a_split_is_published_after_the_failovers(self):
        split = report.markdown({"split": {"timeout": 1, "rows": self.ROWS}}, cluster_report.TABLES, "Monday", 4)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text(f"{report.BEGIN}\n\n#### Failover\n\none\n\n#### Nodes with nothing to do\n\ntwo\n\n{report.END}\n")
            report.update(page, split, cluster_report.TABLES, 4)
            self.assertEqual(list(report.sections(page.read_text(), 4)),
                             ["Failover", "A split of the network", "Nodes with nothing to do"])
            self.assertIn("| one of the others | 2 | 1,000 | 1,500 | 1,500 | 2,000 |", page.read_text())


if __name__ == "__main__":
    unittest.main()
