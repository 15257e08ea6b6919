"""What DCP streams tell: documents, deletions, collections, snapshots, and how they end."""

import struct
import time

from case import REST
from dcp_case import NODE, VBUCKETS, DcpCase
from settee import dcp, documents, kv
from settee.documents import leb128

PLAIN = tuple(feature for feature in documents.FEATURES if feature != kv.F_COLLECTIONS)
DOCUMENTS = (dcp.MUTATION, dcp.DELETION, dcp.EXPIRATION)


def told(messages):
    return [message for message in messages if message.opcode in DOCUMENTS]


class Documents(DcpCase):
    def everything_of(self, vb, until=None, **options):
        """A stream from the beginning to `until`, or to what is there now."""
        seqno = self.high_seqno(vb) if until is None else until
        consumer = self.consumer(**options)
        consumer.must_stream(vb)
        messages = consumer.until_seqno(seqno)
        dcp.Ledger().take_all(messages)
        return messages

    def test_a_mutation_says_everything(self):
        key = self.key_in(1)
        self.set(key, b"old")
        _, seqno, cas = self.set(key, b'{"new":1}', flags=0x0200_0001, expiry=2_000_000_000)
        message = told(self.everything_of(1, seqno))[-1]
        self.assertEqual(
            (message.opcode, message.key, message.value, message.cas), (dcp.MUTATION, b"\0" + key, b'{"new":1}', cas)
        )
        by_seqno, rev, flags, expiry, lock, meta, _nru = struct.unpack(">QQIIIHB", message.extras)
        self.assertEqual(
            (by_seqno, rev, flags, expiry, lock, meta), (seqno, 2, 0x0200_0001, 2_000_000_000, 0, 0)
        )
        self.assertEqual(message.datatype, 1)

    def test_messages_carry_the_opaque_of_their_request(self):
        _, seqno, _ = self.set(self.key_in(1))
        consumer = self.consumer()
        consumer.must_stream(1, opaque=0x1234_5678)
        for message in consumer.until_seqno(seqno):
            self.assertEqual((message.opaque, dcp.vb_of(message)), (0x1234_5678, 1))

    def test_without_collections_keys_are_bare(self):
        key = self.key_in(1)
        _, seqno, _ = self.set(key)
        self.assertIn(key, [message.key for message in told(self.everything_of(1, seqno, features=PLAIN))])

    def test_deletions(self):
        key = self.key_in(2)
        self.set(key)
        _, seqno, cas = self.delete(key)
        message = told(self.everything_of(2, seqno))[-1]
        self.assertEqual((message.opcode, message.key, message.value), (dcp.DELETION, b"\0" + key, b""))
        self.assertEqual((message.cas, len(message.extras)), (cas, 18))
        self.assertEqual(struct.unpack(">QQH", message.extras), (seqno, 2, 0))
        message = told(self.everything_of(2, seqno, flags=dcp.PRODUCER | dcp.DELETE_TIMES))[-1]
        by_seqno, rev, at, _ = struct.unpack(">QQIB", message.extras)
        self.assertEqual((by_seqno, rev), (seqno, 2))
        self.assertLess(abs(at - time.time()), 60)

    def test_expirations(self):
        key = self.key_in(3)
        _, seqno, _ = self.set(key, expiry=1)
        consumer = self.consumer(
            flags=dcp.PRODUCER | dcp.DELETE_TIMES, controls=(("enable_expiry_opcode", "true"),)
        )
        legacy = self.consumer()
        for each, opcode in ((consumer, dcp.EXPIRATION), (legacy, dcp.DELETION)):
            each.must_stream(3)
            message = told(each.until_seqno(seqno + 1))[-1]
            self.assertEqual((message.opcode, message.key), (opcode, b"\0" + key))

    def test_live_changes(self):
        consumer = self.consumer()
        consumer.must_stream(4)
        ledger = dcp.Ledger()
        for number in range(50):
            key = self.key_in(4)
            _, seqno, _ = self.set(key, b"%d" % number)
            ledger.take_all(consumer.until_seqno(seqno))
            self.assertEqual(ledger.documents[4][b"\0" + key].value, b"%d" % number)

    def test_keys_only(self):
        key = self.key_in(5)
        _, seqno, _ = self.set(key, b'{"a":1}')
        message = told(self.everything_of(5, seqno, flags=dcp.PRODUCER | dcp.NO_VALUE))[-1]
        self.assertEqual((message.value, message.datatype), (b"", 0))
        message = told(self.everything_of(5, seqno, flags=dcp.PRODUCER | dcp.KEEP_DATATYPE))[-1]
        self.assertEqual((message.value, message.datatype), (b"", 1))

    def test_xattrs(self):
        key, body = self.key_in(6), b'{"a":1}'
        pair = b"_sync\0" + b'{"rev":1}' + b"\0"
        blob = struct.pack(">I", len(pair)) + pair
        value = struct.pack(">I", len(blob)) + blob + body
        self.set(key, body)
        extras = struct.pack(">HB", len(b"_sync"), 0x04)
        _, seqno, _ = self.write(kv.DICT_UPSERT, key, extras=extras, value=b"_sync" + b'{"rev":1}')
        message = told(self.everything_of(6, seqno))[-1]
        self.assertEqual((message.value, message.datatype), (body, 0x01))
        message = told(self.everything_of(6, seqno, flags=dcp.PRODUCER | dcp.XATTRS))[-1]
        self.assertEqual((message.value, message.datatype), (value, 0x05))

    def test_compression(self):
        # One raw Snappy block: a length, then one literal.
        plain = b"s" * 50
        packed = bytes([50, (50 - 1) << 2]) + plain
        key = self.key_in(7)
        _, seqno, _ = self.set(key, packed, datatype=0x02)
        message = told(self.everything_of(7, seqno))[-1]
        self.assertIn((message.datatype, message.value), [(2, packed), (0, plain)])
        without = tuple(feature for feature in documents.FEATURES if feature != kv.F_SNAPPY)
        message = told(self.everything_of(7, seqno, features=without))[-1]
        self.assertEqual((message.datatype, message.value), (0, plain))
        key = self.key_in(7)
        _, seqno, _ = self.set(key, bytes(5000))
        message = told(self.everything_of(7, seqno, controls=(("force_value_compression", "true"),)))[-1]
        self.assertEqual(message.datatype & 2, 2)
        self.assertLess(len(message.value), 1000)

    def test_each_key_once(self):
        keys = [self.key_in(8) for _ in range(20)]
        for number in range(10):
            for key in keys:
                _, seqno, _ = self.set(key, b"%d" % number)
        self.assertEqual(self.writer.call(kv.SEQNO_PERSISTENCE, vb=8, extras=struct.pack(">Q", seqno)).status, kv.OK)
        ledger = dcp.Ledger().take_all(self.everything_of(8, seqno))
        self.assertEqual({message.value for message in ledger.versions().values()}, {b"9"})


class Ephemeral(Documents):
    """The same from memory alone."""

    BUCKET, KIND = "dcp-memory", "ephemeral"

    test_each_key_once = None  # asks for persistence


class Boundaries(DcpCase):
    def setUp(self):
        super().setUp()
        self.vb = 0
        for _ in range(10):
            self.set(self.key_in(self.vb))
        self.high, self.uuid = self.high_seqno(self.vb), self.uuid_of(self.vb)

    def test_a_stream_to_a_seqno_ends_there(self):
        consumer = self.consumer()
        consumer.must_stream(self.vb, end=self.high - 3)
        messages, reason = consumer.until_end()
        self.assertEqual(reason, dcp.END_OK)
        last = max(dcp.seqno_of(message) or 0 for message in messages)
        self.assertGreaterEqual(last, self.high - 3)
        self.assert_status(consumer.close_stream(self.vb)[0], kv.NOT_FOUND)

    def test_to_latest(self):
        consumer = self.consumer()
        consumer.must_stream(self.vb, flags=dcp.TO_LATEST)
        messages, reason = consumer.until_end()
        self.assertEqual(reason, dcp.END_OK)
        self.assertEqual(dcp.Ledger().take_all(messages).seqnos[self.vb], self.high)

    def test_disk_only(self):
        consumer = self.consumer()
        wait = self.writer.call(kv.SEQNO_PERSISTENCE, vb=self.vb, extras=struct.pack(">Q", self.high))
        self.assert_status(wait, kv.OK)
        consumer.must_stream(self.vb, flags=dcp.DISK_ONLY | dcp.TO_LATEST)
        messages, reason = consumer.until_end()
        self.assertEqual(reason, dcp.END_OK)
        types = [dcp.marker(message)[2] for message in messages if message.opcode == dcp.MARKER]
        self.assertEqual([kind & 3 for kind in types], [dcp.SNAPSHOT_DISK] * len(types))
        self.assertEqual(dcp.Ledger().take_all(messages).seqnos[self.vb], self.high)

    def test_from_a_seqno(self):
        consumer = self.consumer()
        start = self.high - 4
        consumer.must_stream(self.vb, start=start, uuid=self.uuid, snapshot=(start, start))
        messages = consumer.until_seqno(self.high)
        seqnos = [dcp.seqno_of(message) for message in told(messages)]
        self.assertEqual(seqnos, list(range(start + 1, self.high + 1)))

    def test_the_first_marker_begins_where_the_consumer_is(self):
        consumer = self.consumer()
        start = self.high - 4
        consumer.must_stream(self.vb, start=start, uuid=self.uuid, snapshot=(start - 2, self.high - 1))
        marker = next(m for m in consumer.until_seqno(self.high) if m.opcode == dcp.MARKER)
        self.assertEqual(dcp.marker(marker)[0], start - 2)

    def test_from_now(self):
        consumer = self.consumer()
        consumer.must_stream(self.vb, start=self.high, uuid=self.uuid, snapshot=(self.high, self.high))
        self.assertIsNone(consumer.next(0.5))
        _, seqno, _ = self.set(self.key_in(self.vb))
        messages = consumer.until_seqno(seqno)
        self.assertEqual([dcp.seqno_of(message) for message in told(messages)], [seqno])

    def test_from_latest(self):
        consumer = self.consumer()
        consumer.must_stream(self.vb, flags=dcp.FROM_LATEST)
        self.assertIsNone(consumer.next(0.5))

    def test_a_closed_stream_says_so_when_asked_to(self):
        consumer = self.consumer(controls=(("send_stream_end_on_client_close_stream", "true"),))
        consumer.must_stream(self.vb)
        consumer.until_seqno(self.high)
        consumer.send(kv.frame(dcp.CLOSE_STREAM, vb=self.vb, opaque=99))
        seen = consumer.until(lambda message: message.opcode == dcp.STREAM_END)
        self.assertEqual(struct.unpack(">I", seen[-1].extras)[0], dcp.END_CLOSED)
        quiet = self.consumer()
        quiet.must_stream(self.vb)
        quiet.until_seqno(self.high)
        self.assertEqual(quiet.close_stream(self.vb)[1], [])
        self.assertIsNone(quiet.next(0.5))

    def test_markers_of_version_2(self):
        consumer = self.consumer(controls=(("max_marker_version", "2.2"),))
        consumer.must_stream(self.vb)
        messages = consumer.until_seqno(self.high)
        first = messages[0]
        self.assertEqual(first.opcode, dcp.MARKER)
        if len(first.extras) == 1:
            self.assertIn(first.extras[0], (0, 2))
            self.assertIn(len(first.value), (36, 52))
        dcp.Ledger().take_all(messages)


class Unordered(DcpCase):
    def test_out_of_order_snapshots(self):
        vb = 2
        keys = [self.key_in(vb) for _ in range(200)]
        for key in keys:
            _, seqno, _ = self.set(key)
        self.writer.call(kv.SEQNO_PERSISTENCE, vb=vb, extras=struct.pack(">Q", seqno))
        consumer = self.consumer(controls=(("enable_out_of_order_snapshots", "true_with_seqno_advanced"),))
        consumer.must_stream(vb, flags=dcp.TO_LATEST, value={"collections": ["0"]})
        messages, reason = consumer.until_end()
        self.assertEqual(reason, dcp.END_OK)
        ledger = dcp.Ledger().take_all(messages)
        self.assertEqual(set(ledger.versions()), {b"\0" + key for key in keys})
        self.assertEqual(ledger.seqnos[vb], seqno)


class Collections(DcpCase):
    def create(self, name, scope="_default"):
        REST.ok("POST", f"/pools/default/buckets/{self.BUCKET}/scopes/{scope}/collections", {"name": name})
        return documents.manifest(NODE, self.BUCKET)[f"{scope}.{name}"]

    def drop(self, name, scope="_default"):
        REST.ok("DELETE", f"/pools/default/buckets/{self.BUCKET}/scopes/{scope}/collections/{name}")

    def test_a_collection_is_told_before_its_documents(self):
        collection = self.create("first")
        key = self.key_in(1)
        _, seqno, _ = self.set(key, collection=collection)
        consumer = self.consumer()
        consumer.must_stream(1)
        messages = consumer.until_seqno(seqno)
        ledger = dcp.Ledger().take_all(messages)
        at = [index for index, m in enumerate(messages) if m.opcode == dcp.SYSTEM_EVENT and m.key == b"first"]
        document = [index for index, m in enumerate(messages) if m.key == leb128(collection) + key]
        self.assertLess(at[0], document[0])
        event = messages[at[0]]
        _, kind, version = struct.unpack(">QIB", event.extras)
        self.assertEqual((kind, version, len(event.value)), (dcp.COLLECTION_CREATED, 0, 16))
        self.assertEqual(struct.unpack(">QII", event.value)[1:], (0, collection))
        self.assertIn(leb128(collection) + key, ledger.versions())

    def test_max_ttl_comes_with_version_1(self):
        path = f"/pools/default/buckets/{self.BUCKET}/scopes/_default/collections"
        REST.ok("POST", path, {"name": "short", "maxTTL": 77})
        seqno = self.high_seqno(0)
        consumer = self.consumer()
        consumer.must_stream(0)
        event = next(m for m in consumer.until_seqno(seqno) if m.key == b"short")
        self.assertEqual(event.extras[-1], 1)
        self.assertEqual(struct.unpack(">QIII", event.value)[3], 77)

    def test_scopes_and_drops(self):
        consumer = self.consumer()
        consumer.must_stream(3)
        REST.ok("POST", f"/pools/default/buckets/{self.BUCKET}/scopes", {"name": "s"})
        collection = self.create("c", "s")
        key = self.key_in(3)
        self.set(key, collection=collection)
        REST.ok("DELETE", f"/pools/default/buckets/{self.BUCKET}/scopes/s")
        seqno = self.high_seqno(3)
        messages = consumer.until_seqno(seqno)
        ledger = dcp.Ledger().take_all(messages)
        kinds = [event[1] for event in ledger.events if event[5] in ("s", "c", "")][-4:]
        self.assertEqual(
            kinds, [dcp.SCOPE_CREATED, dcp.COLLECTION_CREATED, dcp.COLLECTION_DROPPED, dcp.SCOPE_DROPPED]
        )
        uids = [event[2] for event in ledger.events]
        self.assertEqual(uids, sorted(uids))
        # Later nobody hears of the document any more, only of the end.
        time.sleep(0.3)
        late = self.consumer()
        late.must_stream(3)
        again = dcp.Ledger().take_all(late.until_seqno(seqno))
        self.assertNotIn(leb128(collection) + key, again.versions())
        self.assertIn((dcp.COLLECTION_DROPPED, collection), [(event[1], event[4]) for event in again.events])

    def test_filters(self):
        wanted, other = self.create("wanted"), self.create("other")
        keys = {collection: self.key_in(4) for collection in (0, wanted, other)}
        seqnos = {collection: self.set(key, collection=collection)[1] for collection, key in keys.items()}
        consumer = self.consumer()
        consumer.must_stream(4, value={"collections": [f"{wanted:x}"]})
        messages = consumer.until_seqno(seqnos[wanted])
        ledger = dcp.Ledger().take_all(messages)
        self.assertEqual(set(ledger.versions()), {leb128(wanted) + keys[wanted]})
        self.assertEqual({event[5] for event in ledger.events}, {"wanted"})
        # Live, too.
        self.set(self.key_in(4), collection=other)
        _, seqno, _ = self.set(keys[wanted], b"again", collection=wanted)
        ledger.take_all(consumer.until_seqno(seqno))
        self.assertEqual([message.value for message in ledger.versions().values()], [b"again"])
        self.drop("wanted")
        messages, reason = consumer.until_end()
        self.assertEqual(reason, dcp.END_FILTER_EMPTY)
        self.assertIn(dcp.COLLECTION_DROPPED, [dcp.event(m)[0] for m in messages if m.opcode == dcp.SYSTEM_EVENT])
        self.assert_status(consumer.stream(4, value={"collections": [f"{wanted:x}"]}), kv.UNKNOWN_COLLECTION)

    def test_what_is_left_out_of_a_disk_snapshot_is_told_as_progress(self):
        wanted, other = self.create("left-in"), self.create("left-out")
        self.set(self.key_in(8), collection=wanted)
        _, seqno, _ = self.set(self.key_in(8), collection=other)
        wait = self.writer.call(kv.SEQNO_PERSISTENCE, vb=8, extras=struct.pack(">Q", seqno))
        self.assert_status(wait, kv.OK)
        consumer = self.consumer()
        consumer.must_stream(8, flags=dcp.DISK_ONLY | dcp.TO_LATEST, value={"collections": [f"{wanted:x}"]})
        messages, reason = consumer.until_end()
        self.assertEqual(reason, dcp.END_OK)
        ledger = dcp.Ledger().take_all(messages)
        self.assertEqual(len(ledger.versions()), 1)
        self.assertEqual(messages[-2].opcode, dcp.SEQNO_ADVANCED)
        self.assertEqual(ledger.seqnos[8], seqno)

    def test_a_scope_grows_under_a_stream(self):
        REST.ok("POST", f"/pools/default/buckets/{self.BUCKET}/scopes", {"name": "growing"})
        scopes = REST.get(f"/pools/default/buckets/{self.BUCKET}/scopes").json["scopes"]
        scope = next(scope["uid"] for scope in scopes if scope["name"] == "growing")
        consumer = self.consumer()
        consumer.must_stream(5, value={"scope": scope})
        collection = self.create("late", "growing")
        key = self.key_in(5)
        self.set(self.key_in(5))
        _, seqno, _ = self.set(key, collection=collection)
        ledger = dcp.Ledger().take_all(consumer.until_seqno(seqno))
        self.assertEqual(set(ledger.versions()), {leb128(collection) + key})
        REST.ok("DELETE", f"/pools/default/buckets/{self.BUCKET}/scopes/growing")
        self.assertEqual(consumer.until_end()[1], dcp.END_FILTER_EMPTY)

    def test_who_knows_no_collections_hears_of_the_default_one_only(self):
        collection = self.create("hidden")
        key = self.key_in(6)
        _, seqno, _ = self.set(key)
        self.set(self.key_in(6), collection=collection)
        consumer = self.consumer(features=PLAIN)
        consumer.must_stream(6)
        messages = consumer.until_seqno(seqno)
        self.assertIn(key, [message.key for message in told(messages)])
        while (message := consumer.next(0.5)) is not None:
            messages.append(message)
        self.assertEqual({m.opcode for m in messages} - set(DOCUMENTS) - {dcp.MARKER}, set())
        self.assertFalse([m for m in told(messages) if m.key.startswith(leb128(collection))])
        with documents.connect(NODE, self.BUCKET, features=PLAIN, vbuckets=VBUCKETS) as plain:
            self.assertEqual(documents.high_seqnos(plain)[6], seqno)

    def test_one_stream_id_per_filter(self):
        collection = self.create("by-id")
        consumer = self.consumer(controls=(("enable_stream_id", "true"),))
        consumer.must_stream(7, value={"collections": ["0"], "sid": 1})
        consumer.must_stream(7, value={"collections": [f"{collection:x}"], "sid": 2})
        keys = {0: self.key_in(7), collection: self.key_in(7)}
        for each, key in keys.items():
            self.set(key, collection=each)
        found = {}
        while len(found) < 2:
            message = consumer.next(10.0)
            self.assertIsNotNone(message)
            self.assertEqual((message.magic, len(message.framing), message.framing[0]), (0x08, 3, 0x22))
            if message.opcode == dcp.MUTATION:
                found[struct.unpack(">H", message.framing[1:])[0]] = message.key
        self.assertEqual(found, {1: b"\0" + keys[0], 2: leb128(collection) + keys[collection]})

    def test_reserved_collections_are_nobodys(self):
        for collection in range(1, 8):
            key = bytes([collection]) + b"_collection:8"
            response = self.writer.call(kv.GET, key=key, vb=kv.vbucket_of(b"_collection:8", VBUCKETS))
            self.assert_status(response, kv.INVALID)


class Ends(DcpCase):
    BUCKET = "dcp-ends"

    def test_a_flush_ends_streams(self):
        self.set(self.key_in(1))
        consumer = self.consumer()
        consumer.must_stream(1)
        old = self.uuid_of(1)
        high = self.high_seqno(1)
        consumer.until_seqno(high)
        REST.ok("POST", f"/pools/default/buckets/{self.BUCKET}/controller/doFlush")
        try:
            _, reason = consumer.until_end()
            self.assertIn(reason, (dcp.END_STATE, dcp.END_DISCONNECTED, dcp.END_CLOSED))
        except kv.Closed:
            pass
        again = self.consumer()
        response = again.stream(1, start=high, uuid=old, snapshot=(high, high))
        self.assert_status(response, kv.ROLLBACK)
        self.assertEqual(struct.unpack(">Q", response.value)[0], 0)
        again.must_stream(1)
        _, seqno, _ = self.set(self.key_in(1))
        self.assertEqual(len(told(again.until_seqno(seqno))), 1)

    def test_a_dropped_bucket_ends_connections(self):
        REST.create_bucket("dcp-doomed", quota_mb=100, numVBuckets=VBUCKETS)
        consumer = self.consumer(bucket="dcp-doomed")
        for vb in range(VBUCKETS):
            consumer.must_stream(vb)
        REST.delete_bucket("dcp-doomed")
        self.assert_closed(consumer)


class Many(DcpCase):
    BUCKET = "dcp-many"
    VBUCKETS = 1024

    @classmethod
    def setUpClass(cls):
        REST.create_bucket(cls.BUCKET, quota_mb=128, flushEnabled=1)
        cls.addClassCleanup(REST.delete_bucket, cls.BUCKET)

    def test_a_thousand_streams_on_one_connection(self):
        with documents.connect(NODE, self.BUCKET) as client:
            keys = [f"many-{number}".encode() for number in range(5000)]
            sets = [(kv.SET, 0, key, {"extras": bytes(8), "value": key}) for key in keys]
            for _, response in documents.pipeline(client, sets):
                self.assertEqual(response.status, kv.OK)
            targets = documents.high_seqnos(client)
            consumer = self.consumer(controls=(("connection_buffer_size", 100_000),))
            extras = struct.pack(">IIQQQQQ", 0, 0, 0, dcp.FOREVER, 0, 0, 0)
            requests = (
                kv.frame(dcp.STREAM_REQUEST, vb=vb, opaque=vb, extras=extras, value=b'{"uid":"0"}')
                for vb in range(self.VBUCKETS)
            )
            consumer.send(b"".join(requests))
            ledger, opened = dcp.Ledger(), set()
            while len(opened) < self.VBUCKETS:
                message = consumer.next(10.0)
                self.assertIsNotNone(message, f"{len(opened)} streams opened")
                if message.opcode == dcp.STREAM_REQUEST:
                    self.assertEqual(message.status, kv.OK)
                    opened.add(message.opaque)
                else:
                    ledger.take(message)
            ledger.catch_up(consumer, targets)
            self.assertEqual({key[1:] for key in ledger.versions()}, set(keys))
            # Live changes everywhere, and a close of everything.
            for _, response in documents.pipeline(client, [(kv.DELETE, 0, key, {}) for key in keys]):
                self.assertEqual(response.status, kv.OK)
            ledger.catch_up(consumer, documents.high_seqnos(client))
            self.assertEqual(ledger.versions(), {})
