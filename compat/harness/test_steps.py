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


class Order(unittest.TestCase):
    def names(self, files):
        return [name for name, *_ in steps.plan(list(steps.STEPS), set(files))]

    def test_without_changes_steps_run_in_their_order(self):
        self.assertEqual(self.names([]), list(steps.STEPS))

    def test_the_tests_of_changed_crates_come_first(self):
        files = ["crates/engine/src/lib.rs", "crates/base/Cargo.toml", "crates/gone/src/lib.rs", "README.md"]
        name, _, command = steps.plan(list(steps.STEPS), set(files))[0]
        self.assertEqual((name, command[-4:]), ("touched", ["-p", "settee-base", "-p", "settee-engine"]))
        self.assertEqual(self.names(files)[1:], list(steps.STEPS))

    def test_many_crates_are_not_gone_through_twice(self):
        files = [f"crates/{crate}/src/lib.rs" for crate in ("base", "engine", "cluster", "node")]
        self.assertEqual(self.names(files), list(steps.STEPS))

    def test_steps_with_changed_files_come_first_of_those_with_the_binary(self):
        names = self.names(["compat/hostile/run.py", "compat/sdk-suites/gocb.py"])
        release = names.index(steps.RELEASE)
        self.assertEqual(names[release + 1 : release + 4], ["suite-gocb", "hostile", "wire"])
        self.assertEqual(sorted(names), sorted(steps.STEPS))

    def test_folders_are_there_and_belong_to_steps(self):
        self.assertLessEqual(set(steps.FOLDERS), set(steps.STEPS))
        for folder in (folder for folders in steps.FOLDERS.values() for folder in folders):
            self.assertTrue((ROOT / folder).is_dir(), folder)


if __name__ == "__main__":
    unittest.main()
