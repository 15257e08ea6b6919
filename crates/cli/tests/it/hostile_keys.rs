//! Keys that a client made to collide. Whether they do can be seen from outside: of two keys with one hash, one can be locked.

use base::{Status, hash::disk_hash};
use client::{Client, WriteOptions};
use protocol::binary::{Opcode, Request};

use crate::{
    login,
    node::{Node, USERNAME},
};

/// XXH3 multiplies the halves of each 16 bytes of a key of 32, after mixing constants into them. These eight bytes are one
/// such constant: the product is zero, whatever the other half is.
const CANCELS: [u8; 8] = [0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb];

#[test]
fn keys_that_anybody_can_make_collide_do_not_collide_in_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let unattended = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let node = Node::start(dir.path(), &unattended);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    let key = |last: u64| [b"one hash, twins".as_slice(), &CANCELS, &last.to_le_bytes()].concat();
    let vb = client.map().vbucket_of(&key(0));
    let second = (1..).map(key).find(|other| client.map().vbucket_of(other) == vb).unwrap();
    let hash = |key: &[u8]| disk_hash(&[b"\0", key].concat(), 0);
    assert_eq!(hash(&key(0)), hash(&second), "the attack is one");
    for key in [key(0), second] {
        client.store(Opcode::Set, &key, b"value", &WriteOptions::default()).unwrap();
        let lock = Request {
            vbucket: vb,
            key: &key,
            extras: &30u32.to_be_bytes(),
            ..Request::new(Opcode::GetLocked)
        };
        let locked = client.connection(vb).unwrap().call(&lock).unwrap();
        assert_eq!(locked.status, Some(Status::Success));
    }
}
