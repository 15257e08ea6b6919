"""`settee torture chaos`, and its histories held against the claim that they are linearisable.

    compat/run chaos                    each kind of event once: two minutes
    compat/run chaos --seed 7           the same in another order
    compat/run chaos --minutes 60       as many as an hour takes, under five times the load

Other flags are those of `settee torture chaos`. What was found is in target/compat/chaos (report.json, history.jsonl); of a
run that fails the nodes' directories are there as well.
"""

import os
import subprocess
import sys
from pathlib import Path

from settee.node import binary, scratch

# Flags that say how long it takes.
LENGTHS = {"--short", "--minutes", "--events"}
CHECKER = Path(__file__).resolve().parent.parent / "linearizability"


def main():
    folder = scratch("chaos")
    history = folder / "history.jsonl"
    flags = sys.argv[1:]
    if not LENGTHS & {flag.split("=")[0] for flag in flags}:
        flags.append("--short")
    files = ["--dir", str(folder), "--history", str(history), "--json", str(folder / "report.json")]
    hurt = subprocess.call([str(binary()), "torture", "chaos", *flags, *files])
    if not history.exists():
        sys.exit(hurt or "there is no history")
    # Also of a cluster that failed: what it did wrong may be seen best there.
    judged = subprocess.call(["go", "run", "-C", str(CHECKER), ".", str(history)], env=os.environ)
    sys.exit(hurt or judged)


if __name__ == "__main__":
    main()
