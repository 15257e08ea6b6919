//! A process of its own, because the secret of the hash belongs to the process and is set once.

use std::collections::HashSet;

use settee_base::hash::{SECRET_BYTES, SecretInUse, disk_hash, key_hash, set_secret};

/// XXH3 multiplies the halves of each 16 bytes of a key of 32, after mixing constants into them. These eight bytes are one
/// such constant: the product is zero, whatever the other half is.
const CANCELS: [u8; 8] = [0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb];

#[test]
fn keys_that_anybody_can_make_collide_do_not_under_a_secret() {
    let key = |last: u64| [b"\0one hash, twins".as_slice(), &CANCELS, &last.to_le_bytes()].concat();
    let keys: Vec<Vec<u8>> = (0..10_000).map(key).collect();
    let distinct =
        |hash: &dyn Fn(&[u8]) -> u64| keys.iter().map(|key| hash(key)).collect::<HashSet<_>>().len();
    assert_eq!(distinct(&|key| disk_hash(key, 0)), 1, "the attack is one");
    let mut secret = [0; SECRET_BYTES];
    let mut state = 0x5eed_u64;
    for byte in &mut secret {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *byte = (state >> 56) as u8;
    }
    set_secret(secret).unwrap();
    assert_eq!(distinct(&key_hash), keys.len());
    // Tables go by the upper 24 bits.
    assert!(distinct(&|key| key_hash(key) >> 40) > keys.len() * 9 / 10);
    assert_eq!(distinct(&|key| disk_hash(key, state)), keys.len());
    assert_eq!(set_secret([0; SECRET_BYTES]), Err(SecretInUse), "keys in memory would not be found again");
}
