//! Keys that a client made to collide under the hash without a seed. To the disk they are keys like any others.

use base::VbId;
use settee_storage::{KvStore, SegmentLog};

use crate::support::{Place, Version, commit, document, options};

const KEYS: u64 = 2_000;

/// XXH3 multiplies the halves of each 16 bytes of a key of 32, after mixing constants into them. These eight bytes are one
/// such constant: the product is zero, whatever the other half is.
const CANCELS: [u8; 8] = [0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb];

/// Documents of one vBucket whose keys have one hash without a seed.
fn colliding() -> Vec<Version> {
    let of = |number: u64| {
        let key = [b"\0one hash, twins".as_slice(), &CANCELS, &number.to_le_bytes()].concat();
        Version { key, ..document(1, "", number + 1, "value") }
    };
    let versions: Vec<Version> = (0..KEYS).map(of).collect();
    let hash = |version: &Version| base::hash::disk_hash(&version.key, 0);
    assert!(versions.iter().all(|version| hash(version) == hash(&versions[0])));
    versions
}

/// The most records that a look-up of one of these keys reads.
fn most_read(store: &SegmentLog, versions: &[Version]) -> u64 {
    let read = |version: &Version| {
        let before = store.stats().records_read;
        let found = store.lookup(VbId(1), &version.key).unwrap().unwrap();
        assert_eq!(found.meta, version.meta);
        store.stats().records_read - before
    };
    versions.iter().step_by(97).map(read).max().unwrap()
}

#[test]
fn keys_that_were_made_to_collide_cost_no_more_than_others() {
    let (place, versions) = (Place::real(), colliding());
    let store = place.open();
    versions.chunks(100).for_each(|batch| drop(commit(&store, batch).unwrap()));
    store.sync().unwrap();
    // Two keys in two thousand may share a fingerprint by chance, three hardly.
    assert!(most_read(&store, &versions) <= 2, "in the segments that have just been written");
    store.close().unwrap();
    drop(store);
    let again = place.open_with(options()).unwrap();
    assert!(most_read(&again, &versions) <= 2, "after a restart, which takes the seed from the disk");
}
