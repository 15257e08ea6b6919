//! After quiet the copies of a vBucket are equal to the byte: seqnos, kinds, CAS values, revisions and values of every key's
//! newest version, as they lie on the disks; and so are their histories.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole};
use cluster::Metadata;
use storage::{Record, RecordKind};

use crate::{open_bucket::OpenBucket, process::Process};

/// What lies on disk for a key: seqno, kind, CAS, revision, value.
type Version = (Seqno, RecordKind, u64, u64, Vec<u8>);

/// Checks every copy that counts.
pub(crate) fn check<'a>(metadata: &Metadata, process: &dyn Fn(NodeId) -> Option<&'a Process>) {
    let active = metadata.active_nodes().count();
    for info in metadata.buckets.values() {
        for (vb, plan) in info.vbs.iter().enumerate() {
            let vb = VbId(vb as u16);
            assert!(plan.is_quiet() && plan.chain.len() == info.copies().min(active), "{vb}: {plan:?}");
            let mut first = None;
            for &node in &plan.chain {
                let open = process(node).and_then(|process| process.buckets.get(&info.uuid));
                let open = open.unwrap_or_else(|| panic!("{node} does not have the bucket {:?}", info.uuid));
                let copy = copy_of(open, vb, (&info.uuid, node));
                let leads = copy.role == VbRole::Active;
                assert_eq!(leads, plan.chain[0] == node, "{vb} is {:?} on {node}: {plan:?}", copy.role);
                match &first {
                    None => first = Some(copy),
                    Some(first) => {
                        assert_eq!(copy.high, first.high, "{vb} on {node}");
                        assert_eq!(copy.log, first.log, "{vb} on {node}");
                        assert_eq!(copy.contents, first.contents, "{vb} on {node}");
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
    contents: BTreeMap<Vec<u8>, Version>,
}

fn copy_of(open: &OpenBucket, vb: VbId, whose: (&BucketUuid, NodeId)) -> Copy {
    let status = open.engine.vb_status(vb).unwrap();
    let is_whole = status.complete && status.snapshot.is_none() && status.prepares == 0;
    assert!(is_whole, "{vb} of {whose:?}: {status:?}");
    let mut contents: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
    let visit = &mut |_, record: &Record<'_>, _| {
        let meta = record.meta;
        if !meta.kind.is_prepared() {
            let found = (meta.seqno, meta.kind, meta.cas.get(), meta.rev, record.value.to_vec());
            let slot = contents.entry(record.key.to_vec()).or_insert_with(|| found.clone());
            if slot.0 < found.0 {
                *slot = found;
            }
        }
        true
    };
    let shard = usize::from(vb.get()) % open.stores.len();
    open.stores[shard].scan(Some(vb), Seqno(0), true, visit).unwrap();
    Copy { role: status.role, high: status.history.high_seqno, log: status.history.log, contents }
}
