//! A cursor that ends with its holder.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use base::{Status, VbId, VbRole};

use crate::{
    history::told::FeedEnd,
    shard::{Shard, deferred::DeferredEffects},
    vbucket::{VBucket, checkpoint::CursorId, slot::Home},
};

/// A registered cursor of a vBucket's checkpoint, good until the vBucket's contents are dropped. Does not keep the bucket
/// alive: it may be queued inside of it.
pub(crate) struct CursorGuard {
    home: Weak<dyn Home>,
    vb: VbId,
    incarnation: u32,
    teller: Teller,
    id: CursorId,
}

/// Whose history a cursor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Teller {
    /// This node's: it serves the vBucket, or did a moment ago.
    Own,
    /// That of a copy that follows another node's, by the failover log with this number.
    Follower(u32),
}

impl Teller {
    fn of(v: &VBucket) -> Option<Self> {
        match v.role {
            _ if v.feeds() => Some(Self::Own),
            VbRole::Replica => Some(Self::Follower(v.following.logs)),
            _ => None,
        }
    }
}

/// A vBucket, locked, as a cursor's holder sees it.
pub(crate) struct AtCursor<'a, 'b> {
    pub(crate) v: &'a mut VBucket,
    pub(crate) shard: &'b Shard,
    pub(crate) id: CursorId,
    pub(crate) deferred: &'a mut DeferredEffects<'b>,
}

impl CursorGuard {
    /// Registers a cursor, without a place; `look` sees the vBucket under the same lock and may refuse. With `followers` it may be one
    /// of a copy that follows another node's.
    pub(crate) fn register<R>(
        home: &Arc<dyn Home>,
        vb: VbId,
        followers: bool,
        look: impl FnOnce(&mut VBucket) -> Result<R, Status>,
    ) -> Result<(Self, R), Status> {
        let (slot, shard) = home.at(vb)?;
        if shard.gate.is_closed() {
            return Err(Status::TemporaryFailure);
        }
        let mut v = slot.vb.lock();
        let teller = Teller::of(&v).filter(|teller| followers || *teller == Teller::Own);
        let teller = teller.ok_or(Status::NotMyVbucket)?;
        let looked = look(&mut v)?;
        let id = v.checkpoint.register();
        home.cursors().fetch_add(1, Ordering::Relaxed);
        Ok((Self { home: Arc::downgrade(home), vb, incarnation: v.incarnation, teller, id }, looked))
    }

    /// Runs under the vBucket's lock.
    ///
    /// # Errors
    /// `Reset` when what the cursor was registered for is gone, or not this node's to tell.
    pub(crate) fn with<R>(
        &self,
        home: &(impl Home + ?Sized),
        act: impl FnOnce(AtCursor<'_, '_>) -> R,
    ) -> Result<R, FeedEnd> {
        let (slot, shard) = home.at(self.vb).map_err(|_| FeedEnd::Reset)?;
        let mut deferred = DeferredEffects::new(shard, home.notifier());
        let mut v = slot.vb.lock();
        let is_same = v.incarnation == self.incarnation && Teller::of(&v) == Some(self.teller);
        if !is_same || shard.gate.is_closed() {
            return Err(FeedEnd::Reset);
        }
        Ok(act(AtCursor { v: &mut v, shard, id: self.id, deferred: &mut deferred }))
    }

    /// Whether it is of a copy that follows another node's.
    pub(crate) fn is_of_follower(&self) -> bool {
        self.teller != Teller::Own
    }

    /// The vBucket's home, if it is still there.
    pub(crate) fn home(&self) -> Option<Arc<dyn Home>> {
        self.home.upgrade()
    }

    /// Gives the cursor's place up, also while a feed uses it.
    pub(crate) fn withdraw(&self, home: &(impl Home + ?Sized)) {
        // Otherwise there is none to give up.
        let _ = self.with(home, |AtCursor { v, id, deferred, .. }| {
            let (passed, waiter) = v.checkpoint.withdraw(id);
            deferred.release_all(passed);
            waiter.into_iter().for_each(|waiter| deferred.wake(waiter));
        });
    }
}

impl Drop for CursorGuard {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else { return };
        home.cursors().fetch_sub(1, Ordering::Relaxed);
        let Ok((slot, shard)) = home.at(self.vb) else { return };
        let mut deferred = DeferredEffects::new(shard, home.notifier());
        let mut v = slot.vb.lock();
        if v.incarnation == self.incarnation {
            deferred.release_all(v.checkpoint.unregister(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{Now, bucket::BucketKind};
    use parking_lot::Mutex;

    use super::*;
    use crate::{Bucket, BucketOptions, FeedOptions, FeedStep, Notifier, Waiter, Work};

    #[derive(Default)]
    struct Woken(Mutex<Vec<Waiter>>);

    impl Notifier for Woken {
        fn wake(&self, waiter: Waiter) {
            self.0.lock().push(waiter);
        }

        fn work(&self, _: Work) {}
    }

    /// The reading thread may take a place away that a feed has just begun to use; nothing would come there any more.
    #[test]
    fn a_reader_that_waits_at_a_place_that_goes_is_woken() {
        let (now, woken) = (Now { wall_nanos: 1 << 60, mono_millis: 0 }, Arc::new(Woken::default()));
        let options =
            BucketOptions { kind: BucketKind::Ephemeral, vbuckets: 1, ..BucketOptions::new("b", 64 << 20) };
        let bucket = Bucket::open(options, Vec::new(), Arc::default(), woken.clone(), now).unwrap();
        let from = bucket.vb_history(VbId(0)).unwrap().high_seqno;
        let waiter = Waiter { worker: 1, connection: 2, ticket: 3 };
        let options = FeedOptions { from, ..FeedOptions::default() };
        let mut feed = bucket.feed(VbId(0), options, waiter).unwrap();
        assert!(matches!(feed.next(1, now), Ok(FeedStep::Wait)));
        feed.cursor().withdraw(&*bucket);
        assert_eq!(*woken.0.lock(), [waiter]);
        assert!(matches!(feed.next(1, now), Ok(FeedStep::Wait)), "and it finds its place again");
    }
}
