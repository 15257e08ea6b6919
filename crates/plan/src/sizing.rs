//! The sizing rule: from documents to memory, disk and nodes.
//!
//! The published rule of Couchbase counts, for every copy, metadata of all documents and values of the working set. It adds headroom,
//! and divides by the high watermark, above which documents leave memory. [`Rule`] holds the constants of the rule, so that the
//! published ones and those measured on Settee stand side by side.

/// What is to be stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Number of documents, copies not counted.
    pub documents: u64,
    /// Mean length of a key, in bytes.
    pub key_bytes: u64,
    /// Mean length of a value, in bytes.
    pub value_bytes: u64,
    /// Copies beside the active one.
    pub replicas: u32,
    /// Share of the documents that clients use at a time, 0 to 1.
    pub working_set: f64,
}

/// The constants of a sizing rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Memory of a document beyond its key and value, in bytes.
    pub metadata_bytes: u64,
    /// Memory for everything else, as a share of what documents take: 0.3 is 30 %.
    pub headroom: f64,
    /// Share of the quota above which documents leave memory.
    pub high_watermark: f64,
    /// Bytes on disk for each byte of documents, at the most.
    pub disk_factor: f64,
}

impl Rule {
    /// The published rule, for disks that turn (25 % of headroom).
    pub const PUBLISHED: Self =
        Self { metadata_bytes: 56, headroom: 0.25, high_watermark: 0.85, disk_factor: 1.0 };

    /// Settee's figures: those of `docs/benchmarks/one-node.md`, "Memory per item" (persistent, 1,000 bytes) and "Churn". Compaction keeps files below 2.5
    /// times what is alive.
    pub const SETTEE: Self =
        Self { metadata_bytes: 69, headroom: 0.12, high_watermark: 0.85, disk_factor: 2.5 };
}

/// What a workload needs, all copies and nodes together, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizing {
    /// Keys and metadata of all documents.
    pub metadata: f64,
    /// Values of all documents.
    pub values: f64,
    /// Values of the working set.
    pub working_set: f64,
    /// Memory quota.
    pub memory: f64,
    /// Disk space.
    pub disk: f64,
}

impl Sizing {
    /// What the workload needs by this rule, while values leave memory and metadata stay (value eviction).
    #[must_use]
    pub fn of(workload: &Workload, rule: &Rule) -> Self {
        let copies = f64::from(workload.replicas) + 1.0;
        let documents = workload.documents as f64 * copies;
        let metadata = documents * (rule.metadata_bytes + workload.key_bytes) as f64;
        let values = documents * workload.value_bytes as f64;
        let working_set = values * workload.working_set;
        Self {
            metadata,
            values,
            working_set,
            memory: (metadata + working_set) * (1.0 + rule.headroom) / rule.high_watermark,
            disk: (metadata + values) * rule.disk_factor,
        }
    }

    /// How many nodes of this quota hold it: the exact figure. No fewer nodes than copies can hold a bucket.
    #[must_use]
    pub fn nodes_exactly(&self, node_quota_bytes: u64) -> f64 {
        self.memory / node_quota_bytes.max(1) as f64
    }

    /// How many nodes are to be there: whole ones, one for each copy at least.
    #[must_use]
    pub fn nodes(&self, workload: &Workload, node_quota_bytes: u64) -> u64 {
        let whole = self.nodes_exactly(node_quota_bytes).ceil();
        // As a float it has no sign and no fraction here, and no cluster has 2^53 nodes.
        (whole as u64).max(u64::from(workload.replicas) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = (1_u64 << 30) as f64;

    fn rounded(value: f64, digits: i32) -> f64 {
        let shift = 10_f64.powi(digits);
        (value * shift).round() / shift
    }

    /// The report of a cluster of four nodes that needed eight.
    #[test]
    fn the_published_rule_gives_the_published_figures() {
        let workload = Workload {
            documents: 100_000_000,
            key_bytes: 38,
            value_bytes: 2_560,
            replicas: 1,
            working_set: 0.1,
        };
        let rule = Rule { headroom: 0.3, ..Rule::PUBLISHED };
        let sizing = Sizing::of(&workload, &rule);
        let gib = |bytes: f64| rounded(bytes / GIB, 1);
        let found = [sizing.metadata, sizing.values, sizing.working_set, sizing.memory].map(gib);
        assert_eq!(found, [17.5, 476.8, 47.7, 99.7]);
        assert_eq!(rounded(sizing.nodes_exactly(13 << 30), 2), 7.67);
        assert_eq!(sizing.nodes(&workload, 13 << 30), 8);
    }

    #[test]
    fn the_documented_example_comes_out_to_the_byte() {
        let workload = Workload {
            documents: 1_000_000,
            key_bytes: 100,
            value_bytes: 10_000,
            replicas: 1,
            working_set: 0.2,
        };
        let sizing = Sizing::of(&workload, &Rule::PUBLISHED);
        assert_eq!(sizing.memory.floor(), 6_341_176_470.0);
    }

    #[test]
    fn a_bucket_needs_a_node_for_each_copy() {
        let workload = Workload { documents: 1, key_bytes: 1, value_bytes: 1, replicas: 2, working_set: 1.0 };
        assert_eq!(Sizing::of(&workload, &Rule::SETTEE).nodes(&workload, 1 << 30), 3);
    }
}
