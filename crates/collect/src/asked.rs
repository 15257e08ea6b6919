//! What is asked for.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Most characters that a name may have in a path. With what stands around it that fits the header of an archive.
const NAME_CHARS_MAX: usize = 60;

/// What is asked of one node for the whole cluster: a file and a path.
pub const OF_CLUSTER: [(&str, &str); 19] = [
    ("cluster.json", "/pools/default"),
    ("buckets.json", "/pools/default/buckets"),
    ("tasks.json", "/pools/default/tasks"),
    ("services.json", "/pools/default/nodeServices"),
    ("groups.json", "/pools/default/serverGroups"),
    ("certificates.json", "/pools/default/certificates"),
    ("alerts.json", "/settee/alerts"),
    ("silences.json", "/settee/alerts/silences"),
    ("objectives.json", "/settee/slo"),
    ("forecasts.json", "/settee/forecast"),
    ("probe.json", "/settee/probe"),
    ("slow.json", "/settee/slow"),
    ("settings-auto-failover.json", "/settings/autoFailover"),
    ("settings-auto-compaction.json", "/settings/autoCompaction"),
    ("settings-rebalance.json", "/settings/rebalance"),
    ("settings-alerts.json", "/settings/alerts"),
    ("settings-audit.json", "/settings/audit"),
    ("settings-security.json", "/settings/security"),
    ("settings-password-policy.json", "/settings/passwordPolicy"),
];
/// What is asked of every node.
pub const OF_NODE: [(&str, &str); 5] = [
    ("node.json", "/nodes/self"),
    ("health.json", "/health/ready"),
    ("metrics.txt", "/metrics"),
    ("changes.json", "/logs"),
    ("log.json", "/settee/logs?limit=10000"),
];
/// What is asked of one node of every bucket, whose name stands for `{}`.
pub const OF_BUCKET: [(&str, &str); 5] = [
    ("stats-minute.json", "/pools/default/buckets/{}/stats?zoom=minute"),
    ("stats-day.json", "/pools/default/buckets/{}/stats?zoom=day"),
    ("latency.json", "/settee/latency/{}?zoom=hour"),
    ("collections.json", "/pools/default/buckets/{}/scopes"),
    ("design-documents.json", "/pools/default/buckets/{}/ddocs"),
];

/// A name that is one part of a path, whatever is in it. One that has to be cut ends with a hash of all of it. Names of buckets have up to
/// a hundred characters, and often begin alike.
#[must_use]
pub fn file_name(text: &str) -> String {
    let kept = |one: char| if one.is_ascii_alphanumeric() || "-_.%".contains(one) { one } else { '_' };
    if text.chars().nth(NAME_CHARS_MAX).is_none() {
        return text.chars().map(kept).collect();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let hash = format!("-{:016x}", hasher.finish());
    text.chars().take(NAME_CHARS_MAX - hash.len()).map(kept).chain(hash.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(file_name("../[::1]:8091"), ".._[__1]_8091".replace(['[', ']'], "_"));
    }

    #[test]
    fn long_names_that_begin_alike_are_different_files_that_fit_an_archive() {
        let [one, other] = ["1", "2"].map(|end| format!("{}{end}", "b".repeat(99)));
        let [in_one, in_other] = [&one, &other].map(|bucket| {
            let files = OF_BUCKET.map(|(file, _)| format!("bucket-{}/{file}", file_name(bucket)));
            assert!(files.iter().all(|name| name.len() <= 100), "{files:?}");
            files
        });
        assert!(in_one.iter().zip(&in_other).all(|(one, other)| one != other), "{in_one:?}");
        assert_eq!(file_name(&one), file_name(&one), "all files of a bucket are in one folder");
        // As long as may be without a cut.
        assert_eq!(file_name(one.get(..60).unwrap()), "b".repeat(60));
    }
}
