"""How hard pressed a bucket has been: the highest `ep_pressure_step` that its statistics told."""

import threading

from . import kv
from .node import PASSWORD, USERNAME

# From this step on mutations are held to what the disk takes.
PACING = 3


class PressureWatch:
    """Looks a few times a second while it is entered."""

    def __init__(self, node, bucket):
        self.node, self.bucket = node, bucket
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.begin()

    def begin(self):
        self.highest = 0

    def _run(self):
        while not self.ended.wait(0.2):
            try:
                with kv.Client(self.node.address, self.node.ports["kv"], USERNAME, PASSWORD, self.bucket) as client:
                    self.highest = max(self.highest, int(client.stats()["ep_pressure_step"]))
            except (kv.Closed, kv.Refused, OSError):
                pass  # killed just now

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
