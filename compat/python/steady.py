"""A steady client on the official Python SDK: see compat/steady/run.py for what such a client does and says."""

import json
import sys
import threading
import time
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException
from couchbase.options import ClusterOptions, UpsertOptions

WORKERS, KEYS, PAUSE = 4, 50, 0.02
MAJORITY = UpsertOptions(durability=ServerDurability(Durability.MAJORITY))
mouth = threading.Lock()


def say(**what):
    with mouth:
        print(json.dumps(what), flush=True)


def now():
    return int(time.time() * 1000)


class Worker(threading.Thread):
    """Writes its own keys one after the other and reads each back; every other worker writes durably."""

    def __init__(self, collection, number, over):
        super().__init__()
        self.collection, self.over = collection, over
        self.kind = "durable" if number % 2 else "plain"
        self.keys = [f"python-{number}-{key}" for key in range(KEYS)]
        # By key: what was acknowledged and when, and what may have been written since.
        self.known = {key: (None, 0, set()) for key in self.keys}
        self.done = 0

    def run(self):
        while not self.over.is_set():
            key = self.keys[self.done % KEYS]
            self.done += 1
            self.write(key, self.done)
            self.read(key)
            time.sleep(PAUSE)

    def attempt(self, what, key, action):
        """The action's result; None after an error, which is told."""
        began = now()
        try:
            return action()
        except CouchbaseException as error:
            say(what="error", kind=self.kind, op=what, key=key, began=began, at=now(), text=repr(error)[:300])
            return None

    def write(self, key, number):
        options = [MAJORITY] if self.kind == "durable" else []
        value, since, doubts = self.known[key]
        if self.attempt("write", key, lambda: self.collection.upsert(key, number, *options)):
            self.known[key] = (number, now(), set())
        else:
            doubts.add(number)

    def read(self, key):
        def found():
            try:
                return (self.collection.get(key).content_as[int],)
            except DocumentNotFoundException:
                return (None,)

        answer = self.attempt("read", key, found)
        value, since, doubts = self.known[key]
        if answer and answer[0] != value and answer[0] not in doubts:
            say(what="wrong", kind=self.kind, key=key, acknowledged=since, expected=value, found=answer[0], at=now())
            # Told once: from here on this is what it is.
            self.known[key] = (answer[0], now(), doubts)


def main():
    seeds, username, password, bucket = sys.argv[1:]
    cluster = Cluster.connect(f"couchbase://{seeds}", ClusterOptions(PasswordAuthenticator(username, password)))
    cluster.wait_until_ready(timedelta(seconds=20))
    collection = cluster.bucket(bucket).default_collection()
    over = threading.Event()
    workers = [Worker(collection, number, over) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    say(what="ready")
    # Until the end of the input.
    sys.stdin.read()
    over.set()
    for worker in workers:
        worker.join()
        for key in worker.keys:
            worker.read(key)
    say(what="done", operations=sum(worker.done for worker in workers))
    cluster.close()


if __name__ == "__main__":
    main()
