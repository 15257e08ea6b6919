//! Names of the connections between nodes: who follows whom, and in which bucket.
//!
//! `replication:3->5:travel` is opened by node 5 on node 3, which streams vBuckets of the bucket `travel` to it. The form is
//! the one that Couchbase's statistics show; only a connection of the cluster's own user means anything by it.

use base::NodeId;

const PREFIX: &str = "replication:";

/// See the module header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkName<'a> {
    /// The node that streams.
    pub from: NodeId,
    /// The node that follows.
    pub to: NodeId,
    /// The bucket.
    pub bucket: &'a str,
}

impl<'a> LinkName<'a> {
    /// Reads a name; `None` if it is not one of these.
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let (nodes, bucket) = name.strip_prefix(PREFIX)?.split_once(':')?;
        let (from, to) = nodes.split_once("->")?;
        let node = |digits: &str| digits.parse().ok().map(NodeId);
        Some(Self { from: node(from)?, to: node(to)?, bucket })
    }
}

impl std::fmt::Display for LinkName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}->{}:{}", self.from.get(), self.to.get(), self.bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let name = LinkName { from: NodeId(3), to: NodeId(65_535), bucket: "travel:sample" };
        assert_eq!(name.to_string(), "replication:3->65535:travel:sample");
        assert_eq!(LinkName::parse(&name.to_string()), Some(name));
        for other in
            ["replication", "replication:3->5", "replication:3-5:b", "replication:->5:b", "go-dcp:3->5:b"]
        {
            assert_eq!(LinkName::parse(other), None, "{other}");
        }
    }
}
