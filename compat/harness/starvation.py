"""Whether what was slow was kept from the processor, by what the kernel says of its threads.

A process on an overloaded machine stands still as one does that pauses: its peers cannot tell. The kernel can: it counts, per
thread, how long it was ready to run and waited for a processor (`/proc/PID/task/TID/schedstat`).
"""

import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

# How often processes are looked at: rarely enough not to be what they wait for.
LOOK_SECONDS = 0.25
# What waited for a processor for so much of the time was starved.
SHARE = 0.5
MS = 1_000_000


def waited_ms(pid):
    """How long each thread of a process has waited for a processor in its life, in milliseconds; none of one that is gone."""
    waited = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                waited[task.name] = int((task / "schedstat").read_text().split()[1]) / MS
            except (OSError, IndexError, ValueError):
                # A thread that has just ended.
                continue
    except OSError:
        pass
    return waited


class Watch:
    """Looks at processes until it is told to stop. `pids` says which there are, by name; asked at every look."""

    def __init__(self, pids):
        self.pids, self.looks = pids, []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join(5)

    def _run(self):
        while not self.stopping.wait(LOOK_SECONDS):
            self.note(time.time() * 1000, {name: (pid, waited_ms(pid)) for name, pid in self.pids().items()})

    def note(self, at, seen):
        self.looks.append((at, seen))

    def longest(self, name, began, ended):
        """How long the thread of a process that waited longest has waited between two moments; None if nobody has looked."""
        times = [at for at, _ in self.looks]
        first, last = bisect_right(times, began) - 1, bisect_left(times, ended)
        if first < 0 or last >= len(times):
            return None
        (pid, before), (later, after) = (self.looks[look][1].get(name, (None, {})) for look in (first, last))
        if pid is None or pid != later:
            return None
        return max((waited - before.get(thread, 0) for thread, waited in after.items()), default=None)


def cause(took, client, server):
    """In words: what an operation of a client was that took so long, whose threads waited so long for a processor."""
    told = f"of {took:.0f} ms, threads of the client waited for a processor for {words(client)}, of the servers for {words(server)}"
    if client is None or server is None:
        return f"not known whether starvation or a pause ({told})"
    if client >= took * SHARE:
        return f"the client was starved, not the server slow ({told})"
    if server >= took * SHARE:
        return f"a server was starved: it did not pause by itself ({told})"
    return f"a pause of the server: processors were to be had ({told})"


def words(waited):
    return "an unknown time" if waited is None else f"{waited:.0f} ms"
