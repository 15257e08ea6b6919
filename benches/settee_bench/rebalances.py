"""Rebalances under load: how long they take, what really goes over the links between nodes, what they say of themselves
meanwhile, and what those who read and write beside them notice, with an objective for latencies and without.
"""

import os
import socket
import threading
import time

from settee.kv import AUTH_ERROR, NO_ACCESS, NO_BUCKET, NOT_FOUND, Client, Closed, Refused
from settee.node import PASSWORD, USERNAME, scratch
from settee.rest import RestError

from .cluster import clean, cost, populate
from .moves import Links
from .nodes import Nodes
from .pressed import KEY_BYTES, VALUE_BYTES_MEAN, attempt, finish, sequential_write_mb_per_s, shape
from .pressure import progress
from .servers import BUCKET, pinned

# Beside a rebalance. Several at a time on a connection, as SDKs have it: else whatever comes after an operation that waits for a vBucket
# which is just being handed over would wait with it.
FRONT_RATE = 4_000
FRONT = ["--rate", FRONT_RATE, "--gets", 90, "--connections", 48, "--pipeline", 16, "--warmup", 0]
LONGEST_SECONDS = 3_600
PIECE_BYTES = 1 << 20
# What the 99th percentile shall stay below, where there is an objective.
OBJECTIVE_US = 5_000
OBJECTIVES = [0, OBJECTIVE_US]
# Where disks are what it waits for: what each takes, and how long it is waited for what they were given before.
SLOW_DISK_MB, DRAIN_SECONDS = 15, 600
WITHOUT_STREAMS, JSON = b'{"stream_format": "skip"}', 1
# What a node answers that has not been given the bucket, or any user, yet or any more.
NOT_THERE = {NOT_FOUND, AUTH_ERROR, NO_ACCESS, NO_BUCKET}
# Until replicas have been sent what the load wrote last.
TRAILING_SECONDS = 1.0


class Watch:
    """Looks at all links, and at the rebalance's task, for as long as the block lasts."""

    LINKS_EVERY, TASK_EVERY = 0.2, 1.0

    def __init__(self, server):
        self.server, self.links, self.looks = server, Links(), []
        self.clients, self.over = {}, threading.Event()
        self.began = time.monotonic()

    def __enter__(self):
        self.look_at_links()
        if silent := set(self.server.cluster.members()) - set(self.clients):
            raise SystemExit(f"what have these sent so far? {', '.join(silent)}")
        self.links.begin()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.look_at_links()
        for client in self.clients.values():
            client.close()

    def run(self):
        due = time.monotonic()
        while not self.over.wait(self.LINKS_EVERY):
            self.look_at_links()
            if time.monotonic() >= due:
                due = max(due + self.TASK_EVERY, time.monotonic())
                self.look_at_task()

    def look_at_links(self):
        for node in self.server.running:
            # One that comes has no such bucket yet, and one that goes has none any more.
            try:
                client = self.clients.get(node.address) or self.connect(node)
                self.links.look(node.address, client.stats(b"dcp", value=WITHOUT_STREAMS, datatype=JSON))
            except (OSError, Closed, Refused) as error:
                if isinstance(error, Refused) and error.status not in NOT_THERE:
                    raise
                if client := self.clients.pop(node.address, None):
                    client.close()

    def connect(self, node):
        client = self.clients[node.address] = Client(node.address, 11210, USERNAME, PASSWORD, BUCKET)
        return client

    def look_at_task(self):
        asked = time.monotonic()
        try:
            task = self.server.cluster.task()
        except (OSError, RestError):
            return
        told = task.get("settee", {})
        if task["status"] == "running":
            at = (asked + time.monotonic()) / 2 - self.began
            self.looks.append({"at": at, "done": task["progress"] / 100, "eta": told["etaSecs"],
                               "waits_for": told["waitsFor"]})

    def since(self, began, seconds):
        """The looks at the task within so many seconds of that time, counted from there."""
        early = began - self.began
        return [{**look, "at": look["at"] - early} for look in self.looks if 0 <= look["at"] - early <= seconds]


def rebalance(options):
    """A fourth node comes, and goes again, under load, over and over, without an objective and with one; beside it, the same
    bytes through a socket into a file."""
    records = options.rebalance_records
    with Nodes(options, 4, {BUCKET: {"replicas": 1, "quota_mb": options.rebalance_quota_mb}}, members=3) as server:
        progress(f"{records} records on three nodes: filling")
        populate(options, server, records=records)
        before, moves, copies = [], [], []
        spare = server.cluster[3]
        for number in range(options.rounds):
            with Watch(server) as watch:
                calm = clean(attempt(options, server, *FRONT, "--seconds", options.seconds * 2, *shape(records)))
                time.sleep(TRAILING_SECONDS)
            before.append(noticed(calm))
            a_set = {name: sent / calm["stored"] for name, sent in watch.links.sent.items()}
            for objective in OBJECTIVES:
                server.cluster.rest.ok("POST", f"/pools/default/buckets/{BUCKET}", {"latencyObjectiveUs": objective})
                for way, change in (("in", {"add": [spare]}), ("out", {"remove": [spare]})):
                    progress(f"rebalance {way}, objective {objective} us, round {number + 1}")
                    moves.append({"objective": objective, **moved(options, server, way, records, a_set, **change)})
                    server.settle()
                server.cluster.wait("it is nobody's", lambda: spare.rest.request("GET", "/pools/default").status == 404, 60)
            copies.append(plain_copy(options, server.directory, moves[-1]["megabytes"]))
    disk = sequential_write_mb_per_s(scratch("bench-disk"))
    return {"records": records, "rate": FRONT_RATE, "rounds": options.rounds, "objective": OBJECTIVE_US, "before": before,
            "moves": moves, "plain_mb_per_s": copies, "disk_mb_per_s": disk}


def forecast(options):
    """A fourth node comes, and goes again, where every disk is slow: what a rebalance says of its end."""
    records = options.forecast_records
    bucket = {"replicas": 1, "quota_mb": options.rebalance_quota_mb}
    flags = ["--disk-bytes-per-sec", SLOW_DISK_MB * 1_000_000]
    with Nodes(options, 4, {BUCKET: bucket}, members=3, flags=flags) as server:
        progress(f"{records} records on three nodes with slow disks: filling")
        populate(options, server, records=records)
        moves, spare = [], server.cluster[3]
        for number in range(options.rounds):
            for way, change in (("in", {"add": [spare]}), ("out", {"remove": [spare]})):
                wait_for_disks(server)
                progress(f"rebalance {way} on slow disks, round {number + 1}")
                moves.append({"objective": 0, **moved(options, server, way, records, {}, **change)})
            server.cluster.wait("it is nobody's", lambda: spare.rest.request("GET", "/pools/default").status == 404, 60)
    return {"records": records, "rate": FRONT_RATE, "rounds": options.rounds, "disk_mb": SLOW_DISK_MB, "moves": moves}


def wait_for_disks(server):
    """Until all that was written is on disk."""

    def all_is():
        members = server.cluster.members()
        return all(queue(node) == 0 for node in server.running if node.address in members)

    def queue(node):
        with Client(node.address, 11210, USERNAME, PASSWORD, BUCKET) as client:
            return int(client.stats()["ep_queue_size"])

    server.cluster.wait("all is on disk", all_is, DRAIN_SECONDS)


def noticed(result):
    """What those who read and write have noticed."""
    whole = [interval["p99_us"] for interval in result["intervals"] if interval["second"] + 1 <= result["seconds"]]
    return {**cost(result), "seconds_p99_us": whole, "errors": result["errors"], "not_mine": result["not_my_vbucket"]}


def moved(options, server, way, records, a_set, add=(), remove=()):
    """One rebalance under load: how long, how many copies by the maps against how many it takes at least, and how much was sent, less
    what it takes to replicate the sets of the load. `a_set` is what one of those has sent where nothing else is going on."""
    chains = server.chains()
    with Watch(server) as watch:
        for node in add:
            server.cluster.add(node)
        load = attempt(options, server, *FRONT, "--seconds", LONGEST_SECONDS, "--control", "-", *shape(records), start=True)
        began = time.monotonic()
        server.cluster.start_rebalance(remove)
        server.cluster.wait_rebalanced(LONGEST_SECONDS)
        seconds = time.monotonic() - began
        result = finish(load, "stop\n")
        time.sleep(TRAILING_SECONDS)
    after = server.chains()
    new = sum(len(set(now) - set(was)) for was, now in zip(chains, after))
    leaving = {node.address for node in remove}
    copies = sum(len(chain) for chain in after)
    least = sum(node in leaving for chain in chains for node in chain) or copies // len({n for c in after for n in c})
    in_each = records / len(chains)
    each = in_each * (KEY_BYTES + VALUE_BYTES_MEAN) / 1e6
    sent = {name: sent - result["stored"] * a_set.get(name, 0) for name, sent in watch.links.sent.items()}
    return {"way": way, "seconds": seconds, "copies": new, "least": least, "megabytes": new * each,
            "mb_per_s": new * each / seconds, "least_mb": least * each, "sent_mb": sent["total_bytes_sent"] / 1e6,
            "least_documents": least * in_each, "sent_documents": sent["items_sent"],
            "stored": result["stored"], "looks": watch.since(began, seconds), "during": noticed(result)}


def plain_copy(options, directory, megabytes):
    """MB/s of so many bytes from a file through a socket into another file, synced at its end: what a rebalance could be."""
    source, copy, size = directory / "source", directory / "copy", int(megabytes * 1e6)
    with open(source, "wb") as file:
        for at in range(0, size, PIECE_BYTES):
            file.write(os.urandom(min(PIECE_BYTES, size - at)))
    os.sync()

    def send(listener):
        connection, _ = listener.accept()
        with connection, open(source, "rb") as file:
            connection.sendfile(file)

    try:
        with pinned(options.server_core), socket.create_server(("127.0.0.1", 0)) as listener:
            sender = threading.Thread(target=send, args=(listener,))
            began = time.monotonic()
            sender.start()
            with socket.create_connection(listener.getsockname()) as connection, open(copy, "wb", buffering=0) as file:
                while piece := connection.recv(PIECE_BYTES):
                    file.write(piece)
                os.fdatasync(file.fileno())
            sender.join()
            return size / 1e6 / (time.monotonic() - began)
    finally:
        source.unlink()
        copy.unlink(missing_ok=True)
