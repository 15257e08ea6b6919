"""Runs a command whose output goes on to its reader, and says once more at the end why it failed.

Of what failed in another place often only the last lines are kept. A runner tells its reason somewhere in between, before
summaries and logs; `reasons` picks it out of all that was said, in lines few enough to be among the last.
"""

import os
import re
import subprocess
import sys
import threading
from collections import deque

# Of what a command said, the latest lines that are looked through.
KEPT_LINES = 20_000
# How long processes that a command has left behind may hold its output open.
LEFT_BEHIND_SECONDS = 5.0
# The beginning of the last thing that is said of a failure; what comes after it are the reasons.
HEADLINE = "-- why it failed:"
MARKED_LINES, LAST_LINES, LINE_CHARACTERS = 18, 12, 600

# How runners mark a failure, and how many lines around the mark belong to it: cargo, clippy, pytest, unittest, go test, surefire,
# node --test.
MARKS = [
    (re.compile(r"panicked at |^error(\[\w+\])?: "), 0, 4),
    (re.compile(r"^E  "), 1, 1),
    (re.compile(r"^(FAILED|ERROR) "), 0, 0),
    (re.compile(r"^\s*--- FAIL: "), 6, 1),
    (re.compile(r"<<< (FAILURE|ERROR)!"), 0, 2),
    (re.compile(r"^✖ failing tests"), 0, 10),
]
TRACEBACK = "Traceback (most recent call last):"
# What a traceback ends with, and the place that it comes from.
TRACEBACK_LINES_BEFORE, TRACEBACK_LINES_AFTER = 2, 3


def call(command, quiet=False, **more):
    """Runs a command to its end. Its exit code, and the lines of its output and errors, which have been passed on unless `quiet`."""
    environment = {**(more.pop("env", None) or os.environ), "PYTHONUNBUFFERED": "1"}
    lines = deque(maxlen=KEPT_LINES)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, **more)

    def pass_on():
        with process.stdout:
            for line in process.stdout:
                if not quiet:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
                lines.append(line.decode(errors="replace").rstrip())

    sys.stdout.flush()
    listener = threading.Thread(target=pass_on, daemon=True)
    listener.start()
    try:
        code = process.wait()
    except BaseException:
        process.kill()
        raise
    listener.join(LEFT_BEHIND_SECONDS)
    return code, list(lines)


def reasons(lines):
    """The lines that say why, in their order; or those that somebody has found before, who began with the headline."""
    if HEADLINE in lines:
        return "\n".join(lines[len(lines) - lines[::-1].index(HEADLINE) :])
    lines = [line for line in lines if line.strip()]
    chosen = sorted({*_marked(lines)[:MARKED_LINES], *range(max(0, len(lines) - LAST_LINES), len(lines))})
    said, before = [], -1
    for number in chosen:
        said += ["[...]"] if number > before + 1 else []
        said.append(lines[number][:LINE_CHARACTERS])
        before = number
    return "\n".join(said)


def _marked(lines):
    """The numbers of the lines around every mark, ascending."""
    marked = set()
    for number, line in enumerate(lines):
        around = [(number, before, after) for mark, before, after in MARKS if mark.search(line)]
        if line.lstrip() == TRACEBACK:
            around.append((_end_of_traceback(lines, number), TRACEBACK_LINES_BEFORE, TRACEBACK_LINES_AFTER))
        for middle, before, after in around:
            marked.update(range(max(0, middle - before), min(len(lines), middle + after + 1)))
    return sorted(marked)


def _end_of_traceback(lines, begin):
    """Where the exception is named: behind the frames, which are indented deeper than the traceback's first line."""
    depth = len(lines[begin]) - len(lines[begin].lstrip())
    for number in range(begin + 1, len(lines)):
        if len(lines[number]) - len(lines[number].lstrip()) <= depth:
            return number
    return len(lines) - 1
