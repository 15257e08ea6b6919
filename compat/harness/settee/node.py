"""One `settee serve` process on a loopback address of its own.

A node keeps its data directory, so it can be stopped, killed and started again on the same data. It is up
when the ports file names the process that was started; whatever it prints goes to `log`, and `panics()` reads
it back, because a server that answers every test but panicked in a thread has not passed.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from . import ROOT
from .rest import Rest

USERNAME = "Administrator"
PASSWORD = "settee-compat"


class NodeError(Exception):
    """The process did not do what a server should: start, stay, stop."""


def binary():
    """The release build, wherever Cargo was told to put it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return Path(os.environ.get("SETTEE_BINARY", ROOT / target / "release" / "settee"))


SCRATCH = Path(os.environ.get("SETTEE_SCRATCH", ROOT / "target" / "compat"))
"""Where suites keep what their servers write. `./test` gives each step a folder of its own."""


def scratch(name):
    """An empty directory for one run; the previous run's is removed."""
    path = SCRATCH / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def tail(log, lines=6, alarms=8, characters=300):
    """The end of a log, if there is one: its last lines, and of those before them the last that are more than information."""
    text = log.read_text(errors="replace") if log.exists() else ""
    told = text.splitlines()
    before = [line for line in told[:-lines] if " INFO " not in line]
    return "\n".join(line[:characters] for line in before[-alarms:] + told[-lines:])


class Node:
    """A server on the standard ports of `address`, unless `options` say otherwise."""

    def __init__(self, address, directory, options=(), environment=None):
        self.address = address
        self.directory = Path(directory)
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self.ports_file = self.directory / "ports.json"
        self.options = list(options)
        self.environment = environment or {}
        # What it is run by: `ip netns exec NAME`, say. It has to become the server, so that its process id is the server's.
        self.launcher = []
        self.process = None
        self.killed = False
        self.ports = {}

    @property
    def pid(self):
        return self.process.pid

    @property
    def rest(self):
        return Rest(self.address, self.ports["mgmt"], USERNAME, PASSWORD)

    def start(self, timeout=20.0):
        """Start, and wait until the ports are served. Returns the seconds that took."""
        self.ports_file.unlink(missing_ok=True)
        self.killed = False
        command = [*self.launcher, binary(), "serve", "--data-dir", self.data, "--listen", self.address]
        command += ["--ports-file", self.ports_file, *self.options]
        began = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        while not self._ports_written():
            if self.process.poll() is not None:
                raise NodeError(f"the server ended with {self.process.returncode} at start\n{self.tail()}")
            if time.monotonic() - began > timeout:
                raise NodeError(f"no ports file after {timeout} s\n{self.tail()}")
            time.sleep(0.005)
        return time.monotonic() - began

    def _ports_written(self):
        try:
            ports = json.loads(self.ports_file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        if ports.get("pid") != self.process.pid:
            return False
        self.ports = ports
        return True

    def initialise(self, **changes):
        """`POST /clusterInit`, as Couchbase's own set-up does it."""
        self.rest.initialise(USERNAME, PASSWORD, **changes)
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def assert_alive(self):
        if not self.alive():
            raise NodeError(f"the server died with {self.process.returncode}\n{self.tail()}")

    def stop(self, timeout=30.0):
        """SIGTERM, and a clean end within the time."""
        self.assert_alive()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeError(f"still running {timeout} s after SIGTERM\n{self.tail()}") from None
        if code != 0:
            raise NodeError(f"ended with {code} after SIGTERM\n{self.tail()}")
        if self.panics():
            raise NodeError("panicked:\n" + "\n".join(self.panics()))

    def kill(self):
        """kill -9. A client that loses a connection from now on can see why."""
        self.killed = True
        if self.alive():
            self.process.kill()
            self.process.wait()

    def panics(self):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if "panicked at" in line]

    def tail(self):
        return tail(self.log)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        if kind is None and self.alive():
            self.stop()
        else:
            self.kill()
