//! Nodes that log in, and that this node does not know as members: others may, since a later version of the metadata.
//!
//! A node that was away while others came hears of them from a member that it knows. Without that nobody could tell it: by
//! what it knows the new leader is a stranger. A node that was removed is known for as long as the group has yet to let it go.
//!
//! Invariant: what others say counts for the cluster that it was said in, for metadata that are older, and for a moment.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use base::NodeId;
use cluster::{ClusterError, Membership, Metadata};
use dataplane::lease;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::Control;

/// Where a node asks who the members are.
const MEMBERS: &str = "members";
/// How soon others are asked again. Anybody can have them asked.
const ASK_AGAIN_MILLIS: u64 = 1_000;
/// For how long counts what they have said.
const GOOD_MILLIS: u64 = 30_000;
/// How many of them are asked.
const ASKED_MAX: usize = 7;

/// The members that a node asks. One that was failed over is none of them: its word counts for itself alone.
fn asked_of(metadata: &Metadata, me: NodeId) -> impl Iterator<Item = NodeId> {
    let counts = metadata.nodes.iter().filter(|node| node.membership != Membership::InactiveFailed);
    counts.map(|node| node.id).filter(move |id| *id != me).take(ASKED_MAX)
}

/// What another node says of the members.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Roll {
    cluster_uuid: String,
    /// Of the metadata that say so.
    version: u64,
    /// By uuid.
    keys: BTreeMap<String, String>,
    /// When it was heard, by the clock of leases.
    #[serde(skip)]
    heard_at: u64,
}

impl Control {
    /// The key of a node that this one does not know as a member.
    pub(crate) fn key_of_stranger(&self, uuid: &str) -> Option<String> {
        let metadata = self.metadata.load();
        let parted = metadata.parted.iter().find(|parted| parted.uuid == uuid);
        if let Some(parted) = parted {
            return self.agreement.has_member(parted.node).then(|| parted.key.clone());
        }
        let roll = self.roll.load();
        let is_newer = roll.cluster_uuid == metadata.cluster_uuid && roll.version > metadata.version;
        let is_good = is_newer && lease::clock_millis().saturating_sub(roll.heard_at) < GOOD_MILLIS;
        let key = roll.keys.get(uuid).filter(|_| is_good).cloned();
        if key.is_none() {
            self.ask_for_roll();
        }
        key
    }

    /// Asks members that count, by what this node knows, who the members are, unless it has just done so.
    fn ask_for_roll(&self) {
        let now = lease::clock_millis();
        let asked = self.roll_asked.load(Ordering::Relaxed);
        let is_due = asked == 0 || now.saturating_sub(asked) >= ASK_AGAIN_MILLIS;
        let ours = is_due
            && self
                .roll_asked
                .compare_exchange(asked, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        let Some(me) = self.me.upgrade().filter(|_| ours) else { return };
        tokio::spawn(async move {
            let metadata = me.metadata.load_full();
            let mut asked = JoinSet::new();
            for node in asked_of(&metadata, me.this_id()) {
                let peers = Arc::clone(me.peers());
                asked.spawn(async move { peers.post(node, MEMBERS, Vec::new()).await });
            }
            while let Some(answer) = asked.join_next().await {
                let Ok(Ok(answer)) = answer else { continue };
                let Ok(roll) = serde_json::from_slice::<Roll>(&answer) else { continue };
                if roll.cluster_uuid == metadata.cluster_uuid && roll.version > metadata.version {
                    me.roll.store(Arc::new(Roll { heard_at: lease::clock_millis(), ..roll }));
                    return;
                }
            }
        });
    }

    /// Answers others that ask who the members are.
    pub(crate) fn answer_strangers(&self) {
        self.answer(MEMBERS, |me, _| async move {
            let metadata = me.metadata.load_full();
            let key = |node: &cluster::NodeInfo| Some((node.uuid.clone(), node.key.clone()?));
            let roll = Roll {
                cluster_uuid: metadata.cluster_uuid.clone(),
                version: metadata.version,
                keys: metadata.nodes.iter().filter_map(key).collect(),
                heard_at: 0,
            };
            serde_json::to_vec(&roll).map_err(|error| ClusterError::Failed(error.to_string()))
        });
    }
}

#[cfg(test)]
mod tests {
    use cluster::{NodeInfo, Ports};

    use super::*;

    #[test]
    fn a_node_that_was_failed_over_is_not_asked_who_the_members_are() {
        let node = |id: u16, membership| NodeInfo {
            id: NodeId(id),
            membership,
            ..NodeInfo::first(id.to_string(), "h".into(), Ports::default())
        };
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = vec![
            node(0, Membership::Active),
            node(1, Membership::InactiveFailed),
            node(2, Membership::InactiveAdded),
        ];
        assert_eq!(asked_of(&metadata, NodeId(0)).collect::<Vec<_>>(), [NodeId(2)]);
    }
}
