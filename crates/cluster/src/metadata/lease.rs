//! Until when this node's active copies may serve.
//!
//! Where a node that has gone silent is replaced automatically ([`Metadata::needs_leases`]), it must stop by itself before that. A
//! node that cannot hear the leader cannot hear either that it has been replaced. A lease answers a report, and runs from when the
//! node sent that report, by the node's own clock. It is shorter than the silence after which the leader acts. No two clocks are
//! compared. The leader answers once a majority has confirmed that it still led when the report came (`node::Confirmations`). The
//! clock has to go on while the machine is suspended. A node that was put to sleep must not wake up believing that it is still what
//! it was.
//!
//! It is one number, which the thread that hears from the leader writes. Every data-plane loop reads it once per turn, and again
//! where a turn gets long. All times are milliseconds of that clock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metadata::Metadata;

/// No lease is needed.
const UNBOUNDED: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub struct Lease {
    until: AtomicU64,
    /// When the last report was sent that the leader has answered.
    heard: AtomicU64,
    /// Reports from before then are of an earlier life of the group, and so is what they are answered with.
    since: AtomicU64,
    /// When the report was sent, and a millisecond more, to which the leader has said that this node is to serve nothing
    /// ([`Lease::fence`]). 0: none. It holds for the life of the group that it is of.
    fenced: AtomicU64,
}

impl Default for Lease {
    fn default() -> Self {
        let nothing = || AtomicU64::new(0);
        Self { until: AtomicU64::new(UNBOUNDED), heard: nothing(), since: nothing(), fenced: nothing() }
    }
}

impl Lease {
    /// Whether actives must not serve now. The clock is read only where a lease is needed.
    #[inline]
    #[must_use]
    pub fn has_run_out(&self, clock: impl FnOnce() -> u64) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != UNBOUNDED && clock() >= until
    }

    /// Whether the leader has answered a report since this node started or joined.
    #[must_use]
    pub fn was_answered(&self) -> bool {
        self.heard.load(Ordering::Relaxed) != 0
    }

    /// Milliseconds left; `None` where no lease is needed.
    #[must_use]
    pub fn left_millis(&self, now: u64) -> Option<u64> {
        let until = self.until.load(Ordering::Relaxed);
        (until != UNBOUNDED).then(|| until.saturating_sub(now))
    }

    /// Asks for a lease from now on if `metadata` do; to be called before anything is done about them. Where one is needed there
    /// is none at first after a start (`is_first`): this node may just be being replaced. When that becomes so later, the node serves
    /// for a while by the last report that was answered. It may learn of it after a long sleep, and have been replaced meanwhile.
    pub fn follow(&self, metadata: &Metadata, is_first: bool, now: u64) {
        let Some(lease_ms) = metadata.lease_ms() else { return };
        let half_of_silence = u64::from(metadata.auto_failover.timeout_secs) * 1000 / 2;
        let heard = self.heard.load(Ordering::Relaxed).min(now);
        self.require(if is_first { now } else { heard + half_of_silence.min(lease_ms) });
        // One that was granted when nodes could be silent for longer.
        self.until.fetch_min(now + lease_ms, Ordering::Relaxed);
    }

    /// Asks for none any more if `metadata` don't, once this node has `applied` them (`node::Agent::applied`).
    /// Not earlier: there may be too few nodes left to need leases because this one was failed over. Until it has stopped,
    /// what it serves is another node's.
    pub fn end_need(&self, metadata: &Metadata, applied: u64) {
        if metadata.lease_ms().is_none() && applied >= metadata.version {
            self.waive();
        }
    }

    /// The leader has answered a report that was sent then. A lease that it grants runs for so long from when the report was sent,
    /// because the leader counts silence from when the report came.
    pub fn answered(&self, sent_at: u64, millis: Option<u64>) {
        let is_of_earlier_life = || sent_at < self.since.load(Ordering::Relaxed);
        if is_of_earlier_life() {
            return;
        }
        self.heard(sent_at);
        millis.into_iter().for_each(|millis| self.extend(sent_at.saturating_add(millis)));
        // Another thread may have begun the new life in between, and have revoked what was extended only now.
        if is_of_earlier_life() {
            self.heard.store(0, Ordering::Relaxed);
            self.revoke();
        }
    }

    /// The group was formed anew, and this node is a member of the new one. No leader of it knows of a lease that was granted before, or
    /// of one that is on its way. So this node serves nothing until a report of its new life is answered.
    pub fn begin_again(&self, now: u64) {
        // A report of this very millisecond may be of the earlier life.
        self.since.store(now.saturating_add(1), Ordering::SeqCst);
        self.heard.store(0, Ordering::Relaxed);
        self.revoke();
    }

    fn heard(&self, sent_at: u64) {
        self.heard.fetch_max(sent_at, Ordering::Relaxed);
    }

    /// From now on a lease is needed; `until` it ends if there was none before.
    pub fn require(&self, until: u64) {
        let _ = self.until.compare_exchange(UNBOUNDED, until, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// This node serves nothing from now on, until it is granted a lease. A thread that extends the lease later sees what this thread
    /// wrote before.
    pub fn revoke(&self) {
        self.until.store(0, Ordering::SeqCst);
    }

    /// The leader has answered a report that was sent then, and lets this node serve nothing any more. That outlasts whatever is granted, or
    /// is not needed, later in this life of the group. Other threads may act for long by what they knew before.
    pub fn fence(&self, sent_at: u64) {
        self.fenced.fetch_max(sent_at.saturating_add(1), Ordering::SeqCst);
        if self.is_fenced() {
            self.revoke();
        }
    }

    fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst) > self.since.load(Ordering::SeqCst)
    }

    /// No lease is needed any more, unless this node is to serve nothing ([`Lease::fence`]).
    pub fn waive(&self) {
        if self.is_fenced() {
            return;
        }
        self.until.store(UNBOUNDED, Ordering::SeqCst);
        // Another thread may have heard of it in between. Either that one revokes later than this one waives, or it is seen here.
        if self.is_fenced() {
            self.revoke();
        }
    }

    /// Makes a lease that is needed last until then at least.
    pub fn extend(&self, until: u64) {
        if self.is_fenced() {
            return;
        }
        let until = until.min(UNBOUNDED - 1);
        let later = |now: u64| (now < until).then_some(until);
        let _ = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }
}

#[cfg(test)]
mod tests {
    use crate::metadata::{NodeInfo, Ports, topology::Membership};
    use base::NodeId;

    use super::*;

    /// Three nodes, one of which is failed over after ten seconds of silence if that is `enabled`.
    fn metadata(enabled: bool) -> Metadata {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = (0..3)
            .map(|id| {
                let node = NodeInfo::first(format!("n{id}"), "h".into(), Ports::default());
                NodeInfo { id: NodeId(id), ..node }
            })
            .collect();
        (metadata.auto_failover.enabled, metadata.auto_failover.timeout_secs) = (enabled, 10);
        metadata
    }

    #[test]
    fn a_lease_is_needed_from_when_that_is_said_and_only_grows() {
        let lease = Lease::default();
        lease.extend(1);
        assert!(!lease.has_run_out(|| 1_000), "none is needed");
        lease.heard(1_000);
        lease.follow(&metadata(true), false, 1_000);
        lease.follow(&metadata(true), false, 4_000);
        assert_eq!(lease.left_millis(1_000), Some(5_000), "the one in force stays");
        lease.extend(2_000);
        assert_eq!(lease.left_millis(1_000), Some(5_000), "an answer that comes late shortens nothing");
        lease.extend(8_000);
        let other = Lease::default();
        other.require(0);
        other.extend(u64::MAX);
        assert!(other.left_millis(0).is_some(), "however long it lasts, it is needed");
        assert!(!lease.has_run_out(|| 7_999) && lease.has_run_out(|| 8_000));
        lease.follow(&metadata(false), false, 9_000);
        assert!(lease.has_run_out(|| 9_000), "what it serves may be another's until it has done as they say");
        lease.end_need(&metadata(false), 0);
        assert_eq!(lease.left_millis(9_000), None);
    }

    #[test]
    fn a_node_that_was_failed_over_serves_nothing_before_it_has_stopped_though_those_left_need_no_leases() {
        let lease = Lease::default();
        lease.follow(&metadata(true), true, 1_000);
        let mut without_it = metadata(true);
        without_it.nodes[2].membership = Membership::InactiveFailed;
        without_it.version = 7;
        assert!(!without_it.needs_leases());
        lease.follow(&without_it, false, 20_000);
        lease.end_need(&without_it, 6);
        assert!(lease.has_run_out(|| 20_000));
        lease.end_need(&without_it, 7);
        assert_eq!(lease.left_millis(20_000), None);
    }

    #[test]
    fn a_node_that_is_to_serve_nothing_is_let_serve_only_in_another_life_of_its_group() {
        for leases in [true, false] {
            let (lease, metadata) = (Lease::default(), metadata(leases));
            lease.follow(&metadata, true, 1_000);
            lease.fence(1_500);
            // The thread that acts by metadata has not heard of it.
            lease.follow(&metadata, false, 2_000);
            lease.end_need(&metadata, metadata.version);
            lease.answered(2_000, Some(5_000));
            assert!(lease.has_run_out(|| 2_000), "{leases}");
            lease.begin_again(2_500);
            lease.answered(2_600, Some(5_000));
            lease.end_need(&metadata, metadata.version);
            assert!(!lease.has_run_out(|| 2_600), "{leases}");
            // What the leader of the earlier life says comes late.
            lease.fence(2_400);
            assert!(!lease.has_run_out(|| 2_600), "{leases}");
        }
    }

    #[test]
    fn a_lease_is_shortened_with_the_silence_after_which_others_act() {
        let lease = Lease::default();
        lease.follow(&metadata(true), true, 1_000);
        lease.extend(6_000);
        let mut stricter = metadata(true);
        stricter.auto_failover.timeout_secs = 1;
        lease.follow(&stricter, false, 2_000);
        assert_eq!(lease.left_millis(2_000), Some(700));
        lease.follow(&stricter, false, 2_500);
        assert_eq!(lease.left_millis(2_500), Some(200), "looking at it lengthens nothing");
    }

    #[test]
    fn a_node_that_hears_of_leases_after_a_long_sleep_serves_nothing_before_it_is_answered() {
        let lease = Lease::default();
        lease.follow(&metadata(false), true, 1_000);
        lease.heard(1_000);
        lease.follow(&metadata(true), false, 60_000);
        assert!(lease.has_run_out(|| 60_000), "it may have been replaced while it slept");
        lease.heard(60_000);
        lease.extend(61_000);
        assert!(!lease.has_run_out(|| 60_000));
    }

    #[test]
    fn a_node_that_has_just_started_has_none() {
        let lease = Lease::default();
        lease.follow(&metadata(true), true, 1_000);
        assert!(lease.has_run_out(|| 1_000));
        lease.extend(2_000);
        assert!(!lease.has_run_out(|| 1_000));
    }
}
