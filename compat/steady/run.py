"""Official SDKs at work, with nothing set but what they come with, while a cluster changes: a node is added and rebalanced
in, one is rebalanced out, one is swapped for another, one is failed over gracefully; one gets kill -9 and is failed over by hand,
another and is failed over by the cluster; all of those come back.

    compat/run steady [python|node|go|java ...]

A steady client is a small program beside the suite of its SDK (`steady.*`). Called with seeds, user, password and bucket it
has four workers write and read back a few dozen keys each, about 25 times a second, two of them durably to a majority. It
says, a JSON object per line, `ready`; every `error`, with when the operation began and ended; everything `wrong`, which is
a read that finds neither what was acknowledged last nor what was left in doubt since; and `done`, after the end of its input
and one more reading of all keys.

Of an operation that fails or is slow beyond that, it is said whether its client or a server was kept from the processor meanwhile, or the
server has paused: on an overloaded machine all three look the same to the client.

Errors are allowed from a kill until the failover, and for as long as it takes to hear of that. Nothing durable is ever
wrong; nothing is, but for what was acknowledged right before a kill, by one node.
"""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

from install import InstallError, steady_commands
from settee.cluster import Cluster
from settee.node import PASSWORD, USERNAME, scratch, tail
from starvation import Watch, cause

BUCKET = "steady"
NODES, MEMBERS, REPLICAS = 4, 3, 2
CALM_SECONDS = 2.0
# From the kill to the failover by hand: an administrator who looks twice.
HESITATION_SECONDS = 2.0
# How long a node is silent before the cluster fails it over: long enough for a busy machine not to be taken for a dead one.
AUTO_FAILOVER_SECONDS = 3
# The longest that SDKs may take to notice that the map has changed; they ask for it every 2.5 s if they are not told.
NOTICE_SECONDS = 5.0
# Acknowledged so long before the kill, a plain write is on other nodes.
REPLICATION_SECONDS = 1.0
READY_SECONDS = 60.0
DONE_SECONDS = 60.0
SHOWN = 3
# So much of the beginning and of the end of an SDK's text.
TEXT_CHARACTERS = 100


def now():
    return int(time.time() * 1000)


class Client:
    """A steady client's process, and all that it has said."""

    def __init__(self, name, command, seeds, log):
        self.name, self.log = name, log
        self.said = {"ready": [], "error": [], "wrong": [], "done": []}
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                [*command, ",".join(seeds), USERNAME, PASSWORD, BUCKET],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self):
        for line in self.process.stdout:
            try:
                told = json.loads(line)
                self.said[told["what"]].append(told)
            except (json.JSONDecodeError, KeyError, TypeError):
                # An SDK that logs where programs answer.
                continue

    def wait_ready(self):
        until = time.monotonic() + READY_SECONDS
        while not self.said["ready"]:
            if time.monotonic() > until or self.process.poll() is not None:
                self.give_up("does not get ready")
            time.sleep(0.05)

    def finish(self):
        self.process.stdin.close()
        try:
            code = self.process.wait(DONE_SECONDS)
        except subprocess.TimeoutExpired:
            code = "no end"
        self.listener.join(5)
        if code != 0 or not self.said["done"]:
            self.give_up(f"ended with {code}, and has {'' if self.said['done'] else 'not '}come to its end")

    def give_up(self, why):
        print(f"-- what {self.name} said beside its answers ({self.log}):\n{tail(self.log)}")
        raise SystemExit(f"{self.name} {why}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Window:
    """When errors are allowed because of a kill, and which acknowledgements it may undo. Until it is known when the failover was,
    it has no end."""

    def __init__(self):
        self.killed = now()
        self.failed_over = self.heard = float("inf")

    def ends(self):
        self.failed_over = now()
        self.heard = self.failed_over + NOTICE_SECONDS * 1000
        time.sleep(NOTICE_SECONDS)

    def allows(self, error):
        return error["at"] >= self.killed and error["began"] <= self.heard

    def undoes(self, wrong):
        early = self.killed - REPLICATION_SECONDS * 1000
        return wrong["kind"] == "plain" and early <= wrong["acknowledged"] <= self.heard


def step(name, action):
    began = time.monotonic()
    action()
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    time.sleep(CALM_SECONDS)


def change(cluster):
    """Everything that is done to the cluster. The windows of the kills."""
    first, leaves, dies, comes = cluster.nodes
    windows = []

    def take_in():
        cluster.add(comes)
        cluster.rebalance()

    def swap():
        cluster.wait("it is nobody's", lambda: leaves.rest.request("GET", "/pools/default").status == 404, 30)
        cluster.add(leaves)
        cluster.rebalance(remove=[comes])

    def kill():
        windows.append(Window())
        dies.kill()
        time.sleep(HESITATION_SECONDS)
        cluster.fail_over(dies)
        windows[-1].ends()

    def kill_unseen():
        cluster.auto_failover(True, timeout=AUTO_FAILOVER_SECONDS)
        time.sleep(CALM_SECONDS)
        windows.append(Window())
        first.kill()
        cluster.wait_member(first, clusterMembership="inactiveFailed")
        windows[-1].ends()
        cluster.auto_failover(False)

    def come_back(node, kind):
        if not node.alive():
            node.start()
        cluster.wait_member(node, status="healthy")
        cluster.recover(node, kind)
        cluster.rebalance()

    step("calm", lambda: time.sleep(CALM_SECONDS))
    step("a node is added and rebalanced in", take_in)
    step("a node is rebalanced out", lambda: cluster.rebalance(remove=[leaves]))
    step("it is swapped for another", swap)
    step("a node is killed and failed over", kill)
    step("it comes back", lambda: come_back(dies, "delta"))
    step("a node is failed over gracefully", lambda: cluster.fail_over(leaves, graceful=True))
    step("it comes back", lambda: come_back(leaves, "delta"))
    step("a node is killed, and the cluster fails it over", kill_unseen)
    step("it comes back with nothing", lambda: come_back(first, "full"))
    return windows


def why(complaint, client, watch, nodes):
    """What the kernel says of the time that an operation took."""
    began, ended = complaint.get("began"), complaint["at"]
    if began is None:
        return "not known when it began"
    waited = [watch.longest(node, began, ended) for node in nodes]
    # One that was not running did not wait.
    servers = max((time for time in waited if time is not None), default=None)
    return cause(ended - began, watch.longest(client.name, began, ended), servers)


def judged(client, windows, watch, nodes):
    """Says how this client fared. The first of what it has to complain about, in words."""
    errors = [error for error in client.said["error"] if not any(window.allows(error) for window in windows)]
    wrong = [wrong for wrong in client.said["wrong"] if not any(window.undoes(wrong) for window in windows)]
    allowed = [[error for error in client.said["error"] if window.allows(error)] for window in windows]
    undone = len(client.said["wrong"]) - len(wrong)
    operations = client.said["done"][0]["operations"]
    told = "; ".join(
        f"{len(of_kill)} errors, the last {max((error['at'] - window.killed for error in of_kill), default=0) / 1000:.1f} s "
        "after a kill"
        for window, of_kill in zip(windows, allowed, strict=True)
    )
    print(
        f"{client.name}: {operations} writes and reads; {told}; {undone} plain writes undone by them; "
        f"{len(errors)} other errors, {len(wrong)} wrong"
    )
    complaints = [] if operations else [f"{client.name}: no operations"]
    for complaint in (errors + wrong)[:SHOWN]:
        after = [complaint["at"] - window.killed for window in windows]
        told = f"{why(complaint, client, watch, nodes)}; {json.dumps(shortened(complaint))}"
        complaints.append(f"{client.name}: (ms after the kills: {after}) {told}")
    return complaints


def shortened(complaint):
    """The same, of a length that a summary of failures shows whole: an SDK says first what failed and last why."""
    text = complaint.get("text", "")
    if len(text) <= 2 * TEXT_CHARACTERS:
        return complaint
    return {**complaint, "text": f"{text[:TEXT_CHARACTERS]} ... {text[-TEXT_CHARACTERS:]}"}


def main():
    try:
        commands = steady_commands(sys.argv[1:])
    except InstallError as error:
        sys.exit(str(error))
    folder = scratch("steady")
    with Cluster(os.environ["SETTEE_ADDRESS"], folder, NODES).form(members=MEMBERS) as cluster:
        cluster.rest.create_bucket(BUCKET, replicas=REPLICAS)
        cluster.wait_healthy(BUCKET)
        seeds = cluster.addresses[:MEMBERS]
        with ExitStack() as stack:
            clients = [
                stack.enter_context(Client(name, command, seeds, folder / f"{name}.log"))
                for name, command in commands.items()
            ]
            for client in clients:
                client.wait_ready()
            nodes = {node.address: node for node in cluster.nodes}

            def pids():
                running = {name: node.process.pid for name, node in nodes.items() if node.alive()}
                return running | {client.name: client.process.pid for client in clients}

            watch = stack.enter_context(Watch(pids))
            windows = change(cluster)
            for client in clients:
                client.finish()
        complaints = [complaint for client in clients for complaint in judged(client, windows, watch, nodes)]
        # At the end, where what went well does not bury them; then the exit code is 1.
        sys.exit("\n".join(complaints) or None)


if __name__ == "__main__":
    main()
