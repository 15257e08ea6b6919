//! The bucket: opening it, changing its settings and manifest, emptying and closing it, and the way to its vBuckets.
//!
//! What clients do to documents is in [`crate::client::ops`]. What happens in the background is in the module named after
//! it: `flusher`, `bg_fetcher`, `warmup`, `expiry_pager`, `item_pager`, `compactor`. Both are further methods of
//! [`Bucket`].

pub(crate) mod admission;
mod durable_writes;
pub(crate) mod hot_list;
mod manifest;
mod memory;
mod missed_events;
pub(crate) mod pagers;
pub(crate) mod quota;
pub(crate) mod settings;
mod shortage;
mod space;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use base::{
    Cas, CollectionId, Manifest, Now, Seqno, Status, VbId, VbRole, VbUuid,
    bucket::{BucketKind, CompressionMode},
    limits,
};
use parking_lot::Mutex;
use storage::{KvStore, StoreError, VbState};

use crate::{
    api::{
        notify::{Notifier, Wait, Waiter},
        options::{BucketChange, BucketOptions, OpenError},
        stats::{Budget, StepReport},
    },
    bucket::{
        hot_list::HotKeys,
        pagers::{ExpiryPager, ItemPager},
        settings::Settings,
    },
    history::{places::Readers, scans::Scans},
    memory::{
        arena::Arena,
        defragmenter::{Defragmenter, Relocated},
    },
    pressure::{gatekeeper::Gatekeeper, pools::Pools, room::usable},
    shard::{Counters, Env, Gate, Shard, ceiling, deferred::DeferredEffects, failures, place_of},
    vbucket::{
        VBucket,
        collections::CollectionTable,
        failover_table::{FailoverTable, branch_uuid, mix},
        hlc::Hlc,
        slot::{Home, RoleState, Slot},
        warming::Warming,
    },
};

/// Where so many wait for a vBucket's persistence, they are asked whether they still do. A connection that is closed says nothing.
const WAITERS_SWEPT: usize = 1024;
/// But no more often than this: each of them that is still there comes back, and must not be what the others are asked for.
const SWEPT_EVERY_MILLIS: u64 = 1_000;

/// One bucket on this node. Shared between the data-plane loops and the background threads.
pub struct Bucket {
    pub(crate) options: BucketOptions,
    pub(crate) settings: Settings,
    pub(crate) collections: ArcSwap<CollectionTable>,
    /// Held while the manifest changes, and by a thread that compares it with what a vBucket has been told.
    pub(crate) manifest_changes: Mutex<()>,
    /// Held while roles of vBuckets change.
    pub(crate) role_changes: Mutex<()>,
    pub(crate) shards: Box<[Shard]>,
    slots: Box<[Slot]>,
    /// Role and term of each vBucket, side by side: many look through all of them, and slots lie a page apart.
    pub(crate) role_states: Box<[RoleState]>,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) expiry_pager: Mutex<ExpiryPager>,
    pub(crate) item_pager: Mutex<ItemPager>,
    pub(crate) hot_keys: Mutex<HotKeys>,
    /// The pager has been called and has not brought memory below the low watermark since.
    pub(crate) pager_called: AtomicBool,
    /// What is read for feeds, by shard.
    pub(crate) readers: Box<[Readers]>,
    pub(crate) range_scans: Arc<Scans>,
    pub(crate) errors: MemoryErrors,
    pub(crate) gatekeeper: Gatekeeper,
    /// Memory of no shard.
    pub(crate) pools: Pools,
    /// Cursors of feeds and gatherings, all vBuckets'.
    pub(crate) cursors: AtomicUsize,
}

/// Mutations refused for want of memory; off the hot path.
#[derive(Debug, Default)]
pub(crate) struct MemoryErrors {
    pub(crate) temporary: AtomicU64,
    pub(crate) out_of_memory: AtomicU64,
}

impl Bucket {
    /// Opens a bucket over its stores, one per shard; none for memory-only kinds.
    ///
    /// Returns quickly whatever the data set: documents are loaded by [`Bucket::warm_up`] and meanwhile fetched
    /// on demand.
    ///
    /// # Errors
    /// When an option is out of range or a store refuses the synced metadata that must precede serving.
    pub fn open(
        options: BucketOptions,
        stores: Vec<Arc<dyn KvStore>>,
        manifest: Arc<Manifest>,
        notifier: Arc<dyn Notifier>,
        now: Now,
    ) -> Result<Arc<Bucket>, OpenError> {
        check(&options, stores.len())?;
        let mut stores = stores.into_iter();
        let mut shards = Vec::with_capacity(options.shards);
        let mut slots: Vec<Option<Slot>> = (0..options.vbuckets).map(|_| None).collect();
        let role_states: Box<[RoleState]> = (0..options.vbuckets).map(|_| RoleState::default()).collect();
        let mut recorded = Vec::with_capacity(options.shards);
        for index in 0..options.shards {
            let opened = open_shard(&options, index, stores.next(), &manifest, now);
            let (shard, vbuckets, before) = opened.inspect_err(|_| take_back(&recorded))?;
            recorded.extend(shard.store.clone().map(|store| (store, before)));
            for v in vbuckets {
                let number = usize::from(v.id.get());
                if let Some((place, role_state)) = slots.get_mut(number).zip(role_states.get(number)) {
                    role_state.set(v.role, v.term);
                    *place = Some(Slot { hint: v.table.hint(), vb: Mutex::new(v) });
                }
            }
            shards.push(shard);
        }
        let memory_max = shards.iter().map(|shard| usable(shard.arena.reserve_bytes())).sum();
        let settings = Settings::new(&options, memory_max);
        let bucket = Bucket {
            settings,
            collections: ArcSwap::from_pointee(CollectionTable::new(manifest.clone())),
            manifest_changes: Mutex::default(),
            role_changes: Mutex::default(),
            shards: shards.into(),
            slots: slots.into_iter().flatten().collect(),
            role_states,
            notifier,
            expiry_pager: Mutex::default(),
            item_pager: Mutex::default(),
            hot_keys: Mutex::default(),
            pager_called: AtomicBool::new(false),
            readers: (0..options.shards).map(|_| Readers::default()).collect(),
            range_scans: Arc::new(Scans::new(options.shards)),
            errors: MemoryErrors::default(),
            gatekeeper: Gatekeeper::default(),
            pools: Pools::default(),
            cursors: AtomicUsize::new(0),
            options,
        };
        for shard in &bucket.shards {
            bucket.recover_prepares(shard)?;
            bucket.commit_recovered(shard, now)?;
        }
        bucket.set_copies(bucket.options.replicas);
        for vb in (0..bucket.vbuckets()).map(VbId) {
            let Ok((slot, shard)) = bucket.slot(vb) else { continue };
            let env = Env { shard, kind: bucket.options.kind, now };
            let mut deferred = bucket.deferred(shard);
            let mut v = slot.vb.lock();
            if v.warming.is_none() && v.role == VbRole::Active {
                v.catch_up(&env, &[], &manifest, &mut deferred);
            }
        }
        Ok(Arc::new(bucket))
    }

    /// Where this node alone is served, what a crash left prepared is committed before anything is.
    fn commit_recovered(&self, shard: &Shard, now: Now) -> Result<(), OpenError> {
        for vb in self.vbs_of(shard) {
            let Ok((slot, _)) = self.slot(vb) else { continue };
            let left = || {
                let v = slot.vb.lock();
                if v.role == VbRole::Active { v.pending.len() } else { 0 }
            };
            if left() > 0 {
                self.complete_prepares(slot, shard, now);
            }
            if left() > 0 {
                return Err(StoreError::Invalid("no memory for what was prepared").into());
            }
        }
        Ok(())
    }

    /// The name it was opened with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Whether values are compressed on their way to other nodes.
    #[must_use]
    pub fn compression(&self) -> CompressionMode {
        self.settings.compression()
    }

    /// The kind it was opened with.
    #[must_use]
    pub fn kind(&self) -> BucketKind {
        self.options.kind
    }

    /// How many vBuckets it has.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.options.vbuckets
    }

    /// How many shards its steps come in.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.options.shards
    }

    /// Changes settings of the running bucket.
    pub fn reconfigure(&self, change: BucketChange) {
        self.settings.change(&change);
        change.replicas.into_iter().for_each(|replicas| self.set_copies(replicas));
    }

    /// The collections manifest in force.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.collections.load().manifest().clone()
    }

    /// Empties the bucket: every vBucket starts a new history under a new uuid.
    ///
    /// # Errors
    /// `TemporaryFailure` when a store could not record it: the shards before it are empty, the others unchanged.
    pub fn flush_all(&self, now: Now) -> Result<(), Status> {
        let _manifest_stays = self.manifest_changes.lock();
        let manifest = self.manifest();
        for shard in &self.shards {
            let env = Env { shard, kind: self.options.kind, now };
            // Keeps the flusher away: what it has taken belongs to the history that ends here.
            let flusher = shard.flusher.lock();
            let uuids: Vec<_> = self.vbs_of(shard).map(|vb| (vb, self.uuid_after_reset(vb, now))).collect();
            if let Some(store) = &shard.store {
                let states: Vec<_> = uuids
                    .iter()
                    .map(|&(vb, uuid)| (vb, self.state_after_reset(shard, vb, uuid, now)))
                    .collect();
                store.reset_vbs(&states).map_err(|error| failures::refused(shard, &error))?;
            }
            for &(vb, uuid) in &uuids {
                let (slot, _) = self.slot(vb)?;
                let mut deferred = self.deferred(shard);
                // Declared before the lock, dropped after it.
                let _documents;
                let mut v = slot.vb.lock();
                _documents = v.reset(shard, uuid, &mut deferred);
                if v.role == VbRole::Active {
                    // The collections stay, and begin anew.
                    v.catch_up(&env, &[], &manifest, &mut deferred);
                }
            }
            drop(flusher);
        }
        Ok(())
    }

    /// The branch of a vBucket that begins anew: another than it has been on, also where the clock stands still.
    pub(crate) fn uuid_after_reset(&self, vb: VbId, now: Now) -> VbUuid {
        let before = self.slot(vb).map_or(VbUuid(0), |(slot, _)| slot.vb.lock().failover.uuid());
        branch_uuid(self.options.seed, vb.get(), now.wall_nanos ^ mix(before.0))
    }

    pub(crate) fn state_after_reset(&self, shard: &Shard, vb: VbId, uuid: VbUuid, now: Now) -> VbState {
        VbState {
            max_cas: shard.recorded_cas(vb, Cas::NONE, now),
            failover_log: FailoverTable::new(uuid).log().to_vec(),
            ..VbState::default()
        }
    }

    /// Brings the table line of a key towards the processor. Never faults; an unknown vBucket is ignored.
    #[inline]
    pub fn prefetch(&self, vb: VbId, hash: u64) {
        if let Ok((slot, shard)) = self.slot(vb) {
            slot.hint.prefetch(hash, &shard.arena);
        }
    }

    /// Second wave, once [`Bucket::prefetch`] has had time: the header of the item with a matching tag. Skipped when
    /// somebody is in the vBucket.
    #[inline]
    pub fn prefetch_item(&self, vb: VbId, hash: u64) {
        if let Ok((slot, _)) = self.slot(vb)
            && let Some(v) = slot.vb.try_lock()
        {
            v.table.prefetch_item(hash);
        }
    }

    /// `SEQNO_PERSISTENCE`: whether everything up to `seqno` is synced, and whole after a kill. A parked waiter is woken when it is, or
    /// when that has become impossible; call again to learn which.
    ///
    /// # Errors
    /// `NotMyVbucket`; `NotSupported` for memory-only buckets; `TemporaryFailure` when the shard cannot write.
    pub fn wait_persisted(&self, vb: VbId, seqno: Seqno, waiter: Waiter, now: Now) -> Result<Wait, Status> {
        let (slot, shard) = self.slot(vb)?;
        if shard.store.is_none() {
            return Err(Status::NotSupported);
        }
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        if v.synced_whole() >= seqno {
            return Ok(Wait::Ready);
        }
        shard.gate.admits_deletes()?;
        let is_due = now.mono_millis.saturating_sub(v.waiters_swept_at) >= SWEPT_EVERY_MILLIS;
        if is_due && v.persistence_waiters.len() >= WAITERS_SWEPT {
            v.waiters_swept_at = now.mono_millis;
            // Nobody says when they give up. Those of a seqno that does not exist, or of a full disk, may never be woken otherwise.
            v.persistence_waiters.drain(..).for_each(|entry| deferred.wake(entry.1));
        }
        v.persistence_waiters.push((seqno, waiter));
        deferred.flush();
        Ok(Wait::Parked)
    }

    /// Of every vBucket in one of these roles, the last seqno that is visible to clients. With a collection, it is the last
    /// seqno at which that collection changed.
    #[must_use]
    pub fn seqnos(&self, collection: Option<CollectionId>, roles: &[VbRole]) -> Vec<(VbId, Seqno)> {
        let of = |slot: &Slot| {
            let v = slot.vb.lock();
            let seqno = match collection {
                None => v.marks.visible,
                Some(id) => v.counts.collection(id).map_or(Seqno(0), |count| count.high_seqno),
            };
            roles.contains(&v.role).then_some((v.id, seqno))
        };
        self.slots.iter().filter_map(of).collect()
    }

    /// The last seqno at which a collection changed in a vBucket, as far as the documents loaded so far tell.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn collection_seqno(&self, vb: VbId, collection: CollectionId) -> Result<Seqno, Status> {
        let (slot, _) = self.slot(vb)?;
        let v = slot.vb.lock();
        Ok(v.counts.collection(collection).map_or(Seqno(0), |count| count.high_seqno))
    }

    /// Branches of a vBucket's history with the seqno each began at, newest first.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn failover_log(&self, vb: VbId) -> Result<Vec<(VbUuid, Seqno)>, Status> {
        let (slot, _) = self.slot(vb)?;
        Ok(slot.vb.lock().failover.log().to_vec())
    }

    /// Whether the disk has less space left than it should have. Mutations that grow are refused until it has more
    /// again, and compaction takes what it can get.
    pub fn set_disk_low(&self, low: bool) {
        self.shards.iter().for_each(|shard| shard.gate.set_low(low));
    }

    /// Whether it is being closed: nothing more is accepted, and steps under way had better end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shards.iter().any(|shard| shard.gate.is_closed())
    }

    /// Bytes that were accepted and are not on disk yet, roughly.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.gate.dirty_bytes()).sum()
    }

    /// Whether every shard has been loaded.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.shards.iter().all(|shard| shard.warm.load(Ordering::Acquire))
    }

    /// Moves documents out of sparsely used slabs so that these can be given back.
    pub fn defragment(&self, budget: Budget) -> StepReport {
        let mut report = StepReport::default();
        let share = budget.bytes / self.shards.len().max(1);
        for shard in &self.shards {
            let Some(mut defragmenter) = shard.defragmenter.try_lock() else { continue };
            let step = defragmenter.step(&shard.arena, share, &mut |vb, sparse| match self.slot(vb) {
                Ok((slot, shard)) => slot.vb.lock().relocate(&sparse, shard),
                Err(_) => Relocated::Kept,
            });
            report.items += step.moved_items;
            report.bytes += step.moved_bytes as u64;
            report.more |= step.more;
        }
        report
    }

    // ---- inside ---------------------------------------------------------------------------------------------------

    /// A vBucket and its shard.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    #[inline]
    pub(crate) fn slot(&self, vb: VbId) -> Result<(&Slot, &Shard), Status> {
        let slot = self.slots.get(usize::from(vb.get())).ok_or(Status::NotMyVbucket)?;
        let shard = self.shards.get(place_of(vb, self.shards.len()).0).ok_or(Status::NotMyVbucket)?;
        Ok((slot, shard))
    }

    /// The vBuckets of a shard.
    pub(crate) fn vbs_of(&self, shard: &Shard) -> impl Iterator<Item = VbId> + use<> {
        vbs_of_shard(self.options.vbuckets, self.options.shards, shard.index)
    }

    pub(crate) fn deferred<'a>(&'a self, shard: &'a Shard) -> DeferredEffects<'a> {
        DeferredEffects::new(shard, &*self.notifier)
    }
}

impl Home for Bucket {
    #[inline]
    fn at(&self, vb: VbId) -> Result<(&Slot, &Shard), Status> {
        self.slot(vb)
    }

    #[inline]
    fn notifier(&self) -> &dyn Notifier {
        &*self.notifier
    }

    fn cursors(&self) -> &AtomicUsize {
        &self.cursors
    }
}

fn vbs_of_shard(vbuckets: u16, shards: usize, index: usize) -> impl Iterator<Item = VbId> + use<> {
    (index..usize::from(vbuckets)).step_by(shards).map(|vb| VbId(vb as u16))
}

fn check(options: &BucketOptions, stores: usize) -> Result<(), OpenError> {
    let persistent = options.kind == BucketKind::Couchbase;
    let problem = if !(1..=limits::VBUCKETS_MAX).contains(&options.vbuckets) {
        "number of vBuckets"
    } else if !(1..=usize::from(options.vbuckets)).contains(&options.shards) {
        "number of shards"
    } else if stores != if persistent { options.shards } else { 0 } {
        "number of stores"
    } else if options.value_bytes_max > crate::memory::item::VALUE_BYTES_MAX {
        "largest value"
    } else {
        return Ok(());
    };
    Err(OpenError::Options(problem))
}

/// What a store knows of vBuckets.
type States = Vec<(VbId, VbState)>;

/// Opens one shard: its vBuckets as the store knows them, with the CAS ceiling ahead of the clock. Actives begin under a new
/// branch unless the last stop was clean. All of that is synced. The states it replaced come with it.
fn open_shard(
    options: &BucketOptions,
    index: usize,
    store: Option<Arc<dyn KvStore>>,
    manifest: &Manifest,
    now: Now,
) -> Result<(Shard, Vec<VBucket>, States), OpenError> {
    let recovered = store.as_ref().map(|store| store.vb_states()).unwrap_or_default();
    let known = |vb: VbId| recovered.iter().find(|state| state.0 == vb).map(|state| &state.1);
    let vbs: Vec<_> = vbs_of_shard(options.vbuckets, options.shards, index).collect();
    let was_clean =
        vbs.first().and_then(|&vb| known(vb)).is_some_and(|state| ceiling::is_clean_mark(state.max_cas));
    let floor = if was_clean {
        recovered.iter().map(|state| state.1.max_cas).max().unwrap_or_default()
    } else {
        ceiling::floor(recovered.iter().map(|state| &state.1), now)
    };
    let leader = ceiling::leader(floor, now);
    let ceiling = if store.is_some() { ceiling::above(floor, leader, now, Cas::NONE) } else { Cas(u64::MAX) };
    let gate = Gate::new(vbs.len(), ceiling);
    gate.want_ceiling(leader);
    let shard = Shard {
        index,
        marker_vb: vbs.first().copied().unwrap_or_default(),
        arena: Arena::new().map_err(OpenError::Memory)?,
        store,
        gate,
        flusher: Mutex::default(),
        to_reset: Mutex::default(),
        fetches: Mutex::default(),
        cold_expiry: Mutex::default(),
        cold_trim: Mutex::default(),
        defragmenter: Mutex::new(Defragmenter::default()),
        warm: AtomicBool::new(true),
        takes_in: AtomicBool::new(false),
        has_missed: AtomicBool::new(false),
        warmed_items: AtomicU64::new(0),
        warmed_bytes: AtomicU64::new(0),
        warmed_hot: AtomicU64::new(0),
        counters: Counters::default(),
        pools: Pools::default(),
    };
    let (mut changed, mut before) = (Vec::new(), Vec::new());
    let mut vbuckets = Vec::with_capacity(vbs.len());
    for (index_in_shard, &vb) in vbs.iter().enumerate() {
        let uuid = branch_uuid(options.seed, vb.get(), now.wall_nanos);
        let mut v = VBucket::new(vb, index_in_shard, &shard, options.vbuckets, uuid);
        v.manifest_uid = manifest.uid;
        (v.role, v.is_unheard) = (options.role, options.role != VbRole::Active);
        let state = known(vb);
        if let Some(state) = state {
            v.recover(state, uuid, was_clean);
            if v.high_seqno > Seqno(0) {
                v.warming = Some(Box::new(Warming::new(v.high_seqno)));
                shard.warm.store(false, Ordering::Relaxed);
            }
        }
        v.hlc = Hlc::above(floor);
        if state.is_none() || !was_clean || vb == shard.marker_vb {
            before.push((vb, state.cloned().unwrap_or_default()));
            let mut state = v.state();
            state.max_cas = shard.recorded_cas(vb, state.max_cas, now);
            changed.push((vb, state));
        }
        v.account(&shard);
        vbuckets.push(v);
    }
    if let Some(store) = &shard.store {
        store.put_states(&changed)?;
    }
    Ok((shard, vbuckets, before))
}

/// Another shard could not be opened, and it is tried again soon: branches that nobody has seen must not push those out
/// that clients know.
fn take_back(recorded: &[(Arc<dyn KvStore>, States)]) {
    for (store, before) in recorded {
        // If that fails too, a branch stays that nobody writes on: harmless, but for the room it takes.
        let _ = store.put_states(before);
    }
}
