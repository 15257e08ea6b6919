"""The processes under test. Each is pinned to the server's core with all its threads and seen from outside only:
CPU time and resident memory from /proc, so that a server's own opinion never enters a figure. Their data goes with them; their
logs stay, or nobody could tell afterwards what one meant by an error.
"""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from settee.node import Node, scratch

MEMORY_MB = 6144
BUCKET = "bench"
CONNECTIONS = 4096
# A process that rests still wakes up for its timers: a node with 1,024 vBuckets takes a twentieth of a slow core. More than this
# share is work.
RESTING_SHARE = 0.1


def keep_logs(options, folder):
    """Servers that are made with these options from now on leave their logs here, and nothing else is here."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options.logs = folder


@contextmanager
def pinned(core):
    """Processes started inside run on `core`, and so do the threads they start."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


class Server:
    """A running server: where it listens, and what it has used."""

    name = ""
    host = ""
    port = 11211
    # What it speaks, if it does not speak what the command line says.
    protocol = None

    def __init__(self, options):
        self.core, self.logs = options.server_core, options.logs
        self.process_id = None

    @property
    def process_ids(self):
        return [self.process_id]

    def cpu_seconds(self):
        """User and system time of all threads, by the scheduler's account in nanoseconds."""
        return sum(cpu_seconds(pid) for pid in self.process_ids)

    def resident_bytes(self):
        return sum(resident_bytes(pid) for pid in self.process_ids)

    def settle(self, timeout=120.0):
        """Wait until the process rests and the kernel's write-back has drained: the next figure must not pay
        for the last one. Returns the CPU seconds that this took the process."""
        begin = self.cpu_seconds()
        until = time.monotonic() + timeout
        quiet = 0
        while quiet < 3 and time.monotonic() < until:
            before = self.cpu_seconds()
            time.sleep(0.2)
            resting = 0.2 * RESTING_SHARE * len(self.process_ids)
            quiet = quiet + 1 if self.cpu_seconds() - before <= resting else 0
        os.sync()
        return self.cpu_seconds() - begin

    def keep_log(self, log, name):
        """Among those of this part of the measurement, in the order in which its servers ended."""
        if log.exists():
            number = len(list(self.logs.iterdir())) + 1
            shutil.copy(log, self.logs / f"{number:02}-{name.replace(' ', '-')}.log")

    def __enter__(self):
        with pinned(self.core):
            self.start()
        return self

    def __exit__(self, *_):
        self.stop()


class OneProcess(Server):
    """A server of others: one process, which a signal ends."""

    def run(self, command):
        self.process = subprocess.Popen(command)
        self.process_id = self.process.pid
        wait_for_port(self.host, self.port)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Memcached(OneProcess):
    """Debian's package with one worker thread, as Settee has one on one core."""

    name = "memcached"
    host = "127.0.41.1"

    def start(self):
        command = ["memcached", "-l", self.host, "-p", str(self.port), "-U", "0", "-t", "1"]
        command += ["-m", str(MEMORY_MB), "-c", str(CONNECTIONS)]
        if os.getuid() == 0:
            command += ["-u", "nobody"]
        self.run(command)


class Redis(OneProcess):
    """Debian's package, memory only."""

    name = "redis"
    host = "127.0.41.4"
    port = 6379
    protocol = "resp"

    def start(self):
        command = ["redis-server", "--bind", self.host, "--port", str(self.port), "--save", "", "--appendonly", "no"]
        command += ["--maxmemory", f"{MEMORY_MB}mb", "--maxclients", str(CONNECTIONS), "--loglevel", "warning"]
        self.run(command)


class Settee(Server):
    """`settee serve` with one bucket on port 11211."""

    kind = ""

    def start(self):
        self.directory = scratch(f"bench-{self.name.replace(' ', '-')}")
        self.node = Node(self.host, self.directory)
        self.node.start()
        self.node.initialise(memoryQuota=MEMORY_MB)
        self.node.rest.create_bucket(BUCKET, quota_mb=MEMORY_MB, kind=self.kind, legacyMemcachedPort=1)
        self.process_id = self.node.pid
        wait_for_port(self.host, self.port)

    def stop(self):
        try:
            self.node.stop(timeout=120)
        finally:
            self.keep_log(self.node.log, self.name)
        shutil.rmtree(self.directory, ignore_errors=True)


class SetteeEphemeral(Settee):
    name = "settee"
    host = "127.0.41.2"
    kind = "ephemeral"


class SetteePersistent(Settee):
    name = "settee persistent"
    host = "127.0.41.3"
    kind = "couchbase"


DEFINITIONS = {
    "memcached": Memcached, "settee": SetteeEphemeral, "settee-persistent": SetteePersistent, "redis": Redis,
}
# Debian package of those that are not ours.
PACKAGES = {"memcached": "memcached", "redis": "redis-server"}


def cpu_seconds(pid):
    accounts = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(account.read_text().split()[0]) for account in accounts) / 1e9


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def wait_for_port(host, port, timeout=10.0):
    until = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
