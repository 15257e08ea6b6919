//! Whether a consumer may go on from where it stopped, or how far back it has to go first.
//!
//! A consumer is at a seqno on a branch of the vBucket's history, inside or at the end of a snapshot. It may go on if
//! all it has, and all that the snapshot made it miss, lies in what it shares with us. Otherwise it goes back to the
//! last point that it surely shares. Follows kv_engine (`docs/dcp/documentation/rollback.md`,
//! `FailoverTable::needsRollback`).

use base::{Seqno, VbUuid};

/// Where a consumer says that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The last seqno it has.
    pub start: Seqno,
    /// The branch it is on; 0 if it has nothing.
    pub vb_uuid: VbUuid,
    /// Begin of the last snapshot it was in.
    pub snap_start: Seqno,
    /// End of that snapshot.
    pub snap_end: Seqno,
    /// Up to where it has been told that tombstones are gone.
    pub purge_seqno: Option<Seqno>,
    /// The branch must match even for a stream from the beginning.
    pub strict_uuid: bool,
}

/// What we know of the vBucket.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Branches with the seqno each began at, newest first.
    pub log: &'a [(VbUuid, Seqno)],
    /// The last mutation.
    pub high_seqno: Seqno,
    /// Tombstones up to here may be gone. Zero for consumers that do not mind.
    pub purge_seqno: Seqno,
}

/// Where the consumer has to go back to; `None` if it may go on.
#[must_use]
pub fn rollback(at: &Position, history: &History<'_>) -> Option<Seqno> {
    if at.start == Seqno(0) && (!at.strict_uuid || at.vb_uuid == VbUuid(0)) {
        return None;
    }
    if misses_tombstones(at, history) {
        return Some(Seqno(0));
    }
    let branch = history.log.iter().position(|(uuid, _)| *uuid == at.vb_uuid);
    let Some(branch) = branch else { return Some(Seqno(0)) };
    // What we share ends where the next newer branch began.
    let newer = branch.checked_sub(1).and_then(|newer| history.log.get(newer));
    let upper = newer.map_or(history.high_seqno, |(_, began)| *began);
    // Having nothing of a snapshot is being at the end of the one before; having all of it is being at its end.
    let snap_end = if at.start == at.snap_start { at.start } else { at.snap_end };
    if snap_end <= upper {
        return None;
    }
    let snap_start = if at.start == snap_end { at.start } else { at.snap_start };
    Some(snap_start.min(upper))
}

/// Whether deletions that the consumer has not seen may have left no trace.
fn misses_tombstones(at: &Position, history: &History<'_>) -> bool {
    let purged = history.purge_seqno;
    at.start < purged && at.start != Seqno(0) && at.purge_seqno != Some(purged)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: VbUuid = VbUuid(1);
    const NEW: VbUuid = VbUuid(2);
    const LOG: &[(VbUuid, Seqno)] = &[(NEW, Seqno(50)), (OLD, Seqno(0))];

    fn history() -> History<'static> {
        History { log: LOG, high_seqno: Seqno(100), purge_seqno: Seqno(0) }
    }

    fn at(vb_uuid: VbUuid, start: u64, snap_start: u64, snap_end: u64) -> Position {
        Position {
            start: Seqno(start),
            vb_uuid,
            snap_start: Seqno(snap_start),
            snap_end: Seqno(snap_end),
            ..Position::default()
        }
    }

    fn decide(position: Position) -> Option<u64> {
        rollback(&position, &history()).map(Seqno::get)
    }

    #[test]
    fn from_the_beginning_the_branch_matters_to_the_strict_only() {
        assert_eq!(decide(at(VbUuid(0), 0, 0, 0)), None);
        assert_eq!(decide(at(VbUuid(9), 0, 0, 0)), None);
        let strict = |uuid| Position { strict_uuid: true, ..at(uuid, 0, 0, 0) };
        assert_eq!(decide(strict(VbUuid(0))), None);
        assert_eq!(decide(strict(NEW)), None);
        assert_eq!(decide(strict(VbUuid(9))), Some(0));
    }

    #[test]
    fn without_common_history_everything_goes() {
        assert_eq!(decide(at(VbUuid(9), 10, 10, 10)), Some(0));
        assert_eq!(decide(at(VbUuid(0), 10, 10, 10)), Some(0));
    }

    #[test]
    fn on_an_old_branch_what_is_shared_ends_where_the_next_began() {
        assert_eq!(decide(at(OLD, 50, 40, 50)), None);
        assert_eq!(decide(at(OLD, 45, 40, 50)), None);
        assert_eq!(decide(at(OLD, 51, 51, 51)), Some(50));
        assert_eq!(decide(at(OLD, 60, 60, 60)), Some(50));
        // In the middle of a snapshot that lies across the end: to its beginning.
        assert_eq!(decide(at(OLD, 45, 40, 60)), Some(40));
        assert_eq!(decide(at(OLD, 58, 55, 60)), Some(50));
    }

    #[test]
    fn a_snapshot_entered_but_empty_does_not_count() {
        assert_eq!(decide(at(OLD, 50, 50, 80)), None);
        assert_eq!(decide(at(NEW, 100, 100, 200)), None);
        assert_eq!(decide(at(NEW, 101, 101, 200)), Some(100));
    }

    #[test]
    fn a_snapshot_completed_leaves_its_end_alone_to_be_looked_at() {
        assert_eq!(decide(at(OLD, 60, 40, 60)), Some(50));
        assert_eq!(decide(at(NEW, 100, 90, 100)), None);
        assert_eq!(decide(at(NEW, 95, 90, 101)), Some(90));
    }

    #[test]
    fn missed_tombstones_send_back_to_the_beginning() {
        let purged = History { purge_seqno: Seqno(30), ..history() };
        let decide = |position, history: History<'_>| rollback(&position, &history).map(Seqno::get);
        assert_eq!(decide(at(NEW, 29, 29, 29), purged), Some(0));
        assert_eq!(decide(at(NEW, 30, 30, 30), purged), None);
        assert_eq!(decide(at(NEW, 0, 0, 0), purged), None);
        let told = Position { purge_seqno: Some(Seqno(30)), ..at(NEW, 29, 29, 29) };
        assert_eq!(decide(told, purged), None);
        let told_less = Position { purge_seqno: Some(Seqno(28)), ..told };
        assert_eq!(decide(told_less, purged), Some(0));
    }
}
