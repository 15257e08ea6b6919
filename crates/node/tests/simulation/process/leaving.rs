//! What a node does that is told that it belongs to the cluster no more, and what it tells others that do not. In a server
//! `daemon::talk::agreement` and `daemon::control` do that.

use std::sync::Arc;

use base::NodeId;
use cluster::{
    Metadata, NodeInfo, Ports,
    consensus::{Epoch, Member, StepError, epoch_of},
};
use settee_node::{Sentence, Verdict};

use super::{Outside, Process};

/// What a node belongs to that has begun anew.
const NOTHING: &str = "nothing";

/// How a node stands to leaving its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaving {
    #[default]
    No,
    /// Nobody has heard of it, and it has data. Somebody has to decide.
    Kept,
    /// A node that its group has failed over says that the group was formed anew. There are two, unless one yields. Somebody has to decide.
    Torn,
    /// It is its own cluster, and new; nothing of what it was is on its disk.
    Left,
}

impl Process {
    /// What is to be said to a node that is none of the cluster's, and has said that.
    pub(super) fn judge(&self, node: NodeId, message: &[u8]) -> Option<Verdict> {
        let membership = (self.epoch(), self.has_member(node));
        Verdict::on(node, epoch_of(message), &self.metadata, membership)
    }

    /// Another node says that of this one, which it calls by that number.
    pub(crate) fn judged(
        &mut self,
        (me, cluster): (NodeId, &str),
        epoch: Option<Epoch>,
        verdict: Verdict,
        outside: &mut Outside<'_>,
    ) {
        match self.part.judged((me, cluster), epoch, verdict) {
            Some(Sentence::Leave) => self.leave(outside),
            Some(Sentence::Keep) if self.leaving == Leaving::No => {
                outside.journal.note(format_args!("nobody has heard of {}, which has data", self.id));
                self.leaving = Leaving::Kept;
            }
            Some(Sentence::Keep) | None => {}
        }
    }

    /// It begins anew, once clients have been told for long enough where to go.
    pub(super) fn leave(&mut self, outside: &mut Outside<'_>) {
        if self.part.leaves(outside.now.mono_millis) {
            self.begin_anew(outside);
        }
    }

    /// It becomes its own cluster, and new.
    pub(crate) fn begin_anew(&mut self, outside: &mut Outside<'_>) {
        let uuid = format!("{} anew", self.uuid);
        let level = self.part.group().version().highest;
        let mut metadata = Metadata { level, ..Metadata::new(NOTHING.into(), 0) };
        metadata.nodes.push(NodeInfo::first(uuid.clone(), "10.0.0.1".into(), Ports::default()));
        metadata.next_node = 1;
        let (epoch, secret, peers) = (Epoch::default(), String::new(), Vec::new());
        let cluster_uuid = NOTHING.into();
        let member = Member { uuid, node: NodeId(0), cluster_uuid, epoch, secret, peers, authority: None };
        if self.part.begin_anew(&member, metadata).is_ok() {
            self.take_turn(outside);
        }
    }

    /// What became of a message of another member: a server warns of a group that was formed elsewhere.
    pub(super) fn stepped(&mut self, done: Result<(), StepError>) {
        if matches!(done, Err(StepError::FormedElsewhere(_))) && self.leaving == Leaving::No {
            self.leaving = Leaving::Torn;
        }
    }

    /// This node is that member from now on.
    pub(super) fn became(&mut self, uuid: &str) {
        if uuid != self.uuid {
            self.leaving = Leaving::Left;
        } else if self.leaving == Leaving::Torn {
            self.leaving = Leaving::No;
        }
    }

    /// Whether this node has not begun anew.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.part.group().member().cluster_uuid != NOTHING
    }

    /// Whether metadata are those of the cluster.
    pub(super) fn are_of_cluster(metadata: &Arc<Metadata>) -> bool {
        metadata.cluster_uuid != NOTHING
    }
}
