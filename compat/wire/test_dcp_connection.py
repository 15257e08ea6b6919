"""DCP connections: how they open, what may be asked of them, what a stream request is refused for."""

import struct
import time

from case import REST
from dcp_case import VBUCKETS, DcpCase
from settee import dcp, documents, kv

STREAM_ID_INVALID = 0x8D


class Opening(DcpCase):
    def test_names(self):
        for name in ("", "n" * 201):
            self.assert_status(self.consumer(open_now=False).open(name=name), kv.INVALID)
        self.consumer(name="n" * 200)

    def test_the_second_of_a_name_closes_the_first(self):
        first = self.consumer(name="only-one")
        self.assertEqual(first.must_stream(0)[0][1], 0)
        second = self.consumer(name="only-one")
        self.assert_closed(first)
        second.must_stream(0)

    def test_a_name_belongs_to_its_bucket(self):
        first = self.consumer(name="shared-name")
        self.consumer(name="shared-name", bucket="main")
        first.must_stream(0)

    def test_a_connection_is_opened_once(self):
        consumer = self.consumer()
        self.assert_status(consumer.open(name="again"), kv.INVALID)
        consumer.must_stream(0)

    def test_consumers_of_ours_are_not_built(self):
        response = self.consumer(open_now=False).open(flags=0)
        self.assert_status(response, kv.NOT_SUPPORTED)

    def test_who_may_not_stream(self):
        REST.ok(
            "PUT",
            "/settings/rbac/users/local/writer-only",
            {"password": "writer-only", "roles": f"data_writer[{self.BUCKET}],data_reader[{self.BUCKET}]"},
        )
        plain = self.consumer(username="writer-only", password="writer-only", open_now=False)
        self.assert_status(plain.open(), kv.NO_ACCESS)
        REST.ok(
            "PUT",
            "/settings/rbac/users/local/streamer",
            {"password": "streamer-pw", "roles": f"data_dcp_reader[{self.BUCKET}]"},
        )
        self.consumer(username="streamer", password="streamer-pw").must_stream(0)

    def test_documents_on_the_same_connection(self):
        consumer = self.consumer()
        consumer.must_stream(1)
        key = self.key_in(0)
        self.set(key)
        self.assertEqual(consumer.call(kv.GET, key=b"\0" + key, vb=0).value, b"value")

    def test_nothing_streams_before_open(self):
        for opcode, extras in ((dcp.STREAM_REQUEST, bytes(48)), (dcp.CLOSE_STREAM, b"")):
            self.assert_status(self.consumer(open_now=False).call(opcode, extras=extras), kv.INVALID)


class Controls(DcpCase):
    def test_what_connectors_ask_for(self):
        consumer = self.consumer()
        for key, value in (
            ("connection_buffer_size", 1 << 20), ("enable_noop", "true"), ("set_noop_interval", 120),
            ("set_priority", "high"), ("backfill_order", "round-robin"), ("enable_expiry_opcode", "true"),
            ("send_stream_end_on_client_close_stream", "true"), ("supports_cursor_dropping_vulcan", "true"),
            ("enable_out_of_order_snapshots", "true_with_seqno_advanced"), ("force_value_compression", "true"),
            ("enable_stream_id", "true"), ("max_marker_version", "2.2"),
        ):  # fmt: skip
            self.assert_status(consumer.control(key, value), kv.OK)

    def test_what_is_refused(self):
        consumer = self.consumer()
        for key, value in (
            ("no_such_control", "true"), ("connection_buffer_size", "much"), ("set_noop_interval", "soon"),
            ("set_priority", "highest"), ("backfill_order", "any"), ("enable_stream_id", "perhaps"), ("", "x"),
            ("max_marker_version", "9.9"), ("enable_out_of_order_snapshots", "maybe"),
        ):  # fmt: skip
            self.assertIn(consumer.control(key, value).status, (kv.INVALID, kv.NOT_SUPPORTED), key)
        self.assert_status(consumer.control("stream_buffer_size", "100"), kv.NOT_SUPPORTED)
        consumer.must_stream(0)

    def test_compression_needs_snappy(self):
        without = tuple(feature for feature in documents.FEATURES if feature != kv.F_SNAPPY)
        self.assert_status(self.consumer(features=without).control("force_value_compression", "true"), kv.INVALID)


class Noop(DcpCase):
    def test_one_at_a_time_until_it_is_answered(self):
        controls = (("enable_noop", "true"), ("set_noop_interval", 1))
        silent, awake = self.consumer(automatic=False, controls=controls), self.consumer(automatic=False, controls=controls)
        message = silent.next(8.0)
        self.assertEqual((message.opcode, message.key, message.extras, message.value), (dcp.NOOP, b"", b"", b""))
        self.assertIn(message.magic, dcp.REQUEST_MAGIC)
        for _ in range(2):
            message = awake.next(8.0)
            self.assertEqual(message.opcode, dcp.NOOP)
            awake.send(kv.frame(dcp.NOOP, magic=0x81, opaque=message.opaque))
        self.assertIsNone(silent.next(2.0))
        silent.must_stream(0)


class Requests(DcpCase):
    def setUp(self):
        super().setUp()
        self.vb = 3
        for _ in range(5):
            self.set(self.key_in(self.vb))
        self.high, self.uuid = self.high_seqno(self.vb), self.uuid_of(self.vb)

    def test_the_failover_log_comes_with_the_answer(self):
        log = self.consumer().must_stream(self.vb)
        self.assertEqual(log[0], (self.uuid, 0))

    def test_seqnos_that_make_no_sense(self):
        consumer = self.consumer()
        for start, end, snapshot in ((5, 4, (5, 5)), (3, dcp.FOREVER, (4, 5)), (5, dcp.FOREVER, (3, 4))):
            response = consumer.stream(self.vb, start=start, end=end, uuid=self.uuid, snapshot=snapshot)
            self.assert_status(response, kv.RANGE)
        consumer.must_stream(self.vb)

    def test_vbuckets_that_are_elsewhere(self):
        self.assert_status(self.consumer().stream(VBUCKETS), kv.NOT_MY_VBUCKET)

    def test_one_stream_per_vbucket(self):
        consumer = self.consumer()
        consumer.must_stream(self.vb)
        self.assert_status(consumer.stream(self.vb), kv.EXISTS)
        consumer.must_stream(self.vb + 1)

    def test_collections_and_xattrs_need_noop(self):
        plain = tuple(feature for feature in documents.FEATURES if feature != kv.F_COLLECTIONS)
        self.assert_status(self.consumer(noop=False).stream(self.vb), kv.NOT_SUPPORTED)
        with_xattrs = self.consumer(noop=False, features=plain, flags=dcp.PRODUCER | dcp.XATTRS)
        self.assert_status(with_xattrs.stream(self.vb), kv.NOT_SUPPORTED)
        self.consumer(noop=False, features=plain).must_stream(self.vb)

    def test_streams_to_close(self):
        consumer = self.consumer()
        self.assert_status(consumer.close_stream(self.vb)[0], kv.NOT_FOUND)
        consumer.must_stream(self.vb)
        self.assert_status(consumer.close_stream(self.vb)[0], kv.OK)
        self.assert_status(consumer.close_stream(self.vb)[0], kv.NOT_FOUND)
        consumer.must_stream(self.vb)

    def test_filters_that_cannot_be(self):
        consumer = self.consumer()
        for value, status in (
            (b"no json", kv.INVALID), (b"[]", kv.INVALID), (b"{}", kv.INVALID), (b'{"what":1}', kv.INVALID),
            (b'{"collections":"8"}', kv.INVALID), (b'{"collections":[8]}', kv.INVALID),
            (b'{"scope":"0","collections":["0"]}', kv.INVALID), (b'{"collections":["fff"]}', kv.UNKNOWN_COLLECTION),
            (b'{"scope":"fff"}', kv.UNKNOWN_SCOPE), (b'{"sid":"1"}', kv.INVALID),
            (b'{"uid":"0","sid":3}', STREAM_ID_INVALID), (b'{"uid":"0","sid":0}', STREAM_ID_INVALID),
        ):  # fmt: skip
            response = consumer.stream(self.vb, value=value)
            self.assertEqual(response.status, status, (value, hex(response.status)))
        consumer.must_stream(self.vb, value=b'{"collections":["0"]}')

    def rollback(self, consumer, **fields):
        """The seqno to go back to; None when the stream was opened (and closed again)."""
        response = consumer.stream(self.vb, **fields)
        if response.status == kv.ROLLBACK:
            return struct.unpack(">Q", response.value)[0]
        self.assert_status(response, kv.OK)
        consumer.close_stream(self.vb)
        return None

    def test_rollback(self):
        consumer, high = self.consumer(), self.high
        for start, snapshot, uuid, expected, *flags in (
            (0, (0, 0), 0, None),
            (0, (0, 0), 12345, None),
            (0, (0, 0), 12345, 0, dcp.STRICT_UUID),
            (high, (high, high), self.uuid, None),
            (3, (2, high), self.uuid, None),
            (3, (3, 3), self.uuid, None),
            # An unknown branch: nothing it says can be believed.
            (3, (3, 3), 12345, 0),
            (3, (3, 3), 0, 0),
            # Beyond the end.
            (high + 5, (high + 5, high + 5), self.uuid, high),
            (high + 5, (high + 3, high + 9), self.uuid, high),
            # Inside a snapshot that goes beyond it.
            (high, (high - 1, high + 3), self.uuid, high - 1),
            # The end of a snapshot is as good as a snapshot of its own; so is its start.
            (high, (1, high), self.uuid, None),
            (2, (2, high + 7), self.uuid, None),
        ):
            found = self.rollback(consumer, start=start, snapshot=snapshot, uuid=uuid, flags=sum(flags))
            self.assertEqual(found, expected, (start, snapshot, uuid))

    def test_failover_log(self):
        answer = self.consumer().call(dcp.FAILOVER_LOG, vb=self.vb)
        self.assertEqual(list(struct.iter_unpack(">QQ", answer.value))[0], (self.uuid, 0))
        self.assert_status(self.consumer().call(dcp.FAILOVER_LOG, vb=VBUCKETS), kv.NOT_MY_VBUCKET)

    def test_stream_ids(self):
        consumer = self.consumer(controls=(("enable_stream_id", "true"),))
        self.assert_status(consumer.stream(self.vb), STREAM_ID_INVALID)
        for number in (1, 2, 65535):
            consumer.must_stream(self.vb, value={"uid": "0", "sid": number})
        self.assert_status(consumer.stream(self.vb, value={"uid": "0", "sid": 2}), kv.EXISTS)
        self.assert_status(consumer.close_stream(self.vb)[0], STREAM_ID_INVALID)
        self.assert_status(consumer.close_stream(self.vb, framing=b"\x22\0\x02")[0], kv.OK)
        self.assertIn(consumer.close_stream(self.vb, framing=b"\x22\0\x02")[0].status, (STREAM_ID_INVALID, kv.NOT_FOUND))
        consumer.must_stream(self.vb, value={"uid": "0", "sid": 2})

    def test_what_only_replicas_do(self):
        consumer = self.consumer()
        for opcode, extras in ((dcp.ADD_STREAM, bytes(4)), (dcp.MARKER, bytes(20)), (0x5B, b"\x01")):
            consumer.send(kv.frame(opcode, extras=extras, opaque=77))
            try:
                message = consumer.next(5.0)
            except kv.Closed:
                consumer = self.consumer()
                continue
            self.assertNotEqual(message.status, kv.OK, hex(opcode))


class FlowControl(DcpCase):
    WINDOW = 10_000

    def setUp(self):
        super().setUp()
        self.vb = 5
        for _ in range(100):
            self.set(self.key_in(self.vb), bytes(1000))
        self.high = self.high_seqno(self.vb)

    def drain(self, consumer):
        messages = []
        while (message := consumer.next(0.5)) is not None:
            messages.append(message)
        return messages

    def test_the_window_holds(self):
        consumer = self.consumer(automatic=False, controls=(("connection_buffer_size", self.WINDOW),))
        consumer.must_stream(self.vb)
        first = self.drain(consumer)
        self.assertGreaterEqual(consumer.unacknowledged, self.WINDOW)
        self.assertLess(consumer.unacknowledged, self.WINDOW + 1500, "at most one message beyond the window")
        # Nothing more, but answers and failover logs are no stream messages.
        self.assert_status(consumer.call(kv.NOOP), kv.OK)
        self.assert_status(consumer.call(dcp.FAILOVER_LOG, vb=0), kv.OK)
        self.assertEqual(self.drain(consumer), [])
        ledger = dcp.Ledger().take_all(first)
        consumer.automatic = True
        consumer.acknowledge(consumer.unacknowledged)
        consumer.unacknowledged = 0
        ledger.catch_up(consumer, {self.vb: self.high})
        self.assertGreaterEqual(len(ledger.versions()), 100)

    def test_more_acknowledged_than_sent(self):
        consumer = self.consumer(automatic=False, controls=(("connection_buffer_size", self.WINDOW),))
        consumer.acknowledge(1 << 30)
        consumer.must_stream(self.vb)
        self.drain(consumer)
        self.assertLess(consumer.unacknowledged, self.WINDOW + 1500, "an overshoot is no credit")
        consumer.automatic = True
        consumer.acknowledge(0xFFFF_FFFF)
        consumer.unacknowledged = 0
        self.assertIsNotNone(consumer.next(5.0))

    def test_a_window_smaller_than_a_message(self):
        consumer = self.consumer(automatic=False, controls=(("connection_buffer_size", 100),))
        consumer.must_stream(self.vb)
        seqno, limit = 0, time.monotonic() + 20
        while seqno < self.high:
            message = consumer.next(5.0)
            self.assertIsNotNone(message)
            seqno = dcp.seqno_of(message) or seqno
            consumer.acknowledge(consumer.unacknowledged)
            consumer.unacknowledged = 0
            self.assertLess(time.monotonic(), limit)

    def test_without_a_window(self):
        consumer = self.consumer(automatic=False)
        consumer.must_stream(self.vb)
        dcp.Ledger().catch_up(consumer, {self.vb: self.high})
        self.assert_status(consumer.call(kv.NOOP), kv.OK)

    def test_a_malformed_acknowledgement(self):
        consumer = self.consumer()
        consumer.send(kv.frame(dcp.BUFFER_ACK, extras=b"\0\0", opaque=9))
        try:
            self.assert_status(consumer.next(5.0), kv.INVALID)
        except kv.Closed:
            pass
