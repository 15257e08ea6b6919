"""Several `settee serve` processes that form one cluster, each on a loopback address with the standard ports.

What tests do to nodes is here: kill -9, stop for a while (SIGSTOP), start again, add, remove, fail over, rebalance, and
wait until the cluster says what it should. REST goes to any node that answers, as administrators do it; nothing here
knows who leads.
"""

import signal
import time
from pathlib import Path

from . import documents, kv
from .node import PASSWORD, USERNAME, Node
from .rest import RestError

REBALANCE_SECONDS = 300.0
STOP_SECONDS = 30.0


def is_stopped(task):
    """Whether a thread, by its folder in /proc, runs no more until SIGCONT. One that has ended does not run either."""
    try:
        state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return True
    return state in "TtZX"


class ClusterNode(Node):
    """A node that can be stopped for a while."""

    paused = False
    # What it asks for before it is part of a cluster.
    login = ("", "")

    def give_login(self):
        """It is set up from its first start on; of one that is not, only its own machine may do that."""
        self.login = (USERNAME, PASSWORD)
        self.environment = {"SETTEE_INIT_USERNAME": USERNAME, "SETTEE_INIT_PASSWORD": PASSWORD}

    def initialise(self, **changes):
        if all(self.login):
            self.rest.ok("POST", "/pools/default", changes)
            return self
        return super().initialise(**changes)

    def pause(self):
        """SIGSTOP: it is there, and says nothing.

        Comes back when all of its threads have stopped. On a busy machine, others go on for a while after one has the signal.
        """
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while not all(is_stopped(task) for task in Path(f"/proc/{self.process.pid}/task").iterdir()):
            assert time.monotonic() < deadline, f"{self.address} does not stop"
            time.sleep(0.002)
        self.paused = True

    def resume(self):
        self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self):
        super().kill()
        self.paused = False

    @property
    def name(self):
        """How REST's changes name it."""
        return f"ns_1@{self.address}"


class Cluster:
    """`count` nodes on the addresses from `first` on (its last number counts up), their data below `directory`."""

    def __init__(self, first, directory, count, options=()):
        head, last = first.rsplit(".", 1)
        self.directory = directory
        self.options = options
        self.addresses = [f"{head}.{int(last) + number}" for number in range(count)]
        self.nodes = [ClusterNode(address, directory / address, options) for address in self.addresses]
        for node in self.nodes:
            node.directory.mkdir(parents=True, exist_ok=True)

    def __getitem__(self, index):
        return self.nodes[index]

    def form(self, members=None, **settings):
        """Starts every node, and makes the first `members` of them one balanced cluster. The others stay as they are:
        running, and nobody's."""
        for node in self.nodes:
            node.start()
        self.nodes[0].initialise(**settings)
        for node in self.nodes[1:members]:
            self.add(node)
        if len(self.nodes[:members]) > 1:
            self.rebalance()
        return self

    # REST

    @property
    def rest(self):
        """The REST interface of a node that runs."""
        return self.any_node().rest

    def any_node(self, but=()):
        return next(node for node in self.nodes if node.alive() and not node.paused and node not in but)

    def pool(self):
        return self.rest.get("/pools/default").json

    def members(self):
        """What the cluster says of its nodes, by address."""
        return {node["configuredHostname"].rsplit(":", 1)[0]: node for node in self.pool()["nodes"]}

    def names(self):
        return [member["otpNode"] for member in self.members().values()]

    def map(self, bucket):
        """The addresses of each vBucket's copies, the active one first; None where there is none."""
        told = self.rest.get(f"/pools/default/b/{bucket}").json["vBucketServerMap"]
        hosts = [server.rsplit(":", 1)[0] for server in told["serverList"]]
        return [[hosts[node] if node >= 0 else None for node in chain] for chain in told["vBucketMap"]]

    # Changes

    def add(self, node, group=None):
        """Adds a running node that is nobody's."""
        path = "/controller/addNode"
        if group is not None:
            groups = self.rest.get("/pools/default/serverGroups").json["groups"]
            path = next(known["addNodeURI"] for known in groups if known["name"] == group)
        user, password = node.login
        form = {"hostname": f"http://{node.address}:8091", "user": user, "password": password, "services": "kv"}
        self.rest.ok("POST", path, form)

    def start_rebalance(self, remove=(), **more):
        form = {"knownNodes": ",".join(self.names()), "ejectedNodes": ",".join(node.name for node in remove), **more}
        self.rest.ok("POST", "/controller/rebalance", form)

    def rebalance(self, remove=(), timeout=REBALANCE_SECONDS):
        self.start_rebalance(remove)
        self.wait_rebalanced(timeout)

    def stop_rebalance(self):
        self.rest.ok("POST", "/controller/stopRebalance", {"allowUnsafe": "true"})

    def fail_over(self, *nodes, graceful=False, **more):
        form = [("otpNode", node.name) for node in nodes] + list(more.items())
        path = "/controller/startGracefulFailover" if graceful else "/controller/failOver"
        self.rest.ok("POST", path, form)
        if graceful:
            self.wait_rebalanced()

    def recover(self, node, kind="delta"):
        # Nodes that were failed over take no changes.
        said = self.members()
        failed = [one for one in self.nodes if said.get(one.address, {}).get("clusterMembership") == "inactiveFailed"]
        asked = self.any_node(but=[node, *failed])
        asked.rest.ok("POST", "/controller/setRecoveryType", {"otpNode": node.name, "recoveryType": kind})

    def auto_failover(self, enabled, timeout=30, max_count=1):
        form = {"enabled": "true" if enabled else "false"}
        if enabled:
            form |= {"timeout": timeout, "maxCount": max_count}
        self.rest.ok("POST", "/settings/autoFailover", form)

    # Waiting

    def task(self):
        """The rebalance as `tasks` shows it."""
        tasks = self.rest.get("/pools/default/tasks").json
        return next(task for task in tasks if task["type"] == "rebalance")

    def wait_rebalanced(self, timeout=REBALANCE_SECONDS):
        """Until no rebalance runs; one that failed is an error."""

        def ended():
            task = self.task()
            if "errorMessage" in task:
                raise RestError(task["errorMessage"])
            return task["status"] == "notRunning" and not task["statusIsStale"]

        self.wait("the rebalance ends", ended, timeout)

    def wait_members(self, timeout=60.0, **expected):
        """Until every node of the cluster has these fields, `status="healthy"` say."""

        def all_are():
            return all(member[field] == value for member in self.members().values() for field, value in expected.items())

        self.wait(f"every member has {expected}", all_are, timeout)

    def wait_member(self, node, timeout=60.0, **expected):
        """Until the cluster says so of one node."""

        def it_is():
            member = self.members().get(node.address)
            return member is not None and all(member[field] == value for field, value in expected.items())

        self.wait(f"{node.address} has {expected}", it_is, timeout)

    def wait_healthy(self, bucket=None, timeout=60.0):
        """Until all nodes are healthy, and serve the bucket."""
        self.wait_members(timeout, status="healthy")
        if bucket is not None:
            self.rest.wait_healthy(bucket, timeout)

    def wait_replicated(self, bucket, timeout=60.0):
        """Until every replica has what the active copies have now; monotonic seconds of a moment up to which all that was
        written is on replicas. The bucket has to have some, and none is on its way."""
        moment = time.monotonic()

        def seqnos(state):
            found = {}
            for address in self.members():
                node = next(node for node in self.nodes if node.address == address)
                with documents.connect(node, bucket) as client:
                    for vb, seqno in documents.high_seqnos(client, state=state).items():
                        found.setdefault(vb, []).append(seqno)
            return found

        wanted = seqnos(kv.ACTIVE)
        chains = self.map(bucket)

        def all_have():
            have = seqnos(kv.REPLICA)
            return all(
                len(have.get(vb, [])) == len(chain) - 1 and min(have[vb]) >= wanted[vb][0]
                for vb, chain in enumerate(chains)
            )

        self.wait("the replicas have everything", all_have, timeout)
        return moment

    def wait(self, what, condition, timeout):
        """Until something is so. Nodes may be in the middle of anything: no answer means not yet."""
        until = time.monotonic() + timeout
        last = None
        while time.monotonic() < until:
            try:
                if condition():
                    return
                last = None
            except OSError as error:
                last = error
            time.sleep(0.05)
        raise RestError(f"not within {timeout} s: {what} ({last or self.describe()})")

    def describe(self):
        """Everything that says why something is not so."""
        try:
            pool = self.pool()
            nodes = [(n["hostname"], n["status"], n["clusterMembership"]) for n in pool["nodes"]]
            return f"nodes {nodes}, balanced {pool['balanced']}, {self.task()}"
        except (OSError, RestError, StopIteration) as error:
            return f"no node answers: {error}"

    # The end

    def stop(self):
        """Stops every node that runs, cleanly; a node that panicked is an error."""
        for node in self.nodes:
            if node.paused:
                node.resume()
            if node.alive():
                node.stop()

    def kill(self):
        for node in self.nodes:
            node.kill()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        else:
            self.kill()


__all__ = ["PASSWORD", "USERNAME", "Cluster", "ClusterNode"]
