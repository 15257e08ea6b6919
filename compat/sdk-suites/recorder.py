"""A pytest plug-in: chooses tests by name, and writes one line of JSON per test that ended, at once, so that a crash
loses nothing.

Names are pytest's, but for times of day in them, which are another at each run: those become `<now>`. The suite's
environment makes a query index before any test of transactions and drops it after them; as no query is selected, both
are left out.
"""

import json
import re
import time
from pathlib import Path

A_DAY = 24 * 60 * 60


def pytest_addoption(parser):
    parser.addoption("--names-to", help="file that gets the names of all tests")
    parser.addoption("--names-from", help="file with the names of the tests to run")
    parser.addoption("--record-to", help="file that results are appended to")


def pytest_configure(config):
    if config.getoption("record_to"):
        config.pluginmanager.register(Recorder(config.getoption("record_to")))


class NoIndexes:
    """In the place of the manager of query indexes."""

    def drop_primary_index(self, *_, **__):
        pass


class NoIndexesAwaited:
    async def drop_primary_index(self, *_, **__):
        pass


def pytest_sessionstart():
    from tests.environments import test_environment

    def set_up(environment):
        environment._qixm = NoIndexes()

    async def set_up_awaited(environment):
        environment._qixm = NoIndexesAwaited()

    test_environment.TestEnvironment.setup_transactions_query = set_up
    test_environment.AsyncTestEnvironment.setup_transactions_query = set_up_awaited


def pytest_collection_modifyitems(config, items):
    if config.getoption("names_to"):
        Path(config.getoption("names_to")).write_text("\n".join(name_of(item) for item in items))
    if config.getoption("names_from"):
        chosen = set(Path(config.getoption("names_from")).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if name_of(item) not in chosen])
        items[:] = [item for item in items if name_of(item) in chosen]


def name_of(item_or_report):
    def stable(number):
        return "<now>" if abs(int(number.group()) - time.time()) < A_DAY else number.group()

    return re.sub(r"\b\d{10}\b", stable, item_or_report.nodeid)


class Recorder:
    """Set-up, call and tear-down of a test each report; the worst counts. A `rerun` is not an end."""

    def __init__(self, path):
        self.path = path
        self.results = {}

    def pytest_runtest_logreport(self, report):
        name = name_of(report)
        if report.outcome == "rerun":
            self.results.pop(name, None)
            return
        if report.outcome != "passed":
            self.results.setdefault(name, (report.outcome, self._said(report)))
        if report.when == "teardown":
            result, said = self.results.pop(name, ("passed", ""))
            with open(self.path, "a") as out:
                out.write(json.dumps({"test": name, "result": result, "said": said}) + "\n")

    @staticmethod
    def _said(report):
        if isinstance(report.longrepr, tuple):
            return report.longrepr[2].removeprefix("Skipped: ")
        crash = getattr(report.longrepr, "reprcrash", None)
        return (crash.message if crash else str(report.longrepr)).split("\n")[0][:300]
