//! When what was applied to an index is shown to queries, and when it is made durable.
//!
//! A query that waits for a seqno has it shown at once. Otherwise changes are shown in bundles, since each bundle makes the
//! nodes of the tree above its rows anew. A large index takes long for a bundle, so bundles get larger with it: making them takes
//! a part of the time only. A crash costs what was not committed, which is fed again.
//!
//! While a thread makes a bundle or a commit, queries see nothing new in any of its indexes. Some of those that wait for one change after the
//! other would wait for most of it. So while clients send such queries, its indexes commit less often, and bundles that nobody waits for are
//! made less often as well.

use std::time::Duration;

/// Bounds of how long changes may stay unseen, and not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Queries see a change after this time at the latest.
    pub show_after: Duration,
    /// A change is made durable after this time.
    pub commit_after: Duration,
    /// A commit waits no longer for the bucket to have on its disk what the index has.
    pub commit_held: Duration,
    /// Bundles that nobody waits for take one in so many parts of the time.
    pub parts: u32,
    /// Up to this age of changes they take one in [`MORE_PARTS`] times as many.
    pub put_off: Duration,
}

/// See [`Pacing::put_off`].
const MORE_PARTS: u32 = 4;
/// While queries wait for changes, commits take one in so many parts of the time.
const AWAITED_PARTS: u32 = 200;
/// They come no later than this for that reason: after a crash all since the last one is fed again.
const AWAITED_MAX: Duration = Duration::from_secs(60);
/// Bundles that nobody waits for come no later than this because queries wait for something else.
const AWAITED_SHOW_MAX: Duration = Duration::from_secs(5);
/// Queries that wait have ceased when for so long none did.
const AWAITED_LAST: Duration = Duration::from_secs(2);

impl Default for Pacing {
    fn default() -> Self {
        Self {
            show_after: Duration::from_millis(500),
            commit_after: Duration::from_secs(5),
            commit_held: Duration::from_secs(2),
            parts: 5,
            put_off: Duration::ZERO,
        }
    }
}

impl Pacing {
    /// The same for indexes that are built, or far behind, and are kept up to date without being asked for. A bundle goes through most of a
    /// tree, and a later one changes most of that again. It serves only queries that take the index as it is. Those see changes later, by
    /// ten seconds at most.
    #[must_use]
    pub fn of_builds(self) -> Self {
        Self { show_after: self.show_after * 4, put_off: Duration::from_secs(10), ..self }
    }
}

/// Since when an index has changes that are not seen, and that are not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    unseen: Option<Duration>,
    uncommitted: Option<Duration>,
    /// When a query last waited for something that the index's thread has yet to show, in this index or in another one.
    awaited: Option<Duration>,
    /// How long the last bundle took, and the last commit.
    show_took: Duration,
    commit_took: Duration,
}

/// What is to be done about an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// Its changes are to be shown.
    Show,
    /// They are to be made durable, which shows them as well.
    Commit,
    /// The same, once the bucket's disk has what the index has: until then nothing more is to be applied that nobody waits
    /// for. A bucket that loses its tail in a crash would otherwise make the index forget whole vBuckets.
    CommitOncePersisted,
}

impl Pace {
    /// Changes were applied.
    pub fn applied(&mut self, now: Duration) {
        self.unseen.get_or_insert(now);
        self.uncommitted.get_or_insert(now);
    }

    /// A query waits for what is not seen yet, of this index or of another one of the same thread.
    pub fn awaits(&mut self, now: Duration) {
        self.awaited = Some(now);
    }

    /// Everything applied is seen, which took so long.
    pub fn shown(&mut self, took: Duration) {
        self.unseen = None;
        self.show_took = took;
    }

    /// Everything applied is durable, and seen. That took so long; nothing where something else was done as well.
    pub fn committed(&mut self, took: Option<Duration>) {
        (self.unseen, self.uncommitted) = (None, None);
        self.commit_took = took.unwrap_or(self.commit_took);
    }

    /// When what is applied is to be seen.
    fn show_at(&self, pacing: &Pacing) -> Option<Duration> {
        let since = self.unseen?;
        let of = |parts: u32| self.show_took * parts.saturating_sub(1);
        let after =
            pacing.show_after.max(of(pacing.parts)).max(of(pacing.parts * MORE_PARTS).min(pacing.put_off));
        let latest = of(pacing.parts * MORE_PARTS).min(AWAITED_SHOW_MAX).max(after);
        Some(self.quiet(since).clamp(since + after, since + latest))
    }

    /// When queries that wait have ceased; `since` where none did.
    fn quiet(&self, since: Duration) -> Duration {
        self.awaited.map_or(since, |awaited| awaited + AWAITED_LAST)
    }

    /// When what is applied is to be made durable.
    fn commit_at(&self, pacing: &Pacing) -> Option<Duration> {
        let since = self.uncommitted?;
        let after = pacing.commit_after.max(self.commit_took * pacing.parts.saturating_sub(1));
        let latest = (self.commit_took * AWAITED_PARTS).min(AWAITED_MAX).max(after);
        Some(self.quiet(since).clamp(since + after, since + latest))
    }

    /// Whether something was applied that is not seen.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.unseen.is_some()
    }

    /// What is to be done now. `awaited`: a query waits for what was applied. `full`: so much was written without a commit that one is
    /// due at once.
    #[must_use]
    pub fn due(&self, pacing: &Pacing, now: Duration, awaited: bool, full: bool) -> Due {
        if full {
            return Due::Commit;
        }
        if awaited && self.is_unseen() {
            return Due::Show;
        }
        match self.commit_at(pacing) {
            Some(at) if now >= at + pacing.commit_held => Due::Commit,
            Some(at) if now >= at => Due::CommitOncePersisted,
            _ if self.show_at(pacing).is_some_and(|at| now >= at) => Due::Show,
            _ => Due::Nothing,
        }
    }

    /// When something will be due if nothing else happens.
    #[must_use]
    pub fn next(&self, pacing: &Pacing) -> Option<Duration> {
        self.show_at(pacing).into_iter().chain(self.commit_at(pacing)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pacing() -> Pacing {
        Pacing {
            show_after: SECOND,
            commit_after: 5 * SECOND,
            commit_held: 2 * SECOND,
            parts: 5,
            put_off: Duration::ZERO,
        }
    }

    #[test]
    fn changes_are_shown_and_made_durable_in_time() {
        let mut pace = Pace::default();
        let due = |pace: &Pace, seconds: u32| pace.due(&pacing(), SECOND * seconds, false, false);
        assert_eq!((due(&pace, 100), pace.next(&pacing())), (Due::Nothing, None));
        pace.applied(SECOND * 10);
        pace.applied(SECOND * 11);
        assert_eq!(pace.next(&pacing()), Some(SECOND * 11));
        assert_eq!([10, 11].map(|at| due(&pace, at)), [Due::Nothing, Due::Show]);
        pace.shown(Duration::ZERO);
        assert_eq!(pace.next(&pacing()), Some(SECOND * 15));
        assert_eq!(
            [14, 15, 16].map(|at| due(&pace, at)),
            [Due::Nothing, Due::CommitOncePersisted, Due::CommitOncePersisted]
        );
        assert_eq!(due(&pace, 17), Due::Commit, "the bucket's disk is not waited for any longer");
        pace.committed(Some(Duration::ZERO));
        assert_eq!(due(&pace, 1000), Due::Nothing);
    }

    #[test]
    fn a_waiting_query_has_changes_shown_at_once() {
        let mut pace = Pace::default();
        assert_eq!(pace.due(&pacing(), SECOND, true, false), Due::Nothing, "everything is shown");
        pace.applied(SECOND);
        assert_eq!(pace.due(&pacing(), SECOND, true, false), Due::Show);
        pace.shown(Duration::ZERO);
        assert_eq!(pace.due(&pacing(), SECOND, true, false), Due::Nothing);
        assert_eq!(pace.due(&pacing(), SECOND, false, true), Due::Commit, "too much is not durable");
    }

    #[test]
    fn commits_are_rare_while_queries_wait_for_changes() {
        let mut pace = Pace::default();
        pace.committed(Some(SECOND / 10));
        pace.applied(SECOND * 100);
        let due = |pace: &Pace, seconds: u32| pace.due(&pacing(), SECOND * seconds, false, false);
        pace.shown(Duration::ZERO);
        assert_eq!(pace.next(&pacing()), Some(SECOND * 105));
        pace.awaits(SECOND * 102);
        assert_eq!(pace.next(&pacing()), Some(SECOND * 105), "it is quiet by then");
        for seconds in 103..118 {
            pace.awaits(SECOND * seconds);
            assert_eq!(due(&pace, seconds), Due::Nothing);
            assert!(pace.next(&pacing()).is_some_and(|next| next > SECOND * seconds), "nobody looks before");
        }
        assert_eq!(pace.next(&pacing()), Some(SECOND * 119), "queries have ceased");
        pace.awaits(SECOND * 120);
        assert_eq!(due(&pace, 120), Due::CommitOncePersisted, "a tenth of a second in twenty of them");
        assert_eq!(due(&pace, 122), Due::Commit);
        assert_eq!(pace.due(&pacing(), SECOND * 103, true, true), Due::Commit, "too much is not durable");
        pace.committed(Some(SECOND * 2));
        pace.applied(SECOND * 200);
        pace.shown(Duration::ZERO);
        pace.awaits(SECOND * 259);
        assert_eq!(pace.next(&pacing()), Some(SECOND * 260), "a crash costs a minute");
        pace.committed(Some(SECOND * 100));
        pace.applied(SECOND * 1000);
        pace.shown(Duration::ZERO);
        pace.awaits(SECOND * 1399);
        assert_eq!(
            pace.next(&pacing()),
            Some(SECOND * 1400),
            "of a large index they come no earlier than before"
        );
    }

    #[test]
    fn bundles_that_nobody_waits_for_are_rare_while_queries_wait_for_others() {
        let mut pace = Pace::default();
        pace.shown(SECOND / 5);
        pace.applied(SECOND * 100);
        let due = |pace: &Pace, tenths: u32| pace.due(&pacing(), SECOND * tenths / 10, false, false);
        assert_eq!(
            [1009, 1010].map(|at| due(&pace, at)),
            [Due::Nothing, Due::Show],
            "nobody waits for anything"
        );
        for tenths in 1005..1038 {
            pace.awaits(SECOND * tenths / 10);
            assert_eq!(due(&pace, tenths), Due::Nothing, "{tenths}");
            assert!(
                pace.next(&pacing()).is_some_and(|next| next > SECOND * tenths / 10),
                "nobody looks before"
            );
        }
        pace.awaits(SECOND * 1038 / 10);
        assert_eq!(due(&pace, 1038), Due::Show, "a fifth of a second in four of them");
        assert_eq!(pace.due(&pacing(), SECOND * 101, true, false), Due::Show, "a query waits for this one");
        pace.committed(None);
        pace.shown(SECOND / 1000);
        pace.applied(SECOND * 200);
        pace.awaits(SECOND * 201);
        assert_eq!(due(&pace, 2010), Due::Show, "a small one is shown as soon as ever");
        pace.committed(None);
        pace.shown(SECOND);
        pace.applied(SECOND * 300);
        pace.awaits(SECOND * 305);
        let latest = [3049, 3050].map(|at| due(&pace, at));
        assert_eq!(latest, [Due::Nothing, Due::CommitOncePersisted], "a commit shows it as well");
        let rare = Pacing { commit_after: SECOND * 60, ..pacing() };
        assert_eq!(pace.next(&rare), Some(SECOND * 305), "no later than this");
    }

    #[test]
    fn bundles_of_a_large_index_take_a_part_of_the_time() {
        let mut pace = Pace::default();
        pace.shown(SECOND * 3);
        pace.committed(Some(SECOND * 10));
        pace.committed(None);
        pace.applied(SECOND * 100);
        let due = |pace: &Pace, seconds: u32| pace.due(&pacing(), SECOND * seconds, false, false);
        assert_eq!([111, 112].map(|at| due(&pace, at)), [Due::Nothing, Due::Show]);
        assert_eq!(pace.next(&pacing()), Some(SECOND * 112));
        pace.shown(SECOND);
        assert_eq!([139, 140].map(|at| due(&pace, at)), [Due::Nothing, Due::CommitOncePersisted]);
        assert_eq!(pace.due(&pacing(), SECOND * 101, true, false), Due::Nothing, "everything is seen");
        pace.applied(SECOND * 101);
        assert_eq!(pace.due(&pacing(), SECOND * 101, true, false), Due::Show, "a query waits");
        let builds = pacing().of_builds();
        assert_eq!(pace.next(&builds), Some(SECOND * (101 + 10)), "a build that nobody waits for has fewer");
        assert_eq!(pace.due(&builds, SECOND * 102, true, false), Due::Show, "a query waits");
        let mut slow = Pace::default();
        slow.shown(SECOND * 10);
        slow.applied(SECOND * 200);
        assert_eq!(slow.next(&builds), slow.next(&pacing()), "large bundles come no later than elsewhere");
    }
}
