//! What must hold whatever happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use base::NodeId;
use settee_cluster::{
    Metadata,
    consensus::{Commit, Epoch, ProposalId},
};

/// What was seen so far, by all members together. A group that is formed anew begins a history of its own.
#[derive(Default)]
pub(crate) struct Checks {
    leaders: BTreeMap<(Epoch, u64), NodeId>,
    /// Of every version of the metadata.
    states: BTreeMap<(Epoch, u64), u64>,
    /// Of every index: the proposal and the version after it.
    applied: BTreeMap<(Epoch, u64), (ProposalId, u64)>,
    /// Proposals whose proposer was told that they were carried out.
    acknowledged: BTreeMap<Epoch, BTreeSet<ProposalId>>,
    /// Reads that have ended.
    pub(crate) reads: usize,
    pub(crate) trace: DefaultHasher,
}

impl Checks {
    /// `node` leads in `term`.
    pub(crate) fn leads(&mut self, epoch: Epoch, term: u64, node: NodeId) {
        let leader = *self.leaders.entry((epoch, term)).or_insert(node);
        assert_eq!(leader, node, "two leaders in term {term}");
    }

    /// How many there were.
    pub(crate) fn leaders(&self) -> usize {
        self.leaders.values().collect::<BTreeSet<_>>().len()
    }

    /// `node` has applied something; `before` is what it had applied before.
    pub(crate) fn applied(&mut self, epoch: Epoch, node: NodeId, before: (u64, u64), commit: &Commit) {
        let version = commit.metadata.version;
        assert!(commit.index > before.0, "{node:?} goes back from {before:?} to {}", commit.index);
        assert!(version >= before.1);
        let fingerprint = fingerprint(&commit.metadata);
        let known = *self.states.entry((epoch, version)).or_insert(fingerprint);
        assert_eq!(known, fingerprint, "{node:?} has another version {version}");
        if let [(id, _)] = commit.outcomes.as_slice()
            && !commit.is_snapshot
        {
            let known = *self.applied.entry((epoch, commit.index)).or_insert((*id, version));
            assert_eq!(known, (*id, version), "{node:?} has something else at {}", commit.index);
        }
        (node, commit.index, version).hash(&mut self.trace);
    }

    /// The proposer of `id` was told that it was carried out.
    pub(crate) fn acknowledged(&mut self, epoch: Epoch, id: ProposalId) {
        self.acknowledged.entry(epoch).or_default().insert(id);
    }

    /// What anybody was told to be carried out by now.
    pub(crate) fn so_far(&self, epoch: Epoch) -> BTreeSet<ProposalId> {
        self.acknowledged.get(&epoch).cloned().unwrap_or_default()
    }

    /// Somebody has read `metadata`, who began when this much was acknowledged.
    pub(crate) fn read(&mut self, metadata: &Metadata, before: &BTreeSet<ProposalId>) {
        let missing = before.iter().find(|id| !metadata.settings.contains_key(&setting(**id)));
        assert_eq!(missing, None, "it was acknowledged before it was read");
        self.reads += 1;
    }

    /// Everything acknowledged by that group is in `metadata`.
    pub(crate) fn nothing_is_lost(&self, epoch: Epoch, metadata: &Metadata) {
        for id in self.acknowledged.get(&epoch).into_iter().flatten() {
            assert!(metadata.settings.contains_key(&setting(*id)), "{id:?} was acknowledged and is lost");
        }
        // Each proposal was carried out at most once, whatever it was proposed more often.
        let carried_out = self.applied.values().map(|(id, _)| *id).collect::<BTreeSet<_>>().len() as u64;
        assert!(epoch != Epoch::default() || metadata.version <= carried_out + 1);
    }

    /// How many proposals that group has acknowledged.
    pub(crate) fn acknowledgements(&self, epoch: Epoch) -> usize {
        self.acknowledged.get(&epoch).map_or(0, BTreeSet::len)
    }
}

/// What a proposal sets.
pub(crate) fn setting(id: ProposalId) -> String {
    format!("{}/{}", id.origin, id.number)
}

fn fingerprint(metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(metadata).unwrap().hash(&mut hasher);
    hasher.finish()
}
