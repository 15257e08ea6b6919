"""`settee torture chaos`, and its histories held against the claim that they are linearisable.

    compat/run chaos [flags of `settee torture chaos`]

Without flags: the short form, each kind of event once.
"""

import os
import subprocess
import sys
from pathlib import Path

from settee.node import binary, scratch

CHECKER = Path(__file__).resolve().parent.parent / "linearizability"


def main():
    folder = scratch("chaos")
    history = folder / "history.jsonl"
    flags = sys.argv[1:] or ["--short"]
    chaos = [str(binary()), "torture", "chaos", *flags, "--dir", str(folder), "--history", str(history)]
    hurt = subprocess.call(chaos)
    if not history.exists():
        sys.exit(hurt or "there is no history")
    # Also of a cluster that failed: what it did wrong may be seen best there.
    judged = subprocess.call(["go", "run", "-C", str(CHECKER), ".", str(history)], env=os.environ)
    sys.exit(hurt or judged)


if __name__ == "__main__":
    main()
