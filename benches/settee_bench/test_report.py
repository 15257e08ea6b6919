"""What is measured in one call replaces its own tables in the docs, and no others."""

import tempfile
import unittest
from pathlib import Path

from . import report

TABLES = [(name, f"About {name}", lambda results: f"#### deeper\n\n| {results} |") for name in ("one", "two", "three")]
PAGE = f"# Page\n\nBefore.\n\n{report.BEGIN}\n\n{report.END}\n\n### About nothing\n\nAfter.\n"


class UpdatedDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "page.md"
        self.path.write_text(PAGE)

    def measure(self, measured, **results):
        report.update(self.path, report.markdown(results, TABLES, measured, 3), TABLES, 3)

    def test_parts_that_were_not_measured_stay(self):
        self.measure("Monday", one=1, three=3)
        self.measure("Tuesday", two=2, three=33)
        expected = "\n\n".join(
            f"### About {name}\n\n{when}\n\n#### deeper\n\n| {figure} |"
            for name, when, figure in (("one", "Monday", 1), ("two", "Tuesday", 2), ("three", "Tuesday", 33))
        )
        head, tail = PAGE.split(f"\n\n{report.END}")
        self.assertEqual(self.path.read_text(), f"{head}\n\n{expected}\n\n{report.END}{tail}")

    def test_measuring_again_changes_nothing_else(self):
        self.measure("Monday", one=1, two=2)
        before = self.path.read_text()
        self.measure("Monday", two=2)
        self.assertEqual(self.path.read_text(), before)

    def test_a_page_without_the_markers_is_left_alone(self):
        self.path.write_text("# Page\n")
        with self.assertRaises(SystemExit):
            self.measure("Monday", one=1)
        self.assertEqual(self.path.read_text(), "# Page\n")


if __name__ == "__main__":
    unittest.main()
