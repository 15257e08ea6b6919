"""What a runner said of a failure is among the last lines, whatever came after it."""

import contextlib
import io
import subprocess
import sys
import unittest

import failure

CHATTER = [f"chatter {number}" for number in range(500)]
PYTEST = """
    def test_answer():
>       assert answer() == 42
E       assert 41 == 42
E        +  where 41 = answer()

test_answer.py:5: AssertionError"""
UNITTEST = """
======================================================================
FAIL: test_answer (test_answer.Answers.test_answer)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_answer.py", line 5, in test_answer
    self.assertEqual(answer(), 42)
AssertionError: 41 != 42
"""
CHAINED = """
Traceback (most recent call last):
  File "run.py", line 5, in <module>
    ask()
  File "rest.py", line 9, in ask
    raise RestError("no answer")
settee.rest.RestError: no answer"""
CARGO = """
thread 'answers' (77) panicked at crates/a/src/lib.rs:5:9:
assertion `left == right` failed
  left: 41
 right: 42"""
GO = """
=== RUN   TestAnswer
    answer_test.go:9: got 41, want 42
--- FAIL: TestAnswer (0.00s)"""
CASES = {
    PYTEST: "E       assert 41 == 42", UNITTEST: "AssertionError: 41 != 42", CHAINED: "settee.rest.RestError: no answer",
    CARGO: " right: 42", GO: "    answer_test.go:9: got 41, want 42",
}  # fmt: skip
MOST_LINES = 60


class Reasons(unittest.TestCase):
    def test_what_failed_is_found_in_chatter(self):
        for said, reason in CASES.items():
            with self.subTest(reason):
                found = failure.reasons([*CHATTER, *said.splitlines(), *CHATTER]).splitlines()
                self.assertIn(reason, found)
                self.assertLess(len(found), MOST_LINES)

    def test_the_first_of_many_failures_is_told(self):
        found = failure.reasons([*PYTEST.splitlines(), *(CARGO.splitlines() * 100)]).splitlines()
        self.assertIn("E       assert 41 == 42", found)
        self.assertLess(len(found), MOST_LINES)

    def test_who_marks_nothing_is_quoted_to_the_end(self):
        found = failure.reasons([*CHATTER, "python: 2 other errors", ""]).splitlines()
        self.assertEqual(found[-1], "python: 2 other errors")

    def test_what_somebody_has_found_is_not_looked_for_again(self):
        found = failure.reasons([*CARGO.splitlines(), failure.HEADLINE, "the disk is full", "exit code 1"])
        self.assertEqual(found, "the disk is full\nexit code 1")


class Calls(unittest.TestCase):
    def call(self, program):
        seen = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(seen):
            code, lines = failure.call([sys.executable, "-c", program], stdin=subprocess.DEVNULL)
        return code, lines, seen.buffer.getvalue()

    def test_what_is_said_goes_on_and_is_kept(self):
        program = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
        self.assertEqual(self.call(program), (3, ["one", "two"], b"one\ntwo\n"))


if __name__ == "__main__":
    unittest.main()
