//! Readers of feeds. Subscribers are stopped, slow, and cut off by whatever happens to nodes. Beside the streams, the
//! test looks at one copy after the other, active or replica. Readers have dice of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{BucketUuid, DocKey, HashedKey, ManifestUid, NodeId, Now, Seqno, VbId, VbRole};
use cluster::{BucketInfo, Metadata};
use engine::{DocMeta, DocView, Refusal, VbStatus};
use fastrand::Rng;

use super::World;
use crate::{
    clients::Clients,
    invariants::feeds::{Feeds, Reader, Version},
    machine::Machine,
    open_bucket::OpenBucket,
    subscriber::{Subscriber, Told},
};

const SUBSCRIBERS: usize = 3;
/// Between two rounds in which subscribers ask for what they are not told.
const ASK_MILLIS: u64 = 40;
/// A subscriber leaves once in so many steps, for so long at most: some of them longer than tombstones are kept.
const STOPS: u32 = 300;
const REST_MILLIS: u64 = 4_000;

type Machines = BTreeMap<NodeId, Machine>;

/// The keys of a bucket that may be in each vBucket, as of a manifest and a number of risks taken.
struct Keys {
    of: (ManifestUid, u64),
    by_vb: Vec<Vec<Vec<u8>>>,
}

/// What a copy was looked at with.
#[derive(Clone, Default)]
struct Looked {
    /// Its last seqno.
    high: Option<Seqno>,
    /// What it had purged, as far as was told.
    purged: Seqno,
}

/// See the module.
pub(super) struct Watch {
    rng: Rng,
    subscribers: Vec<Subscriber>,
    /// What subscribers of buckets that are gone were told.
    past: Told,
    keys: BTreeMap<BucketUuid, Keys>,
    /// What each copy of a bucket on a node was looked at with, by vBucket.
    seen: BTreeMap<(NodeId, BucketUuid), Vec<Looked>>,
    ask_at: u64,
    /// Subscribers stay connected.
    pub(super) is_calm: bool,
}

impl Watch {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed.rotate_left(32) ^ 0x5eed),
            subscribers: Vec::new(),
            past: Told::default(),
            keys: BTreeMap::new(),
            seen: BTreeMap::new(),
            ask_at: 0,
            is_calm: false,
        }
    }

    /// A node ends.
    pub(super) fn lose(&mut self, node: NodeId) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.lose(node));
    }

    pub(super) fn wake(&mut self, waiter: engine::Waiter) {
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.wake(waiter));
    }

    /// Each bucket gets a subscriber of its own, until no subscriber is left.
    fn assign(&mut self, newest: &Metadata) {
        let is_gone = |one: &mut Subscriber| newest.bucket_by_uuid(&one.bucket).is_none();
        self.subscribers.extract_if(.., is_gone).for_each(|gone| self.past.add(&gone.told));
        while self.subscribers.len() < SUBSCRIBERS && !newest.buckets.is_empty() {
            let followers = |info: &&BucketInfo| {
                self.subscribers.iter().filter(|subscriber| subscriber.bucket == info.uuid).count()
            };
            let Some(info) = newest.buckets.values().min_by_key(followers) else { return };
            self.subscribers.push(Subscriber::new(self.subscribers.len(), info.uuid.clone()));
        }
    }

    fn keys(&mut self, info: &BucketInfo, clients: &Clients) -> &[Vec<Vec<u8>>] {
        let of = (info.manifest.uid, clients.generation());
        if self.keys.get(&info.uuid).is_none_or(|keys| keys.of != of) {
            let mut by_vb = vec![Vec::new(); usize::from(info.vbuckets)];
            for key in clients.keys(info) {
                let vb = base::hash::vbucket_of(DocKey::trusted(&key).logical(), info.vbuckets);
                by_vb[usize::from(vb.get())].push(key);
            }
            self.keys.insert(info.uuid.clone(), Keys { of, by_vb });
        }
        &self.keys[&info.uuid].by_vb
    }

    /// Looks at all that one node has of one bucket.
    fn look(
        &mut self,
        machines: &Machines,
        at: u64,
        newest: &Metadata,
        clients: &Clients,
        feeds: &mut Feeds,
    ) {
        let Some(machine) = self.rng.choice(machines.values()).filter(|one| one.paused_until <= at) else {
            return;
        };
        let Some(process) = machine.process.as_ref() else { return };
        let Some((uuid, open)) = self.rng.choice(process.buckets.iter()) else { return };
        let Some((_, info)) = newest.bucket_by_uuid(uuid) else { return };
        let now = machine.clock.now(at);
        let of = (machine.id(), uuid.clone());
        // Nobody else needs it meanwhile.
        let mut seen = self.seen.remove(&of).unwrap_or_default();
        seen.resize(usize::from(info.vbuckets), Looked::default());
        for (vb, seen) in (0..info.vbuckets).map(VbId).zip(&mut seen) {
            let Ok(state) = open.engine.vb_state(vb) else { continue };
            let high = state.high_seqno;
            // Most copies are what they were at the last look, and a status takes more than this.
            if state.purge_seqno <= seen.purged && seen.high == Some(high) {
                continue;
            }
            let place = (uuid.clone(), vb);
            feeds.purged(&place, state.purge_seqno);
            seen.purged = seen.purged.max(state.purge_seqno);
            let Ok(status) = open.engine.vb_status(vb) else { continue };
            let is_whole = status.complete && status.snapshot.is_none() && !status.unconfirmed;
            if !is_whole || seen.high == Some(high) {
                continue;
            }
            seen.high = Some(high);
            let keys = &self.keys(info, clients)[usize::from(vb.get())];
            match status.role {
                VbRole::Active => drop(look_at_active((open, now), (&place, &status), keys, feeds)),
                VbRole::Replica => {
                    let active = info.vbs[usize::from(vb.get())].chain.first();
                    let active = active.and_then(|node| open_on(machines, *node, at, uuid));
                    let known = active.map(|active| seen_on_active(active, (&place, &status), keys, feeds));
                    let copy = (&place, &status, machine.id());
                    look_at_replica((open, now), copy, keys, &known.unwrap_or_default(), (info, feeds));
                }
                VbRole::Sealed | VbRole::Dead => {}
            }
        }
        self.seen.insert(of, seen);
    }

    fn run(&mut self, machines: &Machines, at: u64, newest: &Metadata, feeds: &mut Feeds) {
        let asks = at >= self.ask_at;
        if asks {
            self.ask_at = at + ASK_MILLIS;
        }
        let rng = &mut self.rng;
        for subscriber in &mut self.subscribers {
            if !self.is_calm && rng.u32(0..STOPS) == 0 {
                subscriber.stop(at + rng.u64(0..REST_MILLIS));
            }
            if at < subscriber.rests_until && !self.is_calm {
                continue;
            }
            let Some((_, info)) = newest.bucket_by_uuid(&subscriber.bucket) else { continue };
            if asks {
                follow_all(subscriber, machines, at, info, rng);
            }
            take_all(subscriber, machines, at, info, feeds, rng);
        }
    }

    fn told(&self) -> Told {
        let mut told = Told::default();
        self.subscribers
            .iter()
            .map(|subscriber| &subscriber.told)
            .chain([&self.past])
            .for_each(|one| told.add(one));
        told
    }
}

/// A bucket that is open on a node that does something at the moment.
fn open_on<'a>(
    machines: &'a Machines,
    node: NodeId,
    at: u64,
    bucket: &BucketUuid,
) -> Option<(&'a OpenBucket, Now)> {
    let machine = machines.get(&node).filter(|machine| machine.paused_until <= at)?;
    let open = machine.process.as_ref()?.buckets.get(bucket)?;
    Some((open, machine.clock.now(at)))
}

/// Has a subscriber ask for each vBucket that it is not told of, where the map says.
fn follow_all(subscriber: &mut Subscriber, machines: &Machines, at: u64, info: &BucketInfo, rng: &mut Rng) {
    for (vb, plan) in info.vbs.iter().enumerate() {
        let vb = VbId(vb as u16);
        if subscriber.is_told(vb).is_none()
            && let Some(&node) = plan.chain.first()
            && let Some((open, now)) = open_on(machines, node, at, &info.uuid)
        {
            subscriber.follow((vb, node), &open.engine, rng, now);
        }
    }
}

fn take_all(
    subscriber: &mut Subscriber,
    machines: &Machines,
    at: u64,
    info: &BucketInfo,
    feeds: &mut Feeds,
    rng: &mut Rng,
) {
    let counts = |key: &[u8]| is_there(info, key);
    for node in subscriber.nodes() {
        let process = machines.get(&node).and_then(|machine| machine.process.as_ref());
        let open = process.and_then(|process| process.buckets.get(&info.uuid));
        if !open.is_some_and(|open| subscriber.is_connected(node, &open.engine)) {
            subscriber.lose(node);
        } else if let Some((_, now)) = open_on(machines, node, at, &info.uuid)
            && rng.u8(0..4) > 0
        {
            subscriber.take(node, feeds, &counts, rng, now);
        }
    }
}

/// Whether a key's collection has not been dropped.
fn is_there(info: &BucketInfo, key: &[u8]) -> bool {
    info.manifest.collection(DocKey::trusted(key).collection()).is_some()
}

fn version_of(meta: &DocMeta) -> Version {
    let (flags, expiry) = (meta.flags, meta.expiry);
    Version {
        seqno: meta.seqno,
        deleted: meta.deleted,
        cas: meta.cas,
        rev: meta.rev,
        flags,
        expiry,
        hash: None,
    }
}

/// What an active copy has is what happened. What lies on disk only is not fetched for that. The keys that were seen, and their seqnos.
fn look_at_active<'k>(
    (open, now): (&OpenBucket, Now),
    (place, status): (&(BucketUuid, VbId), &VbStatus),
    keys: &'k [Vec<u8>],
    feeds: &mut Feeds,
) -> Vec<(&'k [u8], Seqno)> {
    let at = (&status.history.log[..], status.history.high_seqno);
    let mut seen = Vec::new();
    for key in keys {
        if let Ok(meta) = open.engine.meta(place.1, HashedKey::new(DocKey::trusted(key)), now) {
            feeds.saw(place, at, key, version_of(&meta));
            seen.push((&key[..], meta.seqno));
        }
    }
    seen
}

/// The keys of which a replica has to have what the active copy has: those that were not written since.
fn seen_on_active<'k>(
    (open, now): (&OpenBucket, Now),
    (place, replica): (&(BucketUuid, VbId), &VbStatus),
    keys: &'k [Vec<u8>],
    feeds: &mut Feeds,
) -> BTreeSet<&'k [u8]> {
    let Ok(status) = open.engine.vb_status(place.1) else { return BTreeSet::new() };
    if status.history.log != replica.history.log {
        return BTreeSet::new();
    }
    let seen = look_at_active((open, now), (place, &status), keys, feeds);
    let is_old = |(_, seqno): &(&[u8], Seqno)| *seqno <= replica.history.high_seqno;
    seen.into_iter().filter(is_old).map(|(key, _)| key).collect()
}

/// A replica holds all that happened, up to its last seqno. That it has no document of a key may be a deletion that nobody has looked
/// at, unless the key is one of `known`.
fn look_at_replica(
    (open, now): (&OpenBucket, Now),
    (place, status, node): (&(BucketUuid, VbId), &VbStatus, NodeId),
    keys: &[Vec<u8>],
    known: &BTreeSet<&[u8]>,
    (info, feeds): (&BucketInfo, &mut Feeds),
) {
    let (log, mut held) = (&status.history.log, BTreeMap::new());
    let version = |view: &DocView<'_>| Version {
        seqno: view.seqno,
        deleted: false,
        cas: view.cas,
        rev: view.rev,
        flags: view.flags,
        expiry: view.expiry,
        hash: None,
    };
    for key in keys {
        let hashed = HashedKey::new(DocKey::trusted(key));
        match open.engine.get_replica(place.1, hashed, now, version) {
            Ok(version) => {
                feeds.saw(place, (log, status.history.high_seqno), key, version);
                held.insert(&key[..], Some(version.seqno));
            }
            Err(Refusal::Status(base::Status::KeyNotFound)) => drop(held.insert(key, None)),
            Err(_) => {}
        }
    }
    let name = format!("the replica on {node}");
    let holds = |key: &[u8]| held.get(key).copied().flatten();
    let at = status.history.high_seqno;
    let reader = Reader { name: &name, log, at, holds: &holds, sees_living: true };
    let is_told = |key: &[u8]| holds(key).is_some() || (held.contains_key(key) && known.contains(key));
    feeds.check(place, &reader, &|key| is_told(key) && is_there(info, key));
}

impl World {
    /// One step's.
    pub(super) fn watch_feeds(&mut self) {
        let (at, newest) = (self.journal.now, Arc::clone(self.newest()));
        let Self { watch, machines, clients, invariants, .. } = self;
        watch.assign(&newest);
        watch.look(machines, at, &newest, clients, &mut invariants.feeds);
        watch.run(machines, at, &newest, &mut invariants.feeds);
    }

    /// Whether subscribers have been told of everything.
    pub(super) fn are_feeds_at_their_end(&self) -> bool {
        self.untold().is_empty()
    }

    /// What subscribers have not been told of. It names the subscriber and the vBucket, the node that tells it, how far it is, and
    /// the state that the active copy shows.
    pub(super) fn untold(&self) -> Vec<String> {
        let (at, newest) = (self.journal.now, self.newest());
        let of_vb = |subscriber: &Subscriber, info: &BucketInfo, vb: u16| {
            // Of a vBucket without a copy there is nothing to be told.
            let node = info.vbs[usize::from(vb)].chain.first().copied()?;
            let (vb, open) = (VbId(vb), open_on(&self.machines, node, at, &info.uuid));
            let known = open.and_then(|(open, _)| open.engine.vb_history(vb).ok());
            let (seqno, teller) = (subscriber.seqno(vb), subscriber.is_told(vb));
            let is_at_end = known.as_ref().is_some_and(|known| seqno >= known.max_visible);
            (teller != Some(node) || !is_at_end).then(|| {
                format!("{subscriber}, {vb} of {node}: told by {teller:?} up to {seqno} of {known:?}")
            })
        };
        let of_subscriber = |subscriber: &Subscriber| match newest.bucket_by_uuid(&subscriber.bucket) {
            Some((_, info)) => (0..info.vbuckets).filter_map(|vb| of_vb(subscriber, info, vb)).collect(),
            None => vec![format!("{subscriber}, which is gone")],
        };
        self.watch.subscribers.iter().flat_map(of_subscriber).collect()
    }

    /// Subscribers that have followed to the end hold what active copies hold.
    pub(super) fn check_feeds_in_the_end(&mut self) {
        let (at, newest) = (self.journal.now, Arc::clone(self.newest()));
        let Self { watch, machines, clients, invariants, .. } = self;
        let subscribers = std::mem::take(&mut watch.subscribers);
        for subscriber in &subscribers {
            let Some((_, info)) = newest.bucket_by_uuid(&subscriber.bucket) else { continue };
            for (vb, plan) in info.vbs.iter().enumerate() {
                let (place, vb) = ((info.uuid.clone(), VbId(vb as u16)), VbId(vb as u16));
                let (open, now) = open_on(machines, plan.chain[0], at, &info.uuid).expect("an active copy");
                let keys = &watch.keys(info, clients)[usize::from(vb.get())];
                let status = open.engine.vb_status(vb).unwrap();
                look_at_active((open, now), (&place, &status), keys, &mut invariants.feeds);
                subscriber.check(vb, &mut invariants.feeds, &|key| is_there(info, key));
                let is_live = |key: &&Vec<u8>| open.read(vb, key, now).unwrap().is_some();
                let live: BTreeSet<&[u8]> = keys.iter().filter(is_live).map(|key| &key[..]).collect();
                let held = subscriber.documents(vb);
                let is_told = live.iter().all(|key| held.contains_key(key));
                // What has expired is told when a pager comes across it.
                let are_there = held.iter().all(|(key, expires)| *expires || live.contains(key));
                assert!(is_told && are_there, "{subscriber} holds {held:?} of {vb}, which has {live:?}");
            }
        }
        watch.subscribers = subscribers;
    }

    /// What happened to feeds, in numbers.
    pub(super) fn summary_of_feeds(&self) -> String {
        format!("feeds: {:?}, {} looks", self.watch.told(), self.invariants.feeds.checked)
    }
}
