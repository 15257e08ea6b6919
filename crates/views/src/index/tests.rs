//! How much a commit does beside what it has to, and what room publications want.

use storage::FaultFs;

use super::*;
use crate::{design::DesignDocument, js};

/// An empty index with so much memory.
fn begin(memory: usize) -> Index {
    let design = br#"{"views":{"v":{"map":"function(d){}"}}}"#;
    let definition = Arc::new(Definition::of(&DesignDocument::parse_unchecked(design).unwrap()));
    let (fs, memory) = (Arc::new(FaultFs::new(1)), Memory::new(memory));
    Index::open(fs, Path::new("/index"), definition, &memory, Options::default()).unwrap()
}

#[test]
fn a_commit_moves_more_where_it_writes_more() {
    let mut index = begin(128 << 20);
    let value = format!("\"{}\"", "x".repeat(9 << 10));
    let documents = (0..600).map(|number| DocumentRows {
        docid: format!("d{number}"),
        rows: vec![vec![js::Row { key: number.to_string(), value: value.clone() }]],
    });
    let documents = documents.collect();
    let batch = Batch { vb: VbId(0), branch: VbUuid(1), seqno: Seqno(600), documents };
    index.apply(batch, &mut NoFunctions).unwrap();
    index.publish(&mut NoFunctions).unwrap();
    assert_eq!(index.store.written, 0, "all of it is in memory");
    assert!(index.moved_max() > 5 * MOVED_BYTES / 4, "{}", index.moved_max());
    index.commit(&mut NoFunctions).unwrap();
    assert!(index.store.written > 0);
    assert_eq!(index.moved_max(), MOVED_BYTES);
}

/// Two documents of 100 KiB in each of two vBuckets, from a seqno on.
fn apply(index: &mut Index, vbs: [u16; 2], seqno: u64) {
    let value = format!("\"{}\"", "x".repeat(100 << 10));
    for vb in vbs.map(VbId) {
        let documents = (0..2).map(|number| DocumentRows {
            docid: format!("d{seqno}-{number}"),
            rows: vec![vec![js::Row { key: number.to_string(), value: value.clone() }]],
        });
        let documents = documents.collect();
        let batch = Batch { vb, branch: VbUuid(1), seqno: Seqno(seqno), documents };
        index.apply(batch, &mut NoFunctions).unwrap();
    }
}

#[test]
fn a_publication_tells_what_room_it_wants() {
    let mut index = begin(16 << 20);
    apply(&mut index, [0, 1], 1);
    assert_eq!(index.room_wanted(), 0, "what is in memory stays there until a commit");
    for seqno in 2..10 {
        apply(&mut index, [0, 1], seqno);
    }
    let spilled = index.waiting.spilled();
    assert!(spilled > 0 && index.room_wanted() >= 2 * spilled);
    let before = index.store.written;
    let wanted = index.room_wanted();
    index.publish(&mut NoFunctions).unwrap();
    assert!(index.store.written - before <= wanted, "{} bytes, not {wanted}", index.store.written - before);
    index.commit(&mut NoFunctions).unwrap();
    assert_eq!(index.room_wanted(), 0);
    let live = index.disk_bytes().live;
    index.reset(VbId(0));
    assert_eq!(index.room_wanted(), 0, "it goes bit by bit");
    apply(&mut index, [0, 2], 1);
    assert_eq!(index.room_wanted(), live);
    index.publish(&mut NoFunctions).unwrap();
    assert_eq!(index.room_wanted(), 0);
}
