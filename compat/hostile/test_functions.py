"""Functions of views that are published: each does its worst to one document, beside a client that reads documents.

Every function has to meet the limit that is its own, and says so among the errors of its view. Other views have all of their rows
meanwhile. How long a client's reads take beside each is printed, and not judged.
"""

import json
import threading
import time

from case import ADDRESS, ARENA, HEALTH, HostileCase, NODE, memory_kib
from settee import kv
from settee.node import PASSWORD, USERNAME
from settee.rest import Rest

VICTIM = "victim"
JSON = {"Content-Type": "application/json"}
ERRORS_SECONDS = 25
MEASURED_SECONDS = 1.0


def on_the_victim(statement):
    return f"function (d, m) {{ if (m.id == '{VICTIM}') {{ {statement} }} }}"


# A name, what is done to the victim, what the error has to say (None where it has none), and how many rows come of it. Each has a design
# document of its own.
FUNCTIONS = [
    ("loop", "for (;;) {}", "timeout", 0),
    ("recursion", "(function f() { return 1 + f(); })();", "Maximum call stack size exceeded", 0),
    ("memory", "var a = []; for (;;) a.push(new Uint8Array(10000000));", "out of memory", 0),
    ("regex", "/^(a+)+$/.test(Array(60).join('a') + 'b');", "timeout", 0),
    ("prototypes", "Object.prototype.toJSON = function () { throw 'games'; }; Array.prototype.push = null; JSON.stringify = null; emit({}, d);",
     "games", 0),
    ("65535-rows", "for (var i = 0; i < 65535; i++) emit(i, null);", None, 65_535),
    ("65536-rows", "for (var i = 0; i < 65536; i++) emit(i, null);", "too many keys emitted, maximum allowed is 65535", 0),
    # The key takes one byte, and the quotation marks two.
    ("1-MiB-row", "emit(1, Array(1048576 - 2).join('x'));", None, 1),
    ("larger-row", "emit(1, Array(1048576 - 1).join('x'));", "too much data emitted: 1048577 bytes", 0),
]


class Reads:
    """A client that reads one document after the other, and how long each read took."""

    def __enter__(self):
        self.took, self.failure, self.is_over = [], None, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.began = time.monotonic()
        self.thread.start()
        return self

    def run(self):
        try:
            with kv.Client(ADDRESS, NODE.ports["kv"], USERNAME, PASSWORD, HEALTH) as client:
                while not self.is_over.is_set():
                    began = time.perf_counter()
                    client.must("read", client.get(b"healthy"))
                    self.took.append(time.perf_counter() - began)
                    time.sleep(0.0005)
        except (OSError, kv.Closed, kv.Refused) as failure:
            self.failure = failure

    def __exit__(self, *_):
        time.sleep(max(0.0, MEASURED_SECONDS - (time.monotonic() - self.began)))
        self.is_over.set()
        self.thread.join()

    def told(self):
        took = sorted(self.took)
        p50, p99 = (1e3 * took[min(len(took) - 1, int(len(took) * share))] for share in (0.5, 0.99))
        return f"{len(took):6} reads, p50 {p50:.2f} ms, p99 {p99:.2f} ms"


class Published(HostileCase):
    def setUp(self):
        super().setUp()
        # The document that is read.
        self.assert_healthy()
        self.views = Rest(ADDRESS, NODE.ports["capi"], USERNAME, PASSWORD, timeout=60.0)
        with kv.Client(ADDRESS, NODE.ports["kv"], USERNAME, PASSWORD, ARENA) as client:
            for number in range(200):
                client.must("store", client.set(b"good-%d" % number, b'{"n":1}'))
            client.must("store", client.set(VICTIM.encode(), b'{"n":1}'))
        self.good = "function (d, m) { if (m.id.indexOf('good-') == 0) emit(m.id, d.n); }"
        self.put("good", {"v": {"map": self.good, "reduce": "_sum"}})

    def put(self, name, views):
        stored = self.views.request("PUT", f"/{ARENA}/_design/{name}", body=json.dumps({"views": views}), headers=JSON)
        self.assertEqual(stored.status, 201, stored.text)

    def rows(self, name, view, query):
        answer = self.views.request("GET", f"/{ARENA}/_design/{name}/_view/{view}?{query}&connection_timeout=20000")
        self.assertEqual(answer.status, 200, f"{name}: {answer.text[:300]}")
        self.assertNotIn("errors", answer.json, name)
        return answer.json

    def errors(self, name):
        """Reasons by document. Others leave documents in this bucket that no function can read, which is no matter of this one's."""
        told = self.views.get(f"/{ARENA}/_design/{name}/_errors").json["views"].get("v", {"last": []})["last"]
        return {one["id"]: one["reason"] for one in told}

    def wait_for_error(self, name, text):
        """The limit that a function meets with the victim, and with no other document."""
        deadline = time.monotonic() + ERRORS_SECONDS
        while VICTIM not in (errors := self.errors(name)):
            self.assertLess(time.monotonic(), deadline, f"{name} met no limit: {errors}")
            time.sleep(0.1)
        self.assertIn(text, errors.pop(VICTIM), name)
        self.assertEqual({document: reason for document, reason in errors.items() if text in reason}, {}, name)

    def hurt(self, name, statement, text, rows):
        """Publishes a function, and holds everybody against what they are promised."""
        evil = f"evil-{name}"
        with Reads() as reads:
            self.put(evil, {"v": {"map": on_the_victim(statement)}})
            began = time.monotonic()
            self.assertEqual(self.rows("good", "v", "stale=false")["rows"], [{"key": None, "value": 200}], name)
            answered = time.monotonic() - began
            if text is not None:
                self.wait_for_error(evil, text)
            # The document is skipped, and the index goes on.
            self.assertEqual(self.rows(evil, "v", "stale=false&limit=1")["total_rows"], rows, name)
        self.assertIsNone(reads.failure, name)
        self.assertEqual(VICTIM in self.errors(evil), text is not None, name)
        self.views.ok("DELETE", f"/{ARENA}/_design/{evil}")
        print(f"{name:12} {reads.told()}; another view answered in {answered:.2f} s", flush=True)

    def test_each_function_meets_its_limit_beside_readers_and_other_views(self):
        self.rows("good", "v", "stale=false")
        before = memory_kib(self.pid)
        print()
        for _ in range(2):
            with Reads() as reads:
                pass
            self.assertIsNone(reads.failure)
            print(f"{'without':12} {reads.told()}", flush=True)
        for function in FUNCTIONS:
            self.hurt(*function)
        self.assertLess((memory_kib(self.pid) - before) // 1024, 256, "functions have their memory elsewhere")
        errors = self.errors("good")
        self.assertEqual([document for document in errors if document == VICTIM or document.startswith("good-")], [], errors)
        self.views.ok("DELETE", f"/{ARENA}/_design/good")
