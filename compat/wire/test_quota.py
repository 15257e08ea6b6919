"""Quotas of buckets that hold something, changed over REST while they serve."""

import re

from case import REST, WireCase, client, eventually
from settee import kv

MIB = 1024 * 1024
DOCUMENTS = 150
# With headroom of 12 %, and 85 % of it in use, a quota of so many holds them and what comes with them.
NEEDED_MIB = range(DOCUMENTS * 112 // 85, DOCUMENTS * 112 // 85 + 30)


class Quotas(WireCase):
    def filled(self, kind, **more):
        """A bucket of 256 MiB with 150 documents of one."""
        name = f"quota-{kind}"
        REST.create_bucket(name, quota_mb=256, kind=kind, **more)
        self.addCleanup(REST.delete_bucket, name)
        connection = client(bucket=name)
        self.addCleanup(connection.close)
        for number in range(DOCUMENTS):
            # A slow disk may have it refused for a moment.
            eventually(lambda: connection.set(f"document-{number}".encode(), self.value(number)).status == kv.OK)
        # What REST decides by may be a second old.
        eventually(lambda: self.shown(name)["basicStats"]["memUsed"] >= DOCUMENTS * MIB)
        return name, connection

    @staticmethod
    def value(number):
        return number.to_bytes(4, "big") * (MIB // 4)

    @staticmethod
    def shown(name):
        return REST.get(f"/pools/default/buckets/{name}").json

    @staticmethod
    def change(name, quota_mb, query=""):
        return REST.request("POST", f"/pools/default/buckets/{name}{query}", {"ramQuotaMB": quota_mb})

    def test_a_cut_that_would_not_fit_is_refused_with_the_reason_unless_forced(self):
        # Nothing of it can leave memory.
        name, connection = self.filled("ephemeral", evictionPolicy="noEviction")
        refused = self.change(name, 128)
        self.assertEqual(refused.status, 400, refused.text)
        reason = refused.json["errors"]["ramQuotaMB"]
        self.assertRegex(reason, r"^RAM quota cannot be set below current usage\. ")
        self.assertIn(int(re.search(r"needs a quota of (\d+) MiB", reason)[1]), NEEDED_MIB)
        self.assertEqual(self.shown(name)["quota"]["rawRAM"], 256 * MIB)
        self.assertEqual(connection.stats()["ep_max_size"], str(256 * MIB))

        self.assertEqual(self.change(name, 128, "?ignore_warnings=1").status, 200)
        eventually(lambda: connection.stats()["ep_max_size"] == str(128 * MIB))
        self.assertEqual(connection.set(b"more", b"x" * MIB).status, kv.TEMPORARY_FAILURE)
        self.assertEqual(connection.get(b"document-7").value, self.value(7), "what is there is served")
        for number in range(DOCUMENTS // 2):
            connection.must("delete", connection.delete(f"document-{number}".encode()))
        self.assertEqual(connection.set(b"more", b"x" * MIB).status, kv.OK, "deletions make room")
        self.assertEqual(self.change(name, 256).status, 200)

    def test_a_cut_below_what_is_used_takes_values_out_of_memory(self):
        name, connection = self.filled("couchbase", evictionPolicy="valueOnly")
        self.assertEqual(self.change(name, 100).status, 200)

        def fits():
            stats = connection.stats()
            return int(stats["mem_used"]) <= int(stats["ep_mem_high_wat"]) <= 85 * MIB

        eventually(fits)
        for number in range(DOCUMENTS):
            self.assertEqual(connection.get(f"document-{number}".encode()).value, self.value(number))
        self.assertEqual(connection.set(b"more", b"x" * MIB).status, kv.OK)
