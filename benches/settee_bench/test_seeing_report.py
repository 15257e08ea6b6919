"""What seeing a node costs is said with the noise that it was measured in."""

import unittest

from . import seeing_report


def case(off, on, again):
    figures = zip(seeing_report.NODES, (off, on, again))
    return {"case": "get", "runs": {name: [{"cpu_us_per_op": one} for one in column] for name, column in figures}}


class Cost(unittest.TestCase):
    def test_what_is_on_is_held_against_both_that_are_off(self):
        more, noise = seeing_report.cost(case([1.0, 1.0, 1.2], [1.1, 1.1, 1.1], [1.0, 1.0, 1.0]))
        self.assertAlmostEqual(more, 10.0)
        self.assertAlmostEqual(noise, 0.0)
        more, noise = seeing_report.cost(case([1.0], [1.1], [1.2]))
        self.assertAlmostEqual(more, 0.0)
        self.assertAlmostEqual(noise, 20.0 / 1.1)

    def test_the_aim_is_judged_where_the_noise_allows_it(self):
        dear, cheap, loud = case([1.0], [1.03], [1.0]), case([1.0], [1.0], [1.0]), case([1.0], [1.0], [1.1])
        for cases, verdict in (
            ([dear], "On average +3.0 %, at a noise of 0.0 %. The aim of less than 2 % is not met."),
            ([dear, cheap], "On average +1.5 %, at a noise of 0.0 %. The aim of less than 2 % is met."),
            ([loud], "The aim of less than 2 % cannot be judged: let the machine rest."),
        ):
            self.assertIn(verdict, seeing_report.tables(cases))

    def test_what_nodes_take_at_rest_is_said(self):
        percents = dict(zip(seeing_report.NODES, (0.2, 1.5, 0.5)))
        told = "At rest a node takes this much of a core: off 0.2 %, on 1.5 %, off again 0.5 %.\n"
        self.assertEqual(seeing_report.rest(percents), told)


if __name__ == "__main__":
    unittest.main()
