"""Clusters under test. All nodes are pinned to the server's core together, whatever their number: what differs between
one node and eight is then what clusters cost, not how many cores they have.
"""

import shutil
import time
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

from settee import documents, kv
from settee.cluster import Cluster
from settee.kv import Client
from settee.node import PASSWORD, USERNAME, scratch

from .network import Network
from .pressed import UnderPressure, disk_flags, figures, quota_mb
from .servers import BUCKET, Server, pinned

FIRST = "127.0.41.21"
QUOTA_MB = 1024
# Beside the quotas of the buckets.
SPARE_MB = 256
# Figures that are no sums over nodes.
MEANS, HIGHEST = {"resident"}, {"step"}


class Nodes(Server):
    """`count` nodes, of which the first `members` are a cluster, with these buckets: name and what it is made with."""

    name = "settee cluster"

    def __init__(self, options, count, buckets, members=None, flags=(), spare_mb=SPARE_MB):
        super().__init__(options)
        self.options, self.count, self.members, self.buckets, self.flags = options, count, members, buckets, flags
        # Of each node.
        self.quota_mb = sum(bucket.get("quota_mb", QUOTA_MB) for bucket in buckets.values()) + spare_mb
        self.cluster = None

    def start(self):
        self.directory = scratch("bench-cluster")
        self.cluster = self.made()
        try:
            self.form()
        except BaseException:
            self.remove()
            raise

    def form(self):
        self.cluster.form(self.members, memoryQuota=self.quota_mb)
        for name, bucket in self.buckets.items():
            self.create_bucket(name, **bucket)

    def create_bucket(self, name, **bucket):
        self.cluster.rest.create_bucket(name, **{"quota_mb": QUOTA_MB, **bucket})
        self.cluster.wait_healthy(name)

    def made(self):
        """The cluster, of which nothing runs yet."""
        return Cluster(FIRST, self.directory, self.count, self.flags)

    def stop(self):
        try:
            self.cluster.stop()
        finally:
            self.remove()

    def remove(self):
        """Whatever there is of it, but for the logs."""
        self.cluster.kill()
        for node in self.cluster.nodes:
            self.keep_log(node.log, node.address)
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def running(self):
        return [node for node in self.cluster.nodes if node.alive()]

    @property
    def host(self):
        """Of a node that knows the bucket."""
        members = self.cluster.members()
        return next(node.address for node in self.running if node.address in members)

    @property
    def process_ids(self):
        return [node.pid for node in self.running]

    def idle_cpu(self, seconds):
        """Of a core, all nodes together, with nothing to do."""
        before, began = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.monotonic() - began)

    def restart(self, node):
        with pinned(self.core):
            node.start()

    def connect(self, node, bucket=BUCKET):
        """A connection that is told a map that it has not seen yet, and no other one, with each refusal."""
        features = (*documents.FEATURES, kv.F_DEDUPE, kv.F_ALT, kv.F_DURABILITY)
        return documents.connect(node, bucket, features=features, timeout=5.0)

    def chains(self, bucket=BUCKET):
        """The addresses of each vBucket's copies, the active first."""
        told = self.cluster.rest.get(f"/pools/default/b/{bucket}").json["vBucketServerMap"]
        names = [server.rsplit(":", 1)[0] for server in told["serverList"]]
        return [[names[number] for number in chain if number >= 0] for chain in told["vBucketMap"]]


class NodesApart(Nodes):
    """Nodes that know nothing of one another, each with these buckets."""

    def form(self):
        for node in self.cluster.nodes:
            node.start()
            node.initialise(memoryQuota=self.quota_mb)
            for name, bucket in self.buckets.items():
                node.rest.create_bucket(name, **{"quota_mb": QUOTA_MB, **bucket})

    def each(self):
        """Every one of them, as a server to put load on."""
        return [SimpleNamespace(host=node.address, process_ids=[node.pid]) for node in self.running]


class SplitNodes(Nodes):
    """Nodes on a network of their own."""

    def made(self):
        self.network = Network(self.count)
        cluster = Cluster(self.network.address(0), self.directory, self.count, self.flags)
        for number, node in enumerate(cluster.nodes):
            node.launcher = self.network.launcher(number)
            node.give_login()
        return cluster

    def remove(self):
        super().remove()
        self.network.remove()

    def cut_off(self, node):
        """From all others; clients still reach it."""
        self.network.cut_off(self.cluster.nodes.index(node))

    def heal(self):
        self.network.heal()


class PressedNodes(UnderPressure, Nodes):
    """Two nodes that both have everything, one of them as the replica, in less memory than it takes."""

    COUNT, REPLICAS = 2, 1
    copies = REPLICAS + 1

    def __init__(self, options, ratio):
        self.quota = quota_mb(options.pressure_records, ratio, options.policy)
        bucket = {"quota_mb": self.quota, "replicas": self.REPLICAS, "evictionPolicy": options.policy}
        super().__init__(options, self.COUNT, {BUCKET: bucket}, flags=disk_flags(options))

    @contextmanager
    def watched(self):
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(node.address, 11210, USERNAME, PASSWORD, BUCKET)) for node in self.running]
            yield lambda: together([figures(client.stats() | client.stats(b"dcpagg")) for client in clients], self.copies)


def together(told, copies):
    """One set of figures of several nodes' ones. A set waits once for each copy: the queue is told in sets."""
    def combined(name):
        column = [one[name] for one in told]
        if name in HIGHEST:
            return max(column)
        return sum(column) / len(column) if name in MEANS else sum(column)

    return {name: combined(name) / (copies if name == "queue" else 1) for name in told[0]}
