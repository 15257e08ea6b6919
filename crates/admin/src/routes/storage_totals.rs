//! Memory and disk of nodes.

use base::NodeId;
use serde_json::{Value, json};
use stats::SystemStats;

use crate::request::{Call, figures::NodeFigures};

const MIB: u64 = 1024 * 1024;

/// Memory and disk, of the machines, granted to buckets, and taken: of one node, or of all that say what they have.
pub(super) fn storage_totals(call: &Call, of: Option<NodeId>) -> Value {
    let told: Vec<&NodeFigures> = call
        .figures
        .nodes()
        .filter(|(node, _)| of.is_none_or(|of| of == *node))
        .map(|(_, figures)| figures)
        .collect();
    let nodes = told.len() as u64;
    let system = |figure: fn(&SystemStats) -> u64| told.iter().map(|one| figure(&one.system)).sum::<u64>();
    let buckets = || told.iter().flat_map(|one| one.buckets.values());
    let (mem_used, disk_used) =
        buckets().fold((0, 0), |(mem, disk), one| (mem + one.mem_used, disk + one.disk_used));
    let (memory, disk) = (system(|one| one.memory_total), system(|one| one.disk_total));
    let memory_taken = system(|one| one.memory_total.saturating_sub(one.memory_free));
    let disk_taken = system(|one| one.disk_used);
    let granted: u64 = call
        .meta
        .buckets
        .values()
        .map(|bucket| bucket.ram_quota_mb.saturating_mul(MIB))
        .fold(0, u64::saturating_add);
    let quota = call.meta.quotas.data_mb.saturating_mul(MIB);
    json!({
        "ram": {
            "total": memory, "used": memory_taken, "quotaTotal": quota.saturating_mul(nodes),
            "quotaTotalPerNode": quota, "quotaUsed": granted.saturating_mul(nodes),
            "quotaUsedPerNode": granted, "usedByData": mem_used,
        },
        "hdd": {
            "total": disk, "quotaTotal": disk, "used": disk_taken, "usedByData": disk_used,
            "free": disk.saturating_sub(disk_taken),
        },
    })
}

/// Of each service that is not there, in MiB, as long as nobody has set one.
const QUOTAS_OF_OTHERS: [(&str, u64); 4] = [
    ("indexMemoryQuota", 512),
    ("ftsMemoryQuota", 512),
    ("cbasMemoryQuota", 1024),
    ("eventingMemoryQuota", 256),
];

/// What services may take, as tools expect it.
pub(super) fn add_quotas(call: &Call, pool: &mut Value) {
    pool["memoryQuota"] = call.meta.quotas.data_mb.into();
    for (name, megabytes) in QUOTAS_OF_OTHERS {
        pool[name] = megabytes.into();
    }
    for (name, megabytes) in &call.meta.quotas.others_mb {
        pool[name.as_str()] = (*megabytes).into();
    }
}
