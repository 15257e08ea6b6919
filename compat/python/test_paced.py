"""More writes than the disk takes, from a client as it comes: the server holds them back so far that it never notices.

The disk is throttled, the bucket has the least memory there can be, and no timeout is set. What the SDK tries again by
itself (temporary failures) is its own affair; what reaches the application is not.
"""

import os
import threading
import time
from datetime import timedelta

import couchbase.subdocument as SD
from conftest import PASSWORD, USERNAME
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions, GetOptions, UpsertOptions
from couchbase.transcoder import RawBinaryTranscoder
from settee.node import Node, scratch
from settee.pressure import PACING, PressureWatch

OWN_ADDRESS = "127.0.31.16"
BYTES_PER_SECOND = 4_000_000
WRITERS = 24
VALUE_BYTES = 10_000
SECONDS = 12
RAW = RawBinaryTranscoder()


class Loop(threading.Thread):
    """Does something over and over; what the client raised is in `failures`."""

    def __init__(self, action, stopping):
        super().__init__(daemon=True)
        self.action, self.stopping = action, stopping
        self.done, self.failures = 0, []

    def run(self):
        while not self.stopping.is_set():
            try:
                self.action(self.done)
            except CouchbaseException as error:
                self.failures.append(error)
            self.done += 1


def test_an_overloaded_disk_is_no_error(key):
    with Node(OWN_ADDRESS, scratch("paced"), ["--disk-bytes-per-sec", BYTES_PER_SECOND]) as node:
        node.initialise()
        node.rest.create_bucket("main", quota_mb=100)
        cluster = Cluster.connect(
            f"couchbase://{OWN_ADDRESS}", ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD))
        )
        cluster.wait_until_ready(timedelta(seconds=10))
        collection = cluster.bucket("main").default_collection()
        for number in range(2000):
            collection.upsert(f"{key}-old-{number}", {"n": number})

        def write(writer):
            def action(count):
                value = os.urandom(VALUE_BYTES)
                collection.upsert(f"{key}-{writer}-{count}", value, UpsertOptions(transcoder=RAW))

            return action

        def read_and_remove(count):
            name = f"{key}-old-{count % 2000}"
            if count < 2000:
                assert collection.get(name).content_as[dict] == {"n": count}
                assert collection.lookup_in(name, [SD.get("n")]).content_as[int](0) == count
                collection.remove(name)
            time.sleep(0.005)

        stopping = threading.Event()
        writers = [Loop(write(number), stopping) for number in range(WRITERS)]
        beside = Loop(read_and_remove, stopping)
        with PressureWatch(node, "main") as watch:
            for loop in [*writers, beside]:
                loop.start()
            time.sleep(SECONDS)
            stopping.set()
            for loop in [*writers, beside]:
                loop.join()
        assert watch.highest >= PACING, "the disk kept up: nothing was tested"
        assert [failure for loop in [*writers, beside] for failure in loop.failures] == []
        assert beside.done > 0
        print(sum(loop.done for loop in writers), "written,", beside.done, "read and removed beside")
        for number, loop in enumerate(writers):
            for count in (0, loop.done - 1):
                read = collection.get(f"{key}-{number}-{count}", GetOptions(transcoder=RAW))
                assert len(read.content_as[bytes]) == VALUE_BYTES
        cluster.close()
