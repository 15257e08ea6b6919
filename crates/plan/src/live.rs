//! How many nodes a bucket needs that is there: the sizing rule, with what was measured in place of what was planned.
//!
//! What has to stay in memory is known, and so are the values that are in memory. A bucket whose documents are all in memory is taken to use
//! all of them, so the answer is an upper bound there.

use crate::sizing::Rule;

/// A bucket as it is, all nodes together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    /// Bytes that cannot leave memory: keys and metadata of all copies.
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
    /// Each document has one more copy.
    OneMoreReplica,
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
}

impl Need {
    /// Whether the nodes that there are suffice.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.there_are >= self.nodes
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
            WhatIf::OneMoreReplica => {
                scale(&mut then, f64::from(self.copies + 1) / f64::from(self.copies.max(1)));
                then.copies += 1;
            }
            WhatIf::QuotaTimes(factor) => then.quota *= factor,
            WhatIf::DocumentsTimes(factor) => scale(&mut then, factor),
        }
        let memory = (then.floor + then.values) * (1.0 + rule.headroom) / rule.high_watermark;
        let nodes = (memory / then.quota.max(1.0)).ceil().clamp(0.0, f64::from(u32::MAX));
        // It has no sign and no fraction.
        Need { memory, nodes: (nodes as u32).max(then.copies), there_are: then.nodes }
    }
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
        assert_eq!(need(WhatIf::OneMoreReplica), (15_000.0, 5, false));
        assert_eq!(need(WhatIf::QuotaTimes(2.0)), (10_000.0, 2, true));
        assert_eq!(need(WhatIf::DocumentsTimes(1.5)), (15_000.0, 5, false));
    }

    #[test]
    fn a_bucket_needs_a_node_for_each_copy() {
        let small = Live { floor: 1.0, values: 1.0, ..LIVE };
        assert_eq!(small.needs(WhatIf::OneMoreReplica, &RULE).nodes, 3);
        assert!(!small.needs(WhatIf::NodesLost(9), &RULE).is_met());
        let no_quota = Live { quota: 0.0, ..LIVE };
        assert_eq!(no_quota.needs(WhatIf::AsItIs, &RULE).nodes, 10_000);
    }
}
