//! Two things never go back. One is the configuration that a node shows its clients, whatever becomes of the node. The
//! other is the order of seqnos of acknowledged writes, on each branch of a history. Where no active copy is ever lost,
//! it holds over all branches. And no two writes have the same place.
//!
//! Over branches a seqno may be given again. A durable write has its majority as a prepare. The seqno that its client is
//! told is that of its commit, which the next active copy need not have.

use std::collections::{BTreeMap, BTreeSet};

use base::{BucketUuid, NodeId, VbId};
use cluster::Metadata;

use crate::operation::Token;

type VbKey = (BucketUuid, VbId);

/// See the module.
#[derive(Default)]
pub(crate) struct NeverBack {
    /// Epoch and revision that a node has shown last.
    shown: BTreeMap<NodeId, (i64, i64)>,
    /// The last write that was acknowledged, in their own order.
    last: BTreeMap<VbKey, Token>,
    /// What was written where.
    written: BTreeMap<(VbKey, Token), u64>,
}

impl NeverBack {
    /// A node that knows what was agreed on before it started routes its clients by these metadata.
    pub(crate) fn shown(&mut self, node: NodeId, metadata: &Metadata) {
        let now = (metadata.rev_epoch, metadata.rev);
        let before = self.shown.insert(node, now).unwrap_or(now);
        assert!(now >= before, "{node} shows {now:?} after {before:?}");
    }

    /// A node has left the cluster.
    pub(crate) fn left(&mut self, node: NodeId) {
        self.shown.remove(&node);
    }

    /// The last write of a vBucket that was acknowledged: what begins now comes after it.
    pub(crate) fn last(&self, vb: &VbKey) -> Option<Token> {
        self.last.get(vb).copied()
    }

    /// A write was acknowledged that began after `before`. `over_branches`: no active copy is ever lost.
    pub(crate) fn acknowledged(
        &mut self,
        vb: &VbKey,
        (token, value): (Token, u64),
        before: Option<Token>,
        over_branches: bool,
    ) {
        let other = self.written.insert((vb.clone(), token), value);
        assert_eq!(other, None, "{token:?} of {vb:?} is {value} too");
        if let Some(before) = before.filter(|before| over_branches || before.vb_uuid == token.vb_uuid) {
            assert!(token.seqno > before.seqno, "{value} got {token:?} in {vb:?} after {before:?}");
        }
        let last = self.last.entry(vb.clone()).or_insert(token);
        if last.vb_uuid != token.vb_uuid || last.seqno < token.seqno {
            *last = token;
        }
    }

    /// Somebody has taken a risk: the writes so far may be gone.
    pub(crate) fn forget(&mut self) {
        self.last.clear();
    }

    /// The same of some vBuckets only.
    pub(crate) fn forget_some(&mut self, risked: &BTreeSet<VbKey>) {
        self.last.retain(|vb, _| !risked.contains(vb));
    }
}
