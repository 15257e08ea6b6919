"""Plain memcached clients at work through port 11211 of one node each, and what to make of what they saw.

A writer is the only one that writes its keys, one request after the other, and keeps what it asked and heard. `judge` says
afterwards what of that was wrong. What a client is promised: it reads what it was last acknowledged, or what it was left in
doubt of since. A kill -9 takes part of that back, of the documents whose active copy was on the node that was killed, since a
plain write is acknowledged before it is on other nodes: they may be back at any value they had since it was known that
everything was replicated. The first read after the kill says which that is; from then on the promise is as before.
"""

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import bmemcached
from bmemcached.exceptions import MemcachedException
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

# Of each writer: some of every vBucket's.
KEYS = 150
# Longer than a node looks for the owner of a document, so that what is left in doubt is over when the client hears of it.
TIMEOUT_SECONDS = 10
PAUSE_SECONDS = 0.002
PAUSE_AFTER_FAILURE_SECONDS = 0.1
# An answer of a node that is dead by now has been read so long after.
ACKNOWLEDGEMENT_SECONDS = 1.5


class Failed(Exception):
    """The client has not learnt what it asked for, or whether it was done."""


class Library:
    """A client library, whose errors come out as `Failed`."""

    client: object
    errors: type[Exception]

    def ask(self, request, *arguments):
        try:
            return request(*arguments)
        except (self.errors, OSError) as error:
            raise Failed(repr(error)) from None

    def set(self, key, value):
        if not self.ask(self.client.set, key, value):
            raise Failed("not stored")


class Text(Library):
    """pymemcache."""

    errors = MemcacheError

    def __init__(self, node):
        self.client = Client(
            (node.address, 11211), timeout=TIMEOUT_SECONDS, connect_timeout=TIMEOUT_SECONDS, default_noreply=False
        )

    def get(self, key):
        found = self.ask(self.client.get, key)
        return None if found is None else found.decode()

    def close(self):
        self.client.close()


class Binary(Library):
    """python-binary-memcached."""

    errors = MemcachedException

    def __init__(self, node):
        self.client = bmemcached.Client((f"{node.address}:11211",), socket_timeout=TIMEOUT_SECONDS)
        # Or it leaves a node alone for five seconds that it could not reach once.
        self.client.enable_retry_delay(False)

    def get(self, key):
        found = self.ask(self.client.get, key)
        # A lost connection looks like a document that is not there.
        if found is None and not all(server.connection for server in self.client.servers):
            raise Failed("disconnected")
        return found

    def close(self):
        self.client.disconnect_all()


PROTOCOLS = {"text": Text, "binary": Binary}


class Event(NamedTuple):
    """A request that has ended, times by the monotonic clock. A read's value is what it found."""

    what: str
    value: str | None
    began: float
    ended: float
    failure: str | None = None


@dataclass(frozen=True)
class Kill:
    """The kill -9 of a node."""

    at: float
    # Whatever was acknowledged by then was on other nodes as well.
    replicated: float

    def may_undo(self, write):
        return self.replicated < write.ended <= self.at + ACKNOWLEDGEMENT_SECONDS


def judge(events, kill=None):
    """One document's events, in order. `kill`: of the node that had its active copy. What was wrong, as (event, what it might
    have found), and how many acknowledged writes were undone."""
    known, doubts, older = None, set(), set()
    wrong, undone = [], 0
    for event in events:
        if event.what == "set" and event.failure is not None:
            doubts.add(event.value)
        elif event.what == "set":
            older = older | doubts | {known} if kill and kill.may_undo(event) else set()
            known, doubts = event.value, set()
        elif event.failure is None:
            # Nobody but the node that was killed answers before it is killed.
            allowed = {known} | doubts | (older if kill and event.ended > kill.at else set())
            if event.value not in allowed:
                wrong.append((event, sorted(map(str, allowed))))
            if event.value != known and event.value not in doubts:
                undone += 1
                # Told once: from here on this is what it is.
                known, older = event.value, set()
            elif kill and event.began > kill.at:
                known, older = event.value, set()
    return wrong, undone - len(wrong)


class Writer(threading.Thread):
    """Reads what the round before has left, writes, reads back, through one node until it is told to stop."""

    def __init__(self, protocol, node, prefix):
        super().__init__(daemon=True)
        self.protocol, self.node = protocol, node
        self.name = f"{protocol} through {node.address}"
        self.client = PROTOCOLS[protocol](node)
        self.keys = [f"{prefix}-{number}" for number in range(KEYS)]
        self.events = {key: [] for key in self.keys}
        self.stopping = threading.Event()
        self.rounds = self.written = 0
        self.stopped = float("inf")

    def run(self):
        while not self.stopping.is_set():
            for key in self.keys:
                if self.stopping.is_set():
                    return
                self.get(key)
                self.set(key, f"{key}={self.written}")
                self.written += 1
                failed = self.get(key).failure
                time.sleep(PAUSE_AFTER_FAILURE_SECONDS if failed else PAUSE_SECONDS)
            self.rounds += 1

    def set(self, key, value):
        return self._ask("set", key, lambda: self.client.set(key, value) or value, value)

    def get(self, key, client=None):
        return self._ask("get", key, lambda: (client or self.client).get(key))

    def _ask(self, what, key, action, value=None):
        began, failure = time.monotonic(), None
        try:
            value = action()
        except Failed as error:
            failure = str(error)
        event = Event(what, value, began, time.monotonic(), failure)
        self.events[key].append(event)
        return event

    def stop(self):
        self.stopping.set()
        self.join()
        self.stopped = time.monotonic()

    def read_all(self, protocol, node):
        """After its end: everything once more, through another client."""
        client = PROTOCOLS[protocol](node)
        for key in self.keys:
            self.get(key, client)
        client.close()

    def failures(self):
        return sorted(
            (event for events in self.events.values() for event in events if event.failure is not None),
            key=lambda event: event.ended,
        )

    def answered(self, since, until=float("inf")):
        """How much the writer asked and was answered between two moments."""
        until = min(until, self.stopped)
        every = (event for events in self.events.values() for event in events)
        return sum(event.failure is None and since < event.began and event.ended <= until for event in every)

    def judged(self, kill=None, undoable=lambda key: True):
        """What was wrong, and how many acknowledged writes were undone, of all documents. `undoable`: those that had their
        active copy on the node that was killed."""
        wrong, undone = [], 0
        for key, events in self.events.items():
            faults, lost = judge(events, kill if kill and undoable(key) else None)
            wrong += [(self.name, key, *fault) for fault in faults]
            undone += lost
        return wrong, undone


@contextmanager
def writing(nodes, prefix):
    """A writer of each protocol through each of these nodes, for as long as the block lasts."""
    writers = [
        Writer(protocol, node, f"{prefix}-{protocol}-{node.address}") for node in nodes for protocol in PROTOCOLS
    ]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stop()
