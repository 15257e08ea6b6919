//! A node's reports to the node that leads: when one is due, where it goes, and what comes of the answer.
//!
//! The newest report counts: one that could not be delivered is not kept. One goes as soon as it says something new, and at a steady
//! pace to show that the node is there. One is on its way at a time: an answer that comes after the node has given up waiting for it
//! changes nothing.
//!
//! Times are milliseconds of the clock that leases run by ([`cluster::Lease`]).

use base::NodeId;
use cluster::{Lease, NodeReport, consensus::StateMarks};

use crate::Taken;

/// Between two reports that say the same.
const STEADY_MILLIS: u64 = 250;
/// Between two reports at least: what happens meanwhile goes with the next one.
const AT_MOST_MILLIS: u64 = 10;
/// A leader that has not answered by then is asked again, or another one.
pub const REPORT_PATIENCE_MILLIS: u64 = 1_000;

/// What this node says of its metadata at the moment in which it reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataState {
    /// Since which change they differ from those of most nodes, as far as is known here.
    pub diverged: Option<u64>,
    /// Their hashes.
    pub state: Option<StateMarks>,
}

/// See the module. One per start of a node.
#[derive(Debug, Default)]
pub struct Reporter {
    /// Of the last report: reports may overtake one another on their way.
    number: u64,
    /// When that one was sent, while its answer is waited for.
    sent_at: Option<u64>,
    /// When one is due that says nothing new.
    due_at: u64,
    /// None is sent before then.
    pause_until: u64,
    has_news: bool,
}

impl Reporter {
    /// The newest report says something that the one before did not.
    pub fn note_news(&mut self) {
        self.has_news = true;
    }

    /// How long nothing is to be sent if nothing new is to be said, and no answer comes.
    #[must_use]
    pub fn rests_for(&self, now: u64) -> u64 {
        let due_at = if self.has_news { now } else { self.due_at };
        let answer_until = self.sent_at.map_or(0, |at| at + REPORT_PATIENCE_MILLIS);
        due_at.max(self.pause_until).max(answer_until).saturating_sub(now)
    }

    /// What is to be sent now, and to which node. It ends with [`Reporter::answered`] or [`Reporter::given_up`], or is given up when its
    /// time is up.
    pub fn next(
        &mut self,
        newest: Option<&NodeReport>,
        metadata_state: impl FnOnce() -> MetadataState,
        leader: Option<NodeId>,
        now: u64,
    ) -> Option<(NodeId, NodeReport)> {
        if self.rests_for(now) > 0 {
            return None;
        }
        (self.sent_at, self.has_news, self.due_at) = (None, false, now + STEADY_MILLIS);
        let (newest, to) = newest.zip(leader)?;
        self.number += 1;
        self.sent_at = Some(now);
        let MetadataState { diverged, state } = metadata_state();
        Some((to, NodeReport { number: self.number, diverged, state, ..newest.clone() }))
    }

    /// The leader has answered the report of that number. Returns since which change this node's metadata differ from those of most
    /// nodes, where the leader says so. The node is to take part in nothing any more then
    /// ([`Participant::fence`](crate::Participant::fence)).
    pub fn answered(&mut self, number: u64, taken: Taken, lease: &Lease, now: u64) -> Option<u64> {
        let sent_at = self.sent_at.filter(|_| number == self.number)?;
        self.given_up(number, now);
        if taken.diverged.is_some() {
            lease.fence(sent_at);
        }
        lease.answered(sent_at, taken.lease_millis.filter(|_| taken.diverged.is_none()));
        taken.diverged
    }

    /// The report of that number was not taken, or nobody knows.
    pub fn given_up(&mut self, number: u64, now: u64) {
        if number == self.number {
            (self.sent_at, self.pause_until) = (None, now + AT_MOST_MILLIS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::report;

    const LEADER: Option<NodeId> = Some(NodeId(1));

    fn taken(lease_millis: Option<u64>) -> Taken {
        Taken { is_news: false, lease_millis, diverged: None }
    }

    /// The number of what is sent.
    fn next(reporter: &mut Reporter, now: u64) -> Option<u64> {
        let sent = reporter.next(Some(&report()), MetadataState::default, LEADER, now);
        sent.map(|(_, report)| report.number)
    }

    /// A node that serves nothing without a lease.
    fn leased() -> Lease {
        let lease = Lease::default();
        lease.require(0);
        lease
    }

    #[test]
    fn a_report_goes_at_once_when_it_says_something_new_and_at_a_steady_pace_otherwise() {
        let (mut reporter, lease) = (Reporter::default(), Lease::default());
        assert_eq!(next(&mut reporter, 1_000), Some(1));
        reporter.answered(1, taken(None), &lease, 1_002);
        assert_eq!((next(&mut reporter, 1_100), reporter.rests_for(1_100)), (None, 150));
        assert_eq!(next(&mut reporter, 1_250), Some(2));
        reporter.answered(2, taken(None), &lease, 1_251);
        reporter.note_news();
        assert_eq!(
            (next(&mut reporter, 1_252), reporter.rests_for(1_252)),
            (None, 9),
            "not one after the other"
        );
        assert_eq!(next(&mut reporter, 1_261), Some(3));
    }

    #[test]
    fn where_nobody_leads_nothing_is_kept_for_later() {
        let mut reporter = Reporter::default();
        reporter.note_news();
        assert_eq!(reporter.next(Some(&report()), MetadataState::default, None, 1_000), None);
        assert_eq!(reporter.rests_for(1_000), STEADY_MILLIS);
        assert_eq!(next(&mut reporter, 1_250), Some(1));
    }

    #[test]
    fn a_lease_runs_from_when_the_report_was_sent_that_was_answered() {
        let (mut reporter, lease) = (Reporter::default(), leased());
        assert_eq!(next(&mut reporter, 1_000), Some(1));
        reporter.answered(1, taken(Some(500)), &lease, 1_300);
        assert_eq!(lease.left_millis(1_300), Some(200));
    }

    #[test]
    fn an_answer_that_nobody_waits_for_any_more_lets_nobody_serve() {
        let (mut reporter, lease) = (Reporter::default(), leased());
        assert_eq!(next(&mut reporter, 1_000), Some(1));
        assert_eq!(next(&mut reporter, 1_999), None, "its answer is waited for");
        assert_eq!(next(&mut reporter, 2_000), Some(2));
        reporter.answered(1, taken(Some(5_000)), &lease, 2_001);
        assert!(lease.has_run_out(|| 2_001));
        reporter.answered(2, taken(Some(5_000)), &lease, 2_002);
        assert!(!lease.has_run_out(|| 2_002));
        reporter.answered(2, taken(Some(9_000)), &lease, 2_003);
        assert_eq!(lease.left_millis(2_000), Some(5_000), "nor does one that comes twice");
    }

    #[test]
    fn an_answer_of_an_earlier_life_of_the_group_lets_nobody_serve() {
        let (mut reporter, lease) = (Reporter::default(), leased());
        assert_eq!(next(&mut reporter, 1_000), Some(1));
        lease.begin_again(1_001);
        reporter.answered(1, taken(Some(5_000)), &lease, 1_002);
        assert!(lease.has_run_out(|| 1_002));
        assert_eq!(next(&mut reporter, 1_300), Some(2));
        reporter.answered(2, taken(Some(5_000)), &lease, 1_301);
        assert_eq!(lease.left_millis(1_301), Some(4_999));
    }

    #[test]
    fn a_node_whose_metadata_differ_serves_nothing_from_then_on() {
        let (mut reporter, lease) = (Reporter::default(), leased());
        lease.extend(9_000);
        assert_eq!(next(&mut reporter, 1_000), Some(1));
        let taken = Taken { diverged: Some(64), ..taken(Some(5_000)) };
        assert_eq!(reporter.answered(1, taken, &lease, 1_001), Some(64));
        assert!(lease.has_run_out(|| 1_001));
        // Another thread finds that no lease is needed, by what it has read before.
        lease.waive();
        assert!(lease.has_run_out(|| 1_002));
    }

    #[test]
    fn what_a_report_says_of_the_metadata_is_as_of_when_it_is_sent() {
        let mut reporter = Reporter::default();
        let metadata_state = || MetadataState { diverged: Some(7), state: None };
        let (to, sent) = reporter.next(Some(&report()), metadata_state, LEADER, 1_000).unwrap();
        assert_eq!((Some(to), sent.diverged), (LEADER, Some(7)));
    }
}
