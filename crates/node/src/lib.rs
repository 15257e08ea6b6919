//! Carries out on one node what the cluster has decided about the node's copies. A copy serves clients, follows another
//! node's, waits for an election, or goes.
//!
//! Level-triggered: an [`Agent`] compares what shall be (replicated metadata) with what it has done so far and does the
//! difference. Nothing relies on a message; a step that fails is tried again at the next call, a step that is done is
//! not repeated. What is left to others comes out as values: the streams this node wants from its peers
//! ([`Agent::wishes`]) and what the leader should know ([`Agent::report`]).
//!
//! Beside the agent are:
//! - [`cluster::Lease`]: whether an active copy may serve at all.
//! - [`Leadership`]: what the node does while it leads the others. [`Confirmations`] make sure that it leads.
//! - [`Participant`]: its part in what the cluster agrees on. [`Proposals`] are what it wants the cluster to agree on.
//! - [`Reconciler`]: the safe order in which agent and lease act.
//! - [`Reporter`]: carries reports to the leader and takes its answers.
//! - [`AtAnyPrice`]: how a failover goes on where the cluster cannot agree any more ([`Reforming`]).
//! - [`Verdict`]: what nodes say to one that is none of theirs.
//! - [`LogWriter`]: what of the metadata's log is written when.
//!
//! Invariants:
//! - A copy is made active only where the metadata has this node first in the chain. It never is while it is
//!   unconfirmed and others could know better (a chain longer than one).
//! - A copy stops being active, and stops following, before anything of a later term is done with it.
//! - Contents go only when the metadata names the nodes that have the vBucket now. This node must not be among them,
//!   must not have been failed over, and must not be coming back to use its contents.
//!
//! Deliberately absent: sockets, clocks, threads, randomness. A call does a bounded amount of work, and what is settled
//! costs nothing. A vBucket is only looked at while its plan changes or has not been carried out yet.

mod agent;
mod at_any_price;
mod confirmations;
mod copies;
mod duty;
#[cfg(test)]
mod fixture;
mod leadership;
mod log_writer;
mod participant;
mod proposals;
mod reconciler;
mod reforming;
mod reporter;
mod verdict;

pub use agent::{Agent, Buckets, Step, Wish};
pub use at_any_price::{Act, AtAnyPrice, Known};
pub use confirmations::{Confirmations, Settled};
pub use copies::{Copies, Copy};
pub use duty::{Duty, duty, first_role};
pub use leadership::{Leadership, Taken};
pub use log_writer::{LogWriter, NextWrite, WriteEnded};
pub use participant::{Applied, Confirmed, Output, Participant, Write};
pub use proposals::{GivenUp, Next, PROPOSAL_MILLIS, Part, Proposals, Proposing, TAKING_MILLIS};
pub use reconciler::{Reconciler, Start};
pub use reforming::{Offer, Reforming, Survey, Survivor};
pub use reporter::{MetadataState, REPORT_PATIENCE_MILLIS, Reporter};
pub use verdict::{Sentence, Verdict};

/// How often a bucket that could not be opened is tried again.
pub const REOPEN_MILLIS: u64 = 5_000;

/// A write of the metadata that takes so long is not a slow one any more.
const STANDS_STILL_MILLIS: u64 = 3_000;

/// Whether a node's disk has been at one write of the metadata for too long. Such a node cannot be counted on to do what the cluster
/// agrees on. It says so in its reports, and counts as down.
#[must_use]
pub fn stands_still(writing_since: Option<u64>, now: u64) -> bool {
    writing_since.is_some_and(|since| now.saturating_sub(since) >= STANDS_STILL_MILLIS)
}
