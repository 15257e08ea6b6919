//! Feeds: the mutations of one vBucket, in order, from any seqno on and for as long as somebody asks.
//!
//! What a consumer may rely on:
//! * A feed is a sequence of snapshots without gaps: `(from, a]`, `(a, b]`, ... Every seqno above [`FeedOptions::from`]
//!   lies in exactly one of them, whether or not an item carries it (it may have been superseded, or filtered out).
//! * Within a snapshot each key occurs at most once, in its newest version. What a consumer holds at the end of a
//!   snapshot is the vBucket as it was at exactly that seqno.
//! * A snapshot from disk may be cut short, because its consumer was too slow for what it keeps from being freed. The
//!   next batch then begins another snapshot where the last item was, which ends no earlier. So may one of a copy that follows another
//!   node's, where more of it is in memory than one call takes.
//! * A durable write is not seen before it is synced and committed. A consumer that asks for prepares
//!   ([`FeedOptions::prepares`]) is told of them, and how each one ended. In a snapshot from memory a key with a
//!   prepare, commit or abort has nothing else. In one from disk a key may have a version and, behind it, a prepare or
//!   abort.
//!
//! A copy that follows another node's has feeds for those who ask for them ([`FeedOptions::followers`]), where there is a disk. Such a
//! feed tells what is whole of the copy ([`VbHistory::told_to`]). That is where a branch begins if the copy becomes the active one, so a
//! consumer is never ahead of it. Each seqno told lies on the branch of the failover log that the copy had when the feed was opened.
//! The feed ends ([`FeedEnd::Reset`]) when the active tells another log, when the copy is begun anew, and when it follows no more.
//!
//! A [`Feed`] costs nothing but a cursor in its vBucket's checkpoint while its consumer keeps up.

mod reader;
mod runner;
mod slow;
mod snapshots;

use base::{Seqno, Status, VbId, VbUuid};

use crate::bucket::Bucket;

pub use crate::history::{
    item::{FeedItem, FeedKind},
    told::{FeedBatch, FeedEnd, FeedFilter, FeedOptions, FeedSnapshot, FeedStep, VbHistory},
};
pub use reader::Feed;

impl Bucket {
    /// Facts about a vBucket's history.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn vb_history(&self, vb: VbId) -> Result<VbHistory, Status> {
        Ok(self.slot(vb)?.0.vb.lock().history())
    }

    /// The branch and the last mutation of a vBucket, as [`Bucket::vb_history`] has them: nothing is copied beside them, so asking
    /// every vBucket costs little.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn vb_newest(&self, vb: VbId) -> Result<(VbUuid, Seqno), Status> {
        Ok(self.slot(vb)?.0.vb.lock().newest())
    }
}
