"""Runs the tests of the Python client (couchbase, acouchbase, txcouchbase) out of a checkout of its sources.

    python_client.py SOURCES [PATTERN]

SOURCES is the absolute path of a clone of couchbase/couchbase-python-client, bare or not, or a URL that git clones.
REVISION is taken out of it: the last one whose tests are those of the release in python-client-requirements.txt. The
tests are laid over that release as it was installed, since a checkout has no compiled core. With a PATTERN only tests
whose names fit are run, for working on them, and nothing is judged.

Most tests run on the bucket `default`, which has no replicas; those that expect durable writes to be impossible on one
whose replica has no node to live on; range scans on ones that have no documents of other tests.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from settee import ROOT
from settee.node import scratch

import verdict

HERE = Path(__file__).resolve().parent
REVISION = "d3927eb8039f7a9215ddfeb574d009b836473f78"
PACKAGES = ("couchbase", "acouchbase", "txcouchbase")
# Each in a process of its own: Twisted's event loop has to be there before the others have made theirs.
PROCESSES = {
    "blocking-and-asyncio": ["couchbase/tests", "acouchbase/tests"],
    "twisted": ["--txcouchbase", "txcouchbase/tests"],
}
TIMEOUT_SECONDS = 3600
# The client's core crashes now and then; what is left is then run by another process.
ATTEMPTS = 4
CONFIG = """[realserver]
enabled = True
host = {address}
port = 8091
admin_username = {username}
admin_password = {password}
bucket_name = {bucket}
bucket_password =
[gocaves]
enabled = False
"""


def sources(given, directory):
    """The files of REVISION."""
    if not Path(given).exists():
        subprocess.run(["git", "clone", "--quiet", "--bare", given, directory / "clone"], check=True)
        given = directory / "clone"
    checkout = directory / "sources"
    checkout.mkdir()
    archive = subprocess.run(["git", "-C", given, "archive", REVISION], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", checkout], input=archive, check=True)
    return checkout


def lay_out(python, checkout, directory):
    """The installed release with the tests of the checkout over it."""
    suite = directory / "suite"
    code = "import sysconfig; print(sysconfig.get_paths()['platlib'])"
    site = Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    for package in PACKAGES:
        shutil.copytree(site / package, suite / package)
        shutil.copytree(checkout / package / "tests", suite / package / "tests", dirs_exist_ok=True)
    shutil.copytree(checkout / "tests", suite / "tests")
    for file in ("conftest.py", "pyproject.toml"):
        shutil.copy(checkout / file, suite)
    return suite


class Suite:
    def __init__(self, python, directory, home):
        self.python, self.directory, self.home = python, directory, home

    def _pytest(self, arguments, log, timeout=None):
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        command = [self.python, "-m", "pytest", "-p", "no:cacheprovider", "-p", "recorder", *arguments]
        with open(log, "w") as out:
            try:
                subprocess.run(
                    command, cwd=self.home, env=environment, stdout=out, stderr=out, check=False, timeout=timeout
                )
            except subprocess.TimeoutExpired:
                print(f"the suite did not end within {timeout} s; see {log}")

    def tests(self):
        """The names of all tests, by process."""
        found = {}
        for process, folders in PROCESSES.items():
            names = self.directory / f"{process}.all"
            self._pytest(["--collect-only", "-q", f"--names-to={names}", *folders], names.with_suffix(".collect"))
            found[process] = names.read_text().splitlines()
        return found

    def run(self, process, bucket, tests):
        """The result of each test and what it said."""
        config = {
            "address": os.environ["SETTEE_ADDRESS"],
            "username": os.environ["SETTEE_USERNAME"],
            "password": os.environ["SETTEE_PASSWORD"],
            "bucket": bucket,
        }
        (self.home / "tests" / "test_config.ini").write_text(CONFIG.format(**config))
        results = {}
        for attempt in range(1, ATTEMPTS + 1):
            left = [test for test in tests if test not in results]
            if not left:
                break
            if attempt > 1:
                print(f"the client's process ended before its tests did, {len(left)} are left: number {attempt}")
            results |= self._run_once(self.directory / f"{process}.{bucket}.{attempt}", process, left)
        return results

    def _run_once(self, path, process, tests):
        chosen, records = Path(f"{path}.names"), Path(f"{path}.results")
        chosen.write_text("\n".join(tests))
        records.touch()
        arguments = ["-v", "-rf", f"--names-from={chosen}", f"--record-to={records}", *PROCESSES[process]]
        self._pytest(arguments, Path(f"{path}.log"), TIMEOUT_SECONDS)
        return {line["test"]: line for line in map(json.loads, records.read_text().splitlines())}


def split(selection, told, all_tests):
    """The selected tests by the process and the bucket that they need."""
    elsewhere = {test: bucket for bucket, patterns in told.items() for p in patterns for test in selection.fits(p)}
    selected = set(selection.selected)
    tests_of = {}
    for process, tests in all_tests.items():
        for test in filter(selected.__contains__, tests):
            tests_of.setdefault((process, elsewhere.get(test, "default")), []).append(test)
    return tests_of


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True, help="the interpreter that has the release")
    parser.add_argument("sources")
    parser.add_argument("pattern", nargs="?")
    arguments = parser.parse_args()
    directory = scratch("suite-python-run")
    home = lay_out(arguments.python, sources(arguments.sources, directory), directory)
    suite = Suite(arguments.python, directory, home)
    told = json.loads((HERE / "python-client.json").read_text())
    tests = suite.tests()
    selection = verdict.Selection(told, [test for names in tests.values() for test in names])
    results = {}
    for (process, bucket), names in split(selection, told["on_other_buckets"], tests).items():
        if arguments.pattern:
            names = fnmatch.filter(names, arguments.pattern)
        if names:
            results |= suite.run(process, bucket, names)
    if arguments.pattern:
        for test, line in sorted(results.items()):
            print(f"{line['result']:10} {test}  {line['said']}")
        return 0
    selection.expect_skips(told["skips_itself"], {test: line["said"] for test, line in results.items()})
    outcomes = {test: line["result"] for test, line in results.items()}
    release = (HERE / "python-client-requirements.txt").read_text().split()[0]
    return 1 if verdict.judge(f"couchbase-python-client, {release}", selection, outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
