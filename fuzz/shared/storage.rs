//! The target of the `storage` crate: opens a small store whose files have been tampered with, and reads all of it.
//!
//! The input is a list of edits (file, two bytes of offset, new byte) on the store kept as format fixture. Whatever the
//! edits, opening and reading end with an answer or an error, and a document that is served is whole.

use std::{path::Path, sync::Arc};

use base::{Seqno, VbId};
use settee_storage::{BackfillOptions, FaultFs, Fs, KvStore, Options, open};

const FILES: [(&str, &[u8]); 5] = [
    ("manifest", include_bytes!("../../crates/storage/tests/fixtures/v1/manifest")),
    ("00000002.seg", include_bytes!("../../crates/storage/tests/fixtures/v1/00000002.seg")),
    ("00000003.seg", include_bytes!("../../crates/storage/tests/fixtures/v1/00000003.seg")),
    ("00000004.seg", include_bytes!("../../crates/storage/tests/fixtures/v1/00000004.seg")),
    ("00000005.seg", include_bytes!("../../crates/storage/tests/fixtures/v1/00000005.seg")),
];
const EDIT_BYTES: usize = 4;
const DIR: &str = "/store";

/// A store with edited files, opened and read.
pub(super) fn store(edits: &[u8]) {
    let fs = Arc::new(FaultFs::new(1));
    place_files(&fs, edits);
    let options = Options {
        shard: 3,
        segment_bytes: 16 << 10,
        segment_bytes_min: 16 << 10,
        reserve_bytes: 0,
        ..Options::default()
    };
    let Ok(store) = open(Path::new(DIR), fs, options) else {
        assert!(!edits.is_empty(), "the fixture itself opens");
        return;
    };
    let mut served = 0;
    let _ = store.scan(None, Seqno(0), true, &mut |_, record, _| {
        check(record.key, record.value);
        true
    });
    let mut delivered = 0;
    for vb in [0, 1, 2, 3, 9] {
        let mut last = Seqno(0);
        let visit = &mut |record: &settee_storage::Record<'_>| {
            check(record.key, record.value);
            assert!(record.meta.seqno > last, "each seqno once, in order");
            last = record.meta.seqno;
            delivered += 1;
        };
        if let Ok(mut backfill) = store.backfill(VbId(vb), Seqno(0), BackfillOptions::default()) {
            while backfill.next(4096, visit).unwrap_or(false) {}
        }
    }
    assert!(
        !edits.is_empty() || delivered == 51,
        "a backfill of the fixture delivers everything: {delivered}"
    );
    for number in 1..=60_u64 {
        let key = [b"\0k".as_slice(), number.to_string().as_bytes()].concat();
        if let Ok(Some(found)) = store.lookup(VbId((number % 4) as u16), &key) {
            assert_eq!(found.key, key);
            check(&found.key, &found.value);
            served += 1;
        }
    }
    // One vBucket of four was reset.
    assert!(!edits.is_empty() || served == 45, "the fixture itself serves everything: {served}");
}

fn place_files(fs: &FaultFs, edits: &[u8]) {
    let dir = Path::new(DIR);
    fs.create_dir_all(dir).expect("an empty file system");
    for (number, (name, content)) in FILES.iter().enumerate() {
        let mut content = content.to_vec();
        for edit in edits.chunks_exact(EDIT_BYTES).filter(|edit| usize::from(edit[0]) % FILES.len() == number)
        {
            let offset = usize::from(u16::from_be_bytes([edit[1], edit[2]])) % content.len();
            content[offset] = edit[3];
        }
        let file = fs.create(&dir.join(name)).expect("room for the file");
        file.write_at(&content, 0).expect("room for the file");
    }
}

/// The fixture's documents hold their number over and over, but for the one written after a reset.
fn check(key: &[u8], value: &[u8]) {
    if value.is_empty() || value == b"after the reset" {
        return;
    }
    let number = std::str::from_utf8(&key[2..]).ok().and_then(|text| text.parse::<u8>().ok());
    assert_eq!(value, vec![number.expect("a key of the fixture"); 300], "torn");
}
