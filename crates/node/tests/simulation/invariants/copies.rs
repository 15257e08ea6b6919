//! After quiet the copies of a vBucket are equal to the byte: seqnos, kinds, CAS values, revisions and values of every key's
//! newest version, as they lie on the disks and as readers are shown them; and so are their histories.

use std::collections::BTreeMap;

use base::{BucketUuid, DocKey, NodeId, Now, Seqno, VbId, VbRole, hash::vbucket_of};
use cluster::{BucketInfo, Metadata};
use storage::{Record, RecordKind};

use crate::open_bucket::{Document, OpenBucket};

/// What lies on disk for a key: seqno, kind, CAS, revision, value.
type Version = (Seqno, RecordKind, u64, u64, Vec<u8>);

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
            let mut first = None;
            for &node in &plan.chain {
                let (open, now) = open(node, &info.uuid)
                    .unwrap_or_else(|| panic!("{node} does not have the bucket {:?}", info.uuid));
                let copy = copy_of((open, now), (info, vb, node), &keys);
                let leads = copy.role == VbRole::Active;
                assert_eq!(leads, plan.chain[0] == node, "{vb} is {:?} on {node}: {plan:?}", copy.role);
                match &first {
                    None => first = Some(copy),
                    Some(first) => {
                        assert_eq!(copy.high, first.high, "{vb} on {node}");
                        assert_eq!(copy.log, first.log, "{vb} on {node}");
                        assert_eq!(copy.on_disk, first.on_disk, "{vb} on {node}");
                        assert_eq!(copy.shown, first.shown, "{vb} on {node}");
                    }
                }
            }
        }
    }
}

struct Copy {
    role: VbRole,
    high: Seqno,
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
    Copy {
        role: status.role,
        high: status.history.high_seqno,
        log: status.history.log,
        on_disk: on_disk(open, info, vb),
        shown: of_vb.map(read).collect(),
    }
}

/// What lies on disk of durable writes: seqno, kind and key, for whoever looks into a failure.
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
fn on_disk(open: &OpenBucket, info: &BucketInfo, vb: VbId) -> BTreeMap<Vec<u8>, Version> {
    let mut newest: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
    let visit = &mut |_, record: &Record<'_>, _| {
        let (meta, collection) = (record.meta, DocKey::trusted(record.key).collection());
        let is_there = collection.is_reserved() || info.manifest.collection(collection).is_some();
        if is_there && !meta.kind.is_prepared() {
            let found = (meta.seqno, meta.kind, meta.cas.get(), meta.rev, record.value.to_vec());
            let slot = newest.entry(record.key.to_vec()).or_insert_with(|| found.clone());
            if slot.0 < found.0 {
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
