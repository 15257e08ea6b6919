//! All nodes have the same metadata: of each version there is one. It keeps the rules of the metadata, and follows from
//! the one before by the rules of changes. One leader per term.

use std::{collections::BTreeMap, sync::Arc};

use base::NodeId;
use cluster::{Metadata, consensus::Epoch, invariants};

/// See the module.
#[derive(Default)]
pub(crate) struct States {
    /// By version.
    seen: BTreeMap<u64, Arc<Metadata>>,
    /// By the group's life and Raft's term in it.
    leaders: BTreeMap<(Epoch, u64), NodeId>,
}

impl States {
    /// A node has applied a change. If that is news: what was before.
    pub(crate) fn applied(&mut self, state: &Arc<Metadata>) -> Option<Arc<Metadata>> {
        if let Some(known) = self.seen.get(&state.version) {
            assert!(Arc::ptr_eq(known, state) || known == state, "two versions {}", state.version);
            return None;
        }
        if let Err(text) = invariants::check(state) {
            panic!("version {}: {text}", state.version);
        }
        let before = state.version.checked_sub(1).and_then(|version| self.seen.get(&version)).cloned();
        if let Some(before) = &before
            && let Err(text) = invariants::check_change(before, state)
        {
            panic!("version {}: {text}", state.version);
        }
        self.seen.insert(state.version, Arc::clone(state));
        before
    }

    /// A node leads.
    pub(crate) fn leads(&mut self, term: (Epoch, u64), node: NodeId) {
        let leader = *self.leaders.entry(term).or_insert(node);
        assert_eq!(leader, node, "two leaders in term {term:?}");
    }

    /// The newest that anybody has applied.
    pub(crate) fn newest(&self) -> &Arc<Metadata> {
        self.seen.last_key_value().expect("a cluster has been founded").1
    }
}
