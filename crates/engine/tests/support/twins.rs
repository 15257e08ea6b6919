//! Two keys with one hash, as a client can choose them.

use base::{
    DocKey,
    hash::{key_hash, vbucket_of},
};

/// The hash multiplies the halves of each 16 bytes of a key of 32, after mixing constants into them. These eight bytes are the
/// constant of the half before the last: the product is zero, whatever the last half is.
const CANCELS: [u8; 8] = [0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb];

/// Two encoded keys of one vBucket with one hash.
pub(crate) fn twins(vbuckets: u16) -> [Vec<u8>; 2] {
    let key = |last: u64| [b"\0one hash, twins".as_slice(), &CANCELS, &last.to_le_bytes()].concat();
    let vb = |key: &[u8]| vbucket_of(DocKey::trusted(key).logical(), vbuckets);
    let first = key(0);
    let second = (1..).map(key).find(|other| vb(other) == vb(&first)).unwrap();
    assert_eq!((key_hash(&first), first.len()), (key_hash(&second), 32));
    [first, second]
}
