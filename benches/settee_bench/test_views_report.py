"""What is said of views: aims that are met, missed, and cannot be judged."""

import unittest

from . import report, views_report

V8 = [{"documents": 1_000, "cpu_seconds": 0.009}, {"documents": 1_000, "cpu_seconds": 0.011}]


def case(design, cpu_seconds, disk_bytes, v8=()):
    return {"design": design, "rows": 50, "seconds": 2.0, "cpu_seconds": cpu_seconds, "disk_bytes": disk_bytes,
            "emitted_bytes": 1_000, "v8": list(v8)}


BUILD = {"documents": 1_000, "cases": [case("published", 0.008, 1_300, V8), case("whole", 0.03, 1_310, V8), case("ignores", 0.0019, 100),
                                       case("tens", 0.01, 4_370)]}
ALONE = {"queries": 9, "p50": 0.5, "p99": 2.0, "most": 3.0}
QUERIES = {"cases": [
    {"case": "_count of everything", "alone": ALONE, "queries": 10, "bytes": 10, "seconds": 1.0, "cpu_seconds": 0.5},
    {"case": "key=, 10 rows", "alone": ALONE, "queries": 5_000, "bytes": 10, "seconds": 2.0, "cpu_seconds": 1.0},
    {"case": "page of 1,024 rows with their documents", "alone": ALONE, "queries": 9, "bytes": 300_000_000, "seconds": 1.0, "cpu_seconds": 2.0},
]}


def side(read, write):
    return {"read_us": {"p50": 1, "p99": read}, "write_us": {"p50": 1, "p99": write}}


def beside(throughout):
    rounds = [{"without": side(100, 200), "beside": side(more, 250), "was_built_throughout": throughout} for more in (120, 151, 900)]
    return {"rate": 5_000, "seconds": 6.0, "rounds": rounds}


class Aims(unittest.TestCase):
    def verdicts(self, **results):
        return [(result, told) for _, _, result, told in views_report.aims(results)]

    def test_rates_count_per_second_of_the_processor_and_beside_v8(self):
        self.assertEqual(self.verdicts(build=BUILD), [
            ("1.24 (125,000 over 101,010)", "met"), ("0.33 (33,333 over 101,010)", "missed"), ("526,316", "met"),
            ("1.30", "met"), ("1.31", "missed"), ("0.10", "met"), ("4.37", "missed")])

    def test_queries_are_held_against_one_core(self):
        self.assertEqual(self.verdicts(queries=QUERIES), [("2.00 ms", "missed"), ("5,000", "met"), ("150", "missed")])

    def test_a_build_that_ended_first_judges_nothing(self):
        self.assertEqual(self.verdicts(beside=beside(True)), [("1.51", "missed"), ("1.25", "met")])
        told = "not judged: a build ended before the load did"
        self.assertEqual(self.verdicts(beside=beside(False)), [("1.51", told), ("1.25", told)])

    def test_what_failed_is_told_beside_what_was_measured(self):
        results = {"failures": {"nodes": "Late: no\ntime"}, "fresh": {**ALONE, "writes_per_sec": 1_000.0}}
        results["aims"] = views_report.aims(results)
        told = report.markdown(results, views_report.TABLES, "Monday", 3)
        self.assertIn("| part nodes |  | Late: no time | not measured to its end |", told)
        self.assertIn("| `stale=false` right after a write, at 1,000 writes/s: p99 | < 50 ms | 2.0 ms | met |", told)
        self.assertNotIn("Building indexes", told)

    def test_half_a_part_has_tables_too(self):
        one = {"case": "key=", "p50": 0.5, "p99": 1.0, "cpu_us": 100.0}
        results = {"nodes": {"documents": 9, "rate": 1, "cases": [{"nodes": 1, "cases": [one]}]},
                   "memory": {"cases": [{"case": "magma", "items": 1, "resident": 60.0, "mem_used": 50.0}]},
                   "build": BUILD, "queries": QUERIES, "beside": beside(True)}
        self.assertEqual(self.verdicts(nodes=results["nodes"], memory=results["memory"]), [])
        told = report.markdown(results, views_report.TABLES, "Monday", 3)
        self.assertIn("| key= | 1 | 0.50 | 1.00 | 100 |", told)
        self.assertIn("| magma | 1 | 60.0 | 50.0 |", told)


if __name__ == "__main__":
    unittest.main()
