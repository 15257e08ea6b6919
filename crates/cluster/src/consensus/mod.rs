//! Agreement on the metadata: a Raft group of all nodes, whose state machine is [`Metadata`](crate::metadata::Metadata).
//!
//! [`Consensus`] wraps TiKV's `raft` and does no I/O of its own. Ticks, messages and proposals go in. Messages, batches for the
//! log and applied changes come out of [`Consensus::turn`]. Its driver writes the batches to a [`LogStore`], in order, and says so
//! with [`Consensus::written`]. One seed replays a run: election timeouts are drawn from it.
//!
//! Invariants:
//! - What a message or an applied change relies on is durable before either leaves: both wait, in order, for the batches
//!   before them. Only a leader's own messages may go at once, as Raft allows. They wait as well where its disk lacks its term.
//! - A proposal is applied at most once, however often and however late it is proposed. The replicated state remembers
//!   how those proposals ended that may come again (`proposers`).
//! - The members of the group follow from the metadata: the leader changes the group, one member at a time, until they
//!   agree (`members`). A new node learns first and votes once it has caught up.
//! - A change of the group is applied only after the commit index that covers it is durable. So no restart goes back to an older
//!   group. The leader tells no node of it before that, since a removed node is gone when it hears.
//! - A member that was removed stays, and votes if it is asked, until another member knows of the removal. Members that
//!   do not know may need its vote to elect a leader. Members do not lead for longer than they belong to the group.
//! - The survivors of a group that lost its majority for good can form it anew, in a new epoch. A node of an earlier
//!   epoch is told to begin again as a member of the new one (`epoch`), or that no member knows it.
//! - A member whose state differs from that of most members takes no part any more, after a restart either ([`Consensus::fence`]).
//!   Nor does a member whose log lacks what the member had confirmed. A group that is formed anew takes them in, by a snapshot.
//! - Nothing that came from a peer or a disk is given to the protobuf parser; `codec` is the only decoder.

mod codec;
mod disk;
mod entry;
mod group;
mod hostile;
mod log;
mod marks;
mod members;
mod mirror;
mod proposers;
mod state;

pub use crate::metadata::epoch::{Epoch, Position};
#[cfg(test)]
pub(crate) use codec::read_fuzzed;
pub use disk::{DiskLog, LogFile, Medium};
pub use entry::{Place, Proposal, ProposalId};
pub use group::{
    Commit, Consensus, ProposeError, Round, StepError, Turn, check_majority_is_lost, epoch_of, found,
    is_from, join,
};
pub use log::{Batch, LogError, LogStore, Member, MemoryLog, Record, Stored};
pub use marks::{StateMark, StateMarks};
pub use members::VOTERS_MAX;
pub use state::{Apply, Outcome, Version};

use base::NodeId;

/// Raft's id of a node; it reserves 0 for nobody.
const fn raft_id(node: NodeId) -> u64 {
    node.get() as u64 + 1
}

/// The node of one of Raft's ids.
fn node_id(raft_id: u64) -> Option<NodeId> {
    raft_id.checked_sub(1).and_then(|id| u16::try_from(id).ok()).map(NodeId)
}
