//! How much a commit does beside what it has to.

use storage::FaultFs;

use super::*;
use crate::{design::DesignDocument, js};

#[test]
fn a_commit_moves_more_where_it_writes_more() {
    let design = br#"{"views":{"v":{"map":"function(d){}"}}}"#;
    let definition = Arc::new(Definition::of(&DesignDocument::parse_unchecked(design).unwrap()));
    let (fs, memory) = (Arc::new(FaultFs::new(1)), Memory::new(128 << 20));
    let mut index = Index::open(fs, Path::new("/index"), definition, &memory, Options::default()).unwrap();
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
