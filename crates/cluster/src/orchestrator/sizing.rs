//! Whether nodes are large enough for what shall be on them: the arithmetic that a rebalance is refused with.

use base::{
    NodeId,
    bucket::{BucketKind, EvictionPolicy},
};

use super::heard::Heard;
use crate::{BucketInfo, Metadata};

/// What a document takes in memory beside its key and value, and what its key is taken to need.
const METADATA_BYTES: u64 = 56 + 40;
/// Share of a bucket's quota that metadata, or a memory-only bucket's documents, may fill.
const QUOTA_PERCENT: u64 = 90;
/// Share of a disk that shall stay free.
const DISK_FREE_PERCENT: u64 = 5;
const MIB: u64 = 1 << 20;

/// What buckets hold in all, by what active copies have been reported.
struct Contents {
    items: u64,
    bytes: u64,
}

pub(super) fn check(meta: &Metadata, heard: &Heard, keep: &[NodeId]) -> Result<(), String> {
    let nodes = keep.len().max(1) as u64;
    let mut on_disk = 0_u64;
    for (name, bucket) in meta.buckets.iter().filter(|(_, bucket)| bucket.kind != BucketKind::Memcached) {
        let contents = contents(meta, heard, bucket);
        let copies = bucket.copies().min(keep.len()) as u64;
        check_memory(name, bucket, &contents, copies, nodes)?;
        if bucket.kind == BucketKind::Couchbase {
            on_disk = on_disk.saturating_add(contents.bytes.saturating_mul(copies) / nodes);
        }
    }
    let quotas = meta.buckets.values().map(|bucket| bucket.ram_quota_mb).sum::<u64>().saturating_mul(MIB);
    for &id in keep {
        let Some(report) = heard.report(id) else { continue };
        let host = meta.node_by_id(id).map_or("", |node| node.host.as_str());
        if report.data_quota < quotas {
            return Err(format!(
                "Node {host} has {} MiB for documents, the buckets' quotas are {} MiB.",
                report.data_quota / MIB,
                quotas / MIB
            ));
        }
        let held: u64 = report.buckets.iter().map(|bucket| bucket.bytes).sum();
        let usable = report.disk_free.saturating_sub(report.disk_total / 100 * DISK_FREE_PERCENT);
        let room = held.saturating_add(usable);
        if report.disk_total > 0 && on_disk > room {
            return Err(format!(
                "Each of {nodes} nodes would hold {} MiB on disk, node {host} has room for {} MiB.",
                on_disk / MIB,
                room / MIB
            ));
        }
    }
    Ok(())
}

fn check_memory(
    name: &str,
    bucket: &BucketInfo,
    contents: &Contents,
    copies: u64,
    nodes: u64,
) -> Result<(), String> {
    let metadata = contents.items.saturating_mul(METADATA_BYTES);
    // What cannot leave memory: everything, keys with what belongs to them, or nothing.
    let (what, resident) = match bucket.eviction {
        EvictionPolicy::NoEviction => ("documents", contents.bytes.saturating_add(metadata)),
        EvictionPolicy::ValueOnly => ("keys and metadata", metadata),
        EvictionPolicy::FullEviction | EvictionPolicy::NruEviction => return Ok(()),
    };
    let each = resident.saturating_mul(copies) / nodes;
    let room = bucket.ram_quota_mb.saturating_mul(MIB) / 100 * QUOTA_PERCENT;
    if each <= room {
        return Ok(());
    }
    Err(format!(
        "Bucket \"{name}\": {} MiB of {what} of {} documents × {copies} copies / {nodes} nodes = {} MiB on each node; \
         {QUOTA_PERCENT} % of its quota of {} MiB is {} MiB.",
        resident / MIB,
        contents.items,
        each / MIB,
        bucket.ram_quota_mb,
        room / MIB
    ))
}

/// Documents and bytes of one copy of everything. A node reports documents of active vBuckets, and bytes of all that is
/// there: those count by the share of copies that are active.
fn contents(meta: &Metadata, heard: &Heard, bucket: &BucketInfo) -> Contents {
    let mut contents = Contents { items: 0, bytes: 0 };
    let mut bytes_of_all = 0_u64;
    for node in &meta.nodes {
        let report = heard.report(node.id);
        let found = report.and_then(|report| report.buckets.iter().find(|other| other.uuid == bucket.uuid));
        let Some(found) = found else { continue };
        contents.items = contents.items.saturating_add(found.items);
        bytes_of_all = bytes_of_all.saturating_add(found.bytes);
    }
    let copies = bucket.vbs.iter().map(|plan| plan.chain.len()).sum::<usize>().max(1) as u64;
    contents.bytes = (u128::from(bytes_of_all) * bucket.vbs.len() as u128 / u128::from(copies)) as u64;
    contents
}
