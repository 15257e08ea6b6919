"""What seeing a node costs is said with the error that it was measured with."""

import tempfile
import unittest
from pathlib import Path

from . import seeing_report


def turns(*more):
    """Pairs of turns in which an operation took a microsecond without, and so much more with everything."""
    return [[1_000_000, 1_000, int(2_000_000 * (1 + one)), 2_000] for one in more]


def found(cases, on=1.0, off=1.0):
    beside = {"on, at rest": 0.5, "off, at rest": 0.4, "on, busy": on, "off, busy": off}
    memory = {"on": 131.5, "off": 100.0}
    return {"cases": [{"case": "get", "turns": case} for case in cases], "beside": beside, "memory": memory}


class Cost(unittest.TestCase):
    def test_the_middle_of_all_pairs_counts(self):
        more, error = seeing_report.cost(turns(*[0.1] * 10, *[0.0] * 2, *[9.0] * 2))
        self.assertAlmostEqual(more, 10.0)
        self.assertAlmostEqual(error, 0.0)
        _, error = seeing_report.cost(turns(*[0.0, 0.1, 0.2] * 100))
        self.assertAlmostEqual(error, 2 * 1.2533 * (20 / 1.349) / 300**0.5)

    def test_the_aim_is_judged_where_the_error_allows_it(self):
        dear, cheap, loud = turns(*[0.03] * 9), turns(*[0.0] * 9), turns(*[-1.0, 0.0, 1.0] * 3)
        for told, verdict in (
            (found([dear]), "Altogether that is +3.00 %. The aim of less than 2 % is not met."),
            (found([dear, cheap]), "Altogether that is +1.50 %. The aim of less than 2 % is met."),
            (found([dear, cheap], on=1.75), "Altogether that is +2.25 %. The aim of less than 2 % is not met."),
            (found([loud]), "The aim of less than 2 % cannot be judged: measure for longer."),
        ):
            self.assertIn(verdict, seeing_report.tables(told))

    def test_memory_is_the_difference_of_both_nodes(self):
        told = seeing_report.memory({"memory": {"on": 131.5, "off": 100.0}})
        self.assertIn("a difference of +31.5 MiB. The aim of less than 64 MiB is met.", told)
        self.assertIn(told, seeing_report.tables(found([turns(*[0.0] * 9)])))
        self.assertIn("is not met", seeing_report.memory({"memory": {"on": 170.0, "off": 100.0}}))

    def test_turns_without_operations_are_not_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "turns"
            path.write_text("1 2 3 4\n20000000 2000 20000000 1990\n20000000 1000 200 3\n20000000 2100 20000000 20", encoding="ascii")
            self.assertEqual(seeing_report.turns_of(path, 0), [[20000000, 2000, 20000000, 1990]])
            self.assertEqual(seeing_report.turns_of(path, 8 + 29), [])


if __name__ == "__main__":
    unittest.main()
