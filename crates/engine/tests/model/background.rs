//! What happens to a bucket without its clients: flushes, compaction, pagers, crashes and restarts, full disks, collections that
//! come and go.

use base::{
    CollectionId, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
};
use settee_engine::{BucketChange, Budget, Store};

use super::{
    QUOTA, World, copy, manifest, options,
    support::{Rig, model::Version},
};

impl World {
    pub(super) fn flush(&mut self, shard: usize) {
        self.flushed[shard] = self.rig.clock.0;
        if !self.is_persistent() {
            return;
        }
        self.rig.clock.0 += 200;
        let report = self.rig.bucket.flush(shard, self.rig.now());
        assert!(self.is_full || report.failed.is_none(), "{report:?}");
        self.learn_persisted();
    }

    /// What the bucket says is on disk, the model may count on.
    pub(super) fn learn_persisted(&mut self) {
        for vb in (0..self.rig.bucket.vbuckets()).map(VbId) {
            self.model.persisted(vb, self.rig.bucket.vb_state(vb).unwrap().persisted_seqno);
        }
    }

    /// Time goes by in which only the flusher is called.
    pub(super) fn pause(&mut self) {
        self.rig.clock.advance_secs(200);
        for shard in 0..self.rig.bucket.shards() {
            self.flush(shard);
        }
    }

    /// What is not synced by now is given up, and never seen.
    pub(super) fn time_out(&mut self) {
        self.rig.clock.advance_secs(31);
        self.rig.bucket.time_out_durable(self.rig.now());
        self.model.timed_out();
    }

    pub(super) fn flush_everything(&mut self) {
        self.rig.disks.iter().for_each(|disk| disk.set_full(false));
        self.is_full = false;
        self.rig.flush();
        self.learn_persisted();
    }

    /// A persistent bucket may evict keys at one time and only values at another.
    pub(super) fn page(&mut self) {
        let eviction = match (self.is_persistent(), self.rng.bool()) {
            (false, _) => None,
            (true, true) => Some(EvictionPolicy::FullEviction),
            (true, false) => Some(EvictionPolicy::ValueOnly),
        };
        let tiny = BucketChange { quota_bytes: Some(0), eviction, ..BucketChange::default() };
        self.rig.bucket.reconfigure(tiny);
        self.rig.bucket.page(self.rig.now(), Budget { items: self.rng.usize(1..200), bytes: 1 << 20 });
        let large = BucketChange { quota_bytes: Some(QUOTA), ..BucketChange::default() };
        self.rig.bucket.reconfigure(large);
    }

    pub(super) fn expire(&mut self) {
        let budget = Budget { items: self.rng.usize(1..100), ..Budget::default() };
        self.rig.bucket.expire(self.rig.now(), budget);
        if !self.is_persistent() {
            self.purged_before = self.rig.now().unix_secs().saturating_sub(30);
        }
    }

    pub(super) fn compact(&mut self) {
        for shard in 0..self.rig.bucket.shards() {
            let compacted = if self.rng.bool() {
                self.rig.bucket.compact(shard, self.rig.now())
            } else {
                self.rig.bucket.compact_eagerly(shard, self.rig.now())
            };
            if !self.is_full {
                compacted.unwrap();
            }
        }
        self.purged_before = self.rig.now().unix_secs().saturating_sub(30);
    }

    pub(super) fn reopen(&mut self, crash: bool) {
        if !self.is_persistent() {
            return;
        }
        if !crash || self.is_full {
            self.flush_everything();
        }
        let manifest = self.rig.bucket.manifest();
        let vbs = (0..self.rig.bucket.vbuckets()).map(VbId);
        let persisted: Vec<_> = vbs.map(|vb| self.rig.bucket.vb_state(vb).unwrap().persisted_seqno).collect();
        let scans = self.forget_scans();
        let placeholder = Rig::new(options(BucketKind::Memcached));
        let rig = std::mem::replace(&mut self.rig, placeholder);
        let mut rig = Rig { manifest, ..rig };
        let keeps_keys = self.rng.bool();
        rig.options.eviction =
            if keeps_keys { EvictionPolicy::ValueOnly } else { EvictionPolicy::FullEviction };
        self.rig = if crash { rig.crash() } else { rig.restart() };
        let bucket = self.rig.bucket.clone();
        for (vb, persisted) in (0..).map(VbId).zip(persisted) {
            assert!(bucket.vb_state(vb).unwrap().persisted_seqno >= persisted, "what was persisted is there");
        }
        self.check_that_scans_are_gone(scans);
        // Not the high seqno: opening may have recorded system events.
        self.model.crashed(|vb| bucket.vb_state(vb).unwrap().persisted_seqno);
    }

    /// Power fails: between two steps, or in the middle of one.
    pub(super) fn crash(&mut self) {
        if self.is_full {
            self.flush_everything();
        }
        let mut dying = 0;
        for disk in &self.rig.disks {
            dying += u32::from(disk.die_after(self.rng.u64(1..40)));
        }
        if dying > 0 {
            self.rig.clock.0 += 1_000;
            for shard in 0..self.rig.bucket.shards() {
                self.rig.bucket.flush(shard, self.rig.now());
                let _ = self.rig.bucket.compact_eagerly(shard, self.rig.now());
                self.rig.bucket.flush(shard, self.rig.now());
            }
            self.purged_before = self.rig.now().unix_secs().saturating_sub(30);
            self.learn_persisted();
        }
        self.reopen(true);
    }

    pub(super) fn restart(&mut self) {
        self.reopen(false);
    }

    pub(super) fn warm_up(&mut self) {
        let shard = self.rng.usize(0..self.rig.bucket.shards());
        // Without room only keys are loaded, or with full eviction nothing at all.
        let quota = if self.rng.bool() { QUOTA } else { 0 };
        self.set_quota(quota);
        assert!(!self.rig.bucket.warm_up(shard, self.rig.now()).unwrap());
        self.set_quota(QUOTA);
    }

    pub(super) fn set_quota(&self, bytes: u64) {
        let quota_bytes = Some(bytes);
        self.rig.bucket.reconfigure(BucketChange { quota_bytes, ..BucketChange::default() });
    }

    pub(super) fn empty(&mut self) {
        self.rig.clock.0 += 1;
        let vbuckets = self.rig.bucket.vbuckets();
        let uuid = |rig: &Rig, vb| rig.bucket.vb_state(VbId(vb)).unwrap().uuid;
        let before: Vec<_> = (0..vbuckets).map(|vb| uuid(&self.rig, vb)).collect();
        self.scans.forget_mutations();
        let emptied = self.rig.bucket.flush_all(self.rig.now());
        assert!(emptied.is_ok() || self.is_full);
        for vb in 0..vbuckets {
            if uuid(&self.rig, vb) != before[usize::from(vb)] {
                self.model.emptied(VbId(vb), vbuckets);
            } else {
                assert!(emptied.is_err());
            }
        }
    }

    pub(super) fn change_collections(&mut self) {
        let last = CollectionId(self.next_collection - 1);
        if self.model.collections.contains(&last) {
            self.model.drop_collection(last);
        } else {
            self.model.collections.push(CollectionId(self.next_collection));
            self.next_collection += 1;
        }
        let (uid, now) = (self.rig.bucket.manifest().uid.get() + 1, self.rig.now());
        self.rig.bucket.set_manifest(manifest(uid, &self.model.collections, self.next_collection), now);
    }

    pub(super) fn fill_disk(&mut self) {
        if !self.is_persistent() {
            return;
        }
        if self.is_full {
            self.flush_everything();
            return;
        }
        self.rig.disks.iter().for_each(|disk| disk.set_full(true));
        // Only a shard that tries to write notices; these all have something to write.
        let now = self.rig.now();
        for shard in 0..self.rig.bucket.shards() {
            let key = (0..).map(|n| format!("\0fill{n}").into_bytes());
            let key = key
                .into_iter()
                .find(|key| usize::from(self.vb(key).get()) % self.rig.bucket.shards() == shard);
            let key = key.unwrap();
            let vb = self.vb(&key);
            let store = Store::set(b"x");
            if let Ok(mutated) = self.rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, now)) {
                self.model.new_cas(vb, mutated.cas);
                let found = self.rig.run(&key, |bucket, vb, key| bucket.get(vb, key, now, copy)).unwrap();
                self.model.mutated(vb, &key, Version::Doc(found), &mutated, DurabilityLevel::None);
            }
        }
        self.rig.clock.0 += 200;
        for shard in 0..self.rig.bucket.shards() {
            let report = self.rig.bucket.flush(shard, self.rig.now());
            assert!(report.failed.is_some() || self.rig.disks[shard].fills_slowly());
        }
        self.learn_persisted();
        self.is_full = true;
    }
}
