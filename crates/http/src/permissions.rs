//! The names REST gives to rights (`cluster.bucket[b].settings!read`), in both directions: what a 403 lists, and what
//! `checkPermissions` asks.

use cluster::auth::Privilege as P;

/// Each right with the object (below `cluster` or below the bucket) and the operations REST knows it by. The first
/// operation is the one shown.
const NAMES: &[(P, Object, &[&str])] = &[
    (P::PoolsRead, Object::Cluster("pools"), &["read"]),
    (P::ClusterRead, Object::Cluster("settings"), &["read"]),
    (P::ClusterRead, Object::Cluster("nodes"), &["read"]),
    (P::ClusterRead, Object::Cluster("tasks"), &["read"]),
    (P::ClusterRead, Object::Cluster("server_groups"), &["read"]),
    (P::ClusterRead, Object::Cluster("logs"), &["read"]),
    (P::ClusterRead, Object::Cluster("stats"), &["read"]),
    (P::ClusterAdmin, Object::Cluster("pools"), &["write"]),
    (P::ClusterAdmin, Object::Cluster("settings"), &["write"]),
    (P::ClusterAdmin, Object::Cluster("nodes"), &["write"]),
    (P::ClusterAdmin, Object::Cluster("admin.setup"), &["write"]),
    (P::ClusterAdmin, Object::Cluster("tasks"), &["write"]),
    (P::ClusterAdmin, Object::Cluster("server_groups"), &["write"]),
    (P::ClusterStats, Object::Cluster("admin.stats_export"), &["read"]),
    (P::AppTelemetry, Object::Cluster("app_telemetry"), &["write"]),
    (P::BucketCreate, Object::Cluster("buckets"), &["create"]),
    (P::UserRead, Object::Cluster("admin.users"), &["read"]),
    (P::UserAdmin, Object::Cluster("admin.users"), &["write"]),
    (P::UserAdmin, Object::Cluster("admin.security.local"), &["write"]),
    (P::ExternalUserAdmin, Object::Cluster("admin.security.external"), &["write"]),
    (P::SecurityRead, Object::Cluster("admin.security"), &["read"]),
    (P::SecurityAdmin, Object::Cluster("admin.security"), &["write"]),
    (P::Impersonate, Object::Cluster("admin.security"), &["impersonate"]),
    (P::NodeSupervisor, Object::Cluster("admin.memcached"), &["read", "write"]),
    (P::BucketRead, Object::Bucket("settings"), &["read"]),
    (P::BucketRead, Object::Bucket(""), &["read", "list"]),
    (P::BucketWrite, Object::Bucket("settings"), &["write"]),
    (P::BucketDelete, Object::Bucket(""), &["delete"]),
    (P::BucketFlush, Object::Bucket(""), &["flush"]),
    (P::BucketCompact, Object::Bucket(""), &["compact"]),
    (P::Stats, Object::Bucket("stats"), &["read"]),
    (P::SimpleStats, Object::Bucket("stats.simple"), &["read"]),
    (P::CollectionsRead, Object::Bucket("collections"), &["read"]),
    (P::CollectionsWrite, Object::Bucket("collections"), &["write"]),
    (P::ViewsRead, Object::Bucket("views"), &["read"]),
    (P::ViewsWrite, Object::Bucket("views"), &["write"]),
    (P::ViewsCompact, Object::Bucket("views"), &["compact"]),
    (P::Read, Object::Bucket("data.docs"), &["read", "sread"]),
    (P::Read, Object::Bucket("data"), &["read"]),
    (P::Insert, Object::Bucket("data.docs"), &["insert", "create"]),
    (P::Upsert, Object::Bucket("data.docs"), &["upsert", "update", "write"]),
    (P::Upsert, Object::Bucket("data"), &["write"]),
    (P::Delete, Object::Bucket("data.docs"), &["delete"]),
    (P::RangeScan, Object::Bucket("data.docs"), &["range_scan"]),
    (P::MetaRead, Object::Bucket("data.meta"), &["read"]),
    (P::MetaWrite, Object::Bucket("data.meta"), &["write"]),
    (P::SystemXattrRead, Object::Bucket("data.sxattr"), &["read"]),
    (P::SystemXattrWrite, Object::Bucket("data.sxattr"), &["write"]),
    (P::DcpProducer, Object::Bucket("data.dcp"), &["read"]),
    (P::DcpConsumer, Object::Bucket("data.dcp"), &["write"]),
];

/// The name of every right there is.
pub const EVERYTHING: &str = "cluster!all";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Object {
    Cluster(&'static str),
    Bucket(&'static str),
}

/// The name of a right, for people who lack it.
pub fn name(privilege: P, bucket: Option<&str>) -> String {
    let found = NAMES.iter().find(|(known, ..)| *known == privilege);
    let Some((_, object, operations)) = found else { return EVERYTHING.into() };
    let operation = operations.first().copied().unwrap_or("all");
    match object {
        Object::Cluster(path) => format!("cluster.{path}!{operation}"),
        Object::Bucket(path) => {
            let dot = if path.is_empty() { "" } else { "." };
            format!("cluster.bucket[{}]{dot}{path}!{operation}", bucket.unwrap_or("."))
        }
    }
}

/// A right asked by name: which one, and in which bucket (`None`: on the cluster).
pub struct Asked<'a> {
    /// The right.
    pub privilege: P,
    /// The bucket; `.` means any.
    pub bucket: Option<&'a str>,
}

/// Reads `cluster[.object]!operation` and `cluster.bucket[b][.object]!operation`; scopes and collections are taken as
/// their bucket. `None` for names that mean nothing here.
pub fn parse(text: &str) -> Option<Asked<'_>> {
    let (path, operation) = text.trim().split_once('!')?;
    let path = path.strip_prefix("cluster")?;
    let path = path.strip_prefix('.').unwrap_or(path);
    let kind = ["bucket[", "scope[", "collection["].iter().find_map(|kind| path.strip_prefix(kind));
    let (object, bucket) = match kind {
        Some(rest) => {
            let (parameters, object) = rest.split_once(']')?;
            let bucket = parameters.split(':').next()?;
            (Object::Bucket(static_object(object.strip_prefix('.').unwrap_or(object), true)?), Some(bucket))
        }
        None => (Object::Cluster(static_object(path, false)?), None),
    };
    let found = NAMES.iter().find(|(_, known, operations)| {
        *known == object && (operations.contains(&operation) || operation == "any")
    });
    found.map(|(privilege, ..)| Asked { privilege: *privilege, bucket })
}

fn static_object(path: &str, of_bucket: bool) -> Option<&'static str> {
    NAMES.iter().find_map(|(_, object, _)| match object {
        Object::Bucket(known) if of_bucket && *known == path => Some(*known),
        Object::Cluster(known) if !of_bucket && *known == path => Some(*known),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_the_right_they_name() {
        for &privilege in P::ALL {
            let text = name(privilege, Some("b"));
            let asked = parse(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(asked.privilege, privilege, "{text}");
        }
        assert!(parse("cluster.nonsense!read").is_none());
        assert!(parse("cluster.bucket[b.settings!read").is_none());
        assert!(parse("").is_none());
    }
}
