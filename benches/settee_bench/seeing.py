"""What it costs to see a node: everything that watches it is on, or as much of it as can be is off.

Three nodes of one binary take turns: off, on, and off once more, which says how much of a difference is noise."""

import sys
import threading
import time
from contextlib import ExitStack

from settee import ROOT
from settee.node import PASSWORD, USERNAME, Node, scratch
from settee.rest import Rest

from . import measure
from .servers import BUCKET, MEMORY_MB, SetteeEphemeral, wait_for_port

sys.path.insert(0, str(ROOT / "compat" / "console"))

from teller import Teller  # noqa: E402

VALUE_BYTES, CONNECTIONS = 100, 50
# Between two looks from outside. Prometheus asks every 15 s unless it is told otherwise, and an open console every few seconds.
LOOK_SECONDS = 5.0
CONSOLE = (
    "/pools/default", "/pools/default/tasks", "/settee/alerts", "/settee/forecast", f"/pools/default/buckets/{BUCKET}/stats?zoom=minute",
    f"/settee/latency/{BUCKET}?operation=get", f"/settee/hot/{BUCKET}",
)

# The variable that the switches obey, and the bit.
SWITCH = "SETTEE_WITHOUT_SEEING"
OUT = "base::hash::is_out(1)"
# What nobody can switch off, since everybody wants it: only a build for this measurement leaves it out (settee_bench/switches.py).
SWITCHES = [
    # Histograms of operations and phases, and the slow-operation log, with the clock readings for them.
    (
        "crates/dataplane/src/request",
        "        let now = Reading::now();\n        let mut slow = None;",
        f"        if {OUT} {{\n            self.ran.clear();\n            return (answered, None);\n        }}\n"
        "        let now = Reading::now();\n        let mut slow = None;",
    ),
    # Hot documents and clients.
    ("crates/dataplane/src/request", "        if context.is_drawn() {", f"        if !{OUT} && context.is_drawn() {{"),
    # Alerts, objectives, forecasts, probes, clocks, and the files of the history.
    (
        "crates/daemon/src/duties",
        "            _ = self.ticks.tick() => true,",
        f"            _ = self.ticks.tick(), if !{OUT} => true,",
    ),
    # The past of statistics and latencies.
    (
        "crates/daemon/src/past",
        "                    self.sample_once(&shared);",
        f"                    if !{OUT} {{ self.sample_once(&shared); }}",
    ),
]


class Seen(SetteeEphemeral):
    """A node with one bucket in memory."""

    def __init__(self, options, name, host, is_on):
        super().__init__(options)
        self.name, self.host, self.is_on = name, host, is_on
        self.over, self.looker, self.teller = threading.Event(), None, None

    def start(self):
        self.directory = scratch(f"bench-seeing-{self.name.replace(' ', '-')}")
        environment = {} if self.is_on else {SWITCH: "1"}
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


def at_rest(servers, seconds):
    """Percent of a core that each of the nodes takes while clients ask nothing."""
    before, began = [server.cpu_seconds() for server in servers], time.monotonic()
    time.sleep(seconds)
    span, after = time.monotonic() - began, [server.cpu_seconds() for server in servers]
    return {server.name: (end - start) / span * 100 for server, start, end in zip(servers, before, after)}


def measured(options):
    """CPU per operation of each of the three nodes, by case; and what they take at rest."""
    found = []
    nodes = [("off", "127.0.41.21", False), ("on", "127.0.41.22", True), ("off again", "127.0.41.23", False)]
    with ExitStack() as stack:
        servers = [stack.enter_context(Seen(options, *node)) for node in nodes]
        for server in servers:
            measure.fill(options, server, options.records, VALUE_BYTES)
            server.settle()
        for server in servers:
            server.watch()
        rest = at_rest(servers, options.seconds * 30)
        for operation in ("get", "set"):
            for pipeline in (1, 16):
                name = measure.case_name(operation, VALUE_BYTES, CONNECTIONS, pipeline)
                measure.progress(name)
                runs = measure.compare(options, servers, operation, VALUE_BYTES, CONNECTIONS, pipeline)
                found.append({"case": name, "runs": runs})
    return {"cases": found, "at_rest": rest}
