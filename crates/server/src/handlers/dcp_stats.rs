//! `STAT dcp` and `STAT dcpagg`: what producers tell of themselves, under the names Couchbase publishes
//! (kv_engine `docs/dcp/documentation/statistics.md`).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use base::{Seqno, VbId, VbRole};
use protocol::binary::dcp::OpenFlags;
use replication::producer::{
    controls::Priority,
    stats::{ProducerStats, StreamStats},
};

use super::stats::Pairs;
use crate::shared::{BucketEntry, Shared};

/// In front of every connection's name.
const PREFIX: &str = "eq_dcpq:";
/// Separates a connection's kind from the rest of its name, unless the question says otherwise.
const SEPARATOR: &str = ":";

/// Sums over connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) connections: u64,
    streams: u64,
    pub(crate) items_sent: u64,
    pub(crate) items_remaining: u64,
    pub(crate) bytes_sent: u64,
    pauses: u64,
    from_disk: u64,
}

/// All of a bucket's connections together.
pub(crate) fn totals(shared: &Shared, bucket: &BucketEntry) -> Sums {
    let high = bucket.engine.seqnos(None, &[VbRole::Active]);
    let mut total = Sums::default();
    shared.dcp.of_bucket(&bucket.uuid.0).iter().for_each(|stats| total.add(&sum(stats, &high)));
    total
}

/// `dcp`: every connection with its streams, then the sums. `without_streams` leaves the streams out.
pub(super) fn connections(shared: &Shared, bucket: &BucketEntry, without_streams: bool) -> Pairs {
    let high = bucket.engine.seqnos(None, &[VbRole::Active]);
    let producers = shared.dcp.of_bucket(&bucket.uuid.0);
    let mut pairs = Pairs::new();
    let mut total = Sums::default();
    for stats in &producers {
        let sums = sum(stats, &high);
        connection(stats, &sums, &mut pairs);
        if !without_streams {
            stats.streams.lock().iter().for_each(|stream| stream_of(stats, stream, &high, &mut pairs));
        }
        total.add(&sums);
    }
    let mut say = |name: &str, value: u64| pairs.push((name.to_owned(), value.to_string()));
    say("ep_dcp_count", total.connections);
    say("ep_dcp_producer_count", total.connections);
    say("ep_dcp_consumer_count", 0);
    say("ep_dcp_items_sent", total.items_sent);
    say("ep_dcp_items_remaining", total.items_remaining);
    say("ep_dcp_total_bytes", total.bytes_sent);
    say("ep_dcp_backfill_disk", total.from_disk);
    pairs
}

/// `dcpagg`: sums over connections whose names begin alike, up to `separator`.
pub(super) fn aggregated(shared: &Shared, bucket: &BucketEntry, separator: &str) -> Pairs {
    let separator = if separator.is_empty() { SEPARATOR } else { separator };
    let high = bucket.engine.seqnos(None, &[VbRole::Active]);
    let mut groups: BTreeMap<String, Sums> = BTreeMap::new();
    let mut total = Sums::default();
    for stats in shared.dcp.of_bucket(&bucket.uuid.0) {
        let sums = sum(&stats, &high);
        total.add(&sums);
        if let Some((group, _)) = stats.name.split_once(separator) {
            groups.entry(group.to_owned()).or_default().add(&sums);
        }
    }
    groups.insert(format!("{separator}total"), total);
    let facts = |(group, sums): (String, Sums)| {
        let facts = [
            ("count", sums.connections),
            ("producer_count", sums.connections),
            ("consumer_count", 0),
            ("activestream_count", sums.streams),
            ("items_sent", sums.items_sent),
            ("items_remaining", sums.items_remaining),
            ("total_bytes", sums.bytes_sent),
            ("paused_count", sums.pauses),
            ("items_backfilled_disk", sums.from_disk),
        ];
        facts.map(|(name, value)| (format!("{group}:{name}"), value.to_string()))
    };
    groups.into_iter().flat_map(facts).collect()
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.streams += other.streams;
        self.items_sent += other.items_sent;
        self.items_remaining += other.items_remaining;
        self.bytes_sent += other.bytes_sent;
        self.pauses += other.pauses;
        self.from_disk += other.from_disk;
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// Seqnos that a stream has not looked at yet: no fewer than the items it has still to send.
fn remaining(stream: &StreamStats, high: &[(VbId, Seqno)]) -> u64 {
    let high = high.get(usize::from(stream.vb.get())).map_or(0, |(_, high)| high.get());
    high.min(stream.end.get()).saturating_sub(load(&stream.last_read))
}

fn sum(stats: &ProducerStats, high: &[(VbId, Seqno)]) -> Sums {
    let mut sums = Sums {
        connections: 1,
        items_sent: load(&stats.items_sent),
        bytes_sent: load(&stats.bytes_sent),
        pauses: load(&stats.pauses),
        ..Sums::default()
    };
    for stream in stats.streams.lock().iter() {
        sums.streams += 1;
        sums.items_remaining += remaining(stream, high);
        sums.from_disk += load(&stream.from_disk);
    }
    sums
}

fn connection(stats: &ProducerStats, sums: &Sums, pairs: &mut Pairs) {
    let controls = *stats.controls.lock();
    let mut say = |name: &str, value: &dyn ToString| {
        pairs.push((format!("{PREFIX}{}:{name}", stats.name), value.to_string()));
    };
    say("type", &"producer");
    say("created", &stats.created);
    say("pending_disconnect", &false);
    say("supports_ack", &true);
    say("paused", &is(&stats.paused));
    say("paused_count", &sums.pauses);
    say(
        "priority",
        &match controls.priority {
            Priority::Low => "low",
            Priority::Medium => "medium",
            Priority::High => "high",
        },
    );
    say("num_streams", &stats.streams.lock().len());
    say("items_sent", &sums.items_sent);
    say("items_remaining", &sums.items_remaining);
    say("total_bytes_sent", &sums.bytes_sent);
    say("noop_enabled", &is(&stats.noop_enabled));
    say("noop_tx_interval", &(load(&stats.noop_interval_millis) / 1000));
    say("noop_wait", &is(&stats.noop_waiting));
    say("force_value_compression", &controls.force_compression);
    say("cursor_dropping", &!controls.no_cursor_dropping);
    say("send_stream_end_on_client_close_stream", &controls.end_closed_streams);
    say("enable_expiry_opcode", &controls.expiry_opcode);
    say("enable_stream_id", &controls.stream_ids);
    say("synchronous_replication", &(controls.sync_writes && controls.is_named));
    say("synchronous_writes", &controls.sync_writes);
    say("max_marker_version", &if controls.marker_v22 { "2.2" } else { "1.0" });
    say("backfill_order", &if controls.sequential_backfills { "sequential" } else { "round-robin" });
    say("collections", &stats.negotiated.collections);
    say("include_xattrs", &stats.negotiated.flags.has(OpenFlags::INCLUDE_XATTRS));
    let window = load(&stats.window);
    if window > 0 {
        say("max_buffer_bytes", &window);
        say("unacked_bytes", &load(&stats.unacknowledged));
        say("total_acked_bytes", &load(&stats.acknowledged));
    }
    say("flow_control", &if window > 0 { "enabled" } else { "disabled" });
}

fn stream_of(stats: &ProducerStats, stream: &Arc<StreamStats>, high: &[(VbId, Seqno)], pairs: &mut Pairs) {
    let id = stream.stream_id.map_or(String::new(), |id| format!("sid:{id}_"));
    let prefix = format!("{PREFIX}{}:stream_{}_{id}", stats.name, stream.vb);
    let mut say = |name: &str, value: &dyn ToString| {
        pairs.push((format!("{prefix}{name}"), value.to_string()));
    };
    say("flags", &stream.flags);
    say("opaque", &stream.opaque);
    say("start_seqno", &stream.start);
    say("end_seqno", &stream.end);
    say("vb_uuid", &stream.vb_uuid);
    say("snap_start_seqno", &stream.snap_start);
    say("snap_end_seqno", &stream.snap_end);
    say("state", &stream.phase().name());
    say("backfill_sent", &load(&stream.from_disk));
    say("memory_phase", &load(&stream.from_memory));
    say("last_sent_seqno", &load(&stream.last_sent));
    say("last_read_seqno", &load(&stream.last_read));
    say("items_remaining", &remaining(stream, high));
}
