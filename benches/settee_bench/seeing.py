"""What it costs to see a node.

What operations run through is taken out and put back by turns of 20 ms, in one process (switches.py). So a neighbour on the machine, or
where memory lies, disturbs both alike. What runs beside them is told by the other threads of two nodes: one has all of it, one nothing."""

import os
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from settee.node import PASSWORD, USERNAME, Node, scratch
from settee.rest import Rest
from settee.teller import Teller

from . import measure, seeing_report
from .servers import BUCKET, MEMORY_MB, SetteeEphemeral, wait_for_port

VALUE_BYTES, CONNECTIONS = 100, 50
# Threads that carry out operations.
DATA_THREADS = "settee-data"
# Between two looks from outside. Prometheus asks every 15 s unless it is told otherwise, and an open console every few seconds.
LOOK_SECONDS = 5.0
CONSOLE = (
    "/pools/default", "/pools/default/tasks", "/settee/alerts", "/settee/forecast", f"/pools/default/buckets/{BUCKET}/stats?zoom=minute",
    f"/settee/latency/{BUCKET}?operation=get", f"/settee/hot/{BUCKET}",
)

# The variable that the switches obey, and the bits: of what operations run through, and of what runs beside them.
SWITCH = "SETTEE_WITHOUT_SEEING"
OUT, OUT_BESIDE = "base::hash::is_out(1)", "base::hash::is_out(2)"
ALL_OUT = "3"
# What nobody can switch off, since everybody wants it: only a build for this measurement leaves it out (settee_bench/switches.py).
SWITCHES = [
    # Histograms of operations and phases, and the slow-operation log, with the clock readings for them.
    (
        "crates/dataplane/src/request",
        "        let now = Reading::now();\n        let mut slow = None;",
        f"        base::hash::count(answered);\n        if {OUT} {{\n            self.ran.clear();\n            return Recorded {{ answered, ..Recorded::default() }};\n        }}\n"
        "        let now = Reading::now();\n        let mut slow = None;",
    ),
    # Hot documents and clients.
    ("crates/dataplane/src/request", "        if context.is_drawn() {", f"        if !{OUT} && context.is_drawn() {{"),
    # Alerts, objectives, forecasts, probes, clocks, and the files of the history.
    (
        "crates/daemon/src/duties",
        "            _ = self.ticks.tick() => true,",
        f"            _ = self.ticks.tick(), if !{OUT_BESIDE} => true,",
    ),
    # The past of statistics and latencies.
    (
        "crates/daemon/src/past",
        "                    self.sample_once(&shared);",
        f"                    if !{OUT_BESIDE} {{ self.sample_once(&shared); }}",
    ),
]


class Seen(SetteeEphemeral):
    """A node with one bucket in memory. `turns` is the file that it writes what turns took to."""

    def __init__(self, options, host, is_on, turns=None):
        super().__init__(options)
        self.name, self.host, self.is_on, self.turns = "on" if is_on else "off", host, is_on, turns
        self.over, self.looker, self.teller = threading.Event(), None, None

    def start(self):
        self.directory = scratch(f"bench-seeing-{self.name}")
        environment = {} if self.is_on else {SWITCH: ALL_OUT}
        if self.turns:
            environment[f"{SWITCH}_ALTERNATE"] = str(self.turns)
        self.node = Node(self.host, self.directory, environment=environment)
        self.node.start()
        self.node.initialise(memoryQuota=MEMORY_MB)
        rest = self.node.rest
        rest.create_bucket(BUCKET, quota_mb=MEMORY_MB // 4, kind=self.kind, legacyMemcachedPort=1)
        self.process_id = self.node.pid
        wait_for_port(self.host, self.port)
        if not self.is_on:
            rest.ok("PUT", "/settee/probe", {"buckets": "none"})
            return
        for operation in ("get", "set", "durable"):
            objective = {"operation": operation, "latencyUs": 2000, "targetPercent": 99.9}
            rest.ok("PUT", f"/settee/slo/{BUCKET}/{operation}", objective)
        rest.ok("PUT", "/settee/probe", {"buckets": "all", "writes": "true", "periodSecs": 1})
        rest.ok("POST", "/settings/appTelemetry", {"enabled": "true", "scrapeIntervalSeconds": 60})

    def watch(self):
        """Begins to look from outside, in threads of this process."""
        if self.is_on:
            self.teller = Teller(self.node, "")
            self.teller.start()
            self.looker = threading.Thread(target=self.look)
            self.looker.start()

    def look(self):
        rest = Rest(self.host, self.node.ports["mgmt"], USERNAME, PASSWORD)
        while not self.over.wait(LOOK_SECONDS):
            for path in ("/metrics", *CONSOLE):
                rest.get(path)

    def stop(self):
        self.over.set()
        if self.looker is not None:
            self.looker.join()
            self.teller.close()
        super().stop()

    def resident_mib(self):
        """Memory of the process that is in use."""
        lines = Path(f"/proc/{self.process_id}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def seconds_beside(self):
        """What all threads took but those that carry out operations."""
        nanos = 0
        for task in Path(f"/proc/{self.process_id}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                if not (task / "comm").read_text().startswith(DATA_THREADS):
                    nanos += int((task / "schedstat").read_text().split()[0])
        return nanos / 1e9


def in_turns(options, folder):
    """What of each case was measured with the switches by turns."""
    found, path = [], folder / "turns"
    with Seen(options, "127.0.41.22", True, path) as server:
        measure.fill(options, server, options.records, VALUE_BYTES)
        server.settle()
        server.watch()
        for operation in ("get", "set"):
            for pipeline in (1, 16):
                name = measure.case_name(operation, VALUE_BYTES, CONNECTIONS, pipeline)
                measure.progress(name)
                offset = os.path.getsize(path)
                measure.compare(options, [server], operation, VALUE_BYTES, CONNECTIONS, pipeline)
                found.append({"case": name, "turns": seeing_report.turns_of(path, offset)})
    return found


def beside(options):
    """Percent of a core that runs beside operations, on each node: while clients ask nothing, and while they get documents. And the memory of
    each node at the end of it."""
    found, memory = {}, {}
    with ExitStack() as stack:
        nodes = [("127.0.41.22", True), ("127.0.41.23", False)]
        servers = [stack.enter_context(Seen(options, *node)) for node in nodes]
        for server in servers:
            measure.fill(options, server, options.records, VALUE_BYTES)
            server.settle()
            server.watch()
        for busy in (False, True):
            measure.progress(f"beside {'operations' if busy else 'nothing'}")
            for server in servers:
                before, began = server.seconds_beside(), time.monotonic()
                if busy:
                    measure.compare(options, [server], "get", VALUE_BYTES, CONNECTIONS, 16)
                else:
                    time.sleep(options.seconds * options.rounds)
                percent = (server.seconds_beside() - before) / (time.monotonic() - began) * 100
                found[f"{server.name}, {'busy' if busy else 'at rest'}"] = percent
        for server in servers:
            memory[server.name] = server.resident_mib()
    return found, memory


def measured(options, folder):
    """What operations cost by case, what runs beside them, and what all of it takes in memory."""
    cases = in_turns(options, folder)
    threads, memory = beside(options)
    return {"cases": cases, "beside": threads, "memory": memory}
