//! Clients. Each does one thing after the other, and asks the node that its map of the cluster names. When a node sends
//! it elsewhere or asks it to come back later, it gets a newer map and asks again. Without an answer it gives up.

mod registers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{
    BucketUuid, Cas, CollectionId, DocKey, NodeId, Status, VbId,
    bucket::{BucketKind, DurabilityLevel},
    hash::vbucket_of,
    key::encode_key,
};
use cluster::{BucketInfo, Metadata};
use fastrand::Rng;

use crate::{
    invariants::{
        Invariants,
        histories::{Did, Moment},
    },
    operation::{Ended, Operation, Request, Token},
    parts::Part,
    setting::Setting,
};

const LEVELS: [DurabilityLevel; 4] = [
    DurabilityLevel::None,
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistActive,
    DurabilityLevel::PersistToMajority,
];
/// An answer that takes longer is taken for lost; longer than a durable write may take.
const PATIENCE_MILLIS: u64 = 3_000;
/// How long an operation is tried while nodes say that it is not theirs, or not now.
const RIDE_MILLIS: u64 = 4_000;
/// Between two tries.
const PAUSE_MILLIS: u64 = 20;
/// The number of the key whose documents may expire.
const EXPIRING: usize = 0;
/// Of tries to write, one in so many changes a part of a document.
const PARTS: u8 = 4;

pub(crate) use registers::{MARK_SUFFIX, mark_of};
use registers::{note, note_looked, note_write, place_of};

/// An operation that has not ended.
struct Pending {
    request: Request,
    level: DurabilityLevel,
    /// The key gets versions of another cluster only.
    is_foreign: bool,
    generation: u64,
    called: Moment,
    /// The last write of the vBucket that had been acknowledged then.
    after: Option<Token>,
    /// By when it has to be done, or is left.
    until: u64,
    /// A try is under way since then.
    asked_at: Option<u64>,
    /// The next try.
    ask_at: u64,
}

#[derive(Default)]
struct Client {
    map: Option<Arc<Metadata>>,
    pending: Option<Pending>,
    rests_until: u64,
    /// What it has read last.
    seen: Option<Seen>,
}

/// A document that a client has read, and may write if it is still the same.
struct Seen {
    request: Request,
    level: DurabilityLevel,
    generation: u64,
    value: (u64, Cas),
}

/// What is promised about the run under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// Writes at this level, or above, stay once they are acknowledged.
    pub(crate) level: DurabilityLevel,
    /// Reads of nodes that need no lease are as good as others: nobody is failed over without knowing.
    pub(crate) counts_unleased: bool,
}

/// See the module.
pub(crate) struct Clients {
    setting: Setting,
    clients: Vec<Client>,
    /// The number of the last try, and of the last value.
    tries: u64,
    values: u64,
    /// The last moment.
    moment: Moment,
    /// Keys are given up when somebody takes a risk with what they hold.
    generation: u64,
    /// Keys of these vBuckets are, up to that generation; those of all others before `kept`.
    risked: BTreeMap<(BucketUuid, VbId), u64>,
    kept: u64,
    pub(crate) rest: bool,
    /// They do not let anything be for a while.
    pub(crate) hurry: bool,
    /// Acknowledged writes by level, those of them that were conditional, removals, and reads.
    pub(crate) written: [u64; LEVELS.len()],
    pub(crate) swapped: u64,
    pub(crate) removed: u64,
    pub(crate) parts: u64,
    pub(crate) foreign: u64,
    pub(crate) read: u64,
}

/// What is found under a key.
type Find<'a> = &'a dyn Fn(&BucketInfo, VbId, &[u8]) -> Option<u64>;

/// What was found under a key of a bucket, which is written at that level.
pub(crate) struct Found {
    bucket: BucketUuid,
    level: DurabilityLevel,
    key: Vec<u8>,
    value: Option<u64>,
}

/// Where something may be found.
pub(crate) struct KeyPlace {
    pub(crate) bucket: BucketUuid,
    pub(crate) vb: VbId,
    pub(crate) key: Vec<u8>,
    pub(crate) level: DurabilityLevel,
}

impl KeyPlace {
    /// This was.
    pub(crate) fn found(self, value: Option<u64>) -> Found {
        let Self { bucket, key, level, .. } = self;
        Found { bucket, level, key, value }
    }
}

/// Something to be sent to a node.
pub(crate) struct Ask {
    pub(crate) to: NodeId,
    pub(crate) request: Request,
}

impl Clients {
    pub(crate) fn new(setting: Setting) -> Self {
        Self {
            setting,
            clients: (0..setting.clients).map(|_| Client::default()).collect(),
            tries: 0,
            values: 0,
            moment: 0,
            generation: 0,
            risked: BTreeMap::new(),
            kept: 0,
            rest: false,
            hurry: false,
            written: [0; LEVELS.len()],
            swapped: 0,
            removed: 0,
            parts: 0,
            foreign: 0,
            read: 0,
        }
    }

    /// Moments are for what happens, one each.
    pub(crate) fn next_moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// The last moment at which anything happened.
    pub(crate) fn last_moment(&self) -> Moment {
        self.moment
    }

    /// What they ask now. `newest` is the map that a client is given that needs one.
    pub(crate) fn step(
        &mut self,
        now: u64,
        rng: &mut Rng,
        invariants: &mut Invariants,
        newest: &dyn Fn(&mut Rng) -> Option<Arc<Metadata>>,
    ) -> Vec<Ask> {
        let mut asks = Vec::new();
        for at in 0..self.clients.len() {
            self.give_up(at, now, invariants);
            let is_busy = !self.rest && (self.hurry || self.setting.cycle.is_busy(now));
            if self.clients[at].pending.is_none() && is_busy && now >= self.clients[at].rests_until {
                self.begin(at, now, rng, invariants, newest);
            }
            self.tries += 1;
            let id = self.tries;
            let client = &mut self.clients[at];
            let Some(pending) = &mut client.pending else { continue };
            if pending.asked_at.is_some() || now < pending.ask_at {
                continue;
            }
            if client.map.is_none() {
                client.map = newest(rng);
            }
            let Some(to) = client.map.as_ref().and_then(|map| home(map, &pending.request)) else {
                client.map = None;
                pending.ask_at = now + PAUSE_MILLIS;
                continue;
            };
            pending.request.id = id;
            pending.asked_at = Some(now);
            asks.push(Ask { to, request: pending.request.clone() });
        }
        asks
    }

    fn begin(
        &mut self,
        at: usize,
        now: u64,
        rng: &mut Rng,
        invariants: &mut Invariants,
        newest: &dyn Fn(&mut Rng) -> Option<Arc<Metadata>>,
    ) {
        let Some(map) = self.clients[at].map.clone().or_else(|| newest(rng)) else { return };
        let buckets: Vec<_> = map.buckets.values().collect();
        let Some(info) = rng.choice(buckets) else { return };
        let levels = levels_of(info);
        let (level, number) = (rng.usize(0..levels.len()), rng.usize(0..self.setting.keys));
        let level = levels[level];
        let collections = collections_of(info);
        let collection = if collections.len() > 1 { rng.usize(0..collections.len()) } else { 0 };
        let key = key_of(collections[collection], level, number, self.generation);
        let mut request = Request {
            id: 0,
            bucket: info.uuid.clone(),
            vb: vb_of(info, &key),
            key,
            operation: Operation::Read,
        };
        let (mut least, mut over) = (level, None);
        let is_write = rng.u8(0..3) > 0;
        let is_there = |seen: &Seen| map.bucket_by_uuid(&seen.request.bucket).is_some();
        if let Some(seen) = self.clients[at].seen.take().filter(|seen| is_write && is_there(seen))
            && seen.generation == self.generation
        {
            (request, least, over) = (seen.request, seen.level, Some(seen.value));
        }
        let is_foreign = over.is_none() && level == LEVELS[0] && number + 1 == self.setting.keys;
        let may_expire = over.is_none() && self.setting.expiries && number == EXPIRING;
        request.operation = if is_write && is_foreign {
            self.next_foreign(rng)
        } else if is_write {
            // Now and then more durably than the key needs.
            let most = map.bucket_by_uuid(&request.bucket).map(|(_, info)| levels_of(info));
            let level = most.and_then(<[_]>::last).filter(|_| rng.u8(0..4) == 0).map_or(least, |most| *most);
            self.next_write(level, (may_expire, over), rng)
        } else {
            next_read(is_foreign, rng)
        };
        let level = least;
        if let Operation::Foreign { value, .. } = request.operation {
            invariants.resolution.tries(&(request.bucket.clone(), request.key.clone()), value);
        }
        let after = invariants.never_back.last(&(request.bucket.clone(), request.vb));
        let (called, generation) = (self.next_moment(), self.generation);
        let client = &mut self.clients[at];
        client.map = Some(map);
        client.pending = Some(Pending {
            request,
            level,
            is_foreign,
            generation,
            called,
            after,
            until: now + RIDE_MILLIS,
            asked_at: None,
            ask_at: now,
        });
    }

    /// A write, or a removal; one that is only done if a document is the same still is a write.
    fn next_write(
        &mut self,
        level: DurabilityLevel,
        (may_expire, over): (bool, Option<(u64, Cas)>),
        rng: &mut Rng,
    ) -> Operation {
        self.values += 1;
        if over.is_none() && self.setting.removals && rng.u8(0..4) == 0 {
            return Operation::Remove { number: self.values, level };
        }
        let filler = self.filler();
        if over.is_none() && rng.u8(0..PARTS) == 0 {
            let part = rng.choice(Part::ALL).unwrap_or(Part::Both);
            return Operation::Part { part, value: self.values, filler, level };
        }
        let secs = if may_expire { rng.u32(1..=3) } else { 0 };
        Operation::Write { value: self.values, filler, level, secs, over }
    }

    /// Of different lengths, so that replicas cannot be alike by chance.
    fn filler(&self) -> usize {
        let (lengths, step) = self.setting.lengths;
        self.values as usize % lengths * step
    }

    /// A version of another cluster; a key that gets such ones gets no others.
    fn next_foreign(&mut self, rng: &mut Rng) -> Operation {
        self.values += 1;
        Operation::Foreign { value: self.values, filler: self.filler(), deletes: rng.u8(0..6) == 0 }
    }

    /// Leaves what takes too long. A write that was tried may have happened.
    fn give_up(&mut self, at: usize, now: u64, invariants: &mut Invariants) {
        let client = &mut self.clients[at];
        let Some(pending) = &client.pending else { return };
        let is_lost = pending.asked_at.is_some_and(|asked| now >= asked + PATIENCE_MILLIS);
        let is_late = pending.asked_at.is_none() && now >= pending.until;
        if !(is_lost || is_late) {
            return;
        }
        let Some(pending) = client.pending.take() else { return };
        client.map = None;
        if is_lost {
            self.note_lost(&pending, invariants);
        }
    }

    fn note_lost(&self, pending: &Pending, invariants: &mut Invariants) {
        if pending.request.operation.is_read() {
            return;
        }
        invariants.certainty.lost(&pending.request);
        if self.counts(pending) {
            note_write(pending, None, invariants);
        }
    }

    /// An answer to a try, if anybody still waits for it.
    pub(crate) fn answered(
        &mut self,
        (id, ended): (u64, Ended),
        now: u64,
        rng: &mut Rng,
        invariants: &mut Invariants,
        promise: Promise,
    ) {
        let waits = |client: &Client| {
            client
                .pending
                .as_ref()
                .is_some_and(|pending| pending.asked_at.is_some() && pending.request.id == id)
        };
        let Some(at) = self.clients.iter().position(waits) else { return };
        let moment = self.next_moment();
        let client = &mut self.clients[at];
        let Some(mut pending) = client.pending.take() else { return };
        match (ended, pending.request.operation) {
            // It is not the same any more.
            (Ended::Refused(Status::KeyExists), Operation::Write { over: Some(_), .. })
            // There is a document, or its tombstone.
            | (Ended::Refused(Status::KeyExists), Operation::Part { part: Part::Staged, .. }) => {}
            (Ended::Refused(Status::KeyExists), Operation::Foreign { value, .. }) => {
                invariants.resolution.lost(&place_of(&pending), value);
            }
            (Ended::Refused(status), _) => {
                if status == Status::NotMyVbucket || rng.u8(0..4) == 0 {
                    client.map = None;
                }
                pending.asked_at = None;
                pending.ask_at = now + PAUSE_MILLIS;
                client.pending = Some(pending);
                return;
            }
            (ended, _) => self.took_effect(at, (pending, ended), moment, rng, (invariants, promise)),
        }
        self.clients[at].rests_until = now + rng.u64(0..self.setting.rest_millis);
    }

    /// An operation was done.
    fn took_effect(
        &mut self,
        at: usize,
        (pending, ended): (Pending, Ended),
        moment: Moment,
        rng: &mut Rng,
        (invariants, promise): (&mut Invariants, Promise),
    ) {
        let is_known = self.counts(&pending);
        let counts = |leased: bool| is_known && (leased || promise.counts_unleased);
        match (ended, pending.request.operation) {
            (Ended::Read { value, leased }, Operation::Read | Operation::Touch | Operation::Lock)
            // A client that finds nothing to remove, or to replace, has read that nothing exists.
            | (
                Ended::Read { value: value @ None, leased },
                Operation::Remove { .. }
                | Operation::Write { over: Some(_), .. }
                | Operation::Part { part: Part::Number | Part::Mark, .. },
            ) => {
                self.read += 1;
                if counts(leased) {
                    let value = value.map(|(value, _)| value);
                    note(&pending, Some(moment), Did::Read(value), invariants);
                    invariants.resolution.read(&place_of(&pending), value, pending.called);
                }
                let may_swap = pending.request.operation == Operation::Read && !pending.is_foreign;
                self.clients[at].seen = value.filter(|_| may_swap && rng.bool()).map(|value| Seen {
                    request: pending.request.clone(),
                    level: pending.level,
                    generation: pending.generation,
                    value,
                });
            }
            (Ended::Looked { value, mark, leased }, Operation::Look) => {
                self.read += 1;
                if counts(leased) {
                    note_looked(&pending, moment, (value, mark), invariants);
                }
            }
            (Ended::Read { value: None, leased }, Operation::Look) => {
                self.read += 1;
                if counts(leased) {
                    note_looked(&pending, moment, (None, None), invariants);
                }
            }
            (
                Ended::Written(token),
                Operation::Write { value: number, .. }
                | Operation::Remove { number, .. }
                | Operation::Part { value: number, .. }
                | Operation::Foreign { value: number, .. },
            ) => {
                self.written_at(&pending, (token, number), moment, invariants, promise);
            }
            (Ended::Ambiguous, operation) if !operation.is_read() => {
                self.note_lost(&pending, invariants);
            }
            (ended, operation) => panic!("{ended:?} answers {operation:?}"),
        }
    }

    /// An answer counts for nothing: a write may have happened.
    pub(crate) fn void_answer(&mut self, id: u64, invariants: &mut Invariants) {
        let is_its = |pending: &Pending| pending.asked_at.is_some() && pending.request.id == id;
        let waits = |client: &&mut Client| client.pending.as_ref().is_some_and(is_its);
        let Some(client) = self.clients.iter_mut().find(waits) else { return };
        client.map = None;
        if let Some(pending) = client.pending.take() {
            self.note_lost(&pending, invariants);
        }
    }

    /// A write, or a removal, was acknowledged.
    fn written_at(
        &mut self,
        pending: &Pending,
        (token, number): (Token, u64),
        moment: Moment,
        invariants: &mut Invariants,
        promise: Promise,
    ) {
        let operation = pending.request.operation;
        match operation {
            Operation::Write { over, .. } => {
                let level = LEVELS.iter().position(|level| *level == pending.level);
                self.written[level.unwrap_or_default()] += 1;
                self.swapped += u64::from(over.is_some());
            }
            Operation::Part { .. } => self.parts += 1,
            Operation::Foreign { .. } => self.foreign += 1,
            _ => self.removed += 1,
        }
        if self.counts(pending) {
            let vb = (pending.request.bucket.clone(), pending.request.vb);
            let over_branches = promise.level == DurabilityLevel::None;
            invariants.never_back.acknowledged(&vb, (token, number), pending.after, over_branches);
            note_write(pending, Some(moment), invariants);
        }
    }

    /// A try could not be sent.
    pub(crate) fn unreachable(&mut self, id: u64, now: u64) {
        for client in &mut self.clients {
            if let Some(pending) = client.pending.as_mut().filter(|pending| pending.request.id == id) {
                pending.asked_at = None;
                pending.ask_at = now + PAUSE_MILLIS;
                client.map = None;
            }
        }
    }

    /// Somebody takes a risk with all that is there.
    pub(crate) fn forget(&mut self) {
        self.generation += 1;
        self.kept = self.generation;
    }

    /// The same with what is in some vBuckets only.
    pub(crate) fn forget_some(&mut self, risked: &BTreeSet<(BucketUuid, VbId)>) {
        self.risked.extend(risked.iter().map(|vb| (vb.clone(), self.generation)));
        self.generation += 1;
    }

    fn counts(&self, pending: &Pending) -> bool {
        self.is_kept(&pending.request.bucket, pending.request.vb, pending.generation)
    }

    /// Whether nobody has taken a risk with the keys of a vBucket since that generation was the last one.
    fn is_kept(&self, bucket: &BucketUuid, vb: VbId, generation: u64) -> bool {
        let risked = self.risked.get(&(bucket.clone(), vb));
        generation >= self.kept && risked.is_none_or(|risked| generation > *risked)
    }

    /// How often somebody has taken a risk.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether nobody waits for anything.
    pub(crate) fn are_idle(&self) -> bool {
        self.clients.iter().all(|client| client.pending.is_none())
    }

    /// Every key that may be in a bucket, also of those that were given up.
    pub(crate) fn keys(&self, info: &BucketInfo) -> Vec<Vec<u8>> {
        let of_generation = |generation| self.keys_of(info, generation).into_iter().map(|(_, key)| key);
        (0..=self.generation).flat_map(of_generation).collect()
    }

    pub(crate) fn keys_of(&self, info: &BucketInfo, generation: u64) -> Vec<(DurabilityLevel, Vec<u8>)> {
        let mut keys = Vec::new();
        for collection in collections_of(info) {
            for &level in levels_of(info) {
                let key = |number| (level, key_of(collection, level, number, generation));
                keys.extend((0..self.setting.keys).map(key));
            }
        }
        keys
    }

    /// Any key that counts of those in a map.
    pub(crate) fn any_key(&self, map: &Metadata, rng: &mut Rng) -> Option<KeyPlace> {
        let info = rng.choice(map.buckets.values())?;
        // One of `keys_of`, of which there may be a thousand: none of the others is made.
        let (levels, keys) = (levels_of(info), self.setting.keys);
        let collections = || info.manifest.scopes.iter().flat_map(|scope| &scope.collections);
        let count = collections().count() * levels.len() * keys;
        let at = if count == 0 { return None } else { rng.usize(0..count) };
        let (level, number) = (levels[at / keys % levels.len()], at % keys);
        let collection = collections().nth(at / keys / levels.len())?;
        let key = key_of(collection.id, level, number, self.generation);
        Some(KeyPlace { bucket: info.uuid.clone(), vb: vb_of(info, &key), key, level })
    }

    /// The document under every key that counts.
    pub(crate) fn find_all(&self, metadata: &Metadata, find: Find<'_>) -> Vec<Found> {
        let mut all = Vec::new();
        for info in metadata.buckets.values() {
            let generations = self.kept..=self.generation;
            let keys = generations.flat_map(|generation| {
                let keys = self.keys_of(info, generation).into_iter();
                keys.map(move |(level, key)| (level, vb_of(info, &key), key, generation))
            });
            for (level, vb, key, generation) in keys {
                if self.is_kept(&info.uuid, vb, generation) {
                    let value = find(info, vb, &key);
                    all.push(Found { bucket: info.uuid.clone(), level, key, value });
                }
            }
        }
        all
    }

    /// Somebody has read all that.
    pub(crate) fn note_found(&mut self, all: Vec<Found>, invariants: &mut Invariants) {
        for Found { bucket, level, key, value } in all {
            let (called, returned) = (self.next_moment(), self.next_moment());
            let place = (&bucket, &key[..], level);
            invariants.histories.note(place, (called, Some(returned)), Did::Read(value));
        }
    }
}

/// A touch is a write of this cluster.
fn next_read(is_foreign: bool, rng: &mut Rng) -> Operation {
    match rng.u8(0..12) {
        0 if !is_foreign => Operation::Touch,
        1 => Operation::Lock,
        2 | 3 => Operation::Look,
        _ => Operation::Read,
    }
}

/// The levels at which keys of a bucket are written, the most durable one last.
fn levels_of(info: &BucketInfo) -> &'static [DurabilityLevel] {
    if info.kind == BucketKind::Couchbase { &LEVELS } else { &LEVELS[..2] }
}

fn collections_of(info: &BucketInfo) -> Vec<CollectionId> {
    let collections = info.manifest.scopes.iter().flat_map(|scope| &scope.collections);
    collections.map(|collection| collection.id).collect()
}

/// Encoded.
fn key_of(collection: CollectionId, level: DurabilityLevel, number: usize, generation: u64) -> Vec<u8> {
    let logical = format!("{level:?}.{number}.{generation}");
    let mut encoded = Vec::new();
    encode_key(collection, logical.as_bytes(), &mut encoded).expect("a short key");
    encoded
}

pub(crate) fn vb_of(info: &BucketInfo, key: &[u8]) -> VbId {
    vbucket_of(DocKey::trusted(key).logical(), info.vbuckets)
}

/// The node that a map says.
fn home(map: &Metadata, request: &Request) -> Option<NodeId> {
    let (_, info) = map.bucket_by_uuid(&request.bucket)?;
    info.manifest.collection(DocKey::trusted(&request.key).collection())?;
    info.vbs.get(usize::from(request.vb.get()))?.chain.first().copied()
}
