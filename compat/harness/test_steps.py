"""The script that runs all steps installs what the chosen ones need."""

import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

from settee import ROOT

loader = SourceFileLoader("steps", str(ROOT / "test"))
steps = module_from_spec(spec_from_loader("steps", loader))
loader.exec_module(steps)


class Tools(unittest.TestCase):
    def test_a_browser_is_for_the_steps_that_start_one(self):
        self.assertNotIn("chromium", steps.tools_for(["unit", "cluster"]))
        self.assertIn("chromium", steps.tools_for(["unit", "console"]))
        self.assertIn("chromium", steps.tools_for(list(steps.STEPS)))
        self.assertIn("cc", steps.tools_for(["unit"]))

    def test_what_needs_a_tool_is_a_step(self):
        for _, needing in steps.TOOLS_OF.values():
            self.assertLessEqual(set(needing), set(steps.STEPS))


if __name__ == "__main__":
    unittest.main()
