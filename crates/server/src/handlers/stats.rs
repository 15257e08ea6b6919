//! STAT: named numbers, one packet each, an empty one at the end.
//!
//! Groups and names are those Couchbase publishes. A group that does not exist is "not found", as there.

use base::{Datatype, Now, Seqno, Status, VbId, VbRole};
use cluster::auth::Privilege;
use engine::{BucketStats, Pool, VbInfo, WarmupState};
use protocol::binary::write_response;
use storage::StoreStats;

use crate::{
    account::node_memory,
    call::{Call, Stop},
    handlers::{dcp_stats, node, range_scan},
    lease,
    meter::{Chore, LatencyStep, OpKind},
    phases::Phase,
    shared::{BucketEntry, Shared},
    workers::ListenerKind,
};

pub(super) type Pairs = Vec<(String, String)>;

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
            dcp_stats::connections(shared, call.session.bucket()?, settings.contains("\"skip\""))
        }
        "dcpagg" => {
            call.session.require_everywhere(Privilege::Stats)?;
            dcp_stats::aggregated(shared, call.session.bucket()?, argument)
        }
        "range-scans" => range_scans(call.session.bucket()?, argument, shared.now())?,
        _ => group_of(shared, call.session.bucket()?, group, argument)?,
    };
    for (name, value) in pairs {
        let response = call.response();
        let header = &call.request.frame.header;
        write_response(&mut call.out.bytes, header, false, &response, &[], name.as_bytes(), value.as_bytes());
    }
    call.answer(base::Cas::NONE, Datatype::RAW, &[], &[], &[]);
    Ok(())
}

/// The statistics of one group as REST shows them; none for a group that does not exist.
pub(crate) fn of_rest(shared: &Shared, bucket: &BucketEntry, group: &str) -> Pairs {
    match group {
        "" => general(shared, bucket),
        _ => group_of(shared, bucket, group, "").unwrap_or_default(),
    }
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
        "memory" => {
            let stats = bucket.engine.stats();
            Ok([memory(&stats), pools(&stats), pacing(&stats), node_pools(shared)].concat())
        }
        "collections" => Ok(collections(bucket)),
        "scopes" => Ok(scopes(bucket)),
        "settings" => Ok(settings(bucket)),
        "timings" => Ok(timings(bucket)),
        "phases" => Ok(phases(bucket)),
        "warmup" => Ok(warm_up(bucket, &bucket.engine.stats())),
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
    let stats = bucket.engine.stats();
    let mut pairs = process(shared);
    pairs.extend(operations(bucket));
    pairs.extend(documents(bucket, &stats));
    pairs.extend(memory(&stats));
    pairs.extend(pools(&stats));
    pairs.extend(pacing(&stats));
    pairs.extend(disk(&stats));
    pairs.extend(held(&stats));
    pairs
}

fn process(shared: &Shared) -> Pairs {
    let mut pairs = vec![
        pair("pid", std::process::id()),
        pair("uptime", shared.uptime_secs()),
        pair("time", shared.now().unix_secs()),
        pair("version", node::version_text()),
        pair("settee_version", env!("CARGO_PKG_VERSION")),
        pair("pointer_size", usize::BITS),
    ];
    pairs.extend(connections(shared));
    let disk = *shared.disk.lock();
    pairs.extend([
        pair("settee_disk_free", disk.free),
        pair("settee_disk_free_min", disk.free_min),
        pair("settee_disk_low", disk.low),
    ]);
    pairs.extend(node_pools(shared));
    // Present where actives serve only under a lease.
    pairs.extend(
        shared.lease.left_millis(lease::clock_millis()).map(|millis| pair("settee_lease_ms", millis)),
    );
    pairs
}

fn connections(shared: &Shared) -> Pairs {
    let totals = &shared.totals;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    vec![
        pair("curr_connections", load(&totals.connections)),
        pair("total_connections", load(&totals.connections_total)),
        pair("max_connections", load(&totals.connections_max)),
        pair("auth_errors", load(&totals.auth_errors)),
        pair("bytes_read", load(&totals.bytes_read)),
        pair("bytes_written", load(&totals.bytes_written)),
    ]
}

fn operations(bucket: &BucketEntry) -> Pairs {
    let meter = &bucket.meter;
    let sum = |kinds: &[OpKind]| kinds.iter().map(|kind| meter.operations(*kind)).sum::<u64>();
    // Sub-document operations count as reads and writes as well.
    let gets = sum(&[OpKind::Get, OpKind::SubdocLookup]);
    let get_misses = meter.misses(OpKind::Get) + meter.misses(OpKind::SubdocLookup);
    let hits_and_misses = |name: &str, kind: OpKind| {
        let misses = meter.misses(kind);
        let hits = meter.operations(kind).saturating_sub(misses);
        [(format!("{name}_hits"), hits.to_string()), (format!("{name}_misses"), misses.to_string())]
    };
    let stores =
        [OpKind::Set, OpKind::Add, OpKind::Replace, OpKind::Append, OpKind::Prepend, OpKind::SubdocMutation];
    let mut pairs = vec![
        pair("cmd_get", gets),
        pair("get_hits", gets.saturating_sub(get_misses)),
        pair("get_misses", get_misses),
        pair("cmd_set", sum(&stores)),
        pair("cmd_touch", sum(&[OpKind::Touch, OpKind::GetAndTouch])),
        pair("cmd_lock", sum(&[OpKind::Lock])),
        pair("cmd_subdoc_lookup", sum(&[OpKind::SubdocLookup])),
        pair("cmd_subdoc_mutation", sum(&[OpKind::SubdocMutation])),
        pair("cmd_total", meter.total()),
        // What tools of Couchbase read.
        pair("cmd_total_gets", gets),
        pair("cmd_total_sets", sum(&stores)),
        pair("cmd_total_ops", meter.total()),
    ];
    pairs.extend(hits_and_misses("delete", OpKind::Delete));
    pairs.extend(hits_and_misses("incr", OpKind::Increment));
    pairs.extend(hits_and_misses("decr", OpKind::Decrement));
    pairs
}

fn documents(bucket: &BucketEntry, stats: &BucketStats) -> Pairs {
    let ops = &stats.ops;
    vec![
        pair("bucket_uuid", &bucket.uuid.0),
        pair("curr_items", stats.curr_items),
        pair("curr_items_tot", stats.active.items + stats.replica.items),
        pair("vb_active_curr_items", stats.active.items),
        pair("vb_active_num", stats.active.vbuckets),
        pair("vb_active_itm_memory", stats.active.item_bytes),
        pair("vb_active_ht_memory", stats.active.table_bytes),
        pair("vb_replica_num", stats.replica.vbuckets),
        pair("vb_replica_curr_items", stats.replica.items),
        pair("vb_replica_num_non_resident", stats.replica.non_resident),
        pair("vb_replica_perc_mem_resident", stats.replica.resident_percent()),
        pair("vb_replica_itm_memory", stats.replica.item_bytes),
        pair("vb_replica_ht_memory", stats.replica.table_bytes),
        pair("vb_replica_queue_size", stats.replica.queue_items),
        pair("vb_pending_num", 0),
        pair("vb_dead_num", stats.dead.vbuckets),
        pair("vb_active_num_non_resident", stats.active.non_resident),
        pair("vb_active_perc_mem_resident", stats.resident_percent),
        pair("vb_active_resident_items_ratio", stats.resident_percent),
        pair("vb_active_ops_create", ops.creates),
        pair("vb_active_ops_update", ops.updates),
        pair("vb_active_ops_delete", ops.deletes),
        pair("vb_active_expired", ops.expired),
        pair("ep_expired_access", ops.expired),
        pair("vb_active_eject", ops.ejects),
        pair("vb_active_auto_delete_count", ops.auto_deletes),
        pair("ep_bg_fetched", stats.ops.bg_fetched),
        pair("cas_badval", ops.cas_mismatches),
        pair("lock_errors", ops.lock_errors),
        pair("ep_degraded_mode", u8::from(stats.poisoned)),
    ]
    .into_iter()
    .chain(warm_up(bucket, stats))
    .collect()
}

/// How far warm-up is. What Couchbase calls access log is the list of the most used keys.
fn warm_up(bucket: &BucketEntry, stats: &BucketStats) -> Pairs {
    let is_done = stats.warmup == WarmupState::Done;
    let state = match (is_done, stats.warmup_items) {
        (true, _) => "done",
        (false, 0) => "loading access log",
        (false, _) => "loading data",
    };
    vec![
        pair("ep_warmup", "enabled"),
        pair("ep_warmup_state", state),
        pair("ep_warmup_thread", if is_done { "complete" } else { "running" }),
        pair("ep_warmup_access_log", stats.warmup_hot),
        pair("ep_warmup_key_count", stats.warmup_items),
        pair("ep_warmup_value_count", stats.warmup_items),
        pair("ep_warmup_estimated_key_count", stats.warmup_items_estimated),
        pair("ep_warmup_estimated_value_count", stats.warmup_items_estimated),
        pair("ep_warmup_bytes", stats.warmup_bytes),
        pair("ep_warmup_time", bucket.meter.warm_up_time().as_micros()),
    ]
}

fn memory(stats: &BucketStats) -> Pairs {
    vec![
        pair("mem_used", stats.mem_used),
        pair("mem_used_estimate", stats.mem_used),
        pair("bytes", stats.mem_used),
        pair("ep_kv_size", stats.kv_bytes),
        pair("ep_value_size", stats.value_bytes),
        pair("ep_meta_data_memory", stats.kv_bytes - stats.value_bytes),
        pair("ep_overhead", overhead(stats)),
        pair("ep_checkpoint_memory", stats.checkpoint_memory),
        pair("ep_checkpoint_memory_overhead", stats.checkpoint_bytes),
        pair("ep_checkpoint_memory_cursors", stats.cursor_bytes),
        pair("ep_checkpoint_memory_cursors_max", stats.cursor_bytes_max),
        pair("ep_range_scan_memory", stats.scan_bytes),
        pair("ep_items_rm_from_checkpoints", stats.checkpoint_items_removed),
        pair("ep_cursors_dropped", stats.cursors_dropped),
        pair("ep_backfill_memory", stats.backfill_bytes),
        pair("ep_backfill_errors", stats.backfill_errors),
        pair("ep_total_cache_size", stats.arena_committed),
        pair("ep_max_size", stats.quota_bytes),
        pair("engine_maxbytes", stats.quota_bytes),
        pair("ep_mem_high_wat", stats.mem_high_wat),
        pair("ep_mem_high_wat_percent", share(stats.mem_high_wat, stats)),
        pair("ep_mem_low_wat", stats.mem_low_wat),
        pair("ep_mem_low_wat_percent", share(stats.mem_low_wat, stats)),
        pair("ep_mutation_mem_ratio", share(stats.mem_limit, stats)),
        pair("ep_oom_errors", stats.oom_errors),
        pair("ep_tmp_oom_errors", stats.tmp_oom_errors),
        pair("settee_refused_no_space", stats.disk_refusals.space),
        pair("settee_refused_disk_broken", stats.disk_refusals.broken),
        pair("settee_refused_cas_ceiling", stats.disk_refusals.ceiling),
        pair("ep_num_non_resident", stats.non_resident),
        pair("settee_num_evicted", stats.evicted),
        pair("ep_num_value_ejects", stats.ops.ejects),
    ]
}

/// What is held beside documents, tables and indexes, and comes and goes.
fn overhead(stats: &BucketStats) -> u64 {
    let lasting = [Pool::Items, Pool::Metadata, Pool::ColdIndex].map(|pool| stats.pools.of(pool));
    stats.mem_used - lasting.iter().sum::<u64>()
}

/// A share of the quota, as a fraction.
fn share(bytes: u64, stats: &BucketStats) -> f64 {
    // Thresholds are whole percents.
    (bytes as f64 * 100.0 / stats.quota_bytes.max(1) as f64).round() / 100.0
}

/// How mutations are paced, and what that is decided by.
fn pacing(stats: &BucketStats) -> Pairs {
    let pacing = &stats.pacing;
    vec![
        pair("ep_pressure_step", pacing.step as u8),
        pair("settee_paced_waiting", pacing.waiting),
        pair("settee_paced_waiting_bytes", pacing.waiting_bytes),
        pair("settee_paced_total", pacing.paced),
        pair("settee_paced_refused", pacing.refused),
        pair("settee_drain_bytes_per_sec", pacing.drain_rate),
        pair("settee_reclaim_bytes_per_sec", pacing.reclaim_rate),
        pair("settee_followers_behind_seconds", pacing.followers_seconds),
        pair("settee_intake_bytes_per_sec", pacing.intake_rate),
        pair("settee_drained_bytes", pacing.drained_bytes),
    ]
}

/// Who holds the bytes of `mem_used`.
fn pools(stats: &BucketStats) -> Pairs {
    let pool = |(pool, name)| (format!("settee_mem_{name}"), stats.pools.of(pool).to_string());
    let holes =
        pair("settee_arena_holes", stats.arena_committed - stats.arena_used.min(stats.arena_committed));
    Pool::ALL.map(pool).into_iter().chain([holes]).collect()
}

/// Who holds the memory of the process.
fn node_pools(shared: &Shared) -> Pairs {
    let pools = node_memory(shared).pools();
    pools.map(|(name, bytes)| (format!("settee_node_mem_{name}"), bytes.to_string())).into()
}

fn disk(stats: &BucketStats) -> Pairs {
    vec![
        pair("ep_queue_size", stats.queue_size),
        pair("ep_flusher_todo", stats.unsynced_items),
        pair("ep_diskqueue_items", stats.diskqueue_items),
        pair("ep_diskqueue_memory", stats.diskqueue_bytes),
        pair("ep_diskqueue_pending", stats.diskqueue_bytes),
        pair("ep_diskqueue_fill", stats.diskqueue_fill),
        pair("ep_diskqueue_drain", stats.diskqueue_drain),
        pair("vb_active_queue_size", stats.queue_size),
        pair("ep_total_enqueued", stats.diskqueue_fill),
        pair("ep_total_persisted", stats.total_persisted),
        pair("ep_item_commit_failed", stats.commit_failures),
        pair("ep_flusher_syncs", stats.stores.iter().map(|store| store.syncs).sum::<u64>()),
        pair("ep_bg_remaining_items", stats.bg_queue),
        pair("ep_db_file_size", stats.disk_bytes),
        pair("ep_db_data_size", stats.disk_live_bytes),
    ]
}

/// What streams and scans keep from being freed; zero when there are none.
fn held(stats: &BucketStats) -> Pairs {
    let stores = |of: fn(&StoreStats) -> u64| stats.stores.iter().map(of).sum::<u64>();
    vec![
        pair("settee_cursors", stats.cursors),
        pair("settee_backfills", stores(|store| store.backfills)),
        pair("settee_pins", stores(|store| store.pins)),
        pair("settee_pinned_bytes", stores(|store| store.bytes_pinned)),
    ]
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
        // Whoever asks for all wants those that are here.
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
