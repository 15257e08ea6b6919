//! Makes room: takes values (or, in caches, documents) that are used least out of memory.
//!
//! Walks the vBuckets round and round, a few documents per lock hold, and remembers where it stopped. The frequencies it
//! meets are gathered in a histogram, from which it derives how frequent a document may be and still go, so that about
//! the share of documents goes that has to. Every document it leaves alone loses some frequency. In persistent buckets only
//! what is clean, which means synced, loses its value; key and metadata stay with the place of the value on disk.

use base::{
    DocKey, HashedKey, Now, VbId,
    bucket::{BucketKind, EvictionPolicy},
};

use crate::{
    aftermath::Aftermath,
    bucket::Bucket,
    hash_table::ScanPosition,
    item::{FREQUENCY_MAX, ItemId, ItemRef, NewItem},
    shard::Env,
    stats::{Budget, StepReport},
    system_events::is_system_key,
    vbucket::{FREQUENCY_INITIAL, VBucket},
};

/// Documents looked at per lock hold.
const CHUNK: usize = 64;
/// Samples after which older ones count half.
const SAMPLES_MAX: u32 = 64 * 1024;
/// Samples needed before they are believed.
const SAMPLES_MIN: u32 = 256;

/// Where the pager is and what it has learnt.
#[derive(Debug)]
pub(crate) struct ItemPager {
    vb: u16,
    position: ScanPosition,
    /// Above the low watermark after having been above the high one.
    is_active: bool,
    histogram: [u32; FREQUENCY_MAX as usize + 1],
    samples: u32,
    threshold: u8,
}

impl Default for ItemPager {
    fn default() -> Self {
        Self {
            vb: 0,
            position: ScanPosition::default(),
            is_active: false,
            histogram: [0; FREQUENCY_MAX as usize + 1],
            samples: 0,
            threshold: FREQUENCY_INITIAL,
        }
    }
}

impl ItemPager {
    fn sample(&mut self, frequency: u8) {
        if let Some(count) = self.histogram.get_mut(usize::from(frequency)) {
            *count += 1;
            self.samples += 1;
        }
        if self.samples >= SAMPLES_MAX {
            self.histogram.iter_mut().for_each(|count| *count /= 2);
            self.samples = self.histogram.iter().sum();
        }
    }

    /// Sets the threshold so that `excess` of `used` bytes lies at or below it.
    fn aim(&mut self, used: u64, excess: u64) {
        if self.samples < SAMPLES_MIN || used == 0 {
            return;
        }
        let wanted = u64::from(self.samples) * excess.min(used) / used;
        let mut sum = 0;
        for (frequency, &count) in self.histogram.iter().enumerate() {
            sum += u64::from(count);
            if sum > wanted {
                self.threshold = frequency as u8;
                return;
            }
        }
    }
}

/// What the pager may do in this bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    EjectValues,
    DropDocuments,
}

impl Bucket {
    /// Makes room when memory is above the high watermark, down to the low one.
    pub fn page(&self, now: Now, budget: Budget) -> StepReport {
        let mut report = StepReport::default();
        let Some(means) = self.means() else { return report };
        let Some(mut pager) = self.item_pager.try_lock() else { return report };
        let (high, low) = self.watermarks();
        let mut used = self.mem_used();
        pager.is_active &= used > low;
        pager.is_active |= used > high;
        let mut looked_at = 0;
        let mut idle_vbs = 0;
        while pager.is_active && looked_at < budget.items && report.bytes < budget.bytes as u64 {
            pager.aim(used, used - low);
            let (seen, freed_items) = self.page_chunk(&mut pager, means, now);
            looked_at += seen;
            report.items += freed_items;
            idle_vbs = if seen == 0 { idle_vbs + 1 } else { 0 };
            let before = used;
            used = self.mem_used();
            report.bytes += before.saturating_sub(used);
            pager.is_active = used > low;
            if idle_vbs > u32::from(self.vbuckets()) {
                break;
            }
        }
        report.more = pager.is_active && report.items > 0;
        report
    }

    fn means(&self) -> Option<Means> {
        match (self.options.kind, self.settings.eviction()) {
            (BucketKind::Couchbase, _) => Some(Means::EjectValues),
            (BucketKind::Memcached, _) | (BucketKind::Ephemeral, EvictionPolicy::NruEviction) => {
                Some(Means::DropDocuments)
            }
            (BucketKind::Ephemeral, _) => None,
        }
    }

    /// Looks at the next documents of the current vBucket; how many it saw and how many went.
    fn page_chunk(&self, pager: &mut ItemPager, means: Means, now: Now) -> (usize, usize) {
        let vb = VbId(pager.vb % self.vbuckets());
        let Ok((slot, shard)) = self.slot(vb) else { return (0, 0) };
        let env = Env { shard, kind: self.options.kind, now };
        let mut after = self.aftermath(shard);
        let mut v = slot.vb.lock();
        let mut seen = 0;
        let mut victims: Vec<ItemId> = Vec::with_capacity(CHUNK);
        let next = v.table.scan(pager.position, CHUNK, &mut |item| {
            seen += 1;
            if item.is_deleted() || !item.is_resident() {
                return;
            }
            let frequency = item.frequency();
            pager.sample(frequency);
            if frequency <= pager.threshold && may_go(item, means) {
                victims.push(item.id());
            } else {
                item.set_frequency(frequency - frequency.div_ceil(8));
            }
        });
        let mut gone = 0;
        for id in victims {
            let went = match means {
                Means::EjectValues => eject(&mut v, &env, id, &mut after),
                Means::DropDocuments => drop_document(&mut v, &env, id, &mut after),
            };
            gone += usize::from(went);
        }
        match next {
            Some(position) => pager.position = position,
            None => (pager.vb, pager.position) = ((vb.get() + 1) % self.vbuckets(), ScanPosition::default()),
        }
        (seen, gone)
    }
}

fn may_go(item: ItemRef<'_>, means: Means) -> bool {
    if is_system_key(item.key()) {
        return false;
    }
    match means {
        // Nor does it free anything while somebody else holds it.
        Means::EjectValues => {
            !item.is_dirty()
                && !item.locator().is_none()
                && !item.value().is_empty()
                && item.references() == 1
        }
        Means::DropDocuments => true,
    }
}

/// Puts an item without a value in the place of a clean one.
fn eject(v: &mut VBucket, env: &Env<'_>, id: ItemId, after: &mut Aftermath<'_>) -> bool {
    // SAFETY: the id comes from a scan of this table under the lock that is still held.
    let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
    let key = HashedKey::new(DocKey::trusted(item.key()));
    let Some(mut empty) =
        NewItem::without_value(&env.shard.arena, &item.meta(), key.key.encoded(), item.value_len())
    else {
        return false;
    };
    empty.set_frequency(item.frequency());
    let ejected = v.install(env, key, Some(id), empty, after).is_ok();
    v.ops.ejects += u64::from(ejected);
    ejected
}

/// Deletes a document to make room.
fn drop_document(v: &mut VBucket, env: &Env<'_>, id: ItemId, after: &mut Aftermath<'_>) -> bool {
    // SAFETY: as in `eject`.
    let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
    let key: Box<[u8]> = item.key().into();
    let key = HashedKey::new(DocKey::trusted(&key));
    let Ok(found) = v.settle_for_write(env, key, after) else { return false };
    let Some(current) = found.live() else { return true };
    let dropped = v.bury(env, key, current, false, false, after).is_ok();
    v.ops.auto_deletes += u64::from(dropped);
    dropped
}
