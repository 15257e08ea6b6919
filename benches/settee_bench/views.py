"""Views: how fast indexes are built beside plain V8, what queries take, and what both cost the clients of documents.

All threads of the nodes, and the processes that run map functions, are pinned to the server's core. So a rate is that of one core. It
counts per second of the processor, which a neighbour does not change. V8 gets the same core, by turns.
"""

import json
import os
import random
import re
import subprocess
import time
from itertools import cycle
from pathlib import Path

from settee.kv import Client
from settee.node import PASSWORD, USERNAME, Node, binary, scratch
from settee.rest import Rest, RestError

from .measure import progress
from .nodes import Nodes
from .servers import BUCKET, Server, pinned, resident_bytes
from .view_client import VIEWS_PORT, Connection, QueryError, at_once, one_by_one, query_path, row_lines

ROOT = Path(__file__).resolve().parent.parent.parent
# The published one, as the quick start stores it.
PUBLISHED = (ROOT / "crates" / "cli" / "src" / "songs" / "electronic.js").read_text().strip()
WHOLE = "function (doc, meta) { emit(meta.id, Object.keys(doc).length); }"
IGNORES = "function (doc, meta) { emit(meta.id, null); }"
# A tenth of the documents is how many keys there are, so that about an eighth of these have ten rows.
TENS = "function (doc, meta) {{ emit(parseInt(meta.id.substr(11), 16) % {keys}, null); }}"
TICKS = os.sysconf("SC_CLK_TCK")
ID_BYTES = 18
PAGE_ROWS = 1024
# An index commits what it has within this time after its last change.
COMMITTED_AFTER = 8.0
# What a node does for longer than this is no part of what was measured.
SETTLE_SECONDS = 20.0
# By one user, of the 24 that a node answers at once.
AT_ONCE = 8
WRITES_PER_SECOND = 1_000
FRONT_RATE = 5_000
NODES_RATE = 100
NODES_DOCUMENTS = 60_000
MEMORY_ITEMS = 400_000
MEMORY_BYTES = 200
MEMORY_KEY_BYTES = 36


class Late(Exception):
    """The time for all measurements is over."""


def tree_seconds(pid):
    """User and system seconds of a process, of its threads that have ended, and of the processes that it started."""
    def fields(number):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()

    # Its own, and those of processes that it started and that have ended.
    ticks = sum(int(field) for field in fields(pid)[11:15])
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                child = fields(entry.name)
            except OSError:
                continue
            if int(child[1]) == pid:
                ticks += int(child[11]) + int(child[12])
    return ticks / TICKS


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(milliseconds):
    return {"queries": len(milliseconds), "p50": percentile(milliseconds, 0.5), "p99": percentile(milliseconds, 0.99),
            "most": max(milliseconds)}


def connect(address):
    return Connection(address, USERNAME, PASSWORD)


class Views:
    """Design documents of a bucket by a node's port of views."""

    def __init__(self, address, bucket=BUCKET):
        self.address, self.bucket = address, bucket
        self.rest = Rest(address, VIEWS_PORT, USERNAME, PASSWORD, timeout=900.0)

    def path(self, design, **parameters):
        return query_path(self.bucket, design, **parameters)

    def publish(self, design, function, reduction=None):
        view = {"map": function} | ({"reduce": reduction} if reduction else {})
        text = json.dumps({"views": {"v": view}})
        answer = self.rest.request("PUT", f"/{self.bucket}/_design/{design}", body=text,
                                   headers={"Content-Type": "application/json"})
        if answer.status != 201:
            raise RestError(f"{design}: {answer.status} {answer.text}")

    def remove(self, design):
        self.rest.request("DELETE", f"/{self.bucket}/_design/{design}")

    def wait(self, design):
        """Until the index has everything; the number of its rows."""
        connection = connect(self.address)
        try:
            path = self.path(design, stale="false", reduce="false", limit=1, connection_timeout=600_000)
            return json.loads(connection.body(path))["total_rows"]
        finally:
            connection.close()

    def info(self, design):
        return self.rest.get(f"/{self.bucket}/_design/{design}/_info").json["view_index"]


class ViewServer(Server):
    """A node with one bucket."""

    name = "settee views"
    host = "127.0.41.31"

    def __init__(self, options, quota_mb, **bucket):
        super().__init__(options)
        self.quota_mb, self.bucket = quota_mb, bucket
        self.views = Views(self.host)

    def start(self):
        self.node = Node(self.host, scratch("bench-views"))
        self.node.start()
        self.node.initialise(memoryQuota=self.quota_mb + 256)
        self.node.rest.create_bucket(BUCKET, quota_mb=self.quota_mb, **self.bucket)
        self.process_id = self.node.pid

    def stop(self):
        self.node.kill()
        self.keep_log(self.node.log, self.name)
        scratch("bench-views")

    def restart(self):
        """Stops it cleanly, and starts it with nothing in the operating system's cache."""
        self.node.stop(timeout=300)
        self.drop_from_cache()
        with pinned(self.core):
            self.node.start(timeout=300)
        self.process_id = self.node.pid
        self.wait("the node is warm", lambda client: client.stats(b"warmup").get("ep_warmup_state") == "done")
        self.node.rest.wait_healthy(BUCKET, 60.0)

    def wait(self, what, condition, timeout=300.0):
        until = time.monotonic() + timeout
        while True:
            try:
                with Client(self.host, 11210, USERNAME, PASSWORD, BUCKET) as client:
                    if condition(client):
                        return
            except (OSError, KeyError):
                pass
            if time.monotonic() > until:
                raise SystemExit(f"not within {timeout:g} s: {what}")
            time.sleep(0.1)

    def persist(self):
        self.wait("all documents are on disk", lambda client: int(client.stats()["ep_diskqueue_items"]) == 0)

    def drop_from_cache(self):
        os.sync()
        for path in self.node.data.rglob("*.seg"):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def cpu_seconds(self):
        return tree_seconds(self.process_id)


def tool(options, *command):
    """A command of the binary on the client's core; what it said on standard output and standard error."""
    environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
    with pinned(options.client_core):
        done = subprocess.run([str(part) for part in (binary(), *command)], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, done.stderr


def load_songs(options, host, documents):
    tool(options, "songs", "load", "--host", host, "--bucket", BUCKET, "--count", documents)


class Songs:
    """The songs, in a file for V8 and in a node. It is there for all parts but those that have nodes of their own."""

    def __init__(self, options):
        self.options = options
        self.documents = options.documents
        self.file = options.directory / "songs.json"
        self.server = None
        self.electronic = None
        # What a part has measured, should it fail later.
        self.partial = {}
        # Paths of queries need to know keys.
        self.electronic_ids, self.ten_keys = [], []
        self.built = set()

    def ready(self):
        """The node, which is filled when it is first asked for."""
        if self.server is None:
            progress(f"{self.documents:,} songs: writing them to a file")
            told = tool(self.options, "songs", "--count", self.documents, "--out", self.file)[1]
            self.electronic = int(re.search(r"exactly (\d+) documents", told)[1])
            server = ViewServer(self.options, max(512, self.documents * 3_700 // 1_000_000))
            server.__enter__()
            self.server = server
            progress("loading them")
            load_songs(self.options, server.host, self.documents)
            server.persist()
            progress("starting the node again")
            server.restart()
        self.server.node.assert_alive()
        return self.server

    def needs(self, *designs):
        """Views that a part queries, where the part that measures their building did not run or has failed."""
        server = self.ready()
        for design in designs:
            if design not in self.built:
                server.views.publish(design, *self.definition(design))
                server.views.wait(design)
                self.built.add(design)
        connection = connect(server.host)
        try:
            if "published" in designs and not self.electronic_ids:
                path = server.views.path("published", reduce="false")
                self.electronic_ids = [json.loads(line)["id"] for line in row_lines(connection.body(path))]
            if "tens" in designs and not self.ten_keys:
                groups = json.loads(connection.body(server.views.path("tens", group="true")))["rows"]
                self.ten_keys = [row["key"] for row in groups if row["value"] == 10]
        finally:
            connection.close()
        return server

    def definition(self, design, documents=None):
        tens = TENS.format(keys=max(1, (documents or self.documents) // 10))
        return {"published": (PUBLISHED, "_count"), "whole": (WHOLE, None), "ignores": (IGNORES, "_count"),
                "tens": (tens, "_count")}[design]

    def close(self):
        self.file.unlink(missing_ok=True)
        if self.server is not None:
            self.server.__exit__()
        self.server, self.built = None, set()


def build(songs):
    """Indexes from disk, each by itself; the same functions by V8 before and afterwards."""
    server, cases = songs.ready(), []
    for design, with_v8 in (("published", True), ("whole", True), ("ignores", False), ("tens", False)):
        v8 = [v8_run(songs, design)] if with_v8 else []
        cases.append(build_one(songs, server, design))
        v8 += [v8_run(songs, design)] if with_v8 else []
        cases[-1]["v8"] = v8
        songs.partial["build"] = {"documents": songs.documents, "cases": cases}
        if v8 and v8[0]["rows"] != cases[-1]["rows"]:
            raise QueryError(f"{design}: {cases[-1]['rows']} rows, by V8 {v8[0]['rows']}")
    return songs.partial["build"]


def v8_run(songs, design):
    progress(f"V8 maps them: {design}")
    script = Path(__file__).with_name("map_documents.js")
    command = ["node", "--expose-gc", "--max-old-space-size=4096", script, songs.file, songs.definition(design)[0]]
    with pinned(songs.options.server_core):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"node: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def build_one(songs, server, design):
    progress(f"a node indexes them: {design}")
    server.settle(SETTLE_SECONDS)
    server.drop_from_cache()
    before, began = server.cpu_seconds(), time.monotonic()
    server.views.publish(design, *songs.definition(design))
    rows = server.views.wait(design)
    seconds = time.monotonic() - began
    at_answer = server.cpu_seconds() - before
    # What was shown is made durable later, which belongs to the build.
    time.sleep(COMMITTED_AFTER)
    server.settle(SETTLE_SECONDS)
    used, info = server.cpu_seconds() - before, server.views.info(design)
    songs.built.add(design)
    if design == "published" and rows != songs.electronic:
        raise QueryError(f"{rows} rows in place of {songs.electronic}")
    return {"design": design, "rows": rows, "seconds": seconds, "cpu_seconds": used, "cpu_seconds_at_answer": at_answer,
            "disk_bytes": info["disk_size"], "live_bytes": info["data_size"],
            "emitted_bytes": emitted_bytes(server, design, rows)}


def emitted_bytes(server, design, rows):
    """Bytes of the texts of all keys and values."""
    if design == "whole":
        return rows * (ID_BYTES + 2 + 1)
    if design == "ignores":
        return rows * (ID_BYTES + 2 + 4)
    connection = connect(server.host)
    try:
        if design == "tens":
            groups = json.loads(connection.body(server.views.path(design, group="true")))["rows"]
            return sum((len(str(row["key"])) + 4) * row["value"] for row in groups)
        lines = row_lines(connection.body(server.views.path(design, reduce="false")))
        beside = len('{"id":"","key":"","value":}') + 2 * ID_BYTES
        return sum(len(line) - beside + ID_BYTES + 2 for line in lines)
    finally:
        connection.close()


def expect(needle, count):
    """Checks that an answer has something so often, which no document of the songs has."""
    def check(answer):
        found = bytes(answer).count(needle)
        if found != count:
            raise QueryError(f"{found} in place of {count} of {needle!r}: {bytes(answer[:600])!r}")

    return check


def queries(songs):
    """Counts of everything, single keys and pages: one at a time, and as many as the node takes."""
    server = songs.needs("published", "ignores", "tens")
    options, views = songs.options, server.views
    rng, page = random.Random(1), min(PAGE_ROWS, len(songs.electronic_ids) // 2)
    last = len(songs.electronic_ids) - page
    starts = [songs.electronic_ids[rng.randint(0, last)] for _ in range(500)]
    keys = rng.choices(songs.ten_keys, k=2000)
    cases = {
        "_count of everything": ([views.path("ignores")], expect(b'"value":%d}' % songs.documents, 1)),
        "key=, 10 rows": ([views.path("tens", key=key, reduce="false") for key in keys], expect(b'{"id":"', 10)),
        f"page of {page:,} rows with their documents": (
            [views.path("published", startkey=json.dumps(start), limit=page, reduce="false") for start in starts],
            expect(b'{"id":"', page)),
    }
    found = []
    for name, case in cases.items():
        progress(name)
        found.append({"case": name, **query_case(options, server, *case)})
        songs.partial["queries"] = {"cases": found}
    return songs.partial["queries"]


def query_case(options, server, paths, check):
    connections = [connect(server.host) for _ in range(AT_ONCE)]
    paths = cycle(paths)
    try:
        with pinned(options.client_core):
            # What is asked for the first time is read from the disk.
            at_once(connections, paths, options.seconds / 2, check)
            alone = one_by_one(connections[:1], paths, options.seconds, check)
            before = server.cpu_seconds()
            count, size, seconds = at_once(connections, paths, options.seconds, check)
            used = server.cpu_seconds() - before
    finally:
        for connection in connections:
            connection.close()
    return {"alone": latencies(alone), "queries": count, "bytes": size, "seconds": seconds, "cpu_seconds": used}


def fresh(songs):
    """A document is written and then asked for at `stale=false`, while others are written at a rate."""
    server = songs.needs("published")
    options = songs.options
    writer = background_load(options, server, options.seconds * 2 + 4, "--rate", WRITES_PER_SECOND, "--gets", 0,
                             "--records", songs.documents)
    took, connection = [], connect(server.host)
    try:
        with pinned(options.client_core), Client(server.host, 11210, USERNAME, PASSWORD, BUCKET) as client:
            # The writer has connected by then.
            time.sleep(2.0)
            until, number = time.monotonic() + options.seconds * 2, 0
            while time.monotonic() < until:
                number += 1
                key = f"fresh-{number % 500}"
                document = json.dumps({"tags": [["electronic", "100"]], "number": number})
                path = server.views.path("published", key=json.dumps(key), stale="false", reduce="false")
                client.must("set", client.set(key.encode(), document.encode()))
                asked = time.perf_counter()
                answer = connection.get(path)
                took.append((time.perf_counter() - asked) * 1e3)
                if b'"number":%d}' % number not in bytes(answer):
                    raise QueryError(f"{path} lacks write {number}: {bytes(answer)!r}")
                time.sleep(0.01)
    finally:
        connection.close()
        report = finish_load(writer)
    return {**latencies(took), "writes_per_sec": report["ops_per_sec"]}


def load_command(host, seconds, more):
    command = [binary(), "load", "--json", "--value", "songs", "--verify", 0, "--host", host, "-u", USERNAME, "-p", PASSWORD,
               "-b", BUCKET, "--seconds", seconds, "--warmup", 0.5, "--connections", 16, *more]
    return [str(part) for part in command]


def background_load(options, server, seconds, *more):
    with pinned(options.client_core):
        return subprocess.Popen(load_command(server.host, seconds, more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_load(process):
    told, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"settee load: {told[-1500:]}{errors[-1500:]}")
    return json.loads(told)


def beside(songs):
    """Gets and sets in an open loop, by turns without and beside a build."""
    server = songs.ready()
    options, rounds = songs.options, []

    def loaded():
        report = finish_load(background_load(options, server, options.seconds, "--rate", options.front_rate, "--gets", 90,
                                             "--records", songs.documents))
        return {"read_us": report["read_us"], "write_us": report["write_us"], "ops_per_sec": report["ops_per_sec"]}

    for number in range(options.rounds):
        progress(f"gets and sets beside a build, round {number + 1}")
        server.settle(SETTLE_SECONDS)
        without = loaded()
        # A function that no index is of.
        function = WHOLE.replace("{ emit", f"{{ /* {number} */ emit")
        server.views.publish("beside", function)
        with_build = loaded()
        info = server.views.info("beside")
        server.views.wait("beside")
        server.views.remove("beside")
        server.settle(SETTLE_SECONDS)
        rounds.append({"without": without, "beside": with_build, "built": info["changes_done"],
                       "was_built_throughout": info["total_seqs_diff"] > 0})
        songs.partial["beside"] = {"rate": options.front_rate, "seconds": options.seconds, "rounds": rounds}
    return songs.partial["beside"]


def nodes(songs):
    """The same queries at the same rate on 1 to 8 nodes, over the same documents."""
    options, cases = songs.options, []
    documents = min(songs.documents, NODES_DOCUMENTS)
    for count in options.node_counts:
        if options.is_late():
            raise Late(f"only {len(cases)} of {len(options.node_counts)} numbers of nodes were measured")
        progress(f"queries on {count} nodes")
        with Nodes(options, count, {BUCKET: {"quota_mb": 512}}) as server:
            load_songs(options, server.host, documents)
            views = Views(server.host)
            for design in ("published", "tens"):
                views.publish(design, *songs.definition(design, documents))
                views.wait(design)
            time.sleep(COMMITTED_AFTER)
            cases.append({"nodes": count, "cases": nodes_cases(options, server, views, documents)})
        songs.partial["nodes"] = {"documents": documents, "rate": NODES_RATE, "cases": cases}
    return songs.partial["nodes"]


def nodes_cases(options, server, views, documents):
    connections = [connect(node.address) for node in server.running]
    cpu = lambda: sum(tree_seconds(pid) for pid in server.process_ids)  # noqa: E731
    ids = [json.loads(line)["id"] for line in row_lines(connections[0].body(views.path("published", reduce="false")))]
    groups = json.loads(connections[0].body(views.path("tens", group="true")))["rows"]
    counted, page = sum(row["value"] for row in groups), min(100, len(ids) // 2)
    if counted != documents:
        raise QueryError(f"{counted} rows of {documents} documents")
    kinds = {
        "_count of everything": ([views.path("tens")], expect(b'"value":%d}' % documents, 1)),
        "key=": ([views.path("tens", key=row["key"], reduce="false") for row in groups[:1000]], lambda _: None),
        f"page of {page} rows with their documents": (
            [views.path("published", startkey=json.dumps(one), limit=page, reduce="false") for one in ids[:len(ids) - page][:500]],
            expect(b'{"id":"', page)),
    }
    idle_before, idle_began = cpu(), time.monotonic()
    time.sleep(options.seconds / 2)
    idle = (cpu() - idle_before) / (time.monotonic() - idle_began)
    found = []
    try:
        with pinned(options.client_core):
            for name, (paths, check) in kinds.items():
                paths = cycle(paths)
                one_by_one(connections, paths, options.seconds / 4, check)
                before, began = cpu(), time.monotonic()
                took = one_by_one(connections, paths, options.seconds, check, NODES_RATE)
                used = cpu() - before - idle * (time.monotonic() - began)
                found.append({"case": name, **latencies(took), "cpu_us": used * 1e6 / len(took)})
    finally:
        for connection in connections:
            connection.close()
    return found


def memory(songs):
    """Resident bytes per item beyond key and value, in a fresh process: where no view is possible, where none is, and with one."""
    options, cases = songs.options, []
    items = min(MEMORY_ITEMS, songs.documents)
    kinds = (("no view is possible (magma)", {"storageBackend": "magma"}, False), ("no view is there", {}, False), ("one view", {}, True))
    for name, bucket, has_view in kinds:
        progress(f"memory per item: {name}")
        with ViewServer(options, 1024, **bucket) as server:
            if has_view:
                server.views.publish("ignores", *songs.definition("ignores"))
            server.settle(SETTLE_SECONDS)
            before = resident_bytes(server.process_id)
            tool(options, "load", "--populate", "--pipeline", 16, "--records", items, "--key-bytes", MEMORY_KEY_BYTES,
                 "--value-bytes", MEMORY_BYTES, "--host", server.host, "-b", BUCKET)
            if has_view:
                server.views.wait("ignores")
            server.persist()
            server.settle(SETTLE_SECONDS)
            used = (resident_bytes(server.process_id) - before) / items
            with Client(server.host, 11210, USERNAME, PASSWORD, BUCKET) as client:
                told = int(client.stats()["mem_used"]) / items
        beside_data = MEMORY_KEY_BYTES + MEMORY_BYTES
        cases.append({"case": name, "items": items, "resident": used - beside_data, "mem_used": told - beside_data})
        songs.partial["memory"] = {"cases": cases}
    return songs.partial["memory"]
