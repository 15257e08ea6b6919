"""Range scans, status by status."""

import json
import struct
import time
import uuid

from case import ADDRESS, BUCKET, REST, WireCase, client
from settee import kv, range_scan, subdoc
from settee.range_scan import between, cancel, create, drain, resume

FEATURES = (*kv.Client.FEATURES, kv.F_COLLECTIONS)


class ScanCase(WireCase):
    """A collection of its own, and keys of one vBucket in it."""

    FEATURES = FEATURES

    def setUp(self):
        super().setUp()
        self.name = f"scan{uuid.uuid4().hex[:12]}"
        self.base = f"/pools/default/buckets/{BUCKET}/scopes/_default/collections"
        REST.ok("POST", self.base, {"name": self.name})
        self.addCleanup(REST.request, "DELETE", f"{self.base}/{self.name}")
        self.cid = self.collection_id()
        self.vb = 500
        all_keys = (b"key-%06d" % number for number in range(1 << 20))
        of_vb = (key for key in all_keys if kv.vbucket_of(key) == self.vb)
        self.keys = [next(of_vb) for _ in range(30)]

    def collection_id(self):
        path = f"_default.{self.name}".encode()
        deadline = time.monotonic() + 10
        while (response := self.client.call(kv.GET_CID, value=path)).status != kv.OK:
            self.assertLess(time.monotonic(), deadline)
        return struct.unpack(">QI", response.extras)[1]

    def encoded(self, key):
        prefix, number = b"", self.cid
        while number >= 0x80:
            prefix, number = prefix + bytes([number & 0x7F | 0x80]), number >> 7
        return prefix + bytes([number]) + key

    def put(self, key, value=None, flags=0, expiry=0, datatype=0):
        response = self.client.call(
            kv.SET, vb=self.vb, key=self.encoded(key), extras=struct.pack(">II", flags, expiry),
            value=value or key, datatype=datatype,
        )
        self.assertEqual(response.status, kv.OK, response.value)
        return response

    def fill(self):
        for key in self.keys:
            self.put(key)

    def config(self, **more):
        config = {"collection": f"{self.cid:x}", "range": between()}
        return {key: value for key, value in {**config, **more}.items() if value is not None}

    def created(self, **more):
        response = create(self.client, self.vb, **self.config(**more))
        self.assertEqual(response.status, kv.OK, response.value)
        self.assertEqual((len(response.value), response.extras, response.datatype), (16, b"", 0))
        return response.value

    def refused(self, status, vb=None, datatype=1, **more):
        vb = self.vb if vb is None else vb
        response = create(self.client, vb, datatype=datatype, **self.config(**more))
        self.assertEqual(response.status, status, response.value)
        return response


class Ranges(ScanCase):
    def test_keys_in_order(self):
        self.fill()
        found, times = drain(self.client, self.vb, self.created(key_only=True))
        self.assertEqual((found, times), (self.keys, 1))

    def test_documents(self):
        stored = [self.put(key, json.dumps({"key": key.decode()}).encode(), flags=7) for key in self.keys]
        found, _ = drain(self.client, self.vb, self.created())
        self.assertEqual([document.key for document in found], self.keys)
        for document, response in zip(found, stored, strict=True):
            self.assertEqual((document.cas, document.flags, document.expiry), (response.cas, 7, 0))
            self.assertEqual((document.datatype, document.seqno), (1, response.token[1]))
            self.assertEqual(json.loads(document.value), {"key": document.key.decode()})

    def test_bounds(self):
        self.fill()
        first, last = self.keys[4], self.keys[9]
        for names, expected in [
            (("start", "end"), self.keys[4:10]),
            (("excl_start", "end"), self.keys[5:10]),
            (("start", "excl_end"), self.keys[4:9]),
            (("excl_start", "excl_end"), self.keys[5:9]),
        ]:
            scan = self.created(range=between(first, last, *names), key_only=True)
            self.assertEqual(drain(self.client, self.vb, scan)[0], expected, names)
        prefix = self.keys[0][:8]
        scan = self.created(range=between(prefix, prefix + range_scan.LAST), key_only=True)
        expected = [key for key in self.keys if key.startswith(prefix)]
        self.assertEqual(drain(self.client, self.vb, scan)[0], expected)

    def test_an_empty_range(self):
        self.refused(kv.NOT_FOUND)
        self.fill()
        self.refused(kv.NOT_FOUND, range=between(b"x"))
        self.refused(kv.NOT_FOUND, vb=self.vb + 1)

    def test_samples(self):
        self.fill()
        sample = lambda seed, samples: drain(  # noqa: E731
            self.client, self.vb, self.created(range=None, sampling={"seed": seed, "samples": samples}, key_only=True)
        )[0]
        self.assertEqual(sample(1, 30), self.keys)
        self.assertEqual(sample(1, 1000), self.keys)
        self.assertEqual(sample(7, 15), sample(7, 15))
        self.assertLess(len(sample(7, 15)), 30)

    def test_the_state_of_its_creation(self):
        self.fill()
        scan = self.created()
        for key in self.keys:
            self.put(key, b"newer")
        found, _ = drain(self.client, self.vb, scan, items=7)
        self.assertEqual([document.value for document in found], self.keys)


class Limits(ScanCase):
    def test_items(self):
        self.fill()
        found, times = drain(self.client, self.vb, self.created(key_only=True), items=7)
        self.assertEqual((found, times), (self.keys, 5))

    def test_a_limit_that_is_met_at_the_end(self):
        self.fill()
        scan = self.created(key_only=True)
        found, status = resume(self.client, self.vb, scan, items=30)
        self.assertEqual((found, status), (self.keys, range_scan.COMPLETE))

    def test_bytes(self):
        for key in self.keys:
            self.put(key, b"v" * 1000)
        scan = self.created()
        found, status = resume(self.client, self.vb, scan, size=1)
        self.assertEqual((len(found), status), (1, range_scan.MORE))
        found, status = resume(self.client, self.vb, scan, size=5000)
        self.assertEqual((len(found), status), (5, range_scan.MORE))
        found, status = resume(self.client, self.vb, scan, millis=60000)
        self.assertEqual((len(found), status), (24, range_scan.COMPLETE))

    def test_many_packets(self):
        value = b"v" * 100_000
        for key in self.keys:
            self.put(key, value)
        range_scan.ask(self.client, self.vb, self.created())
        found, statuses = [], []
        while not statuses or statuses[-1] == kv.OK:
            response = self.client.receive()
            self.assertEqual(response.opaque, 77)
            found += range_scan.decode(response)
            statuses.append(response.status)
        self.assertEqual([document.key for document in found], self.keys)
        self.assertTrue(all(document.value == value for document in found))
        self.assertGreater(len(statuses), 10)
        self.assertEqual(statuses[-1], range_scan.COMPLETE)

    def test_a_huge_document(self):
        value = b"v" * (10 << 20)
        self.put(self.keys[0], value)
        self.put(self.keys[1], b"small")
        found, _ = drain(self.client, self.vb, self.created(), items=1)
        self.assertEqual([document.value == value for document in found], [True, False])


class Lives(ScanCase):
    def setUp(self):
        super().setUp()
        self.fill()

    def test_cancel(self):
        scan = self.created()
        self.assertEqual(cancel(self.client, self.vb, scan).status, kv.OK)
        self.assertEqual(cancel(self.client, self.vb, scan).status, kv.NOT_FOUND)
        self.assertEqual(resume(self.client, self.vb, scan), ([], kv.NOT_FOUND))

    def test_after_the_end(self):
        scan = self.created(key_only=True)
        drain(self.client, self.vb, scan)
        self.assertEqual(resume(self.client, self.vb, scan), ([], kv.NOT_FOUND))

    def test_unknown_ones(self):
        unknown = bytes(16)
        self.assertEqual(resume(self.client, self.vb, unknown), ([], kv.NOT_FOUND))
        self.assertEqual(cancel(self.client, self.vb, unknown).status, kv.NOT_FOUND)
        scan = self.created()
        self.assertEqual(resume(self.client, self.vb + 1, scan), ([], kv.NOT_FOUND))
        self.assertEqual(resume(self.client, 5000, scan), ([], kv.NOT_MY_VBUCKET))
        self.assertEqual(cancel(self.client, 5000, scan).status, kv.NOT_MY_VBUCKET)

    def test_another_connection_may_go_on(self):
        scan = self.created(key_only=True)
        resume(self.client, self.vb, scan, items=3)
        self.client.close()
        found, _ = drain(self.connect(FEATURES), self.vb, scan)
        self.assertEqual(found, self.keys[3:])

    def test_a_dropped_collection(self):
        scan = self.created(key_only=True)
        resume(self.client, self.vb, scan, items=3)
        REST.ok("DELETE", f"{self.base}/{self.name}")
        found, status = resume(self.client, self.vb, scan)
        self.assertEqual((found, status), ([], kv.UNKNOWN_COLLECTION))
        self.assertEqual(resume(self.client, self.vb, scan), ([], kv.NOT_FOUND))
        self.refused(kv.UNKNOWN_COLLECTION)

    def test_a_client_that_goes_away_takes_its_scan_along(self):
        value = b"v" * 300_000
        for key in self.keys:
            self.put(key, value)
        scan = self.created()
        lazy = self.connect(FEATURES)
        range_scan.ask(lazy, self.vb, scan)
        lazy.receive()
        self.assertEqual(resume(self.client, self.vb, scan), ([], range_scan.BUSY))
        lazy.close()
        deadline = time.monotonic() + 10
        while resume(self.client, self.vb, scan) != ([], kv.NOT_FOUND):
            self.assertLess(time.monotonic(), deadline)

    def test_statistics(self):
        self.created(name="seen", key_only=True)
        stats = self.client.stats(f"range-scans {self.vb}".encode())
        (prefix,) = [key.rsplit(":", 1)[0] for key, value in stats.items() if value == "seen"]
        self.assertTrue(prefix.startswith(f"vb_{self.vb}:"), prefix)
        facts = [stats[f"{prefix}:{name}"] for name in ("key_value", "state", "total_keys", "collection")]
        self.assertEqual(facts, ["key", "idle", "30", f"{self.cid:x}"])
        self.assertEqual(self.client.stats(f"range-scans {self.vb + 1}".encode()), {})
        self.assertEqual(self.client.stats(b"range-scans")["max_duration"], "180")


class Requirements(ScanCase):
    def setUp(self):
        super().setUp()
        self.uuid, self.seqno = self.put(self.keys[0]).token

    def requires(self, **more):
        return {"vb_uuid": str(self.uuid), "seqno": self.seqno, **more}

    def test_waiting_for_the_disk(self):
        scan = self.created(snapshot_requirements=self.requires(timeout_ms=10000), key_only=True)
        self.assertEqual(drain(self.client, self.vb, scan)[0], self.keys[:1])
        self.created(snapshot_requirements=self.requires())

    def test_a_seqno_that_is_not_there_yet(self):
        future = self.seqno + 1000
        self.refused(kv.TEMPORARY_FAILURE, snapshot_requirements=self.requires(seqno=future))
        begun = time.monotonic()
        self.refused(kv.TEMPORARY_FAILURE, snapshot_requirements=self.requires(seqno=future, timeout_ms=200))
        self.assertGreater(time.monotonic() - begun, 0.19)

    def test_another_history(self):
        wrong = self.requires(vb_uuid=str(self.uuid ^ 1), timeout_ms=10000)
        self.refused(range_scan.UUID_NOT_EQUAL, snapshot_requirements=wrong)

    def test_a_superseded_mutation(self):
        wanted = self.requires(seqno_exists=True, timeout_ms=10000)
        self.created(snapshot_requirements=wanted)
        newer = self.put(self.keys[0]).token[1]
        self.created(snapshot_requirements=self.requires(seqno=newer, seqno_exists=True, timeout_ms=10000))
        self.refused(kv.NOT_STORED, snapshot_requirements=wanted)


class Arguments(ScanCase):
    def test_what_makes_no_sense(self):
        self.fill()
        self.refused(kv.INVALID, datatype=0)
        for wrong in [
            {"range": {"start": "", "excl_start": "", "end": ""}},
            {"range": {"end": ""}},
            {"range": {"start": "!", "end": ""}},
            {"sampling": {"samples": 3}},
            {"range": None, "sampling": {}},
            {"collection": "xyz"},
            {"key_only": True, "include_xattrs": True},
            {"name": "n" * 51},
            {"snapshot_requirements": {"seqno": 1}},
        ]:
            response = self.refused(kv.INVALID, **wrong)
            self.assertIn("error", json.loads(response.value), wrong)
        response = self.client.call(range_scan.CREATE, vb=self.vb, value=b"{", datatype=1)
        self.assertEqual(response.status, kv.INVALID)
        self.assertEqual(self.client.call(range_scan.CONTINUE, extras=bytes(27)).status, kv.INVALID)
        self.assertEqual(self.client.call(range_scan.CANCEL, extras=bytes(15)).status, kv.INVALID)

    def test_where_there_is_nothing_to_scan(self):
        self.refused(kv.UNKNOWN_COLLECTION, collection="fff")
        self.refused(kv.NOT_MY_VBUCKET, vb=5000)
        ephemeral = client(FEATURES, bucket="ephemeral")
        self.addCleanup(ephemeral.close)
        self.assertEqual(create(ephemeral, 0, range=between()).status, kv.NOT_SUPPORTED)

    def test_privileges(self):
        self.fill()
        rights = {"reader": f"data_reader[{BUCKET}:_default:{self.name}]", "writer": f"data_writer[{BUCKET}]"}
        statuses = {}
        for name, roles in rights.items():
            REST.ok("PUT", f"/settings/rbac/users/local/{name}", {"password": "password", "roles": roles})
            self.addCleanup(REST.request, "DELETE", f"/settings/rbac/users/local/{name}")
            user = kv.Client(ADDRESS, 11210, name, "password", BUCKET, FEATURES)
            self.addCleanup(user.close)
            mine = create(user, self.vb, **self.config(key_only=True))
            other = create(user, self.vb, range=between())
            statuses[name] = (mine.status, other.status)
            foreign = self.created(key_only=True)
            self.assertEqual(
                resume(user, self.vb, foreign)[1], range_scan.COMPLETE if name == "reader" else kv.NO_ACCESS
            )
        self.assertEqual(statuses["reader"], (kv.OK, kv.UNKNOWN_COLLECTION))
        self.assertEqual(statuses["writer"], (kv.NO_ACCESS, kv.NO_ACCESS))


class Values(ScanCase):
    def test_attributes(self):
        body = b'{"b":1}'
        for key in self.keys[:3]:
            self.put(key, body, datatype=1)
        for path, flags in ((b"user", subdoc.XATTR), (b"_system", subdoc.XATTR)):
            extras, value = subdoc.single(path, b'"x"', flags)
            response = self.client.call(
                subdoc.DICT_UPSERT, vb=self.vb, key=self.encoded(self.keys[0]), extras=extras, value=value
            )
            self.assertEqual(response.status, kv.OK, response.value)
        plain, _ = drain(self.client, self.vb, self.created())
        self.assertEqual([(each.value, each.datatype) for each in plain], [(body, 1)] * 3)
        whole, _ = drain(self.client, self.vb, self.created(include_xattrs=True))
        self.assertEqual([each.datatype for each in whole], [5, 1, 1])
        self.assertIn(b"user", whole[0].value)
        self.assertIn(b"_system", whole[0].value)
        self.assertTrue(whole[0].value.endswith(body))
        name = "attributes"
        roles = f"data_reader[{BUCKET}]"
        REST.ok("PUT", f"/settings/rbac/users/local/{name}", {"password": "password", "roles": roles})
        self.addCleanup(REST.request, "DELETE", f"/settings/rbac/users/local/{name}")
        user = kv.Client(ADDRESS, 11210, name, "password", BUCKET, FEATURES)
        self.addCleanup(user.close)
        scan = create(user, self.vb, **self.config(include_xattrs=True))
        found, _ = drain(user, self.vb, scan.value)
        self.assertEqual(found[0].datatype, 5)
        self.assertIn(b"user", found[0].value)
        self.assertNotIn(b"_system", found[0].value)
        without = self.connect(tuple(feature for feature in FEATURES if feature != kv.F_XATTR))
        self.assertEqual(
            create(without, self.vb, **self.config(include_xattrs=True)).status, kv.NOT_SUPPORTED
        )

    def test_compression_only_for_who_takes_it(self):
        value = b"compressible " * 1000
        self.put(self.keys[0], value)
        plain = self.connect(tuple(feature for feature in FEATURES if feature != kv.F_SNAPPY))
        scan = create(plain, self.vb, **self.config())
        found, _ = drain(plain, self.vb, scan.value)
        self.assertEqual((found[0].value, found[0].datatype & 2), (value, 0))
