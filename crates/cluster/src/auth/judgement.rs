//! What a node says to another one that is none of its cluster's: that it was removed, or that nobody knows it. A node that believes
//! this may give up its documents. So the node that says it signs it.
//!
//! Invariant: a signature is for one verdict on one node, in one life of the group. Numbers of nodes are never given again, so what was
//! signed once stays true.

use base::NodeId;

use super::node_key::{NodeKey, is_signed, message};
use crate::metadata::epoch::Epoch;

/// What tells these signatures from all others that a node makes with its key.
const CONTEXT: &[u8] = b"settee: a node is none of the cluster's, 1";

/// A verdict on one node.
#[derive(Clone, Copy, Debug)]
pub struct Judgement<'a> {
    /// What is said.
    pub verdict: &'a str,
    /// The uuid of the cluster.
    pub cluster: &'a str,
    /// The number that the node has, by what it knows.
    pub node: NodeId,
    /// The life of the group that the node belongs to, by what it knows.
    pub epoch: Epoch,
}

impl Judgement<'_> {
    /// Signs it with the key of the node that says it.
    #[must_use]
    pub fn sign(&self, key: &NodeKey) -> Vec<u8> {
        key.sign_message(&self.message())
    }

    /// Whether the node with that public key has signed it.
    #[must_use]
    pub fn is_signed_by(&self, key: &str, signature: &[u8]) -> bool {
        is_signed(key, &self.message(), signature)
    }

    fn message(&self) -> Vec<u8> {
        let (node, Epoch { number, lot }) = (self.node.get().to_be_bytes(), self.epoch);
        let (number, lot) = (number.to_be_bytes(), lot.to_be_bytes());
        message(&[CONTEXT, self.verdict.as_bytes(), self.cluster.as_bytes(), &node, &number, &lot])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_for_one_verdict_on_one_node() {
        let key = NodeKey::from_seed(&[1; 32]).unwrap();
        let said = Judgement { verdict: "removed", cluster: "c", node: NodeId(3), epoch: Epoch::default() };
        let signature = said.sign(&key);
        assert!(said.is_signed_by(key.public(), &signature));
        let others = [
            Judgement { verdict: "unknown", ..said },
            Judgement { cluster: "d", ..said },
            Judgement { node: NodeId(4), ..said },
            Judgement { epoch: Epoch { number: 1, lot: 0 }, ..said },
            Judgement { epoch: Epoch { number: 0, lot: 1 }, ..said },
        ];
        for other in others {
            assert!(!other.is_signed_by(key.public(), &signature), "{other:?}");
        }
        let another = NodeKey::from_seed(&[2; 32]).unwrap();
        assert!(!said.is_signed_by(another.public(), &signature));
        assert!(!said.is_signed_by("no key", &signature) && !said.is_signed_by(key.public(), &[]));
    }
}
