"""The script that runs all steps installs what the chosen ones need."""

import contextlib
import io
import sys
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

    def test_prometheus_is_for_its_own_step(self):
        self.assertNotIn("prometheus", steps.tools_for(["unit", "console"]))
        self.assertEqual(steps.tools_for(["prometheus"])["prometheus"], "prometheus")

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
        self.assertEqual(names[release + 1 : release + 4], ["suite-gocb", "hostile", "cli"])
        self.assertEqual(sorted(names), sorted(steps.STEPS))

    def test_folders_are_there_and_belong_to_steps(self):
        self.assertLessEqual(set(steps.FOLDERS), set(steps.STEPS))
        for folder in (folder for folders in steps.FOLDERS.values() for folder in folders):
            self.assertTrue((ROOT / folder).is_dir(), folder)


class Beside(unittest.TestCase):
    def test_every_step_is_in_one_group_and_builds_come_before_what_needs_them(self):
        made = steps.groups([(name, *steps.STEPS[name]) for name in steps.STEPS])
        begun = [name for _, members in made for name, *_ in members]
        self.assertEqual(sorted(begun), sorted(steps.STEPS))
        self.assertEqual([name for name, *_ in made[begun.index("unit")][1]], ["unit", "release"])
        self.assertTrue(all(len(members) == 1 for places, members in made if places == 1))

    def test_what_is_changed_is_begun_first_in_its_group_and_groups_stay_whole(self):
        planned = steps.plan(list(steps.STEPS), {"compat/chaos/run.py", "compat/java/pom.xml"})
        made = [[name for name, *_ in members] for _, members in steps.groups(planned)]
        self.assertEqual(made[made.index(["unit", "release"]) + 1][0], "java")
        self.assertIn(["chaos"], made)

    def test_names_are_steps(self):
        named = {name for _, row in steps.BESIDE for name in row} | steps.ONE_OF
        self.assertLessEqual(named, set(steps.STEPS))

    def run_all(self, places, programs):
        made = [(name, "", [sys.executable, "-c", program]) for name, program in programs]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            ended = list(steps.run_group(places, made, 1, len(made)))
        return {each.name: each for each in ended}, said.getvalue()

    def test_nothing_is_begun_after_a_failure_and_what_runs_is_waited_for(self):
        waits = "import sys; sys.stdin.read(); print('waited')"
        ended, said = self.run_all(2, [("fails", "print('why'); raise SystemExit(3)"), ("waits", waits), ("never", "")])
        self.assertEqual({name: each.code for name, each in ended.items() if name != "never"}, {"fails": 3, "waits": 0})
        self.assertIn("-- fails said:\nwhy\n", said)
        # Whether it ended before the failure was known is up to chance; one place that fails leaves none.
        ended, _ = self.run_all(1, [("fails", "raise SystemExit(3)"), ("never", "")])
        self.assertEqual(list(ended), ["fails"])

    def test_steps_of_one_tool_wait_for_each_other(self):
        left = [("java", "", []), ("java-1.4", "", []), ("go", "", [])]
        self.assertEqual(steps.next_of(left, [])[0], "java")
        self.assertEqual(steps.next_of(left, ["dcp-java"])[0], "go")
        self.assertIsNone(steps.next_of(left[:2], ["dcp-java"]))


if __name__ == "__main__":
    unittest.main()
