"""Each switch of a measurement finds its place in today's source."""

import importlib.machinery
import importlib.util
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

from . import switches

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "compat" / "harness"))

from . import seeing  # noqa: E402


def script(name):
    """A script of this folder's parent as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "benches" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Switches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)

    def put(self, variable, chosen):
        for folder in {folder for folder, *_ in [*switches.infrastructure(variable), *chosen]}:
            shutil.copytree(ROOT / folder, self.tree / folder, dirs_exist_ok=True)
        switches.change(self.tree, variable, chosen)

    def test_what_watches_a_node_can_be_left_out(self):
        self.put(seeing.SWITCH, seeing.SWITCHES)

    def test_rules_of_the_hot_path_can_be_left_out(self):
        instructions = script("instructions")
        self.put(instructions.SWITCH, instructions.SWITCHES)

    def test_a_switch_without_a_place_is_named(self):
        with self.assertRaisesRegex(SystemExit, "nowhere in crates/base/src: no such line"):
            self.put("VARIABLE", [("crates/base/src", "no such line", "")])


if __name__ == "__main__":
    unittest.main()
