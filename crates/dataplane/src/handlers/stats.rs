//! STAT: named numbers, one packet each, an empty one at the end.
//!
//! Groups and names are those Couchbase publishes. A group that does not exist is "not found", as in Couchbase. What the main
//! group says is declared in [`crate::statistics`].

use base::{Datatype, Now, Seqno, Status, VbId, VbRole};
use cluster::auth::Privilege;
use engine::VbInfo;
use protocol::binary::{Response, write_response};

use crate::{
    figures::{
        meter::{Chore, LatencyStep, OpKind},
        phases::Phase,
    },
    handlers::range_scan,
    net::listener::ListenerKind,
    request::{call::Call, stage::Stop},
    state::shared::{BucketEntry, Shared},
    statistics::{
        self, BucketFacts, CONNECTIONS, MEMORY, NODE_POOLS, NodeFacts, OF_BUCKET, PACING, POOLS, PROCESS,
        PROCESS_DISK, PROCESS_LEASE, Pairs, WARM_UP, dcp, node_memory::node_memory,
    },
};

/// STAT and its groups.
pub(crate) fn stat(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let key = std::str::from_utf8(call.request.frame.key).map_err(|_| Stop::Status(Status::KeyNotFound))?;
    let (group, argument) = key.split_once(' ').unwrap_or((key, ""));
    if call.session.kind != ListenerKind::Memcached {
        call.session.require_everywhere(Privilege::SimpleStats)?;
    }
    let shared = &call.context.shared;
    let pairs = match group {
        "" => general(shared, call.session.bucket()?),
        "connections" => connections(shared),
        "dcp" => {
            call.session.require_everywhere(Privilege::Stats)?;
            // Of what the JSON can say, leaving the streams out is what saves work.
            let settings = String::from_utf8_lossy(call.request.frame.value);
            dcp::connections(shared, call.session.bucket()?, settings.contains("\"skip\""))
        }
        "dcpagg" => {
            call.session.require_everywhere(Privilege::Stats)?;
            dcp::aggregated(shared, call.session.bucket()?, argument)
        }
        "range-scans" => range_scans(call.session.bucket()?, argument, shared.now())?,
        _ => group_of(shared, call.session.bucket()?, group, argument)?,
    };
    for (name, value) in pairs {
        let response = Response::new(Status::Success);
        let header = &call.request.frame.header;
        write_response(&mut call.out.bytes, header, false, &response, &[], name.as_bytes(), value.as_bytes());
    }
    call.answer(base::Cas::NONE, Datatype::RAW, &[], &[], &[]);
    Ok(())
}

/// The statistics of one group.
///
/// # Errors
/// `KeyNotFound` for a group that does not exist; `NotSupported` for setting counters back.
pub(crate) fn group_of(
    shared: &Shared,
    bucket: &BucketEntry,
    group: &str,
    argument: &str,
) -> Result<Pairs, Status> {
    match group {
        "vbucket" => vbuckets(bucket, argument, vbucket_role),
        "vbucket-seqno" => vbuckets(bucket, argument, vbucket_seqnos),
        "vbucket-details" => vbuckets(bucket, argument, |info, out| {
            vbucket_role(info, out);
            vbucket_details(info, out);
        }),
        "failovers" => failovers(bucket, argument),
        "durability-monitor" => vbuckets(bucket, argument, vbucket_durability),
        "memory" => Ok(memory(shared, bucket)),
        "collections" => Ok(collections(bucket)),
        "scopes" => Ok(scopes(bucket)),
        "settings" => Ok(settings(bucket)),
        "timings" => Ok(timings(bucket)),
        "phases" => Ok(phases(bucket)),
        "warmup" => Ok(statistics::pairs(WARM_UP, &BucketFacts::gather(shared, bucket))),
        "runtimes" => Ok(runtimes(bucket)),
        "reset" => Err(Status::NotSupported),
        _ => Err(Status::KeyNotFound),
    }
}

fn pair(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// The statistics without a group: the process, then the bucket.
pub(crate) fn general(shared: &Shared, bucket: &BucketEntry) -> Pairs {
    let (node, facts) = (NodeFacts::gather(shared), BucketFacts::gather(shared, bucket));
    let mut pairs = statistics::pairs(PROCESS, &node);
    pairs.extend(statistics::pairs(CONNECTIONS, &node));
    pairs.extend(statistics::pairs(PROCESS_DISK, &node));
    pairs.extend(statistics::pairs(NODE_POOLS, &node.memory));
    pairs.extend(statistics::pairs(PROCESS_LEASE, &node));
    for rows in OF_BUCKET {
        pairs.extend(statistics::pairs(rows, &facts));
    }
    pairs
}

fn connections(shared: &Shared) -> Pairs {
    statistics::pairs(CONNECTIONS, &NodeFacts::gather(shared))
}

fn memory(shared: &Shared, bucket: &BucketEntry) -> Pairs {
    let facts = BucketFacts::gather(shared, bucket);
    let of_bucket = [MEMORY, POOLS, PACING].map(|rows| statistics::pairs(rows, &facts)).concat();
    [of_bucket, statistics::pairs(NODE_POOLS, &node_memory(shared))].concat()
}

/// One group of facts about every vBucket, or about the one named in the argument.
fn vbuckets(
    bucket: &BucketEntry,
    argument: &str,
    describe: impl Fn(&VbInfo, &mut Pairs),
) -> Result<Pairs, Status> {
    let mut pairs = Pairs::new();
    for vb in wanted(bucket, argument)? {
        let info = bucket.engine.vb_state(vb)?;
        // A request for all wants those that are here.
        if argument.is_empty() && info.role == VbRole::Dead && info.high_seqno == Seqno(0) {
            continue;
        }
        describe(&info, &mut pairs);
    }
    Ok(pairs)
}

fn range_scans(bucket: &BucketEntry, argument: &str, now: Now) -> Result<Pairs, Status> {
    let vb = match argument {
        "" => None,
        _ => wanted(bucket, argument)?.first().copied(),
    };
    Ok(range_scan::stats(bucket, vb, now, pair))
}

fn wanted(bucket: &BucketEntry, argument: &str) -> Result<Vec<VbId>, Status> {
    if argument.is_empty() {
        return Ok((0..bucket.engine.vbuckets()).map(VbId).collect());
    }
    let number: u16 = argument.parse().map_err(|_| Status::Invalid)?;
    if number < bucket.engine.vbuckets() { Ok(vec![VbId(number)]) } else { Err(Status::NotMyVbucket) }
}

fn vbucket_role(info: &VbInfo, out: &mut Pairs) {
    out.push((format!("vb_{}", info.vb), info.role.name().into()));
}

fn vbucket_seqnos(info: &VbInfo, out: &mut Pairs) {
    let vb = info.vb;
    let facts = [
        ("high_seqno", info.high_seqno.get()),
        ("abs_high_seqno", info.high_seqno.get()),
        ("last_persisted_seqno", info.persisted_seqno.get()),
        ("max_visible_seqno", info.max_visible_seqno.get()),
        ("high_prepared_seqno", info.high_prepared_seqno.get()),
        ("high_completed_seqno", info.high_completed_seqno.get()),
        ("purge_seqno", info.purge_seqno.get()),
        ("uuid", info.uuid.get()),
        ("last_persisted_snap_start", info.persisted_seqno.get()),
        ("last_persisted_snap_end", info.persisted_seqno.get()),
    ];
    out.extend(facts.map(|(name, value)| (format!("vb_{vb}:{name}"), value.to_string())));
}

fn vbucket_details(info: &VbInfo, out: &mut Pairs) {
    let vb = info.vb;
    let facts = [
        ("num_items", info.items),
        ("num_non_resident", info.non_resident),
        ("num_temp_items", info.tombstones),
        ("queue_size", info.queue_items),
        ("queue_memory", info.queue_bytes),
        ("ht_memory", info.table_bytes),
        ("ht_item_memory", info.item_bytes),
        ("high_seqno", info.high_seqno.get()),
        ("persisted_seqno", info.persisted_seqno.get()),
        ("purge_seqno", info.purge_seqno.get()),
        ("uuid", info.uuid.get()),
        ("max_cas", info.max_cas.get()),
        ("max_deleted_revid", info.max_deleted_rev),
        ("ops_create", info.ops.creates),
        ("ops_update", info.ops.updates),
        ("ops_delete", info.ops.deletes),
        ("num_ejects", info.ops.ejects),
    ];
    out.extend(facts.map(|(name, value)| (format!("vb_{vb}:{name}"), value.to_string())));
}

/// Durable writes in progress, and how far they have come.
fn vbucket_durability(info: &VbInfo, out: &mut Pairs) {
    let vb = info.vb;
    out.push((format!("vb_{vb}:state"), info.role.name().into()));
    let facts = [
        ("num_tracked", info.prepares),
        ("high_prepared_seqno", info.high_prepared_seqno.get()),
        ("high_completed_seqno", info.high_completed_seqno.get()),
    ];
    out.extend(facts.map(|(name, value)| (format!("vb_{vb}:{name}"), value.to_string())));
}

fn failovers(bucket: &BucketEntry, argument: &str) -> Result<Pairs, Status> {
    let mut pairs = Pairs::new();
    for vb in wanted(bucket, argument)? {
        let log = bucket.engine.failover_log(vb)?;
        pairs.push((format!("vb_{vb}:num_entries"), log.len().to_string()));
        for (index, (uuid, seqno)) in log.into_iter().enumerate() {
            pairs.push((format!("vb_{vb}:{index}:id"), uuid.to_string()));
            pairs.push((format!("vb_{vb}:{index}:seq"), seqno.to_string()));
        }
    }
    Ok(pairs)
}

fn collections(bucket: &BucketEntry) -> Pairs {
    let manifest = bucket.engine.manifest();
    let items = bucket.engine.stats().collections;
    let mut pairs = vec![("manifest_uid".to_owned(), manifest.uid.to_string())];
    for scope in &manifest.scopes {
        for collection in &scope.collections {
            let prefix = format!("0x{:x}:0x{:x}", scope.id.get(), collection.id.get());
            let count = items.iter().find(|(id, _)| *id == collection.id).map_or(0, |(_, count)| *count);
            pairs.push((format!("{prefix}:name"), collection.name.clone()));
            pairs.push((format!("{prefix}:scope_name"), scope.name.clone()));
            pairs.push((format!("{prefix}:items"), count.to_string()));
            if let Some(ttl) = collection.max_ttl_secs {
                pairs.push((format!("{prefix}:maxTTL"), ttl.to_string()));
            }
        }
    }
    pairs
}

fn scopes(bucket: &BucketEntry) -> Pairs {
    let manifest = bucket.engine.manifest();
    let mut pairs = vec![("manifest_uid".to_owned(), manifest.uid.to_string())];
    for scope in &manifest.scopes {
        let prefix = format!("0x{:x}", scope.id.get());
        pairs.push((format!("{prefix}:name"), scope.name.clone()));
        pairs.push((format!("{prefix}:collections"), scope.collections.len().to_string()));
    }
    pairs
}

fn settings(bucket: &BucketEntry) -> Pairs {
    let stats = bucket.engine.stats();
    vec![
        pair("ep_max_size", stats.quota_bytes),
        pair("ep_mem_high_wat", stats.mem_high_wat),
        pair("ep_mem_low_wat", stats.mem_low_wat),
        pair("ep_max_vbuckets", bucket.engine.vbuckets()),
        pair("ep_num_shards", bucket.engine.shards()),
        pair("ep_flush_enabled", bucket.flush_enabled),
    ]
}

/// Latencies as Couchbase prints them: `<operation>_<from>,<to>` in microseconds.
fn timings(bucket: &BucketEntry) -> Pairs {
    let mut pairs = Pairs::new();
    for (kind, name) in OpKind::ALL {
        histogram(name, &bucket.meter.latencies(kind), &mut pairs);
    }
    pairs
}

/// What requests spent their time on: histograms as of `timings`, and the sum in microseconds of each.
fn phases(bucket: &BucketEntry) -> Pairs {
    let mut pairs = Pairs::new();
    for (phase, name) in Phase::ALL {
        let report = bucket.meter.phase(phase);
        histogram(name, &report.steps, &mut pairs);
        pairs.push((format!("{name}_micros"), report.micros.to_string()));
    }
    pairs
}

/// The processor time of housekeeping's steps, each of which holds no lock for longer than that, and that for which
/// flushers hold one.
fn runtimes(bucket: &BucketEntry) -> Pairs {
    let mut pairs = Pairs::new();
    let chores = Chore::ALL.map(|(chore, name)| (name, bucket.meter.chore(chore)));
    for (name, report) in chores.into_iter().chain([("Commit", bucket.meter.commits())]) {
        histogram(name, &report.steps, &mut pairs);
        pairs.push((format!("{name}_micros"), report.micros.to_string()));
    }
    pairs
}

fn histogram(name: &str, steps: &[LatencyStep], out: &mut Pairs) {
    let pairs = steps
        .iter()
        .map(|step| (format!("{name}_{},{}", step.from_micros, step.to_micros), step.count.to_string()));
    out.extend(pairs);
}
