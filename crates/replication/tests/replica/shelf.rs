//! A replica that keeps versions in a map and checks what it is brought. There are no gaps, and nothing comes outside
//! of snapshots. Nothing is completed that was not prepared. Nothing comes from streams that are no longer entitled.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Cas, Datatype, Now, Seqno, Status, VbId, VbUuid};
use engine::{ReplicaItem, ReplicaKind, ReplicaMarker, Waiter};
use settee_replication::consumer::replica::{Replica, Start};

/// A version of a document: everything that a replica has to know of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) seqno: Seqno,
    pub(crate) cas: Cas,
    pub(crate) rev: u64,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    pub(crate) datatype: Datatype,
    pub(crate) deleted: bool,
    pub(crate) value: Vec<u8>,
}

impl std::fmt::Debug for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seqno, cas, rev, deleted, .. } = self;
        write!(f, "{seqno} (CAS {cas:?}, rev {rev}, {} bytes, deleted {deleted})", self.value.len())
    }
}

/// What a vBucket holds at one point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) seqno: Seqno,
    pub(crate) versions: BTreeMap<Vec<u8>, Version>,
    pub(crate) prepares: BTreeMap<Vec<u8>, Version>,
}

#[derive(Debug, Default)]
struct Copy {
    inflow: u64,
    uuid: VbUuid,
    now: Contents,
    snapshot: Option<ReplicaMarker>,
    /// What it was at ends of snapshots.
    saved: Vec<Contents>,
}

/// See the module header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    copies: RefCell<BTreeMap<VbId, Copy>>,
    /// There is none for so many items.
    pub(crate) no_room: Cell<u32>,
}

impl Shelf {
    /// There will be no room for the next items.
    pub(crate) fn fill_up(&self, refusals: u32) {
        self.0.no_room.set(refusals);
    }

    pub(crate) fn contents(&self, vb: VbId) -> Contents {
        self.0.copies.borrow().get(&vb).map(|copy| copy.now.clone()).unwrap_or_default()
    }

    pub(crate) fn is_consistent(&self, vb: VbId) -> bool {
        self.0.copies.borrow().get(&vb).is_none_or(|copy| copy.snapshot.is_none())
    }

    fn with<T>(
        &self,
        inflow: (VbId, u64),
        act: impl FnOnce(&mut Copy) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut copies = self.0.copies.borrow_mut();
        let copy = copies.entry(inflow.0).or_default();
        assert_eq!(copy.inflow, inflow.1, "a stream that is over");
        act(copy)
    }

    fn has_room(&self) -> Result<(), Status> {
        let refusals = self.0.no_room.get();
        self.0.no_room.set(refusals.saturating_sub(1));
        if refusals == 0 { Ok(()) } else { Err(Status::TemporaryFailure) }
    }
}

impl Contents {
    /// What an item says.
    pub(crate) fn apply(&mut self, item: &ReplicaItem<'_>) {
        let key = item.key.encoded().to_vec();
        let version = |deleted| Version {
            seqno: item.seqno,
            cas: item.cas,
            rev: item.rev,
            flags: item.flags,
            expiry: item.expiry,
            datatype: item.datatype,
            deleted,
            value: item.value.to_vec(),
        };
        match item.kind {
            ReplicaKind::Advance => {}
            ReplicaKind::Mutation | ReplicaKind::System { deleted: false } => {
                self.prepares.remove(&key);
                self.versions.insert(key, version(false));
            }
            ReplicaKind::Deletion | ReplicaKind::Expiration | ReplicaKind::System { deleted: true } => {
                self.prepares.remove(&key);
                self.versions.insert(key, version(true));
            }
            ReplicaKind::Prepare { deleted, .. } => {
                self.prepares.insert(key, version(deleted));
            }
            ReplicaKind::Commit { prepared } => {
                let prepare = self.prepares.remove(&key).expect("a commit of what was prepared");
                assert_eq!(prepare.seqno, prepared);
                self.versions.insert(key, Version { seqno: item.seqno, ..prepare });
            }
            ReplicaKind::Abort { prepared } => {
                if let Some(prepare) = self.prepares.remove(&key) {
                    assert!(prepare.seqno == prepared, "an abort of another prepare");
                }
            }
        }
        self.seqno = item.seqno;
    }
}

impl Copy {
    fn close_if_done(&mut self) {
        let Some(open) = self.snapshot.filter(|open| open.end == self.now.seqno) else { return };
        if open.from_disk {
            // What is completed and does not show was aborted.
            self.now.prepares.retain(|_, prepare| prepare.seqno > open.high_completed);
        }
        self.snapshot = None;
        self.saved.push(self.now.clone());
        if self.saved.len() > 20 {
            self.saved.remove(0);
        }
    }
}

impl Replica for Shelf {
    type Inflow = (VbId, u64);

    fn begin(&self, vb: VbId, _: u64, _: Now) -> Result<Start<Self::Inflow>, Status> {
        let mut copies = self.0.copies.borrow_mut();
        let copy = copies.entry(vb).or_default();
        copy.inflow += 1;
        let start = copy.now.seqno;
        // Of one that was only announced there is nothing.
        copy.snapshot = copy.snapshot.filter(|open| open.start < start);
        let (snap_start, snap_end) = copy.snapshot.map_or((start, start), |open| (open.start, open.end));
        Ok(Start {
            inflow: (vb, copy.inflow),
            vb_uuid: copy.uuid,
            start,
            snap_start,
            snap_end,
            may_lack: false,
        })
    }

    fn accept_log(&self, inflow: Self::Inflow, log: &[(VbUuid, Seqno)], _: Now) -> Result<(), Status> {
        self.with(inflow, |copy| {
            copy.uuid = log[0].0;
            Ok(())
        })
    }

    fn roll_back(&self, inflow: Self::Inflow, to: Seqno, _: Now) -> Result<(), Status> {
        self.with(inflow, |copy| {
            copy.saved.retain(|saved| saved.seqno <= to);
            copy.now = copy.saved.last().cloned().unwrap_or_default();
            copy.snapshot = None;
            Ok(())
        })
    }

    fn marker(&self, inflow: Self::Inflow, marker: &ReplicaMarker, _: Now) -> Result<(), Status> {
        self.has_room()?;
        self.with(inflow, |copy| {
            if (marker.end, copy.now.seqno) == (Seqno(0), Seqno(0)) {
                // There is nothing.
                return Ok(());
            }
            assert!(marker.start <= copy.now.seqno && marker.end > copy.now.seqno, "{marker:?}");
            if let Some(open) = copy.snapshot {
                assert!(marker.start <= open.start && marker.end >= open.end, "{open:?} {marker:?}");
            }
            let from_disk = marker.from_disk || copy.snapshot.is_some_and(|open| open.from_disk);
            copy.snapshot = Some(ReplicaMarker { from_disk, ..*marker });
            Ok(())
        })
    }

    fn item(&self, inflow: Self::Inflow, item: &ReplicaItem<'_>, _: Waiter, _: Now) -> Result<(), Status> {
        self.has_room()?;
        self.with(inflow, |copy| {
            let open = copy.snapshot.expect("an item in a snapshot");
            assert!(item.seqno > copy.now.seqno && item.seqno <= open.end, "{item:?} in {open:?}");
            copy.now.apply(item);
            copy.close_if_done();
            Ok(())
        })
    }

    fn await_high_prepared(&self, inflow: Self::Inflow, _: Seqno, _: Waiter) -> Seqno {
        let copies = self.0.copies.borrow();
        let whole = copies.get(&inflow.0).and_then(|copy| copy.saved.last());
        // As if everything were prepared: nothing says otherwise of what was completed.
        whole.map_or(Seqno(0), |whole| whole.seqno)
    }
}
