//! Range scans beside everything else that happens to a bucket. Each shows its collection exactly as the model had it at one moment while
//! the scan was created. Nothing that is written, ejected, compacted, dropped or emptied before it is read changes that. No scan outlives
//! its bucket.
//!
//! Scans have dice of their own: what else happens under a seed is the same without them.

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds as _},
};

use base::{CollectionId, DocKey, Seqno, Status, VbId, VbUuid};
use fastrand::Rng;
use settee_engine::{
    ScanHold, ScanId, ScanLimits, ScanOptions, ScanSelection, ScanStep, Wait, Waiter,
    range_scan::LIFETIME_MILLIS,
};

use super::World;

const WAITER: Waiter = Waiter { worker: 4, connection: 5, ticket: 6 };
/// One in so many steps of the world begins a scan.
const BEGINS: u32 = 25;
/// One in so many reads on.
const READS: u32 = 6;
/// Scans at once.
const SCANS_MAX: usize = 6;
/// Documents of which it was noted once by which mutation they were there.
const NOTED_MAX: usize = 32;

/// Logical keys and values; of a scan of keys the values are empty.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is scanned.
#[derive(Clone, Debug)]
struct Extent {
    vb: VbId,
    collection: CollectionId,
    range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    keys_only: bool,
}

struct Watched {
    id: u128,
    extent: Extent,
    /// Of the history that it shows.
    uuid: VbUuid,
    /// Whether the mutation that must exist did when it began.
    must_exist: Option<bool>,
    created: u64,
    /// Present while a request works on it.
    hold: Option<ScanHold>,
    is_ready: bool,
    /// What there was, in order, from when it was begun until it was ready.
    moments: Vec<State>,
    found: Vec<(Vec<u8>, Vec<u8>)>,
}

/// See the module.
pub(super) struct Scans {
    rng: Rng,
    last_id: u128,
    open: Vec<Watched>,
    noted: Vec<(Vec<u8>, Seqno)>,
    /// That were read to their end, with anything in them.
    pub(super) finished: u32,
    /// That were refused because the mutation that had to exist did not.
    pub(super) not_stored: u32,
}

impl Scans {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed ^ 0x5ca9);
        Self { rng, last_id: 0, open: Vec::new(), noted: Vec::new(), finished: 0, not_stored: 0 }
    }

    /// Seqnos may be given again.
    pub(super) fn forget_mutations(&mut self) {
        self.noted.clear();
    }
}

impl World {
    /// After a step of everything else.
    pub(super) fn scan(&mut self) {
        self.note_moments();
        if self.scans.rng.u32(0..BEGINS) == 0 && self.scans.open.len() < SCANS_MAX {
            self.begin_scan();
        }
        if self.scans.rng.u32(0..READS) == 0 && !self.scans.open.is_empty() {
            let at = self.scans.rng.usize(0..self.scans.open.len());
            let scan = self.scans.open.swap_remove(at);
            let scan = if scan.is_ready { self.read_scan(scan) } else { self.await_scan(scan) };
            self.scans.open.extend(scan);
        }
    }

    /// The bucket is about to be opened anew: scans, and what is known of mutations, end with it.
    pub(super) fn forget_scans(&mut self) -> Vec<(VbId, u128)> {
        self.scans.forget_mutations();
        // A hold keeps its bucket open.
        self.scans.open.drain(..).map(|scan| (scan.extent.vb, scan.id)).collect()
    }

    /// It was.
    pub(super) fn check_that_scans_are_gone(&self, scans: Vec<(VbId, u128)>) {
        for (vb, id) in scans {
            let found = self.rig.bucket.continue_scan(vb, ScanId(id), WAITER).map(drop);
            assert_eq!(found, Err(Status::KeyNotFound), "a scan outlived its bucket");
        }
    }

    fn state(&self, extent: &Extent) -> State {
        let now = self.rig.now();
        let is_of = |key: &&Vec<u8>| {
            let doc = DocKey::trusted(key);
            doc.collection() == extent.collection
                && self.vb(key) == extent.vb
                && extent.range.contains(&doc.logical().to_vec())
        };
        let value = |key: &Vec<u8>| {
            let value = self.model.get(key, now).map(|doc| doc.value).unwrap_or_default();
            (DocKey::trusted(key).logical().to_vec(), if extent.keys_only { Vec::new() } else { value })
        };
        self.model.keys(now).filter(is_of).map(value).collect()
    }

    fn note_moments(&mut self) {
        let mut open = std::mem::take(&mut self.scans.open);
        for scan in open.iter_mut().filter(|scan| !scan.is_ready) {
            let state = self.state(&scan.extent);
            if scan.moments.last() != Some(&state) {
                scan.moments.push(state);
            }
        }
        self.scans.open = open;
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        let key = format!("key{}", self.scans.rng.u32(0..24)).into_bytes();
        match self.scans.rng.u8(0..4) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        }
    }

    /// The mutation that a document is there by, and whether that is still so of one that was noted before.
    fn must_exist(&mut self, vb: VbId) -> Option<(Seqno, bool)> {
        let seqno_of = |world: &Self, key: &[u8]| {
            let now = world.rig.now();
            world.rig.run(key, |bucket, vb, key| bucket.get(vb, key, now, |view| view.seqno)).ok()
        };
        let keys: Vec<Vec<u8>> = self.model.keys(self.rig.now()).cloned().collect();
        if let Some(key) = self.scans.rng.choice(keys)
            && let Some(seqno) = seqno_of(self, &key)
        {
            self.scans.noted.truncate(NOTED_MAX - 1);
            self.scans.noted.insert(0, (key, seqno));
        }
        let of_vb: Vec<_> =
            self.scans.noted.iter().filter(|noted| self.vb(&noted.0) == vb).cloned().collect();
        let (key, seqno) = self.scans.rng.choice(of_vb)?;
        // What counts is what is on disk: a server has the flusher get there first.
        let persisted = self.rig.bucket.vb_state(vb).unwrap().persisted_seqno;
        let now = seqno_of(self, &key).filter(|now| *now <= persisted)?;
        (now >= seqno).then_some((seqno, now == seqno))
    }

    fn begin_scan(&mut self) {
        let collections = [CollectionId(0), CollectionId(8), CollectionId(self.next_collection - 1)];
        let key = format!("\0key{}", self.scans.rng.u32(0..24)).into_bytes();
        let extent = Extent {
            vb: self.vb(&key),
            collection: collections[self.scans.rng.usize(0..collections.len())],
            range: (self.bound(), self.bound()),
            keys_only: self.scans.rng.bool(),
        };
        let must_exist = if self.scans.rng.u8(0..3) == 0 { self.must_exist(extent.vb) } else { None };
        let uuid = self.rig.bucket.vb_state(extent.vb).unwrap().uuid;
        let boxed = |bound: &Bound<Vec<u8>>| bound.clone().map(Vec::into_boxed_slice);
        let options = ScanOptions {
            collection: extent.collection,
            selection: ScanSelection::Range(boxed(&extent.range.0), boxed(&extent.range.1)),
            keys_only: extent.keys_only,
            include_xattrs: false,
            uuid: self.scans.rng.bool().then_some(uuid),
            must_exist: must_exist.map(|(seqno, _)| seqno),
            name: None,
        };
        self.scans.last_id += 1;
        let (id, now) = (self.scans.last_id, self.rig.now());
        let begun = self.rig.bucket.create_scan(extent.vb, ScanId(id), options, WAITER, now);
        let is_known = self.model.collections.contains(&extent.collection);
        let hold = match begun {
            Ok(hold) => hold,
            Err(Status::NotSupported) if !self.is_persistent() => return,
            Err(Status::UnknownCollection) if !is_known => return,
            Err(Status::TemporaryFailure) if !self.rig.bucket.is_warm() => return,
            Err(status) => panic!("{status:?} for {extent:?}"),
        };
        assert!(is_known && self.is_persistent(), "{extent:?}");
        let (created, moments) = (self.rig.clock.0, vec![self.state(&extent)]);
        let must_exist = must_exist.map(|(_, is_there)| is_there);
        let (hold, is_ready, found) = (Some(hold), false, Vec::new());
        let scan = Watched { id, extent, uuid, must_exist, created, hold, is_ready, moments, found };
        self.work_on_scans();
        let scan = self.await_scan(scan);
        self.scans.open.extend(scan);
    }

    fn work_on_scans(&self) {
        for shard in 0..self.rig.bucket.shards() {
            self.rig.bucket.run_backfills(shard, self.rig.now());
        }
    }

    /// Whether what a scan shows is gone, or it is too old.
    fn is_over(&self, scan: &Watched) -> bool {
        let is_known = self.model.collections.contains(&scan.extent.collection);
        let uuid = self.rig.bucket.vb_state(scan.extent.vb).unwrap().uuid;
        !is_known || uuid != scan.uuid || self.rig.clock.0 >= scan.created + LIFETIME_MILLIS
    }

    fn await_scan(&mut self, mut scan: Watched) -> Option<Watched> {
        self.work_on_scans();
        let hold = scan.hold.as_ref().expect("a scan that is being created");
        // Only where nothing happened meanwhile it is known for certain what exists.
        let certain = scan.must_exist.filter(|_| scan.moments.len() == 1 && scan.created == self.rig.clock.0);
        match self.rig.bucket.scan_created(hold) {
            Ok(Wait::Parked) => return Some(scan),
            Ok(Wait::Ready) => {
                assert_ne!(certain, Some(false), "{:?} shows what was superseded", scan.extent);
                assert!(scan.moments.iter().any(|state| !state.is_empty()), "{:?}", scan.extent);
                (scan.is_ready, scan.hold) = (true, None);
                return Some(scan);
            }
            Err(Status::KeyNotFound) => {
                assert!(scan.moments.iter().any(State::is_empty), "{:?}", scan.extent)
            }
            Err(Status::NotStored) => {
                assert!(scan.must_exist.is_some() && certain != Some(true), "{:?}", scan.extent);
                self.scans.not_stored += 1;
            }
            Err(status) => assert!(self.is_over(&scan), "{status:?} for {:?}", scan.extent),
        }
        None
    }

    /// Reads on, a few documents.
    fn read_scan(&mut self, mut scan: Watched) -> Option<Watched> {
        let resumed = match scan.hold.take() {
            Some(hold) => Ok(hold),
            None => self.rig.bucket.continue_scan(scan.extent.vb, ScanId(scan.id), WAITER),
        };
        let limits = ScanLimits { items_max: self.scans.rng.u64(1..4), bytes_max: u64::MAX };
        let mut found = Vec::new();
        let step = resumed.and_then(|hold| {
            let step = self.rig.bucket.read_scan(&hold, limits, &mut |key, item| {
                found.push((key.to_vec(), item.map_or(Vec::new(), |item| item.value().to_vec())));
            })?;
            Ok((hold, step))
        });
        let (hold, step) = match step {
            Ok(reading) => reading,
            Err(status) => {
                assert!(self.is_over(&scan), "{status:?} for {:?}", scan.extent);
                return None;
            }
        };
        scan.found.extend(found);
        match step {
            ScanStep::Wait => {
                scan.hold = Some(hold);
                self.work_on_scans();
            }
            ScanStep::More => hold.lay_down(),
            ScanStep::Complete => {
                let is_one =
                    |state: &State| state.iter().eq(scan.found.iter().map(|(key, value)| (key, value)));
                let what = (&scan.extent, &scan.moments, &scan.found);
                assert!(scan.moments.iter().any(is_one), "no moment there was: {what:?}");
                self.scans.finished += 1;
                return None;
            }
        }
        Some(scan)
    }
}
