//! Carrying out what was agreed on, in order, and what of it could not be done at once.
//!
//! Invariants: it happens on one thread at a time; readers never wait for it. What was agreed on is published after the buckets have
//! followed, so that "created" means "serving".

use std::{
    sync::{
        Arc, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use cluster::{ClusterError, Metadata, consensus::Commit};
use node::REOPEN_MILLIS;
use tokio::sync::watch;

use super::Control;
use crate::{buckets::unavailable::Unavailable, talk::agreement::Applied};

impl Control {
    /// Carries out what was agreed on, on this thread, until the node stops.
    pub(crate) fn follow(me: &Weak<Self>, applied: &Receiver<Applied>) {
        loop {
            let due = match me.upgrade() {
                Some(me) => me.buckets.maps_due(),
                None => return,
            };
            let next = match due {
                Some(due) => applied.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => applied.recv().map_err(RecvTimeoutError::from),
            };
            let mut next = match next {
                Ok(next) => next,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(me) = me.upgrade() {
                        me.tell_maps();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Ok(more) = applied.try_recv() {
                next.extend(more);
            }
            let Some(me) = me.upgrade() else { return };
            me.carry_out(next);
        }
    }

    /// Carries out and publishes; blocks on disk and on threads that have to end.
    fn carry_out(&self, applied: Applied) {
        let _turn = self.carrying_out.lock();
        // A node that has not caught up must do nothing in its new life, in which it may have no lease. So that is known first. Until
        // a new life's metadata are published here nothing is caught up in it, even where both were learnt in one go.
        let goes_on = applied.life == self.life();
        let had = self.caught_up.fetch_and(applied.caught_up && goes_on, Ordering::AcqRel) && goes_on;
        // Known before anything that belongs to it is.
        self.life.store(applied.life, Ordering::Release);
        if let Some(last) = applied.commits.last() {
            let (before, next) = (self.metadata.load_full(), Arc::clone(&last.metadata));
            let gone = self.gauges.origins().lock().follow(&applied.commits, goes_on);
            self.metadata.store(Arc::clone(&next));
            self.audit.obey(&next.audit_policy());
            self.certificates.obey(&next);
            let unavailable = self.buckets.reconcile(&next).err();
            for error in unavailable.iter().flat_map(Unavailable::reasons) {
                tracing::error!(%error, "a bucket is not available");
            }
            // Whatever could not be opened: what was dropped is dropped.
            self.carried_out.send_replace(next.version);
            self.forget_pasts(&gone);
            self.wake_watchers(next.rev);
            self.tell_proposers(&before, applied.commits, unavailable.as_ref());
        }
        self.caught_up.store(applied.caught_up, Ordering::Release);
        self.shared.behind.store(!applied.caught_up, Ordering::Release);
        if applied.caught_up
            && !had
            && let Err(error) = self.buckets.remove_unknown(&self.metadata.load())
        {
            tracing::error!(%error, "files of dropped buckets stay until the next start");
        }
        // The one that asked may have given up.
        for waiting in applied.reads {
            let _ = waiting.send(());
        }
    }

    /// Tells those who wait for changes how they ended. A change that has made a bucket has failed here where that is not available.
    fn tell_proposers(&self, before: &Metadata, commits: Vec<Commit>, unavailable: Option<&Unavailable>) {
        let mut before = before;
        for commit in &commits {
            let failed = unavailable.and_then(|unavailable| unavailable.fails(before, &commit.metadata));
            for (id, ended) in &commit.outcomes {
                let failed = || failed.clone().map_or(Ok(()), Err);
                self.proposals.ended(*id, || ended.clone().and_then(|applied| failed().map(|()| applied)));
            }
            before = &commit.metadata;
        }
    }

    /// Tells clients of the maps that were held back, unless somebody has done so, or they are to wait for longer.
    fn tell_maps(&self) {
        let _turn = self.carrying_out.lock();
        if self.buckets.maps_due().is_none_or(|due| Instant::now() < due) {
            return;
        }
        let metadata = self.metadata.load_full();
        self.buckets.tell_maps(&metadata);
        self.wake_watchers(metadata.rev);
    }

    /// Wakes those that are to be told of what was published.
    fn wake_watchers(&self, rev: i64) {
        if self.buckets.maps_due().is_none() {
            self.rev.send_replace(rev);
        }
        self.wakes.config_changed();
    }

    /// Tries again and again to open buckets that could not be opened, until the node stops. What was in the way of one at
    /// the start, a disk that was not mounted or full, may be gone. And at once when the same bucket, dropped before, is gone.
    pub(crate) async fn reopen(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(REOPEN_MILLIS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // An error means that the sender is gone: the node stops as well.
                _ = ended.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
                () = self.buckets.one_has_left() => {}
            }
            if self.buckets.misses(&self.metadata.load()) {
                match self.reconcile_again().await {
                    Ok(Ok(())) => tracing::info!("every bucket is available again"),
                    Ok(Err(unavailable)) => {
                        for error in unavailable.reasons() {
                            tracing::error!(%error, "a bucket is still not available");
                        }
                    }
                    Err(error) => tracing::debug!(%error, "buckets were not looked at again"),
                }
            }
        }
    }

    /// Brings reality to where the metadata has been for a while.
    async fn reconcile_again(&self) -> Result<Result<(), Unavailable>, ClusterError> {
        let reconciling = self.blocking(|me| {
            let _turn = me.carrying_out.lock();
            let metadata = me.metadata.load_full();
            let outcome = me.buckets.reconcile(&metadata);
            me.wake_watchers(metadata.rev);
            Ok(outcome)
        });
        let outcome = reconciling.await;
        // The thread that carries out what is agreed on sleeps until more is agreed on. It may not have seen that maps were held
        // back.
        if let Some(due) = self.buckets.maps_due() {
            tokio::time::sleep_until(due.into()).await;
            let tell = |me: &Self| {
                me.tell_maps();
                Ok(())
            };
            self.blocking(tell).await?;
        }
        outcome
    }
}
