//! The bucket, what happens to it, and the log that says what it should hold.

use std::collections::{BTreeMap, BTreeSet};

use base::{
    Cas, CollectionId, Seqno, Status, VbId,
    bucket::{BucketKind, DurabilityLevel},
};
use engine::{BucketOptions, Delete, Durable, Mutated, Store, Waiter};
use fastrand::Rng;
use protocol::binary::dcp::StreamFlags;

use super::{
    collections::Collections,
    consumer::{Consumer, Documents, Kind, Part},
    support::Rig,
};

const VBUCKETS: u16 = 4;

/// Everything that happened, by vBucket, in order.
#[derive(Default)]
pub(crate) struct Log(BTreeMap<VbId, Vec<Entry>>);

struct Entry {
    seqno: Seqno,
    what: What,
}

enum What {
    Set(Vec<u8>, Vec<u8>),
    Deleted(Vec<u8>),
    Dropped(CollectionId),
}

impl Log {
    fn add(&mut self, vb: VbId, seqno: Seqno, what: What) {
        self.0.entry(vb).or_default().push(Entry { seqno, what });
    }

    /// What the vBucket was at `seqno`, as far as that kind of consumer sees it.
    fn at(&self, vb: VbId, seqno: Seqno, kind: Kind) -> Documents {
        let mut documents = Documents::new();
        for entry in self.0.get(&vb).into_iter().flatten().filter(|entry| entry.seqno <= seqno) {
            match &entry.what {
                What::Set(key, value) => {
                    let value = if kind == Kind::KeysOnly { Vec::new() } else { value.clone() };
                    documents.insert(key.clone(), value);
                }
                What::Deleted(key) => {
                    documents.remove(key);
                }
                What::Dropped(id) => documents.retain(|key, _| u32::from(key[0]) != id.get()),
            }
        }
        match kind {
            Kind::Legacy => documents.retain(|key, _| key[0] == 0),
            Kind::Collection(id) => documents.retain(|key, _| u32::from(key[0]) == id),
            Kind::Whole | Kind::KeysOnly | Kind::DefaultScope | Kind::WithoutOldDeletions => {}
        }
        documents
    }

    pub(crate) fn check(&self, vb: VbId, kind: Kind, part: &Part) {
        let expected = self.at(vb, part.seqno, kind);
        // Of a collection whose end is still to come, versions may have been left out: it is gone by now.
        let differs = |key: &&Vec<u8>| {
            part.documents.get(*key) != expected.get(*key) && !self.drops_after(vb, key, part.seqno)
        };
        let differing: BTreeSet<_> = part.documents.keys().chain(expected.keys()).filter(differs).collect();
        if differing.is_empty() {
            return;
        }
        for key in differing {
            let history = self.0.get(&vb).into_iter().flatten().filter_map(|entry| match &entry.what {
                What::Set(of, value) if of == key => Some(format!("{} set {}", entry.seqno, value.len())),
                What::Deleted(of) if of == key => Some(format!("{} deleted", entry.seqno)),
                What::Dropped(id) if id.get() == u32::from(key[0]) => Some(format!("{} gone", entry.seqno)),
                _ => None,
            });
            let (has, wants) = (part.documents.get(key).map(Vec::len), expected.get(key).map(Vec::len));
            println!(
                "{}: has {has:?}, wants {wants:?}; {:?}",
                key.escape_ascii(),
                history.collect::<Vec<_>>()
            );
        }
        panic!("{kind:?}, vBucket {vb} at {}, in {:?}", part.seqno, part.snapshot);
    }

    /// Whether the collection of a key was dropped after `seqno`.
    fn drops_after(&self, vb: VbId, key: &[u8], seqno: Seqno) -> bool {
        let is_it = |what: &What| matches!(what, What::Dropped(id) if id.get() == u32::from(key[0]));
        self.0.get(&vb).into_iter().flatten().any(|entry| entry.seqno > seqno && is_it(&entry.what))
    }

    /// Whether anything happened between two seqnos.
    pub(crate) fn has_between(&self, vb: VbId, after: Seqno, before: Seqno) -> bool {
        let mut entries = self.0.get(&vb).into_iter().flatten();
        entries.any(|entry| entry.seqno > after && entry.seqno < before)
    }

    /// What happened after `seqno` did not.
    fn truncate(&mut self, vb: VbId, seqno: Seqno) {
        self.0.entry(vb).or_default().retain(|entry| entry.seqno <= seqno);
    }
}

/// See the module header.
pub(crate) struct World {
    rig: Option<Rig>,
    log: Log,
    rng: Rng,
    consumers: Vec<Consumer>,
    collections: Collections,
    /// Durable writes: those in progress, and what all of them were, by key and CAS.
    in_progress: Vec<(Vec<u8>, Mutated)>,
    durable: BTreeMap<(Vec<u8>, Cas), Vec<u8>>,
}

impl World {
    pub(crate) fn new(kind: BucketKind, seed: u64) -> Self {
        let options = BucketOptions {
            kind,
            vbuckets: VBUCKETS,
            shards: 2,
            seed,
            purge_interval_secs: 60,
            ..BucketOptions::new("model", 256 << 20)
        };
        let mut world = Self {
            rig: Some(Rig::new(options)),
            log: Log::default(),
            rng: Rng::with_seed(seed),
            consumers: Vec::new(),
            collections: Collections::none(),
            in_progress: Vec::new(),
            durable: BTreeMap::new(),
        };
        world.change_collections();
        world.change_collections();
        let kinds = [
            Kind::Whole,
            Kind::Legacy,
            Kind::Collection(8),
            Kind::Whole,
            Kind::KeysOnly,
            Kind::DefaultScope,
            Kind::WithoutOldDeletions,
        ];
        world.consumers = (0..).zip(kinds).map(|(id, kind)| Consumer::new(id, kind)).collect();
        world
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().unwrap()
    }

    pub(crate) fn step(&mut self) {
        match self.rng.u32(0..1_000) {
            0..=349 => self.mutate(),
            350..=399 => self.flush(),
            400..=499 => self.rig().backfill(),
            500..=939 => self.take(),
            940..=959 => self.connect(),
            960..=969 => {
                let index = self.rng.usize(0..self.consumers.len());
                self.consumers[index].disconnect();
            }
            970..=977 => self.change_collections(),
            978..=982 => self.rig().clean_up(),
            983..=985 => self.rig().clock.advance_secs(10),
            986..=987 => self.stream_to_an_end(),
            988..=990 => self.reopen(false),
            991..=993 => self.reopen(true),
            _ => self.rig().warm_up(),
        }
        self.deliver();
    }

    /// Lets everybody catch up, and compares.
    pub(crate) fn settle(&mut self) {
        self.rig().warm_up();
        self.flush();
        for index in 0..self.consumers.len() {
            self.connect_one(index);
        }
        let mut quiet = 0;
        while quiet < 3 {
            quiet += 1;
            self.rig().backfill();
            self.deliver();
            for index in 0..self.consumers.len() {
                if self.take_one(index, 1 << 20) {
                    quiet = 0;
                }
                self.consumers[index].acknowledge();
            }
        }
        let mut checked = 0;
        for vb in (0..VBUCKETS).map(VbId) {
            let high = self.rig().bucket.vb_history(vb).unwrap().high_seqno;
            for consumer in &self.consumers {
                let part = &consumer.parts[&vb];
                let is_gone = matches!(consumer.kind, Kind::Collection(id) if !self.collections.has(id));
                if !is_gone {
                    let expected = self.log.at(vb, high, consumer.kind);
                    assert_eq!(
                        part.documents, expected,
                        "{:?}, {vb}, has {} of {high}",
                        consumer.kind, part.seqno
                    );
                }
                if consumer.kind == Kind::Whole {
                    assert_eq!(part.seqno, high);
                }
            }
        }
        for consumer in &self.consumers {
            checked += consumer.snapshots_checked;
        }
        let sum = |count: fn(&Consumer) -> u64| self.consumers.iter().map(count).sum::<u64>();
        println!(
            "  {checked} snapshots, {} rollbacks, {} resumed inside one",
            sum(|consumer| consumer.rollbacks),
            sum(|consumer| consumer.mid_snapshot_resumes)
        );
        assert!(checked > 10, "too little happened");
        self.consumers.iter_mut().for_each(Consumer::disconnect);
        self.rig().backfill();
        let stats = self.rig().bucket.stats();
        assert_eq!((stats.cursors, stats.cursor_bytes, stats.backfill_bytes), (0, 0, 0), "something is left");
    }

    fn mutate(&mut self) {
        let key = self.collections.key(&mut self.rng);
        let rig = self.rig.as_mut().unwrap();
        let now = rig.now();
        let vb = rig.key(&key).0;
        if self.rng.u8(0..4) == 0 {
            let deleted =
                rig.run(&key, |bucket, vb, hashed| bucket.delete(vb, hashed, &Delete::default(), now));
            match deleted {
                Ok(mutated) => self.log.add(vb, mutated.seqno, What::Deleted(key)),
                Err(status) => assert!(matches!(status, Status::KeyNotFound | Status::SyncWriteInProgress)),
            }
        } else {
            let length = if self.rng.u8(0..10) == 0 { 5_000 } else { self.rng.usize(1..100) };
            let value = vec![self.rng.alphanumeric() as u8; length];
            let is_durable = rig.options.kind == BucketKind::Couchbase && self.rng.u8(0..20) == 0;
            let durability =
                if is_durable { DurabilityLevel::PersistToMajority } else { DurabilityLevel::None };
            let store = Store { durability, ..Store::set(&value) };
            match rig.run(&key, |bucket, vb, hashed| bucket.store(vb, hashed, &store, now)) {
                Ok(stored) if stored.wait => {
                    self.durable.insert((key.clone(), stored.cas), value);
                    self.in_progress.push((key, stored));
                }
                Ok(stored) => self.log.add(vb, stored.seqno, What::Set(key, value)),
                Err(status) => assert_eq!(status, Status::SyncWriteInProgress),
            }
        }
    }

    /// Everything goes to disk; durable writes are committed by that.
    fn flush(&mut self) {
        self.rig().flush();
        let waiter = Waiter { worker: 9, connection: 9, ticket: 9 };
        for (key, mutated) in std::mem::take(&mut self.in_progress) {
            // Of a collection that is gone it may have been aborted.
            if let Ok(Durable::Committed(committed)) = self.rig().complete(&key, &mutated, waiter) {
                let value = self.durable[&(key.clone(), committed.cas)].clone();
                let vb = self.rig().key(&key).0;
                self.log.add(vb, committed.seqno, What::Set(key, value));
            }
        }
    }

    /// Opening has committed what it found prepared.
    fn note_recovered(&mut self) {
        self.in_progress.clear();
        let rig = self.rig.as_ref().unwrap();
        for ((key, cas), value) in &self.durable {
            let vb = rig.key(key).0;
            let meta = rig.run(key, |bucket, vb, hashed| bucket.meta(vb, hashed, rig.now()));
            let is_logged =
                |seqno| self.log.0.get(&vb).into_iter().flatten().any(|entry| entry.seqno == seqno);
            if let Some(meta) = meta.ok().filter(|meta| meta.cas == *cas && !is_logged(meta.seqno)) {
                self.log.add(vb, meta.seqno, What::Set(key.clone(), value.clone()));
            }
        }
    }

    fn connect(&mut self) {
        let index = self.rng.usize(0..self.consumers.len());
        self.connect_one(index);
    }

    fn connect_one(&mut self, index: usize) {
        let window = *self.rng.choice(&[500, 10_000, 1 << 20]).unwrap();
        let rig = self.rig.as_ref().unwrap();
        self.consumers[index].connect(&rig.bucket, window, rig.now());
    }

    fn take(&mut self) {
        let index = self.rng.usize(0..self.consumers.len());
        let limit = *self.rng.choice(&[1, 300, 20_000]).unwrap();
        self.take_one(index, limit);
        if self.rng.bool() {
            self.consumers[index].acknowledge();
        }
    }

    fn take_one(&mut self, index: usize, limit: usize) -> bool {
        let rig = self.rig.as_ref().unwrap();
        self.consumers[index].take(limit, &rig.bucket, &self.log, rig.now())
    }

    /// Delivers wake-ups.
    fn deliver(&mut self) {
        let woken = std::mem::take(&mut *self.rig().recorder.woken.lock());
        for waiter in woken {
            if let Some(consumer) = self.consumers.get_mut(waiter.connection as usize) {
                consumer.wake(waiter.ticket);
            }
        }
    }

    /// A new consumer gets everything up to now, or what is on disk, and then ends.
    fn stream_to_an_end(&mut self) {
        let disk_only = self.rng.bool();
        let flag = if disk_only { StreamFlags::DISK_ONLY } else { StreamFlags::TO_LATEST };
        let vbs = (0..VBUCKETS).map(VbId);
        let histories: Vec<_> = vbs.map(|vb| self.rig().bucket.vb_history(vb).unwrap()).collect();
        let mut consumer = Consumer::that_ends(self.consumers.len() as u64, flag);
        let rig = self.rig.as_ref().unwrap();
        consumer.connect(&rig.bucket, 1 << 20, rig.now());
        self.consumers.push(consumer);
        let index = self.consumers.len() - 1;
        // A durable write that nobody flushes would keep it waiting for ever.
        self.flush();
        for _ in 0..100 {
            // Time passes, so that those who take nothing make way.
            self.rig().clock.advance_secs(1);
            self.rig().backfill();
            self.deliver();
            self.take_one(index, 1 << 20);
            self.consumers[index].acknowledge();
        }
        // So much later, the clock of mutations has to be on disk anew.
        self.flush();
        let consumer = self.consumers.pop().unwrap();
        assert!(!consumer.is_streaming(), "streams with {flag:?} do not end");
        for (part, history) in consumer.parts.values().zip(histories) {
            let all = if disk_only { history.persisted } else { history.high_seqno };
            let wanted = all.min(history.max_visible);
            assert!(part.seqno >= wanted, "{} of {wanted} with {flag:?}", part.seqno);
        }
    }

    /// Creates a collection, or drops one.
    fn change_collections(&mut self) {
        self.rig().warm_up();
        let Some(dropped) = self.collections.change(&mut self.rng) else { return };
        let before = self.highs();
        self.collections.tell(self.rig.as_mut().unwrap());
        for ((vb, before), (_, after)) in before.into_iter().zip(self.highs()) {
            assert_eq!(after, before.next(), "one event per vBucket");
            if let Some(id) = dropped {
                self.log.add(vb, after, What::Dropped(id));
            }
        }
        // So that no crash makes it happen again, elsewhere.
        self.flush();
    }

    fn highs(&mut self) -> Vec<(VbId, Seqno)> {
        let bucket = &self.rig().bucket;
        (0..VBUCKETS).map(|vb| (VbId(vb), bucket.vb_history(VbId(vb)).unwrap().high_seqno)).collect()
    }

    /// Stops the bucket, well or badly, and opens it again. One in memory cannot.
    fn reopen(&mut self, crash: bool) {
        if self.rig().options.kind != BucketKind::Couchbase {
            return;
        }
        for consumer in &mut self.consumers {
            consumer.disconnect();
        }
        let rig = self.rig.take().unwrap();
        self.rig = Some(if crash { rig.crash() } else { rig.restart() });
        for vb in (0..VBUCKETS).map(VbId) {
            let kept = self.rig().bucket.vb_history(vb).unwrap().persisted;
            self.log.truncate(vb, kept);
        }
        self.note_recovered();
        if self.rng.bool() {
            self.rig().warm_up();
        }
    }
}
