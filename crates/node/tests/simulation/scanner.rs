//! A client that scans the documents of one collection in one vBucket, over several requests. It is shown the documents of one moment
//! between its first request and the answer to that. So it has read every key of that range then.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use base::{BucketUuid, CollectionId, NodeId, Now, Status, VbId, key::encode_key};
use engine::{Bucket, ScanHold, ScanId, ScanLimits, ScanOptions, ScanSelection, ScanStep, Wait, Waiter};
use fastrand::Rng;

use crate::{connection::SCANNERS, invariants::histories::Moment, operation::decode_value};

/// A scan that takes longer is left.
const PATIENCE_MILLIS: u64 = 3_000;

/// Why a scan may end before its end.
const ENDS: [Status; 5] = [
    Status::NotMyVbucket,
    Status::UnknownCollection,
    Status::RangeScanCancelled,
    Status::Busy,
    Status::TemporaryFailure,
];

/// What is scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) bucket: BucketUuid,
    pub(crate) vb: VbId,
    pub(crate) collection: CollectionId,
}

/// See the module.
pub(crate) struct Scanner {
    pub(crate) range: Range,
    pub(crate) node: NodeId,
    /// When it asked, and how often a risk had been taken by then.
    pub(crate) called: (Moment, u64),
    until: u64,
    engine: Arc<Bucket>,
    hold: ScanHold,
    is_created: bool,
    /// The node has served by a lease ever since: what was read in between was served too.
    pub(crate) is_leased: bool,
    /// No durable writes were in progress when it began.
    pub(crate) is_certain: bool,
    found: BTreeMap<Vec<u8>, u64>,
}

/// How far a scan is.
pub(crate) enum Progress {
    GoesOn,
    /// Every document in its range.
    Complete(BTreeMap<Vec<u8>, u64>),
    /// It has ended before its end.
    Left,
}

impl Scanner {
    /// Asks for a scan; nothing where a node refuses it.
    pub(crate) fn begin(
        range: Range,
        (node, engine): (NodeId, &Arc<Bucket>),
        (id, called): (u128, (Moment, u64)),
        (at, now): (u64, Now),
    ) -> Option<Self> {
        let options = ScanOptions {
            collection: range.collection,
            selection: ScanSelection::Range(Bound::Unbounded, Bound::Unbounded),
            keys_only: false,
            include_xattrs: false,
            uuid: None,
            must_exist: None,
            name: None,
        };
        let hold = engine.create_scan(range.vb, ScanId(id), options, waiter(), now).ok()?;
        let (until, engine) = (at + PATIENCE_MILLIS, Arc::clone(engine));
        Some(Self {
            range,
            node,
            called,
            until,
            engine,
            hold,
            is_created: false,
            is_leased: true,
            is_certain: true,
            found: BTreeMap::new(),
        })
    }

    /// Whether it scans these copies.
    pub(crate) fn reads(&self, engine: &Arc<Bucket>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// Goes on. `may_fail`: what it reads from disk may be damaged.
    pub(crate) fn step(&mut self, rng: &mut Rng, at: u64, may_fail: bool) -> Progress {
        let step = if self.is_created { self.read(rng) } else { self.create() };
        match step {
            Ok(false) if at < self.until => Progress::GoesOn,
            Ok(false) => Progress::Left,
            Ok(true) => Progress::Complete(std::mem::take(&mut self.found)),
            Err(status) => {
                let is_expected = ENDS.contains(&status) || may_fail && status == Status::Internal;
                assert!(is_expected, "{:?} ends with {status:?}", self.range);
                Progress::Left
            }
        }
    }

    /// Whether nothing matches: that ends it.
    fn create(&mut self) -> Result<bool, Status> {
        match self.engine.scan_created(&self.hold) {
            Ok(Wait::Parked) => Ok(false),
            Ok(Wait::Ready) => {
                self.is_created = true;
                self.hold = self.engine.continue_scan(self.range.vb, self.hold.id(), waiter())?;
                Ok(false)
            }
            Err(Status::KeyNotFound) => Ok(true),
            Err(status) => Err(status),
        }
    }

    /// Reads some more; whether that was all.
    fn read(&mut self, rng: &mut Rng) -> Result<bool, Status> {
        let limits = ScanLimits { items_max: rng.u64(1..8), bytes_max: rng.u64(1..20_000) };
        let Self { range, found, .. } = self;
        let step = self.engine.read_scan(&self.hold, limits, &mut |logical, item| {
            let mut key = Vec::new();
            encode_key(range.collection, logical, &mut key).expect("a short key");
            let value = decode_value(item.expect("documents were asked for").value());
            let before = found.insert(key, value);
            assert_eq!(before, None, "{logical:?} is shown twice in {range:?}");
        })?;
        if step == ScanStep::More {
            self.hold.lay_down();
            self.hold = self.engine.continue_scan(range.vb, self.hold.id(), waiter())?;
        }
        Ok(step == ScanStep::Complete)
    }
}

/// It asks again in every step.
fn waiter() -> Waiter {
    Waiter { worker: SCANNERS, connection: 0, ticket: 0 }
}
