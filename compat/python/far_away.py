"""A node, and a client of it that is far away. Every byte between them takes its time, in either direction. The client reads documents,
and tells the node over the same link how long that took, as it does with nothing set."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions, ClusterTimeoutOptions
from settee.mapped import Mapped
from settee.node import PASSWORD, USERNAME, Node, scratch

OWN, OUTSIDE = "127.0.31.90", "127.0.31.91"
KV, MGMT = 21211, 28092
BUCKET, OBJECTIVE = "far", "gets"
TRAVEL_SECONDS = 0.15
# A rule of an objective says nothing of less than a hundred.
READS = 120
READERS = 12
# A bound that clients' own histograms have. No read over the link is as fast; every one is on the node.
LIMIT_MS = 100


class FarAway:
    """See above. The client is at work from the beginning, and stays until the end."""

    def __enter__(self):
        self.took, self.failed, self.cluster, self.mapped = [], None, None, []
        self.node = Node(OWN, scratch("far-away"))
        self.node.__enter__()
        self.node.initialise()
        rest = self.node.rest
        rest.create_bucket(BUCKET)
        rest.ok("PUT", "/node/controller/setupAlternateAddresses/external", {"hostname": OUTSIDE, "kv": KV, "mgmt": MGMT})
        rest.ok("POST", "/settings/appTelemetry", {"enabled": "true", "scrapeIntervalSeconds": 60})
        objective = {"operation": "get", "latencyUs": LIMIT_MS * 1000, "targetPercent": 99}
        rest.ok("PUT", f"/settee/slo/{BUCKET}/{OBJECTIVE}", objective)
        self.mapped = [Mapped(OUTSIDE, KV, (OWN, 11210), TRAVEL_SECONDS), Mapped(OUTSIDE, MGMT, (OWN, 8091), TRAVEL_SECONDS)]
        self.worker = threading.Thread(target=self.work)
        self.worker.start()
        return self

    def work(self):
        try:
            self.read()
        except Exception as error:  # noqa: BLE001 (the test tells it)
            self.failed = error

    def read(self):
        timeouts = ClusterTimeoutOptions(kv_timeout=timedelta(seconds=20))
        options = ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD), timeout_options=timeouts)
        self.cluster = Cluster.connect(f"couchbase://{OUTSIDE}:{KV}?network=external", options)
        self.cluster.wait_until_ready(timedelta(seconds=30))
        collection = self.cluster.bucket(BUCKET).default_collection()
        collection.upsert("document", {"far": "away"})
        self.wait_until_counted()

        def read(_):
            begun = time.monotonic()
            collection.get("document")
            return (time.monotonic() - begun) * 1000

        with ThreadPoolExecutor(READERS) as readers:
            self.took = list(readers.map(read, range(READS)))

    def wait_until_counted(self):
        """An objective counts from the node's next look at its histograms on."""
        until = time.monotonic() + 30
        while f'settee_slo_events_total{{bucket="{BUCKET}"' not in self.node.rest.get("/metrics").text:
            assert time.monotonic() < until, "the node does not count for the objective"
            time.sleep(0.2)

    def finish_reading(self):
        """How many milliseconds each read took, as the caller of the client sees it."""
        self.worker.join()
        if self.failed is not None:
            raise self.failed
        return self.took

    def __exit__(self, *failure):
        self.worker.join()
        if self.cluster is not None:
            self.cluster.close()
        for mapped in self.mapped:
            mapped.close()
        return self.node.__exit__(*failure)
