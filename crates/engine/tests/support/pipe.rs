//! A stream from one bucket to another in the same process, with a feed on one side and a replica's input on the other. It
//! has the rule by which an active has a replica roll back.

use base::{NodeId, Seqno, Status, VbId};
use settee_engine::{
    Bucket, Feed, FeedBatch, FeedKind, FeedOptions, FeedStep, Inflow, Refusal, ReplicaItem, ReplicaKind,
    ReplicaMarker, ReplicaStart, VbHistory, Waiter,
};

use super::Rig;

/// The one vBucket of these buckets.
pub(crate) const VB: VbId = VbId(0);
const WAITER: Waiter = Waiter { worker: 9, connection: 9, ticket: 9 };

/// See the module header.
pub(crate) struct Pipe {
    feed: Feed,
    inflow: Inflow,
    term: u64,
    /// The reader.
    node: NodeId,
    /// Told and not taken.
    rest: Option<(FeedBatch, usize, Option<Seqno>)>,
    end: Seqno,
    forgets_prepares: bool,
}

/// What one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something came.
    Moved,
    /// There is nothing.
    Idle,
    /// The stream is over.
    Broken,
}

impl Pipe {
    /// Connects; what the replica has too much of is rolled back. `None` when the active does not feed.
    pub(crate) fn connect(active: &Rig, replica: &Rig, node: NodeId, term: u64) -> Option<Self> {
        for _ in 0..2 {
            let start = match replica.bucket.replica_begin(VB, term, replica.now()) {
                Err(Status::TemporaryFailure) => {
                    // It is to be emptied first, which is the flusher's work.
                    assert_eq!(replica.bucket.flush(0, replica.now()).failed, None);
                    replica.bucket.replica_begin(VB, term, replica.now()).unwrap()
                }
                start => start.unwrap(),
            };
            let history = active.bucket.vb_history(VB).unwrap();
            let through = match start.start {
                Seqno(0) => history.prepared,
                _ if start.may_lack => history.prepared.max(start.snap_end),
                at if at < start.snap_end => start.snap_end,
                _ => Seqno(0),
            };
            let options = FeedOptions {
                from: start.start,
                through,
                inside: start.snap_start < start.start && start.start < start.snap_end,
                prepares: true,
                ..FeedOptions::default()
            };
            if let Some(to) = rollback_of(&start, &history) {
                replica.bucket.replica_rollback(start.inflow, to, replica.now()).unwrap();
                continue;
            }
            let feed = active.bucket.feed(VB, options, WAITER).ok()?;
            replica.bucket.replica_accept_log(start.inflow, &history.log, replica.now()).unwrap();
            let is_at_rest = start.snap_end == start.start;
            if history.high_seqno == Seqno(0) {
                replica
                    .bucket
                    .replica_marker(start.inflow, &nothing_behind(Seqno(0)), replica.now())
                    .unwrap();
            } else if start.may_lack
                && is_at_rest
                && start.start > Seqno(0)
                && history.prepared <= start.start
            {
                let nothing = nothing_behind(start.start);
                replica.bucket.replica_marker(start.inflow, &nothing, replica.now()).unwrap();
            }
            let pipe = Self {
                feed,
                inflow: start.inflow,
                term,
                node,
                rest: None,
                end: start.start,
                forgets_prepares: false,
            };
            pipe.acknowledge(active, replica);
            return Some(pipe);
        }
        panic!("rolled back twice");
    }

    /// Moves about so many bytes, one item at least; at most so many items.
    pub(crate) fn step(&mut self, active: &Rig, replica: &Rig, bytes: usize, items: usize) -> Step {
        if self.rest.is_none() {
            let mut told = self.feed.next(bytes, active.now());
            if matches!(told, Ok(FeedStep::Wait)) {
                // It may wait for what is to be read.
                while active.bucket.run_backfills(0, active.now()).more {}
                told = self.feed.next(bytes, active.now());
            }
            match told {
                Ok(FeedStep::Wait) => return Step::Idle,
                Err(_) => return Step::Broken,
                Ok(FeedStep::Batch(batch)) => {
                    if let Some(snapshot) = &batch.snapshot {
                        self.end = snapshot.end;
                        let marker = ReplicaMarker::from(snapshot);
                        if replica.bucket.replica_marker(self.inflow, &marker, replica.now()).is_err() {
                            return Step::Broken;
                        }
                    }
                    let end = batch.ends_snapshot.then_some(self.end);
                    self.rest = Some((batch, 0, end));
                }
            }
        }
        let Some((batch, done, end)) = &mut self.rest else { return Step::Idle };
        for item in batch.items.iter().skip(*done).take(items) {
            if self.forgets_prepares && item.kind == FeedKind::Prepare {
                *done += 1;
                continue;
            }
            match take(&replica.bucket, self.inflow, &ReplicaItem::of_feed(item), replica) {
                Ok(()) => *done += 1,
                Err(Status::TemporaryFailure) => return Step::Idle,
                // It is no stream of the replica's any more, or the replica none of it.
                Err(Status::NotMyVbucket | Status::Invalid) => return Step::Broken,
                Err(status) => panic!("{status:?} for {item:?}"),
            }
        }
        if *done == batch.items.len() {
            if let Some(end) = *end
                && replica.bucket.vb_status(VB).unwrap().history.high_seqno < end
            {
                let advance = advance_to(end);
                if take(&replica.bucket, self.inflow, &advance, replica).is_err() {
                    return Step::Broken;
                }
            }
            self.rest = None;
        }
        self.acknowledge(active, replica);
        Step::Moved
    }

    /// Moves everything.
    pub(crate) fn drain(&mut self, active: &Rig, replica: &Rig) -> Step {
        loop {
            match self.step(active, replica, 1 << 20, usize::MAX) {
                Step::Moved => {}
                step => return step,
            }
        }
    }

    /// What feeds the replica.
    pub(crate) fn inflow(&self) -> Inflow {
        self.inflow
    }

    /// From here on prepares are lost on the way; and the replica, which does not know, says no more what it holds.
    pub(crate) fn forget_prepares(&mut self) {
        self.forgets_prepares = true;
    }

    /// The replica says what it holds.
    pub(crate) fn acknowledge(&self, active: &Rig, replica: &Rig) {
        if self.forgets_prepares {
            return;
        }
        let held = replica.bucket.high_prepared(VB).unwrap();
        // Not taken by one that is the active no more.
        let _ = active.bucket.acknowledge(VB, self.term, self.node, held, active.now());
    }
}

/// What a replica is told by an active that has nothing behind a seqno that it has.
fn nothing_behind(seqno: Seqno) -> ReplicaMarker {
    let none = Seqno(0);
    ReplicaMarker {
        start: seqno,
        end: seqno,
        from_disk: false,
        max_visible: none,
        high_completed: none,
        purge_seqno: none,
    }
}

fn advance_to(end: Seqno) -> ReplicaItem<'static> {
    ReplicaItem {
        kind: ReplicaKind::Advance,
        key: base::DocKey::trusted(b"\0"),
        seqno: end,
        cas: base::Cas(0),
        rev: 0,
        flags: 0,
        expiry: 0,
        datatype: base::Datatype::RAW,
        value: &[],
    }
}

fn take(bucket: &Bucket, inflow: Inflow, item: &ReplicaItem<'_>, rig: &Rig) -> Result<(), Status> {
    for _ in 0..10 {
        match bucket.replica_item(inflow, item, rig.now()) {
            Ok(()) => return Ok(()),
            Err(Refusal::Status(status)) => return Err(status),
            Err(Refusal::Fetch) => {
                bucket.fetch(VB, base::HashedKey::new(item.key), WAITER)?;
                while bucket.run_fetches(0, 16, rig.now()) > 0 {}
            }
        }
    }
    panic!("fetches without end for {item:?}");
}

/// Where the replica has to go back to, if it has to.
fn rollback_of(start: &ReplicaStart, history: &VbHistory) -> Option<Seqno> {
    if start.start == Seqno(0) {
        return None;
    }
    let Some(branch) = history.log.iter().position(|entry| entry.0 == start.vb_uuid) else {
        return Some(Seqno(0));
    };
    let upper = branch.checked_sub(1).map_or(history.high_seqno, |younger| history.log[younger].1);
    if start.snap_start < history.purge_seqno {
        return Some(Seqno(0));
    }
    if start.start > upper || start.snap_end > upper {
        return Some(start.snap_start.min(upper).min(Seqno(start.start.get() - 1)));
    }
    None
}
