//! Clients that scan vBuckets, and what that tells of each key: it was read.

use std::{collections::BTreeMap, sync::Arc};

use base::{DocKey, NodeId, VbId, bucket::BucketKind};
use cluster::{BucketInfo, Metadata};
use fastrand::Rng;

use super::World;
use crate::{
    clients::vb_of,
    invariants::histories::Did,
    process::Process,
    scanner::{Progress, Range, Scanner},
};

const SCANNERS: usize = 2;
/// A client that scans nothing begins once in so many steps.
const BEGINS: u32 = 20;

/// See the module.
pub(super) struct Scans {
    rng: Rng,
    scanners: Vec<Scanner>,
    made: u128,
    completed: u64,
    left: u64,
    documents: u64,
}

impl Scans {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed.rotate_left(32) ^ 0x5ca9);
        Self { rng, scanners: Vec::new(), made: 0, completed: 0, left: 0, documents: 0 }
    }

    /// A node ends.
    pub(super) fn lose(&mut self, node: NodeId) {
        let ended = self.scanners.extract_if(.., |scanner| scanner.node == node);
        self.left += ended.count() as u64;
    }

    fn any_range(&mut self, newest: &Metadata) -> Option<(Range, NodeId)> {
        let info = self.rng.choice(newest.buckets.values())?;
        let scopes = info.manifest.scopes.iter().flat_map(|scope| &scope.collections);
        let collection = self.rng.choice(scopes.map(|one| one.id).collect::<Vec<_>>())?;
        let vb = VbId(self.rng.u16(0..info.vbuckets));
        let node = info.vbs[usize::from(vb.get())].chain.first().copied();
        node.filter(|_| info.kind == BucketKind::Couchbase)
            .map(|node| (Range { bucket: info.uuid.clone(), vb, collection }, node))
    }
}

impl World {
    /// One step's.
    pub(super) fn scan(&mut self) {
        let at = self.journal.now;
        if self.scans.scanners.len() < SCANNERS && !self.clients.rest && self.scans.rng.u32(0..BEGINS) == 0 {
            self.begin_scan(at);
        }
        let scanners = std::mem::take(&mut self.scans.scanners);
        for mut scanner in scanners {
            let Some(is_leased) = self.serves_scan(&scanner, at) else {
                self.scans.left += 1;
                continue;
            };
            scanner.is_leased &= is_leased;
            if self.machines[&scanner.node].paused_until > at {
                self.scans.scanners.push(scanner);
                continue;
            }
            let may_fail = self.machines[&scanner.node].shelf.is_bad();
            match scanner.step(&mut self.scans.rng, at, may_fail) {
                Progress::GoesOn => self.scans.scanners.push(scanner),
                Progress::Left => self.scans.left += 1,
                Progress::Complete(found) => self.note_scanned(&scanner, &found),
            }
        }
    }

    fn begin_scan(&mut self, at: u64) {
        let newest = Arc::clone(self.newest());
        let Some((range, node)) = self.scans.any_range(&newest) else { return };
        let Some(machine) = self.machines.get(&node).filter(|machine| machine.paused_until <= at) else {
            return;
        };
        let now = machine.clock.now(at);
        let lease_now = machine.clock.lease_millis(at);
        let process = machine.process.as_ref().filter(|process| process.serves(lease_now));
        let Some(open) = process.and_then(|process| process.buckets.get(&range.bucket)) else { return };
        let engine = Arc::clone(&open.engine);
        let is_leased = process.is_some_and(Process::is_leased);
        // A scan tells what is committed: the version before one that another node may have committed.
        let is_certain = engine.vb_status(range.vb).is_ok_and(|status| status.prepares == 0);
        self.scans.made += 1;
        let called = (self.clients.next_moment(), self.clients.generation());
        if let Some(mut scanner) =
            Scanner::begin(range, (node, &engine), (self.scans.made, called), (at, now))
        {
            (scanner.is_leased, scanner.is_certain) = (is_leased, is_certain);
            self.scans.scanners.push(scanner);
        }
    }

    /// Whether the node that a client scans serves it by a lease; nothing where it serves it no more.
    fn serves_scan(&self, scanner: &Scanner, at: u64) -> Option<bool> {
        let machine = self.machines.get(&scanner.node)?;
        let process = machine.process.as_ref().filter(|one| one.serves(machine.clock.lease_millis(at)))?;
        let open = process.buckets.get(&scanner.range.bucket)?;
        scanner.reads(&open.engine).then(|| process.is_leased())
    }

    /// Every key of the range was read, also those that were not found.
    fn note_scanned(&mut self, scanner: &Scanner, found: &BTreeMap<Vec<u8>, u64>) {
        (self.scans.completed, self.scans.documents) =
            (self.scans.completed + 1, self.scans.documents + found.len() as u64);
        let Some((_, info)) = self.newest().bucket_by_uuid(&scanner.range.bucket) else { return };
        let is_served = scanner.is_leased || self.faults.promise().counts_unleased;
        if scanner.is_certain && is_served {
            let info = BucketInfo::clone(info);
            let of = |key: &[u8]| {
                let is_there = vb_of(&info, key) == scanner.range.vb;
                is_there && DocKey::trusted(key).collection() == scanner.range.collection
            };
            let read = self.clients.keys_of(&info, scanner.called.1);
            let read = read.into_iter().filter(|(_, key)| of(key));
            let returned = Some(self.clients.next_moment());
            for (level, key) in read.filter(|_| self.clients.generation() == scanner.called.1) {
                let place = (&info.uuid, &key[..], level);
                let did = Did::Read(found.get(&key).copied());
                self.invariants.histories.note(place, (scanner.called.0, returned), did);
            }
        }
    }

    /// What happened to scans, in numbers.
    pub(super) fn summary_of_scans(&self) -> String {
        let Scans { completed, left, documents, .. } = &self.scans;
        format!("scans: {completed} completed, {left} left, {documents} documents")
    }
}
