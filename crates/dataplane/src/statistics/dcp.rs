//! `STAT dcp` and `STAT dcpagg`: what producers, and the links by which this node follows others, tell of themselves, under
//! the names Couchbase publishes (kv_engine `docs/dcp/documentation/statistics.md`).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::binary::dcp::OpenFlags;
use replication::producer::{
    controls::Priority,
    stats::{ProducerStats, StreamStats},
};

use crate::{
    state::{
        dcp_totals::{SEPARATOR, Sums, Totals, counted, load, sum_of_link},
        link::LinkView,
        producers::Highs,
        shared::{BucketEntry, Shared},
    },
    statistics::facts::Pairs,
};

/// In front of every connection's name.
const PREFIX: &str = "eq_dcpq:";

/// All of a bucket's connections together. What is counted never falls: it includes connections that have ended.
pub fn totals(shared: &Shared, bucket: &BucketEntry) -> Totals {
    let high = Highs::of(&bucket.engine);
    let (open, mut totals) = shared.dcp.of_bucket_and_ended(&bucket.uuid.0);
    for stats in open {
        totals.add(&stats.name, &sum(&stats, &high));
    }
    for link in links(shared, bucket) {
        totals.add(&link.name, &sum_of_link(&link));
    }
    totals
}

fn links(shared: &Shared, bucket: &BucketEntry) -> Vec<LinkView> {
    shared.links().map_or_else(Vec::new, |links| links.views(&bucket.uuid))
}

/// `dcp`: every connection with its streams, then the sums. `without_streams` leaves the streams out.
pub(crate) fn connections(shared: &Shared, bucket: &BucketEntry, without_streams: bool) -> Pairs {
    let high = Highs::of(&bucket.engine);
    let mut pairs = Pairs::new();
    let mut totals = Totals::default();
    for stats in &shared.dcp.of_bucket(&bucket.uuid.0) {
        let sums = sum(stats, &high);
        producer(stats, &sums, &mut pairs);
        if !without_streams {
            stats.streams.lock().iter().for_each(|stream| stream_of(stats, stream, &high, &mut pairs));
        }
        totals.add(&stats.name, &sums);
    }
    for link in &links(shared, bucket) {
        consumer(link, &mut pairs);
        if !without_streams {
            followed(bucket, link, &mut pairs);
        }
        totals.add(&link.name, &sum_of_link(link));
    }
    let mut say = |name: String, value: u64| pairs.push((name, value.to_string()));
    for (prefix, sums) in [("ep_dcp", totals.all), ("ep_dcp_replica", totals.replication)] {
        say(format!("{prefix}_count"), sums.producers + sums.consumers);
        say(format!("{prefix}_producer_count"), sums.producers);
        say(format!("{prefix}_consumer_count"), sums.consumers);
        say(format!("{prefix}_items_sent"), sums.items_sent);
        say(format!("{prefix}_items_remaining"), sums.items_remaining);
        say(format!("{prefix}_total_bytes"), sums.bytes_sent + sums.bytes_received);
        say(format!("{prefix}_total_uncompressed_data_size"), sums.inflated_bytes_sent);
        say(format!("{prefix}_backfill_disk"), sums.from_disk);
    }
    pairs
}

/// `dcpagg`: sums over connections whose names begin alike, up to `separator`.
pub(crate) fn aggregated(shared: &Shared, bucket: &BucketEntry, separator: &str) -> Pairs {
    let separator = if separator.is_empty() { SEPARATOR } else { separator };
    let high = Highs::of(&bucket.engine);
    let producers = shared.dcp.of_bucket(&bucket.uuid.0);
    let producers = producers.iter().map(|stats| (stats.name.to_string(), sum(stats, &high)));
    let consumers = links(shared, bucket).into_iter().map(|link| {
        let sums = sum_of_link(&link);
        (link.name, sums)
    });
    let mut groups: BTreeMap<String, Sums> = BTreeMap::new();
    let mut total = Sums::default();
    for (name, sums) in producers.chain(consumers) {
        total.add(&sums);
        if let Some((group, _)) = name.split_once(separator) {
            groups.entry(group.to_owned()).or_default().add(&sums);
        }
    }
    groups.insert(format!("{separator}total"), total);
    let facts = |(group, sums): (String, Sums)| {
        let facts = [
            ("count", sums.producers + sums.consumers),
            ("producer_count", sums.producers),
            ("consumer_count", sums.consumers),
            ("activestream_count", sums.streams),
            ("items_sent", sums.items_sent),
            ("items_remaining", sums.items_remaining),
            ("total_bytes", sums.bytes_sent + sums.bytes_received),
            ("total_uncompressed_data_size", sums.inflated_bytes_sent),
            ("paused_count", sums.pauses),
            ("backoff", sums.backoffs),
            ("items_backfilled_disk", sums.from_disk),
        ];
        facts.map(|(name, value)| (format!("{group}:{name}"), value.to_string()))
    };
    groups.into_iter().flat_map(facts).collect()
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

fn sum(stats: &ProducerStats, high: &Highs) -> Sums {
    let mut sums = counted(stats);
    for stream in stats.streams.lock().iter() {
        sums.streams += 1;
        sums.items_remaining += high.remaining(stream);
        sums.from_disk += load(&stream.from_disk);
    }
    sums
}

fn producer(stats: &ProducerStats, sums: &Sums, pairs: &mut Pairs) {
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
    say("total_uncompressed_data_size", &sums.inflated_bytes_sent);
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

/// A link to a node that is followed. It is listed for as long as it is wished for, whether there is a connection or not.
fn consumer(link: &LinkView, pairs: &mut Pairs) {
    let mut say = |name: &str, value: &dyn ToString| {
        pairs.push((format!("{PREFIX}{}:{name}", link.name), value.to_string()));
    };
    say("type", &"consumer");
    say("created", &link.created);
    say("connected", &link.is_up);
    say("pending_disconnect", &false);
    say("supports_ack", &true);
    say("synchronous_replication", &true);
    say("num_streams", &link.streams.iter().filter(|(_, is_open)| *is_open).count());
    say("total_backoffs", &load(&link.stats.pauses));
    say("total_bytes_received", &load(&link.stats.bytes));
    say("settee_messages_received", &load(&link.stats.messages));
    say("settee_connects", &link.connects);
    say("settee_rollbacks", &load(&link.stats.rollbacks));
    say("settee_faults", &load(&link.stats.faults));
    if let Some(failure) = &link.failure {
        say("settee_failure", failure);
    }
}

/// The streams of a link.
fn followed(bucket: &BucketEntry, link: &LinkView, pairs: &mut Pairs) {
    for (vb, is_open) in &link.streams {
        let mut say = |name: &str, value: &dyn ToString| {
            pairs.push((format!("{PREFIX}{}:stream_{vb}_{name}", link.name), value.to_string()));
        };
        say("state", &if *is_open { "reading" } else { "dead" });
        if let Ok(info) = bucket.engine.vb_state(*vb) {
            say("vb_uuid", &info.uuid);
            say("last_received_seqno", &info.high_seqno);
        }
    }
}

fn stream_of(stats: &ProducerStats, stream: &Arc<StreamStats>, high: &Highs, pairs: &mut Pairs) {
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
    say("items_remaining", &high.remaining(stream));
}
