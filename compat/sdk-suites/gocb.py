"""Runs the integration tests of the Go SDK itself, as its module ships them, against the node.

The module is the one that `compat/go` pins; Go's own module cache holds its tests. Its features are left at what the
version that the node reports has, but for durability and transactions: the suite leaves those out when a bucket has no
replicas, unless told otherwise.

    gocb.py [PATTERN]    only tests whose names fit, for working on them; nothing is judged then
"""

import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from settee import ROOT
from settee.node import scratch

import verdict

HERE = Path(__file__).resolve().parent
MODULE = "github.com/couchbase/gocb/v2"
TIMEOUT_SECONDS = 600
RESULTS = {"PASS": verdict.PASSED, "FAIL": verdict.FAILED, "SKIP": verdict.SKIPPED}
# What the version number cannot say: this cluster has one data node and no replicas.
FEATURES = "-replicas,+durability,+transactions"


def go(*arguments):
    command = ["go", *arguments]
    return subprocess.run(command, cwd=ROOT / "compat" / "go", check=True, capture_output=True, text=True).stdout


def tests_of(module):
    """The methods of the integration suite. Some files declare them per API generation, hence the wide pattern."""
    declared = re.compile(r"^func \(\w+ \*IntegrationTestSuite\) (Test\w+)\(\)", re.MULTILINE)
    return {name for file in module.glob("*_test.go") for name in declared.findall(file.read_text())}


def run(program, module, selected, log):
    """Runs the selected tests in one process, as upstream does; the results by name."""
    address = os.environ["SETTEE_ADDRESS"]
    environment = {
        **os.environ,
        "GOCBSERVER": f"couchbase://{address}",
        "GOCBUSER": os.environ["SETTEE_USERNAME"],
        "GOCBPASS": os.environ["SETTEE_PASSWORD"],
        "GOCBVER": os.environ["SETTEE_REPORTED_VERSION"],
        "GOCBFEAT": FEATURES,
        "GOCBNOLOG": "1",
        "GOCBENABLETXNLOAD": "1",
    }
    pattern = "^TestIntegration$/^(" + "|".join(selected) + ")$"
    command = [program, "-test.v", "-test.run", pattern, "-test.timeout", f"{TIMEOUT_SECONDS}s"]
    with open(log, "w") as out:
        subprocess.run(command, cwd=module, env=environment, stdout=out, stderr=out, check=False)
    text = log.read_text(errors="replace")
    found = re.findall(r"^    --- (PASS|FAIL|SKIP): TestIntegration/(\w+) ", text, re.MULTILINE)
    return {name: RESULTS[result] for result, name in found}, text


def excerpt(text, test):
    """What a test printed, for the search why it failed."""
    blocks = re.split(r"^=== RUN +TestIntegration/", text, flags=re.MULTILINE)
    mine = [block for block in blocks if block.split("\n", 1)[0].split("/")[0] == test]
    return "".join(mine)[:4000]


def main():
    module = Path(go("list", "-m", "-f", "{{.Dir}}", MODULE).strip())
    version = go("list", "-m", "-f", "{{.Version}}", MODULE).strip()
    directory = scratch("suite-gocb-run")
    program = directory / "gocb.test"
    go("test", "-c", "-o", str(program), MODULE)
    selection = verdict.Selection(json.loads((HERE / "gocb.json").read_text()), tests_of(module))
    chosen = fnmatch.filter(selection.selected, sys.argv[1]) if len(sys.argv) > 1 else selection.selected
    results, text = run(program, module, chosen, directory / "suite.log")
    for test, result in sorted(results.items()):
        if result == verdict.FAILED and test not in selection.expected[verdict.FAILED]:
            print(f"---- {test}\n{excerpt(text, test)}")
    if len(sys.argv) > 1:
        for test, result in sorted(results.items()):
            print(f"{result:10} {test}")
        return 0
    leaked = "No goroutines appear to have leaked" not in text
    if leaked:
        print(text[-2000:])
    return 1 if verdict.judge(f"gocb {version}", selection, results) or leaked else 0


if __name__ == "__main__":
    sys.exit(main())
