//! What services hear of buckets and of the copies of vBuckets on this node, in order.
//!
//! Level-triggered, as everything that a node does about copies: a [`Lifecycle`] compares what is with what it has told. A copy that
//! became something and something else between two looks is told as what it became last. What a service may rely on:
//!
//! - A bucket is opened before anything of its vBuckets is told, and nothing of them is told once it is closed. One that was closed
//!   and opened between two looks is told as both.
//! - A copy is [`Change::Active`], [`Change::Sealed`] or [`Change::Replica`] until the next of these, or until [`Change::Gone`]. Terms
//!   of one vBucket never fall. An active copy that was none for a moment is told anew, under its later term.
//! - [`Change::Reset`] comes before the role that the copy has by then. It may come for a copy of which nothing was heard, and up to
//!   some seconds late. This is harmless, since a feed of the copy ends at once by itself.
//!
//! A look costs one atomic read for each vBucket, and a lock for those that have changed and for a few more.

use std::{collections::BTreeMap, sync::Arc};

use base::{BucketUuid, VbId, VbRole, VbUuid, bucket::BucketKind};
use engine::Bucket;

/// vBuckets of a bucket whose history is compared at a look although their role is the same.
const LOOKS: usize = 64;

/// Something that a service hears.
#[derive(Clone)]
pub enum Event {
    /// A bucket can be used.
    BucketOpened {
        /// Which.
        uuid: BucketUuid,
        /// The bucket. Its files stay until the last hold on it is gone.
        bucket: Arc<Bucket>,
    },
    /// A copy of a vBucket has changed.
    Vb {
        /// The bucket.
        bucket: BucketUuid,
        /// The vBucket.
        vb: VbId,
        /// The term of the copy's role.
        term: u64,
        /// What it is now.
        change: Change,
    },
    /// A bucket can be used no longer: it was dropped, or the node stops.
    BucketClosed(BucketUuid),
}

/// What has become of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It serves clients, and has feeds.
    Active,
    /// It takes nothing more, for another node takes over; its feeds go on to the end.
    Sealed,
    /// It follows another node's copy. It has feeds for those who ask for them (`engine::FeedOptions::followers`).
    Replica,
    /// Its history is another one than before, or ends earlier: what was heard of it may be of use no more.
    Reset,
    /// It is no copy any more.
    Gone,
}

/// Hears events, on one thread and in order. The next event waits until one was heard, so a hearer takes note and returns.
pub trait Hearer: Send {
    /// Hears one.
    fn hear(&mut self, event: &Event);
}

/// The copies of one bucket.
pub(crate) trait Copies {
    /// How many vBuckets it has.
    fn count(&self) -> u16;
    /// Role and term of a copy.
    fn role_and_term(&self, vb: VbId) -> (VbRole, u64);
    /// The branches of its history, newest first.
    fn branches(&self, vb: VbId) -> Vec<VbUuid>;
}

impl Copies for Bucket {
    fn count(&self) -> u16 {
        self.vbuckets()
    }

    fn role_and_term(&self, vb: VbId) -> (VbRole, u64) {
        self.vb_role(vb).unwrap_or_default()
    }

    fn branches(&self, vb: VbId) -> Vec<VbUuid> {
        let history = self.vb_history(vb);
        history.map(|history| history.log.iter().map(|(uuid, _)| *uuid).collect()).unwrap_or_default()
    }
}

/// What was told of the buckets of a node.
#[derive(Default)]
pub struct Lifecycle {
    buckets: BTreeMap<BucketUuid, (Arc<Bucket>, Told)>,
}

impl Lifecycle {
    /// Tells which buckets are closed since the last look, where `open` are those that are open. Nothing of them is held from then on.
    pub fn let_go(&mut self, open: &[(BucketUuid, Arc<Bucket>)], mut tell: impl FnMut(Event)) {
        let is_same = |uuid: &BucketUuid, bucket: &Arc<Bucket>| {
            open.iter().any(|(found, now)| found == uuid && Arc::ptr_eq(now, bucket))
        };
        self.buckets.retain(|uuid, (bucket, _)| {
            let stays = is_same(uuid, bucket);
            if !stays {
                tell(Event::BucketClosed(uuid.clone()));
            }
            stays
        });
    }

    /// Tells what has changed since the last look, where `open` are the buckets that are open.
    pub fn look(&mut self, open: &[(BucketUuid, Arc<Bucket>)], mut tell: impl FnMut(Event)) {
        self.let_go(open, &mut tell);
        // A cache has no feeds.
        for (uuid, bucket) in open.iter().filter(|(_, bucket)| bucket.kind() != BucketKind::Memcached) {
            let (_, told) = self.buckets.entry(uuid.clone()).or_insert_with(|| {
                tell(Event::BucketOpened { uuid: uuid.clone(), bucket: Arc::clone(bucket) });
                (Arc::clone(bucket), Told::default())
            });
            told.look(&**bucket, |vb, term, change| {
                tell(Event::Vb { bucket: uuid.clone(), vb, term, change });
            });
        }
    }
}

/// What was told of the copies of one bucket.
#[derive(Debug, Default)]
struct Told {
    copies: Vec<Copy>,
    /// Where the next look for other histories begins.
    next: usize,
}

/// What was told of one copy; `branch` is the newest one of its history then, if it was a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Copy {
    role: VbRole,
    term: u64,
    branch: Option<VbUuid>,
}

impl Told {
    fn look(&mut self, copies: &impl Copies, mut tell: impl FnMut(VbId, u64, Change)) {
        let count = usize::from(copies.count());
        self.copies.resize(count, Copy::default());
        let next = self.next;
        let is_due = |index: usize| (index + count - next) % count < LOOKS;
        for (index, told) in self.copies.iter_mut().enumerate() {
            let vb = VbId(index as u16);
            let (role, term) = copies.role_and_term(vb);
            let has_changed = (told.role, told.term) != (role, term);
            if has_changed || role != VbRole::Dead && is_due(index) {
                told.compare(copies, vb, |term, change| tell(vb, term, change));
            }
        }
        self.next = if count == 0 { 0 } else { (next + LOOKS) % count };
    }
}

impl Copy {
    fn compare(&mut self, copies: &impl Copies, vb: VbId, mut tell: impl FnMut(u64, Change)) {
        // The history before the role: what is told of a role is then no older than that.
        let branches = copies.branches(vb);
        let (role, term) = copies.role_and_term(vb);
        let was = *self;
        let is_copy = role != VbRole::Dead;
        *self = Copy { role, term, branch: branches.first().copied().filter(|_| is_copy) };
        if is_copy && was.branch.is_some_and(|branch| !branches.contains(&branch)) {
            tell(term, Change::Reset);
        }
        match role {
            _ if (was.role, was.term) == (role, term) => {}
            VbRole::Active => tell(term, Change::Active),
            VbRole::Sealed => tell(term, Change::Sealed),
            VbRole::Replica => tell(term, Change::Replica),
            VbRole::Dead if was.role == VbRole::Dead => {}
            VbRole::Dead => tell(term, Change::Gone),
        }
    }
}

#[cfg(test)]
mod tests;
