"""A network of a cluster's own, for root: a namespace per node, joined by a bridge that this process is on as well. Links between
nodes can be cut while clients still reach all of them.

A cut is a false entry in the sender's neighbour table: what it sends goes to nobody, silently, as on a broken network.
"""

import os
import subprocess

# Link-layer address that nobody has.
NOBODY = "02:00:00:00:00:fe"
LINK = "eth0"


class Network:
    """Of so many nodes. `remove` it when they have ended."""

    def __init__(self, count):
        self.name, self.nodes = f"sb{os.getpid()}", range(count)
        # Beside that of another process.
        self.subnet = f"10.214.{os.getpid() % 250}"
        try:
            self.make()
        except BaseException:
            self.remove()
            raise

    def make(self):
        bridge = f"{self.name}b"
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for node in self.nodes:
            inside, outside = self.namespace(node), f"{self.name}v{node}"
            ip("netns", "add", inside)
            ip("link", "add", outside, "type", "veth", "peer", "name", LINK, "netns", inside)
            ip("link", "set", outside, "master", bridge, "up")
            ip("-n", inside, "addr", "add", f"{self.address(node)}/24", "dev", LINK)
            ip("-n", inside, "link", "set", LINK, "up")
            ip("-n", inside, "link", "set", "lo", "up")

    def remove(self):
        """Whatever of it there is."""
        for node in self.nodes:
            ip("netns", "del", self.namespace(node), check=False)
        ip("link", "del", f"{self.name}b", check=False)

    def namespace(self, node):
        return f"{self.name}n{node}"

    def address(self, node):
        return f"{self.subnet}.{node + 1}"

    def launcher(self, node):
        """What runs a program at this node's end of the links."""
        return ["ip", "netns", "exec", self.namespace(node)]

    def cut_off(self, node):
        """Nothing gets from this node to another one, or from there to it, from now on."""
        for other in self.nodes:
            if other != node:
                self.cut(node, other)
                self.cut(other, node)

    def cut(self, sender, receiver):
        entry = ["neigh", "replace", self.address(receiver), "lladdr", NOBODY, "dev", LINK, "nud", "permanent"]
        ip("-n", self.namespace(sender), *entry)

    def heal(self):
        for node in self.nodes:
            ip("-n", self.namespace(node), "neigh", "flush", "dev", LINK, "nud", "permanent")


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if check and done.returncode != 0:
        raise SystemExit(f"ip {' '.join(words)}: {done.stderr.strip()} (network namespaces are for root, and need iproute2)")
