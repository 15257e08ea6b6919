//! What a bucket should be: a plain map, with every rule written down a second time, in the simplest way.
//!
//! The model predicts the answer of every operation. What it cannot know (the CAS a mutation gets) it takes from the
//! answer and checks against what it must be (above every CAS before). Mutations are logged per vBucket, so
//! that after a crash the model can become what it was at the seqno that the disk has kept.

use std::collections::BTreeMap;

use base::{
    Cas, CollectionId, DocKey, Now, Seqno, Status, VbId, bucket::DurabilityLevel, hash::vbucket_of, limits,
};
use settee_engine::{Counter, Expiry, Mutated, Store, StoreMode, WithMeta};

pub(crate) type Key = Vec<u8>;

/// A revision that has not been seen yet.
pub(crate) const UNKNOWN: u64 = 0;

/// A document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doc {
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    pub(crate) cas: Cas,
    pub(crate) rev: u64,
}

/// The newest version of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Version {
    Doc(Doc),
    /// `at`: when, in Unix seconds.
    Tombstone {
        cas: Cas,
        rev: u64,
        at: u32,
    },
}

/// What kind of mutation happened, for the log.
#[derive(Clone, Debug)]
struct Logged {
    vb: VbId,
    seqno: Seqno,
    key: Key,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Lock {
    cas: Cas,
    until_millis: u64,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct Model {
    versions: BTreeMap<Key, Version>,
    /// What is surely on disk, and what happened since.
    synced: BTreeMap<Key, Version>,
    log: Vec<Logged>,
    locks: BTreeMap<Key, Lock>,
    /// Durable writes in progress: the prepare's seqno and what it becomes.
    pending: BTreeMap<Key, (Seqno, Version)>,
    pub(crate) last_cas: BTreeMap<VbId, Cas>,
    pub(crate) last_seqno: BTreeMap<VbId, Seqno>,
    pub(crate) collections: Vec<CollectionId>,
}

fn is_due(expiry: u32, now: Now) -> bool {
    expiry != 0 && expiry < now.unix_secs()
}

impl Model {
    pub(crate) fn version(&self, key: &[u8]) -> Option<&Version> {
        self.versions.get(key)
    }

    fn check_collection(&self, key: &[u8]) -> Result<(), Status> {
        let known = self.collections.contains(&DocKey::trusted(key).collection());
        if known { Ok(()) } else { Err(Status::UnknownCollection) }
    }

    /// The document that writers see.
    fn live(&self, key: &[u8], now: Now) -> Option<&Doc> {
        match self.versions.get(key) {
            Some(Version::Doc(doc)) if !is_due(doc.expiry, now) => Some(doc),
            _ => None,
        }
    }

    /// The document that readers see.
    fn shown(&self, key: &[u8], now: Now) -> Option<&Doc> {
        self.live(key, now)
    }

    pub(crate) fn is_pending(&self, key: &[u8]) -> bool {
        self.pending.contains_key(key)
    }

    fn lock_of(&self, key: &[u8], now: Now) -> Option<Cas> {
        self.live(key, now)?;
        self.locks.get(key).filter(|lock| now.mono_millis < lock.until_millis).map(|lock| lock.cas)
    }

    /// The CAS of the lock somebody may hold on a key.
    pub(crate) fn lock_cas(&self, key: &[u8], now: Now) -> Option<Cas> {
        self.lock_of(key, now)
    }

    pub(crate) fn get(&self, key: &[u8], now: Now) -> Result<Doc, Status> {
        self.check_collection(key)?;
        let mut doc = self.shown(key, now).cloned().ok_or(Status::KeyNotFound)?;
        if self.lock_of(key, now).is_some() {
            doc.cas = Cas::LOCKED;
        }
        Ok(doc)
    }

    fn writable(&self, key: &[u8]) -> Result<(), Status> {
        self.check_collection(key)?;
        if self.is_pending(key) { Err(Status::SyncWriteInProgress) } else { Ok(()) }
    }

    /// As [`Model::writable`], for what needs a document: one that is only being created is not there.
    fn changeable(&self, key: &[u8], absent: Option<Status>, now: Now) -> Result<(), Status> {
        self.check_collection(key)?;
        match absent {
            Some(absent) if self.is_pending(key) && self.shown(key, now).is_none() => Err(absent),
            _ => self.writable(key),
        }
    }

    fn check_cas(&self, key: &[u8], doc: &Doc, cas: Cas, now: Now) -> Result<(), Status> {
        match self.lock_of(key, now) {
            Some(lock) if lock == cas => Ok(()),
            Some(_) => Err(Status::Locked),
            None if cas != Cas::NONE && cas != doc.cas => Err(Status::KeyExists),
            None => Ok(()),
        }
    }

    /// What a store would leave, but for CAS and revision.
    pub(crate) fn store(&self, key: &[u8], store: &Store<'_>, now: Now) -> Result<Doc, Status> {
        let absent = match store.mode {
            StoreMode::Set | StoreMode::Add => None,
            StoreMode::Replace => Some(Status::KeyNotFound),
            StoreMode::Append | StoreMode::Prepend => Some(Status::NotStored),
        };
        self.changeable(key, absent, now)?;
        let old = self.live(key, now);
        let (wire, preserve) = match store.expiry {
            Expiry::Wire(wire) => (wire, false),
            Expiry::Preserve(wire) => (wire, true),
        };
        let fresh = Doc {
            value: store.value.to_vec(),
            flags: store.flags,
            expiry: now.absolute_expiry(wire),
            cas: Cas::NONE,
            rev: 0,
        };
        let Some(old) = old else {
            return match store.mode {
                StoreMode::Replace => Err(Status::KeyNotFound),
                StoreMode::Append | StoreMode::Prepend => Err(Status::NotStored),
                _ if store.cas != Cas::NONE => Err(Status::KeyNotFound),
                StoreMode::Set | StoreMode::Add => Ok(fresh),
            };
        };
        if store.mode == StoreMode::Add {
            return Err(Status::KeyExists);
        }
        self.check_cas(key, old, store.cas, now)?;
        Ok(match store.mode {
            StoreMode::Append => Doc { value: [&old.value, store.value].concat(), ..old.clone() },
            StoreMode::Prepend => Doc { value: [store.value, &old.value].concat(), ..old.clone() },
            _ if preserve => Doc { expiry: old.expiry, ..fresh },
            _ => fresh,
        })
    }

    pub(crate) fn delete(&self, key: &[u8], cas: Cas, now: Now) -> Result<(), Status> {
        self.writable(key)?;
        let old = self.live(key, now).ok_or(Status::KeyNotFound)?;
        self.check_cas(key, old, cas, now)
    }

    pub(crate) fn counter(&self, key: &[u8], counter: &Counter, now: Now) -> Result<(u64, Doc), Status> {
        self.changeable(key, counter.initial.is_none().then_some(Status::KeyNotFound), now)?;
        let Some(old) = self.live(key, now) else {
            let initial = counter.initial.ok_or(Status::KeyNotFound)?;
            if counter.cas != Cas::NONE {
                return Err(Status::KeyNotFound);
            }
            let Expiry::Wire(wire) = counter.expiry else { panic!("the tests give an expiry") };
            let value = initial.to_string().into_bytes();
            let expiry = now.absolute_expiry(wire);
            return Ok((initial, Doc { value, flags: 0, expiry, cas: Cas::NONE, rev: 0 }));
        };
        self.check_cas(key, old, counter.cas, now)?;
        let text = std::str::from_utf8(&old.value).map_err(|_| Status::DeltaBadValue)?;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 =
            text.parse().ok().filter(|_| is_number && text.len() <= 20).ok_or(Status::DeltaBadValue)?;
        let number = if counter.decrement {
            number.saturating_sub(counter.delta)
        } else {
            number.wrapping_add(counter.delta)
        };
        Ok((number, Doc { value: number.to_string().into_bytes(), ..old.clone() }))
    }

    /// The document a touch leaves, and whether it changes anything.
    pub(crate) fn touch(&self, key: &[u8], wire: u32, now: Now) -> Result<(Doc, bool), Status> {
        self.writable(key)?;
        let old = self.live(key, now).ok_or(Status::KeyNotFound)?;
        if self.lock_of(key, now).is_some() {
            return Err(Status::Locked);
        }
        let expiry = now.absolute_expiry(wire);
        Ok((Doc { expiry, ..old.clone() }, expiry != old.expiry))
    }

    pub(crate) fn lock(&self, key: &[u8], now: Now) -> Result<Doc, Status> {
        self.writable(key)?;
        let old = self.live(key, now).ok_or(Status::KeyNotFound)?;
        if self.lock_of(key, now).is_some() { Err(Status::Locked) } else { Ok(old.clone()) }
    }

    pub(crate) fn locked(&mut self, key: &[u8], cas: Cas, secs: u32, now: Now) {
        let secs = if secs == 0 || secs > limits::LOCK_SECS_MAX { limits::LOCK_SECS_DEFAULT } else { secs };
        let until_millis = now.mono_millis + u64::from(secs) * 1_000;
        self.locks.insert(key.to_vec(), Lock { cas, until_millis });
    }

    pub(crate) fn unlock(&mut self, key: &[u8], cas: Cas, now: Now) -> Result<(), Status> {
        self.writable(key)?;
        self.live(key, now).ok_or(Status::KeyNotFound)?;
        match self.lock_of(key, now) {
            None => Err(Status::NotLocked),
            Some(lock) if lock != cas => Err(Status::Locked),
            Some(_) => {
                self.locks.remove(key);
                Ok(())
            }
        }
    }

    /// Whether a with-meta write is accepted (revision-based resolution). The key's version must be exactly known.
    pub(crate) fn with_meta(
        &self,
        key: &[u8],
        with_meta: &WithMeta<'_>,
        is_deletion: bool,
        now: Now,
    ) -> Result<(), Status> {
        self.writable(key)?;
        let wins = match self.versions.get(key) {
            _ if with_meta.skip_conflict_resolution => true,
            None => true,
            Some(Version::Doc(old)) if is_deletion => (with_meta.rev, with_meta.cas) > (old.rev, old.cas),
            Some(Version::Doc(old)) => {
                (with_meta.rev, with_meta.cas, with_meta.expiry, with_meta.flags)
                    > (old.rev, old.cas, old.expiry, old.flags)
            }
            // The tests use CAS values that are not equal by chance.
            Some(Version::Tombstone { cas, rev, .. }) => (with_meta.rev, with_meta.cas) > (*rev, *cas),
        };
        if !wins {
            return Err(Status::KeyExists);
        }
        let live = self.live(key, now);
        if with_meta.add_only && live.is_some() {
            return Err(Status::KeyExists);
        }
        match live {
            Some(doc) => self.check_cas(key, doc, with_meta.check_cas, now),
            None if with_meta.check_cas != Cas::NONE => Err(Status::KeyNotFound),
            None => Ok(()),
        }
    }

    /// A mutation has happened.
    pub(crate) fn mutated(
        &mut self,
        vb: VbId,
        key: &[u8],
        version: Version,
        mutated: &Mutated,
        level: DurabilityLevel,
    ) {
        let last = self.last_seqno.entry(vb).or_default();
        assert!(mutated.seqno > *last, "seqnos grow: {} after {last}", mutated.seqno);
        *last = mutated.seqno;
        assert_eq!(mutated.wait, level.needs_disk());
        if mutated.wait {
            self.pending.insert(key.to_vec(), (mutated.seqno, version.clone()));
        } else {
            self.versions.insert(key.to_vec(), version.clone());
        }
        self.locks.remove(key);
        self.log.push(Logged { vb, seqno: mutated.seqno, key: key.to_vec(), version });
    }

    /// A CAS was given out that must be new.
    pub(crate) fn new_cas(&mut self, vb: VbId, cas: Cas) {
        let last = self.last_cas.entry(vb).or_default();
        assert!(cas > *last, "CAS values grow: {cas} after {last}");
        *last = cas;
    }

    /// A CAS from elsewhere was stored.
    pub(crate) fn foreign_cas(&mut self, vb: VbId, cas: Cas) {
        let last = self.last_cas.entry(vb).or_default();
        *last = cas.max(*last);
    }

    /// The bucket says that a key (expired, or deleted by it) has this tombstone, or none.
    pub(crate) fn adopt(&mut self, key: &[u8], tombstone: Option<(Cas, u64, u32)>) {
        match tombstone {
            Some((cas, rev, at)) => self.versions.insert(key.to_vec(), Version::Tombstone { cas, rev, at }),
            None => self.versions.remove(key),
        };
    }

    /// A document's revision has been seen.
    pub(crate) fn learn_rev(&mut self, key: &[u8], seen: u64) {
        if let Some(Version::Doc(doc)) = self.versions.get_mut(key) {
            doc.rev = seen;
        }
    }

    /// A vBucket is on disk up to a seqno.
    pub(crate) fn persisted(&mut self, vb: VbId, seqno: Seqno) {
        for entry in self.log.extract_if(.., |entry| entry.vb == vb && entry.seqno <= seqno) {
            self.synced.insert(entry.key.clone(), entry.version);
            if self.pending.get(&entry.key).is_some_and(|pending| pending.0 == entry.seqno)
                && let Some((_, version)) = self.pending.remove(&entry.key)
            {
                self.versions.insert(entry.key, version);
            }
        }
    }

    /// Durable writes in progress were aborted.
    pub(crate) fn timed_out(&mut self) {
        for (key, (seqno, _)) in std::mem::take(&mut self.pending) {
            self.log.retain(|entry| entry.seqno != seqno || entry.key != key);
        }
    }

    /// Power was lost (a prepare that was synced is committed then); `recovered` tells the seqno each vBucket came back with.
    pub(crate) fn crashed(&mut self, recovered: impl Fn(VbId) -> Seqno) {
        self.versions = self.synced.clone();
        for entry in std::mem::take(&mut self.log) {
            if entry.seqno <= recovered(entry.vb) {
                self.versions.insert(entry.key, entry.version);
            }
        }
        self.synced = self.versions.clone();
        self.locks.clear();
        self.pending.clear();
        for (vb, seqno) in &mut self.last_seqno {
            *seqno = recovered(*vb);
        }
    }

    /// A vBucket was emptied.
    pub(crate) fn emptied(&mut self, vb: VbId, vbuckets: u16) {
        let gone = |key: &Key| vbucket_of(DocKey::trusted(key).logical(), vbuckets) == vb;
        self.forget(gone);
        self.last_seqno.remove(&vb);
    }

    fn forget(&mut self, gone: impl Fn(&Key) -> bool) {
        self.versions.retain(|key, _| !gone(key));
        self.synced.retain(|key, _| !gone(key));
        self.log.retain(|entry| !gone(&entry.key));
        self.locks.retain(|key, _| !gone(key));
        self.pending.retain(|key, _| !gone(key));
    }

    /// A collection is gone.
    pub(crate) fn drop_collection(&mut self, id: CollectionId) {
        self.collections.retain(|other| *other != id);
        self.forget(|key| DocKey::trusted(key).collection() == id);
    }

    /// Keys of all documents that exist.
    pub(crate) fn keys(&self, now: Now) -> impl Iterator<Item = &Key> {
        self.versions.keys().filter(move |key| self.live(key, now).is_some())
    }
}
