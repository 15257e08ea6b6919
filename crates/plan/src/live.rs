//! How many nodes a bucket needs that is there: the sizing rule, with what was measured in place of what was planned.
//!
//! What has to stay in memory is known, and so are the values that are in memory. A bucket whose documents are all in memory is taken to use
//! all of them, so the answer is an upper bound there.
//!
//! There are two limits. Without enough memory for the values some of them leave it, and reads come from disk. Without enough for what has to
//! stay, mutations are refused for good.

use crate::sizing::Rule;

/// A bucket as it is, all nodes together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    /// Bytes that cannot leave memory: keys and metadata of all copies. With full eviction keys can leave it, too. Of a bucket that has
    /// nothing on disk it is everything.
    pub floor: f64,
    /// Bytes of values in memory.
    pub values: f64,
    /// Copies of each document, the active one among them.
    pub copies: u32,
    /// Bytes that the bucket may have on each node.
    pub quota: f64,
    /// Nodes that hold it.
    pub nodes: u32,
}

/// What could become of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhatIf {
    /// It stays as it is.
    AsItIs,
    /// So many nodes are gone, and the others make the copies anew.
    NodesLost(u32),
    /// Each document has so many more copies.
    MoreReplicas(u32),
    /// The quota is so many times as large.
    QuotaTimes(f64),
    /// There are so many times as many documents.
    DocumentsTimes(f64),
}

/// What a bucket needs then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// Bytes of quota over all nodes.
    pub memory: f64,
    /// Nodes that have so much.
    pub nodes: u32,
    /// Nodes that there are.
    pub there_are: u32,
    /// Of `memory`, what is needed if all values leave memory that can.
    pub least: f64,
    /// Bytes of quota on the nodes that there are.
    pub quota: f64,
}

/// How a bucket fares with what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What is in memory stays there.
    Enough,
    /// Values leave memory, or there are fewer nodes than copies. The data can be held.
    Tight,
    /// Not even what has to stay in memory has room.
    TooSmall,
}

impl Need {
    /// Whether the nodes that there are suffice.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.there_are >= self.nodes
    }

    /// How the bucket fares on the nodes that there are.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.is_met(), self.least <= self.quota) {
            (true, _) => Verdict::Enough,
            (false, true) => Verdict::Tight,
            (false, false) => Verdict::TooSmall,
        }
    }
}

impl Live {
    /// What it needs if this becomes of it.
    #[must_use]
    pub fn needs(&self, what: WhatIf, rule: &Rule) -> Need {
        let mut then = *self;
        let scale = |then: &mut Self, factor: f64| {
            then.floor *= factor;
            then.values *= factor;
        };
        match what {
            WhatIf::AsItIs => {}
            // What a node held is made anew on the others, as far as there are nodes for copies.
            WhatIf::NodesLost(lost) => then.nodes = then.nodes.saturating_sub(lost),
            WhatIf::MoreReplicas(more) => {
                then.copies = self.copies.saturating_add(more);
                let times = f64::from(then.copies) / f64::from(self.copies.max(1));
                scale(&mut then, times);
            }
            WhatIf::QuotaTimes(factor) => then.quota *= factor,
            WhatIf::DocumentsTimes(factor) => scale(&mut then, factor),
        }
        let quota_for = |bytes: f64| bytes * (1.0 + rule.headroom) / rule.high_watermark;
        let memory = quota_for(then.floor + then.values);
        let nodes = (memory / then.quota.max(1.0)).ceil().clamp(0.0, f64::from(u32::MAX));
        // It has no sign and no fraction.
        Need {
            memory,
            nodes: (nodes as u32).max(then.copies),
            there_are: then.nodes,
            least: quota_for(then.floor),
            quota: then.quota * f64::from(then.nodes),
        }
    }
}

/// The server group whose loss takes the most nodes, of groups with so many each. Nothing where all nodes are in one group: its loss is
/// the cluster's.
#[must_use]
pub fn worst_group<'a>(groups: impl IntoIterator<Item = (&'a str, u32)>) -> Option<(&'a str, u32)> {
    let groups: Vec<_> = groups.into_iter().filter(|(_, nodes)| *nodes > 0).collect();
    // Of several the first by name.
    let worst = groups.iter().min_by_key(|(name, nodes)| (std::cmp::Reverse(*nodes), *name))?;
    (groups.len() > 1).then_some(*worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: Live = Live { floor: 2_000.0, values: 5_000.0, copies: 2, quota: 3_000.0, nodes: 4 };
    const RULE: Rule = Rule { metadata_bytes: 0, headroom: 0.25, high_watermark: 0.875, disk_factor: 1.0 };

    fn need(what: WhatIf) -> (f64, u32, bool) {
        let need = LIVE.needs(what, &RULE);
        (need.memory, need.nodes, need.is_met())
    }

    #[test]
    fn what_is_measured_goes_into_the_rule() {
        assert_eq!(need(WhatIf::AsItIs), (10_000.0, 4, true));
        assert_eq!(need(WhatIf::NodesLost(1)), (10_000.0, 4, false));
        assert_eq!(need(WhatIf::MoreReplicas(1)), (15_000.0, 5, false));
        assert_eq!(need(WhatIf::QuotaTimes(2.0)), (10_000.0, 2, true));
        assert_eq!(need(WhatIf::DocumentsTimes(1.5)), (15_000.0, 5, false));
    }

    #[test]
    fn what_has_to_stay_in_memory_is_the_least_that_a_bucket_needs() {
        // 2,000 bytes need 2,857 of quota.
        let verdict = |what| LIVE.needs(what, &RULE).verdict();
        assert_eq!(verdict(WhatIf::AsItIs), Verdict::Enough);
        assert_eq!(verdict(WhatIf::NodesLost(1)), Verdict::Tight, "values leave memory");
        assert_eq!(verdict(WhatIf::NodesLost(3)), Verdict::Tight, "3,000 bytes are there");
        assert_eq!(verdict(WhatIf::NodesLost(4)), Verdict::TooSmall);
        assert_eq!(verdict(WhatIf::QuotaTimes(0.25)), Verdict::Tight);
        assert_eq!(verdict(WhatIf::QuotaTimes(0.23)), Verdict::TooSmall);
        assert_eq!(verdict(WhatIf::MoreReplicas(2)), Verdict::Tight, "as much again, and 12,000 bytes there");
        assert_eq!(verdict(WhatIf::MoreReplicas(7)), Verdict::TooSmall);
        let empty = Live { floor: 0.0, values: 0.0, ..LIVE };
        assert_eq!(
            empty.needs(WhatIf::NodesLost(3), &RULE).verdict(),
            Verdict::Tight,
            "fewer nodes than copies"
        );
    }

    #[test]
    fn the_worst_group_is_the_one_with_the_most_nodes() {
        assert_eq!(worst_group([("a", 1), ("c", 2), ("b", 2), ("d", 0)]), Some(("b", 2)));
        assert_eq!(worst_group([("a", 3), ("b", 0)]), None, "all nodes are in it");
        assert_eq!(worst_group([]), None);
    }

    #[test]
    fn a_bucket_needs_a_node_for_each_copy() {
        let small = Live { floor: 1.0, values: 1.0, ..LIVE };
        assert_eq!(small.needs(WhatIf::MoreReplicas(1), &RULE).nodes, 3);
        assert!(!small.needs(WhatIf::NodesLost(9), &RULE).is_met());
        let no_quota = Live { quota: 0.0, ..LIVE };
        assert_eq!(no_quota.needs(WhatIf::AsItIs, &RULE).nodes, 10_000);
    }
}
