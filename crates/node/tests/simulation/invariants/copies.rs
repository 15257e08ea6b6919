//! After quiet the copies of a vBucket are equal to the byte. Of every key's newest version they have the same seqno, kind, CAS,
//! revision, flags, expiry, datatype and value. They have that on the disks and as readers see it by one clock. Their histories are equal
//! too, and the numbers of documents that they tell.
//!
//! Each copy drops old tombstones when it gets to it. So a tombstone that one copy may have dropped is compared nowhere; a document never
//! goes in that way.

use std::collections::BTreeMap;

use base::{BucketUuid, DocKey, NodeId, Now, Seqno, VbId, VbRole, hash::vbucket_of};
use cluster::{BucketInfo, Metadata};
use storage::{Record, RecordKind, RecordMeta};

use crate::open_bucket::{Document, OpenBucket};

/// After so long no lock is left that a client has asked for.
const LOCKS_MILLIS: u64 = 2_000;

/// What lies on disk for a key: everything but the value, and the value.
type Version = (RecordMeta, Vec<u8>);

/// A bucket as it is open on a node, and what the time is there.
type Open<'f, 'a> = &'f dyn Fn(NodeId, &BucketUuid) -> Option<(&'a OpenBucket, Now)>;

/// Checks every copy that counts. `keys` are those that may be in a bucket.
pub(crate) fn check(metadata: &Metadata, open: Open<'_, '_>, keys: &dyn Fn(&BucketInfo) -> Vec<Vec<u8>>) {
    let active = metadata.active_nodes().count();
    for info in metadata.buckets.values() {
        let keys = keys(info);
        for (vb, plan) in info.vbs.iter().enumerate() {
            let vb = VbId(vb as u16);
            assert!(plan.is_quiet() && plan.chain.len() == info.copies().min(active), "{vb}: {plan:?}");
            let mut copies = Vec::new();
            // Whether a document has expired is a matter of the clock that is asked.
            let mut clock = None;
            for &node in &plan.chain {
                let (open, now) = open(node, &info.uuid)
                    .unwrap_or_else(|| panic!("{node} does not have the bucket {:?}", info.uuid));
                // A request that came late may have locked a document just now.
                let unlocked = Now { mono_millis: now.mono_millis + LOCKS_MILLIS, ..now };
                let now = *clock.get_or_insert(unlocked);
                let copy = copy_of((open, now), (info, vb, node), &keys);
                let leads = copy.role == VbRole::Active;
                assert_eq!(leads, plan.chain[0] == node, "{vb} is {:?} on {node}: {plan:?}", copy.role);
                copies.push((node, copy));
            }
            compare(vb, copies);
        }
    }
}

fn compare(vb: VbId, mut copies: Vec<(NodeId, Copy)>) {
    let purged = copies.iter().map(|(_, copy)| copy.purged).max().unwrap_or_default();
    for (_, copy) in &mut copies {
        let may_go = |meta: &RecordMeta| meta.kind.is_tombstone() && meta.seqno <= purged;
        copy.on_disk.retain(|_, (meta, _)| !may_go(meta));
    }
    let mut copies = copies.into_iter();
    let Some((_, first)) = copies.next() else { return };
    for (node, copy) in copies {
        assert_eq!(copy.high, first.high, "{vb} on {node}");
        assert_eq!(copy.log, first.log, "{vb} on {node}");
        assert_eq!(copy.on_disk, first.on_disk, "{vb} on {node}");
        assert_eq!(copy.shown, first.shown, "{vb} on {node}");
        assert_eq!(copy.items, first.items, "{vb} on {node}");
    }
}

struct Copy {
    role: VbRole,
    high: Seqno,
    /// Tombstones up to here may be gone.
    purged: Seqno,
    /// Documents, as it counts them.
    items: u64,
    log: Vec<(base::VbUuid, Seqno)>,
    on_disk: BTreeMap<Vec<u8>, Version>,
    shown: BTreeMap<Vec<u8>, Option<Document>>,
}

fn copy_of(
    (open, now): (&OpenBucket, Now),
    (info, vb, node): (&BucketInfo, VbId, NodeId),
    keys: &[Vec<u8>],
) -> Copy {
    let status = open.engine.vb_status(vb).unwrap();
    let is_whole = status.complete && status.snapshot.is_none() && status.prepares == 0;
    let on = || (node, &info.uuid, prepared(open, vb));
    assert!(is_whole, "{vb} {status:?} on {:?}", on());
    let of_vb = keys.iter().filter(|key| vbucket_of(DocKey::trusted(key).logical(), info.vbuckets) == vb);
    let read = |key: &Vec<u8>| {
        let found = open.read(vb, key, now);
        (key.clone(), found.unwrap_or_else(|status| panic!("{key:?} of {vb}: {status:?}")))
    };
    let info_of_vb = open.engine.vb_state(vb).unwrap();
    assert!(info_of_vb.purge_seqno <= status.history.high_seqno, "{vb} of {:?}: {info_of_vb:?}", on());
    Copy {
        role: status.role,
        high: status.history.high_seqno,
        purged: info_of_vb.purge_seqno,
        items: info_of_vb.items,
        log: status.history.log,
        on_disk: on_disk(open, info, vb),
        shown: of_vb.map(read).collect(),
    }
}

/// What lies on disk of durable writes: seqno, kind and key, for the search into a failure.
fn prepared(open: &OpenBucket, vb: VbId) -> Vec<(Seqno, RecordKind, String)> {
    let mut all = Vec::new();
    let visit = &mut |_, record: &Record<'_>, _| {
        if record.meta.kind.is_prepared() {
            let key = String::from_utf8_lossy(record.key).into_owned();
            all.push((record.meta.seqno, record.meta.kind, key));
        }
        true
    };
    if let Some(store) = open.stores.get(usize::from(vb.get()) % open.engine.shards()) {
        store.scan(Some(vb), Seqno(0), true, visit).unwrap();
    }
    all
}

/// The newest version of every key; nothing where nothing is persistent. What was in a collection that is gone may be left
/// here and not there: it goes when a compaction comes across it.
pub(crate) fn on_disk(open: &OpenBucket, info: &BucketInfo, vb: VbId) -> BTreeMap<Vec<u8>, Version> {
    let mut newest: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
    let visit = &mut |_, record: &Record<'_>, _| {
        let (meta, collection) = (record.meta, DocKey::trusted(record.key).collection());
        let is_there = collection.is_reserved() || info.manifest.collection(collection).is_some();
        if is_there && !meta.kind.is_prepared() {
            let found = (meta, record.value.to_vec());
            let slot = newest.entry(record.key.to_vec()).or_insert_with(|| found.clone());
            if slot.0.seqno < meta.seqno {
                *slot = found;
            }
        }
        true
    };
    if let Some(store) = open.stores.get(usize::from(vb.get()) % open.engine.shards()) {
        store.scan(Some(vb), Seqno(0), true, visit).unwrap();
    }
    newest
}
