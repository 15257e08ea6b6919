//! Durable writes between their prepare and what becomes of it.
//!
//! A durable write that has to wait makes a *prepare*. That is an item with a seqno of its own, which is queued like
//! any mutation but does not enter the table. Readers go on seeing the version in the table. Other writers of the key
//! are told that a write is in progress. The prepare is *committed* when enough copies hold it
//! ([`crate::vbucket::chains`]), this one synced if the level asks for it. Then the version enters the table, under the
//! next seqno and the prepare's CAS, as an ordinary mutation. If its time is up first it is *aborted*: an abort is
//! queued instead, and nobody ever sees the version. The active decides once which of the two it is, under the
//! vBucket's lock: the acknowledgement or the deadline that comes first. It makes no difference whether a client still
//! waits for the answer. Prepares are committed in their own order. Before another node takes over, the active begins
//! no new ones, so the open ones end here ([`crate::Bucket::drain`]).
//!
//! A replica holds the prepares that it is told of until it is told what became of them. When it becomes the active, those
//! that are open may have been acknowledged: they need a majority again, and are never aborted. Until they have
//! one their keys cannot be read ([`Prepares::may_be_visible`]): clients may have been told that they are written. The same goes for
//! those that a restart finds; where one copy is a majority, they are committed before anything is served. So a write that
//! was answered as ambiguous can still appear then.
//!
//! The end of a collection ends what is in progress in it, on every copy alike. That happens at the event that tells of the end,
//! which is never left out of what a copy is told ([`close_prepares_in`](crate::vbucket::VBucket::close_prepares_in)). Everything
//! else of a dropped collection, prepares and aborts too, may be left out from then on. The next active copy may never have heard
//! of it.
//!
//! A prepare that a restart cannot read is neither: its key is unreadable until it is written again
//! ([`Prepares::is_damaged`]).

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{DocKey, HashedKey, Now, Seqno, bucket::DurabilityLevel};
use storage::{Locator, RecordKind};

use crate::{
    api::notify::Waiter,
    memory::{
        item::{ItemMeta, ItemPtr, ItemRef, NewItem},
        item_kind::{kind_of, set_kind},
        key_map::KeyMap,
    },
    shard::Env,
};

/// How long a durable write may take when nobody says (kv_engine's default).
pub(crate) const TIMEOUT_MILLIS: u64 = 30_000;
/// Commits per lock hold.
pub(crate) const COMMIT_ITEMS: usize = 64;
/// Aborts per lock hold.
pub(crate) const ABORT_ITEMS: usize = 256;
/// Outcomes that nobody has asked for are kept this long, once there are more than so many; and never more than the most.
/// A client that asks for one that is forgotten is told that it is ambiguous.
const OUTCOME_MILLIS: u64 = 60_000;
const OUTCOMES_KEPT: usize = 256;
const OUTCOMES_MAX: usize = 16_384;

/// One durable write that is in progress.
#[derive(Debug)]
pub(crate) struct Prepare {
    pub(crate) item: ItemPtr,
    pub(crate) seqno: Seqno,
    pub(crate) level: DurabilityLevel,
    /// Nobody has been the active but this node since it was made: it may be aborted.
    pub(crate) is_own: bool,
    /// When its time is up, in monotonic milliseconds.
    pub(crate) deadline: u64,
    pub(crate) waiter: Option<Waiter>,
    /// Its key's document had been evicted and is lost to damage on disk: given up once this is committed.
    pub(crate) replaces_lost: bool,
}

impl Prepare {
    /// One that others may have acknowledged, and that nobody waits for here.
    pub(crate) fn new(item: ItemPtr, seqno: Seqno, level: DurabilityLevel) -> Self {
        Self { item, seqno, level, is_own: false, deadline: u64::MAX, waiter: None, replaces_lost: false }
    }
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a version of its key, with this seqno.
    Committed(Seqno),
    /// It is none; or this copy was not told what it became.
    Aborted,
}

/// A vBucket's durable writes in progress, and what those before them became.
#[derive(Debug, Default)]
pub(crate) struct Prepares {
    pub(crate) open: KeyMap<Prepare>,
    /// Those by their seqno: the hash of the key.
    pub(crate) order: BTreeMap<Seqno, u64>,
    /// By the prepare's seqno, with the time; kept until the writer of the prepare has asked.
    pub(crate) outcomes: BTreeMap<Seqno, (Outcome, u64)>,
    /// From here on there may be prepares that cannot be read: what is completed is not told beyond it.
    pub(crate) damaged_from: Option<Seqno>,
}

impl Prepares {
    /// Whether a durable write of the key is in progress.
    #[inline]
    pub(crate) fn contains(&self, key: HashedKey<'_>) -> bool {
        self.open.get(key.hash, key.key.encoded()).is_some()
    }

    /// Whether a durable write of the key is in progress that another node may have committed, and answered. The key's
    /// value is not known before the write is committed here. As in Couchbase, such a prepare may be visible already.
    #[inline]
    pub(crate) fn may_be_visible(&self, key: HashedKey<'_>) -> bool {
        self.open.get(key.hash, key.key.encoded()).is_some_and(|prepare| !prepare.is_own)
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes of the structure itself.
    pub(crate) fn bytes(&self) -> usize {
        let order = self.order.len() * size_of::<(Seqno, u64)>();
        self.open.bytes() + order + self.outcomes.len() * size_of::<(Seqno, (Outcome, u64))>()
    }

    /// The first that is still in progress.
    pub(crate) fn first(&self) -> Option<Seqno> {
        self.order.first_key_value().map(|entry| *entry.0)
    }

    /// Whether there is one that cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged_from.is_some()
    }

    /// Up to which seqno at most every prepare can be read.
    pub(crate) fn readable(&self) -> Seqno {
        self.damaged_from.map_or(Seqno(u64::MAX), |from| Seqno(from.get().saturating_sub(1)))
    }

    /// A reference to one that is in progress.
    pub(crate) fn hold(&self, env: &Env<'_>, seqno: Seqno) -> Option<ItemPtr> {
        env.shard.item(&self.at(seqno)?.item).hold()
    }

    /// The key of one that is in progress.
    pub(crate) fn key_of<'a>(&'a self, env: &Env<'a>, seqno: Seqno) -> Option<DocKey<'a>> {
        Some(DocKey::trusted(env.shard.item(&self.at(seqno)?.item).key()))
    }

    /// All that are in progress, in no particular order.
    pub(crate) fn items(&self) -> impl Iterator<Item = &ItemPtr> {
        self.open.values().map(|prepare| &prepare.item)
    }

    /// If one of a level is in progress above a seqno: the seqno before the first such. Whether those before it are still
    /// in progress makes no difference: completed ones are held as well.
    pub(crate) fn held_before(&self, level: DurabilityLevel, above: Seqno) -> Option<Seqno> {
        let mut later = self.order.range((Bound::Excluded(above), Bound::Unbounded)).map(|entry| *entry.0);
        let first = later.find(|&seqno| self.at(seqno).is_some_and(|prepare| prepare.level == level))?;
        Some(Seqno(first.get().saturating_sub(1)))
    }

    /// Whether one that has to be on disk is in progress above a seqno, and not above another one.
    pub(crate) fn has_for_disk(&self, above: Seqno, to: Seqno) -> bool {
        let mut between = self.order.range((Bound::Excluded(above), Bound::Included(to)));
        between.any(|(&seqno, _)| self.at(seqno).is_some_and(|prepare| prepare.level.needs_disk()))
    }

    /// Another node may have acknowledged any of them, or will.
    pub(crate) fn disown(&mut self) {
        let seqnos: Vec<_> = self.order.values().copied().collect();
        for hash in seqnos {
            if let Some(prepare) = self.open.by_hash_mut(hash) {
                prepare.is_own = false;
            }
        }
    }

    /// Takes out who waits for them.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waiter> {
        let hashes: Vec<_> = self.order.values().copied().collect();
        let waiter = |hash| self.open.by_hash_mut(hash)?.waiter.take();
        hashes.into_iter().filter_map(waiter).collect()
    }

    pub(crate) fn at(&self, seqno: Seqno) -> Option<&Prepare> {
        self.open.by_hash(*self.order.get(&seqno)?)
    }

    pub(crate) fn insert(&mut self, key: HashedKey<'_>, prepare: Prepare) {
        self.order.insert(prepare.seqno, key.hash);
        // There is room for it: asked before.
        let _ = self.open.insert(key, prepare);
    }

    /// The write in progress of a key is going to replace a document that is lost.
    pub(crate) fn replaces_lost(&mut self, key: HashedKey<'_>) {
        if let Some(prepare) = self.open.get_mut(key.hash, key.key.encoded()) {
            prepare.replaces_lost = true;
        }
    }

    /// Takes one out: it has become something.
    pub(crate) fn close(&mut self, seqno: Seqno, outcome: Outcome, now: Now) -> Option<Prepare> {
        let hash = self.order.remove(&seqno)?;
        // From the oldest on: their number is not to be paid for by each that comes.
        while self.outcomes.len() >= OUTCOMES_KEPT
            && let Some(oldest) = self.outcomes.first_entry()
        {
            let is_recent = now.mono_millis < oldest.get().1.saturating_add(OUTCOME_MILLIS);
            if is_recent && self.outcomes.len() < OUTCOMES_MAX {
                break;
            }
            self.outcomes.pop_first();
        }
        self.outcomes.insert(seqno, (outcome, now.mono_millis));
        self.open.remove_by_hash(hash)
    }

    /// Forgets everything. Returns what to release and whom to wake.
    pub(crate) fn clear(&mut self) -> Vec<(ItemPtr, Option<Waiter>)> {
        self.order.clear();
        self.outcomes.clear();
        self.damaged_from = None;
        self.open.extract(|_| true).into_iter().map(|prepare| (prepare.item, prepare.waiter)).collect()
    }
}

/// The version that a prepare becomes; `None` when there is no memory for it.
pub(crate) fn version_of<'e>(env: &Env<'e>, prepare: ItemRef<'_>) -> Option<NewItem<'e>> {
    let meta = ItemMeta { locator: Locator::NONE, ..prepare.meta() };
    let mut new = NewItem::new(&env.shard.arena, &meta, prepare.key(), prepare.value())?;
    set_kind(&mut new, becomes(kind_of(prepare)));
    Some(new)
}

/// What a key's version is once this is committed.
pub(crate) fn becomes(prepare: RecordKind) -> RecordKind {
    match prepare {
        RecordKind::PreparedDeletion(_) => RecordKind::Deletion,
        _ => RecordKind::Document,
    }
}

/// The prepare that an abort is about.
pub(crate) fn aborted(value: &[u8]) -> Seqno {
    Seqno(value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_names_its_prepare() {
        assert_eq!(aborted(&77_u64.to_le_bytes()), Seqno(77));
        assert_eq!(aborted(b"short"), Seqno(0));
    }

    #[test]
    fn outcomes_that_nobody_asks_for_do_not_pile_up() {
        let mut prepares = Prepares::default();
        for n in 0..10 * OUTCOMES_KEPT as u64 {
            let now = Now { wall_nanos: 0, mono_millis: n * 1000 };
            prepares.outcomes.insert(Seqno(n), (Outcome::Aborted, now.mono_millis));
            prepares.order.insert(Seqno(n), n);
            prepares.close(Seqno(n), Outcome::Aborted, now);
            let kept = prepares.outcomes.len();
            assert!(kept <= OUTCOMES_KEPT + 1, "{kept}");
        }
    }

    #[test]
    fn nor_do_those_of_clients_that_never_stay_for_the_answer() {
        let mut prepares = Prepares::default();
        let now = Now { wall_nanos: 0, mono_millis: 1 };
        for n in 0..2 * OUTCOMES_MAX as u64 {
            prepares.order.insert(Seqno(n), n);
            prepares.close(Seqno(n), Outcome::Aborted, now);
        }
        assert_eq!(prepares.outcomes.len(), OUTCOMES_MAX);
        assert!(prepares.outcomes.contains_key(&Seqno(2 * OUTCOMES_MAX as u64 - 1)), "the newest stay");
    }
}
