//! What is asked for.

/// What is asked of one node for the whole cluster: a file and a path.
pub const OF_CLUSTER: [(&str, &str); 17] = [
    ("cluster.json", "/pools/default"),
    ("buckets.json", "/pools/default/buckets"),
    ("tasks.json", "/pools/default/tasks"),
    ("services.json", "/pools/default/nodeServices"),
    ("groups.json", "/pools/default/serverGroups"),
    ("certificates.json", "/pools/default/certificates"),
    ("alerts.json", "/settee/alerts"),
    ("silences.json", "/settee/alerts/silences"),
    ("objectives.json", "/settee/slo"),
    ("probe.json", "/settee/probe"),
    ("slow.json", "/settee/slow"),
    ("settings-auto-failover.json", "/settings/autoFailover"),
    ("settings-auto-compaction.json", "/settings/autoCompaction"),
    ("settings-rebalance.json", "/settings/rebalance"),
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

/// A name that is one part of a path, whatever is in it.
#[must_use]
pub fn file_name(text: &str) -> String {
    let kept = |one: char| if one.is_ascii_alphanumeric() || "-_.%".contains(one) { one } else { '_' };
    text.chars().take(60).map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(file_name("../[::1]:8091"), ".._[__1]_8091".replace(['[', ']'], "_"));
    }
}
