"""How long nobody takes writes: after a node has died, and after it was cut off from the others.

A client tries a write for each vBucket, over and over, on every node that may take it.
"""

import threading
import time

from settee import documents, kv

from .cluster import populate
from .nodes import Nodes, SplitNodes
from .pressure import progress
from .servers import BUCKET

# How a dead node is failed over, and the timeout of automatic failover meanwhile: the shortest that can be asked for, what
# clusters come with, and none at all. Where it is on, nodes hold leases, which a failover by hand waits for.
AUTO_FAILOVER_SECONDS, DEFAULT_SECONDS = 1, 30
FAILOVERS = {"by the cluster": AUTO_FAILOVER_SECONDS, "by hand": DEFAULT_SECONDS, "by hand, automatic failover off": None}
# The node that dies or is cut off, and whether it leads: then another one has to be elected first.
VICTIMS = {"one of the others": False, "the one that leads": True}
# Until nodes hold leases as they were just told to, and longer ones from before have run out.
ARMING_SECONDS = 6.0
TAKEN_TIMEOUT = 60.0
# No answer may fill a socket: pauses between two rounds of tries.
TRY_EVERY = 0.001
# How long a node is cut off that comes back before it is failed over: shorter and longer than nodes are patient with a
# connection that says nothing.
SPLIT_SECONDS = [2, 10]
# A try that waits for a copy does so for as long.
DURABLE = {"framing": kv.durability(kv.MAJORITY, timeout_ms=2_000)}


def failover(options):
    """kill -9 of a node, then failover at once by hand, or by the cluster: until the first write to one of the dead node's
    vBuckets is taken, and until all of them take one."""
    rows = {f"{way}, {who}": [] for way in FAILOVERS for who in VICTIMS}
    with Nodes(options, 4, {BUCKET: {"replicas": 1, "quota_mb": options.quota_mb}}) as server:
        populate(options, server)
        for number in range(options.rounds):
            for way, timeout in FAILOVERS.items():
                for who, leads in VICTIMS.items():
                    progress(f"failover {way}, {who}, round {number + 1}")
                    rows[f"{way}, {who}"].append(failed_over(server, leads, timeout))
    return {"rows": rows, "timeout": AUTO_FAILOVER_SECONDS}


def failed_over(server, leads, timeout):
    """Of the node that leads or one that does not, while automatic failover has this timeout or none."""
    cluster = server.cluster
    by_hand = timeout != AUTO_FAILOVER_SECONDS
    arm(cluster, timeout)
    dead = victim(cluster, leads)
    waiting = survivors_of(server, dead)
    ordered = threading.Thread(target=cluster.fail_over, args=(dead,)) if by_hand else None
    with Writes(server, but=dead) as writes:
        began = time.monotonic()
        dead.kill()
        if ordered:
            ordered.start()
        taken = writes.until_taken(waiting, began)
    if ordered:
        ordered.join()
    cluster.wait_member(dead, clusterMembership="inactiveFailed")
    server.restart(dead)
    take_back(cluster, dead)
    return taken


def split(options):
    """One of three nodes is cut off. The others fail it over: how long until its vBuckets take writes there. Or it heals before
    that: how long until they take some where they were, and all vBuckets durable ones."""
    ways = ["since the cut: failed over by the cluster",
            *(f"since the end of a cut of {seconds} s: {writes}" for seconds in SPLIT_SECONDS for writes in ("writes", "durable writes"))]
    rows = {f"{way}, {who}": [] for who in VICTIMS for way in ways}
    with SplitNodes(options, 3, {BUCKET: {"replicas": 1, "quota_mb": options.quota_mb}}) as server:
        populate(options, server)
        for number in range(options.rounds):
            for who, leads in VICTIMS.items():
                progress(f"split, {who}, round {number + 1}")
                found = [cut_off_for_good(server, leads)]
                for seconds in SPLIT_SECONDS:
                    found += healed(server, leads, seconds)
                for way, taken in zip(ways, found):
                    rows[f"{way}, {who}"].append(taken)
    return {"rows": rows, "timeout": AUTO_FAILOVER_SECONDS}


def cut_off_for_good(server, leads):
    """Until the others take the writes of a node that is cut off."""
    cluster = server.cluster
    arm(cluster, AUTO_FAILOVER_SECONDS)
    lost = victim(cluster, leads)
    waiting = survivors_of(server, lost)
    with Writes(server, but=lost) as writes:
        began = time.monotonic()
        server.cut_off(lost)
        taken = writes.until_taken(waiting, began)
    server.heal()
    take_back(cluster, lost)
    return taken


def healed(server, leads, seconds):
    """A node is cut off for a while, twice. Until writes are taken by all vBuckets that are active on it; until all vBuckets take
    durable ones."""
    cluster = server.cluster
    arm(cluster, DEFAULT_SECONDS)
    found = []
    for more in ({}, DURABLE):
        lost = victim(cluster, leads)
        actives = {vb: chain[0] for vb, chain in enumerate(server.chains())}
        waiting = {vb: [active] for vb, active in actives.items() if more or active == lost.address}
        with Writes(server, **more) as writes:
            server.cut_off(lost)
            time.sleep(seconds)
            began = time.monotonic()
            server.heal()
            found.append(writes.until_taken(waiting, began))
        cluster.wait_healthy(BUCKET)
    return found


def arm(cluster, timeout):
    """Has automatic failover take so long, or switches it off."""
    cluster.auto_failover(timeout is not None, timeout=timeout, max_count=100)
    time.sleep(ARMING_SECONDS)


def victim(cluster, leads):
    """The node that leads, or one that does not."""
    leader = cluster.rest.get("/pools/default/terseClusterInfo").json["orchestrator"]
    return next(node for node in cluster.nodes if (cluster.members()[node.address]["otpNode"] == leader) == leads)


def survivors_of(server, node):
    """By vBucket that is active on a node, who may take over."""
    return {vb: chain[1:] for vb, chain in enumerate(server.chains()) if chain[0] == node.address}


class Writes:
    """Connections to all nodes but one, on which writes are tried. `more` is what the requests have beside."""

    def __init__(self, server, but=None, **more):
        self.keys, self.more = key_of_each(len(server.chains())), more
        self.clients = {node.address: server.connect(node) for node in server.running if node is not but}

    def until_taken(self, waiting, began):
        """Seconds since then until one of these vBuckets, and until all have taken a write on one of their nodes."""
        first = None
        while waiting:
            if time.monotonic() - began > TAKEN_TIMEOUT:
                raise SystemExit(f"{len(waiting)} vBuckets take no write after {TAKEN_TIMEOUT:.0f} s")
            for address, client in self.clients.items():
                tried = [vb for vb, nodes in waiting.items() if address in nodes]
                requests = [(kv.SET, 0, self.keys[vb], {"extras": bytes(8), "value": b"after", **self.more}) for vb in tried]
                for vb, (_, answer) in zip(tried, documents.pipeline(client, requests)):
                    if answer.status == kv.OK:
                        first = first or time.monotonic() - began
                        del waiting[vb]
            time.sleep(TRY_EVERY)
        return {"first": first, "all": time.monotonic() - began}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients.values():
            client.close()


def take_back(cluster, node):
    """A node that was failed over becomes a member again."""
    # Both at once: the node that is asked may be the one that just came back and does not know yet.
    cluster.wait_member(node, clusterMembership="inactiveFailed", status="healthy")
    cluster.recover(node, "delta")
    cluster.rebalance()
    cluster.wait_healthy(BUCKET)
    cluster.rest.ok("POST", "/settings/autoFailover/resetCount", {})


def key_of_each(vbuckets):
    """A key for each vBucket."""
    keys, number = {}, 0
    while len(keys) < vbuckets:
        key = f"outage-{number}".encode()
        keys.setdefault(kv.vbucket_of(key, vbuckets), key)
        number += 1
    return keys
