//! The active bucket, what happens to it and to the link, and what the replica has to be in the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{
    NodeId, Status, VbId, VbRole,
    bucket::{BucketKind, CompressionMode, DurabilityLevel},
};
use engine::{BucketOptions, Delete, Mutated, Store, Topology, Waiter};
use fastrand::Rng;
use settee_replication::consumer::{StreamWish, stats::ConsumerStats};

use super::{
    collections::Collections,
    copies::{Copies, contents_of},
    link::Link,
    shelf::{Contents, Version},
    support::Rig,
};

const VBUCKETS: u16 = 4;

/// See the module header.
pub(crate) struct World<C: Copies> {
    rig: Option<Rig>,
    rng: Rng,
    copies: C,
    link: Option<Link<C::R>>,
    term: u64,
    stats: Arc<ConsumerStats>,
    connections: u64,
    collections: Collections,
    in_progress: Vec<(Vec<u8>, Mutated)>,
}

impl<C: Copies> World<C> {
    pub(crate) fn new(seed: u64) -> Self {
        let options = BucketOptions {
            kind: BucketKind::Couchbase,
            vbuckets: VBUCKETS,
            shards: 2,
            seed,
            purge_interval_secs: 60,
            compression: if seed.is_multiple_of(2) {
                CompressionMode::Active
            } else {
                CompressionMode::Passive
            },
            role: VbRole::Dead,
            ..BucketOptions::new("model", 256 << 20)
        };
        let mut world = Self {
            copies: C::new(&options),
            rig: Some(Rig::new(options)),
            rng: Rng::with_seed(seed),
            link: None,
            term: 0,
            stats: Arc::default(),
            connections: 0,
            collections: Collections::none(),
            in_progress: Vec::new(),
        };
        world.lead();
        world
    }

    /// Another term begins: the active is the active of it, and is followed at it.
    fn lead(&mut self) {
        self.term += 1;
        let (term, now) = (self.term, self.rig().now());
        let topology = Topology { chains: vec![vec![NodeId(1), NodeId(2)]], copies: 2, to_disk: false };
        for vb in (0..VBUCKETS).map(VbId) {
            let bucket = &self.rig().bucket;
            let is_active = bucket.vb_role(vb).unwrap().0 == VbRole::Active;
            match is_active {
                true => bucket.set_topology(vb, term, topology.clone(), now).unwrap(),
                false => bucket.activate(vb, term, topology.clone(), now).unwrap(),
            }
        }
        self.copies.follow(term);
        self.want(|_| true);
    }

    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().unwrap()
    }

    pub(crate) fn step(&mut self) {
        match self.rng.u32(0..1_000) {
            0..=349 => self.mutate(),
            350..=389 => self.flush(),
            390..=469 => self.rig().backfill(),
            470..=939 => self.carry(),
            940..=945 => self.want_some(),
            946..=957 => {
                if self.copies.disturb(&mut self.rng) {
                    self.link = None;
                }
            }
            958..=963 => self.link = None,
            964 => self.lead(),
            965..=972 => self.change_collections(),
            973..=977 => self.clean_up(),
            978..=983 => self.rig().clock.advance_secs(3),
            984..=988 => self.reopen(false),
            989..=993 => self.reopen(true),
            _ => self.rig().warm_up(),
        }
        self.deliver();
    }

    /// Lets the replica catch up, and compares.
    pub(crate) fn settle(&mut self) {
        self.rig().warm_up();
        if self.link.is_none() {
            self.connect();
        }
        self.want(|_| true);
        for _ in 0..200 {
            // Time passes, so that streams that went wrong are asked for again, and what is durable is committed.
            self.flush();
            let rig = self.rig();
            rig.bucket.time_out_durable(rig.now());
            self.copies.tend(500);
            self.rig().backfill();
            self.deliver();
            self.carry_all();
        }
        for vb in (0..VBUCKETS).map(VbId) {
            assert!(self.link.as_ref().unwrap().follows(vb), "{vb} is not followed");
            let expected = contents_of(self.rig(), vb);
            let replica = self.copies.contents(vb);
            assert_eq!(replica.seqno, expected.seqno, "{vb}");
            let open = self.open(&expected);
            assert!(open.is_empty(), "{vb}: still in progress at the active: {open:?}");
            assert!(self.open(&replica).is_empty(), "{vb}");
            let (has, wants) = (self.live(&replica), self.live(&expected));
            let differ = has.keys().chain(wants.keys()).filter(|key| has.get(*key) != wants.get(*key));
            let differ: Vec<_> = differ.map(|key| (key, has.get(key), wants.get(key))).collect();
            assert!(differ.is_empty(), "{vb}: has, wants: {differ:?}");
        }
        assert!(self.messages() > 100, "too little happened");
        println!("  {} messages over {} connections", self.messages(), self.connections);
    }

    /// Durable writes in progress, but for those of dropped collections.
    fn open(&self, contents: &Contents) -> BTreeMap<Vec<u8>, Version> {
        let is_there = |key: &[u8]| key[0] <= 1 || self.collections.has(u32::from(key[0]));
        let open = contents.prepares.iter().filter(|(key, _)| is_there(key));
        open.map(|(key, version)| (key.clone(), version.clone())).collect()
    }

    /// Messages that were taken.
    fn messages(&self) -> u64 {
        self.stats.messages.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What clients would find, and the events of collections. What belongs to dropped collections
    /// may have been erased.
    fn live(&self, contents: &Contents) -> BTreeMap<Vec<u8>, Version> {
        let is_there = |key: &[u8]| key[0] <= 1 || self.collections.has(u32::from(key[0]));
        let live = contents.versions.iter().filter(|(key, version)| !version.deleted && is_there(key));
        live.map(|(key, version)| (key.clone(), version.clone())).collect()
    }

    fn mutate(&mut self) {
        let key = self.collections.key(&mut self.rng);
        let rig = self.rig.as_mut().unwrap();
        let now = rig.now();
        let durability = match self.rng.u8(0..8) {
            0 => DurabilityLevel::PersistToMajority,
            _ => DurabilityLevel::None,
        };
        let done = if self.rng.u8(0..4) == 0 {
            let delete = Delete { durability, ..Delete::default() };
            rig.run(&key, |bucket, vb, hashed| bucket.delete(vb, hashed, &delete, now))
        } else {
            let length = if self.rng.u8(0..10) == 0 { 5_000 } else { self.rng.usize(0..100) };
            let value = vec![self.rng.alphanumeric() as u8; length];
            let store = Store { durability, flags: self.rng.u32(..), ..Store::set(&value) };
            rig.run(&key, |bucket, vb, hashed| bucket.store(vb, hashed, &store, now))
        };
        match done {
            Ok(mutated) if mutated.wait => self.in_progress.push((key, mutated)),
            // "Temporary failure": of a named collection, before warm-up has found its beginning.
            Ok(_) | Err(Status::KeyNotFound | Status::SyncWriteInProgress | Status::TemporaryFailure) => {}
            Err(status) => panic!("{status:?}"),
        }
    }

    /// Everything goes to disk; durable writes are committed by that.
    fn flush(&mut self) {
        self.rig().flush();
        let waiter = Waiter { worker: 9, connection: 9, ticket: 9 };
        for (key, mutated) in std::mem::take(&mut self.in_progress) {
            // Of a collection that is gone it may have been aborted.
            let _ = self.rig().complete(&key, &mutated, waiter);
        }
    }

    fn clean_up(&mut self) {
        let rig = self.rig();
        rig.clean_up();
        rig.bucket.time_out_durable(rig.now());
    }

    fn connect(&mut self) {
        self.connections += 1;
        let rig = self.rig.as_ref().unwrap();
        let link = Link::connect(
            &rig.bucket,
            self.copies.replica(),
            (self.connections, Arc::clone(&self.stats)),
            rig.now(),
        );
        self.link = Some(link);
        self.want(|_| true);
    }

    fn want_some(&mut self) {
        if self.link.is_none() {
            return self.connect();
        }
        let mask = self.rng.u16(..) | self.rng.u16(..);
        self.want(|vb| mask & (1 << vb) != 0);
    }

    fn want(&mut self, is_wanted: impl Fn(u16) -> bool) {
        let term = self.term;
        let wanted = (0..VBUCKETS).filter(|vb| is_wanted(*vb));
        let wishes: Vec<_> = wanted.map(|vb| StreamWish { vb: VbId(vb), term }).collect();
        let now = self.rig().now();
        if let Some(link) = &mut self.link {
            link.want(&wishes, now);
        }
    }

    /// Some bytes arrive, in one direction or the other.
    fn carry(&mut self) {
        if self.link.is_none() {
            if self.rng.u8(0..10) > 0 {
                return;
            }
            self.connect();
        }
        let now = self.rig().now();
        for _ in 0..self.rng.u8(1..12) {
            let bytes = *self.rng.choice(&[1, 30, 300, 20_000]).unwrap();
            let link = self.link.as_mut().unwrap();
            match self.rng.u8(0..4) {
                0 => link.carry_up(bytes, now),
                1 => link.tend(now),
                2 => link.pump(bytes, now),
                _ => link.carry_down(bytes, now),
            }
        }
    }

    fn carry_all(&mut self) {
        let now = self.rig().now();
        let link = self.link.as_mut().unwrap();
        for _ in 0..4 {
            link.tend(now);
            link.carry_up(usize::MAX, now);
            link.pump(1 << 20, now);
            link.carry_down(usize::MAX, now);
        }
    }

    /// Delivers wake-ups.
    fn deliver(&mut self) {
        let woken = std::mem::take(&mut *self.rig().recorder.woken.lock());
        let connections = self.connections;
        if let Some(link) = &mut self.link {
            let mine =
                woken.into_iter().filter(|waiter| waiter.worker == 0 && waiter.connection == connections);
            mine.for_each(|waiter| link.wake(waiter.ticket));
            let woken = self.copies.woken().into_iter();
            let mine = woken.filter(|waiter| waiter.worker == 1 && waiter.connection == connections);
            mine.for_each(|waiter| link.consumer.wake(waiter.ticket));
        }
    }

    /// Creates a collection, or drops one.
    fn change_collections(&mut self) {
        self.rig().warm_up();
        if self.collections.change(&mut self.rng).is_some() {
            self.collections.tell(self.rig.as_mut().unwrap());
        }
    }

    /// Stops the active, well or badly, and opens it again. What a crash has lost is lost to the replica too.
    fn reopen(&mut self, crash: bool) {
        self.link = None;
        self.in_progress.clear();
        let rig = self.rig.take().unwrap();
        self.rig = Some(if crash { rig.crash() } else { rig.restart() });
        if self.rng.bool() {
            self.rig().warm_up();
        }
        self.lead();
    }
}
