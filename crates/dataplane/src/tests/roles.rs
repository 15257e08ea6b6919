//! What a node answers for vBuckets that it does not serve: the map, and what replicas may say. Also what it answers while
//! it has no lease.

use base::{Status, VbId};
use protocol::{
    binary::{
        Opcode, Request,
        subdoc::{DocFlags, PathFlags, Spec, SpecOp, encode_multi},
    },
    hello::Feature,
};

use super::harness::{Node, Wire};
use crate::{ListenerKind, figures::reading::Reading, state::lease};

const KEY: &[u8] = b"k1";
const BUCKET: &str = "default";

/// A connection that takes the whole map whenever it is told off, to a node with one document.
fn wire(node: &Node) -> Wire {
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Json, Feature::Xerror, Feature::Xattr]);
    let set = Request { key: KEY, value: b"{\"a\":1}", extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(wire.ask(&set).status, Status::Success);
    wire
}

fn get(opcode: Opcode) -> Request<'static> {
    Request { key: KEY, ..Request::new(opcode) }
}

/// Extras and value of a lookup.
fn lookup(flags: DocFlags) -> (Vec<u8>, Vec<u8>) {
    let spec = Spec { op: SpecOp::Get, flags: PathFlags::NONE, path: b"a", value: b"" };
    encode_multi(&[spec], flags, None).unwrap()
}

fn become_replica(node: &Node) {
    node.bucket(BUCKET).make_replica(VbId(0), 7).unwrap();
}

#[test]
fn whatever_is_asked_of_a_vbucket_elsewhere_is_answered_with_the_map() {
    let node = Node::new();
    let mut wire = wire(&node);
    node.switch(BUCKET, VbId(0), false);
    let (lookup_extras, lookup_value) = lookup(DocFlags::NONE);
    let spec = Spec { op: SpecOp::DictUpsert, flags: PathFlags::NONE, path: b"a", value: b"2" };
    let (change_extras, change_value) = encode_multi(&[spec], DocFlags::NONE, None).unwrap();
    let observed = [&[0, 0, 0, 2][..], KEY].concat();
    // Flags, expiry, revision, and the CAS that the document is to have.
    let with_meta = [&[0; 16][..], &7_u64.to_be_bytes()].concat();
    let requests = [
        get(Opcode::Get),
        get(Opcode::GetReplica),
        get(Opcode::GetMeta),
        get(Opcode::Delete),
        Request { extras: &[0; 8], value: b"v", ..get(Opcode::Set) },
        Request { value: b"v", ..get(Opcode::Append) },
        Request { extras: &[0; 20], ..get(Opcode::Increment) },
        Request { extras: &[0; 4], ..get(Opcode::Touch) },
        Request { extras: &[0; 4], ..get(Opcode::Gat) },
        Request { extras: &[0; 4], ..get(Opcode::GetLocked) },
        Request { extras: &with_meta, value: b"v", cas: base::Cas(1), ..get(Opcode::SetWithMeta) },
        Request { extras: &lookup_extras, value: &lookup_value, ..get(Opcode::SubdocMultiLookup) },
        Request { extras: &change_extras, value: &change_value, ..get(Opcode::SubdocMultiMutation) },
        Request { value: &observed, ..Request::new(Opcode::Observe) },
        Request { value: &[0; 8], ..Request::new(Opcode::ObserveSeqno) },
    ];
    for request in requests {
        let answer = wire.ask(&request);
        assert_eq!(answer.status, Status::NotMyVbucket, "{request:?}");
        assert!(answer.text().starts_with("{\""), "{request:?}: {}", answer.text());
    }
}

#[test]
fn a_replica_is_read_by_those_who_ask_for_one() {
    let node = Node::new();
    let mut wire = wire(&node);
    become_replica(&node);
    assert_eq!(wire.ask(&get(Opcode::Get)).status, Status::NotMyVbucket);
    let read = wire.ask(&get(Opcode::GetReplica));
    assert_eq!((read.status, read.text().as_str()), (Status::Success, "{\"a\":1}"));
    let absent = Request { key: b"none", ..Request::new(Opcode::GetReplica) };
    assert_eq!(wire.ask(&absent).status, Status::KeyNotFound);

    let (extras, value) = lookup(DocFlags::NONE);
    let active = Request { extras: &extras, value: &value, ..get(Opcode::SubdocMultiLookup) };
    assert_eq!(wire.ask(&active).status, Status::NotMyVbucket);
    let (extras, value) = lookup(DocFlags::REPLICA_READ);
    let replica = Request { extras: &extras, value: &value, ..get(Opcode::SubdocMultiLookup) };
    let found = wire.ask(&replica);
    assert_eq!((found.status, found.value.last()), (Status::Success, Some(&b'1')));

    // What is asked of documents in general is asked of active copies.
    assert_eq!(wire.ask(&Request::new(Opcode::GetRandomKey)).status, Status::KeyNotFound);
    let stats = wire.ask_all(&Request::new(Opcode::Stat));
    let of = |name: &[u8]| stats.iter().find(|stat| stat.key == name).map(|stat| stat.text());
    assert_eq!(of(b"curr_items").as_deref(), Some("0"));
    assert_eq!(of(b"vb_replica_curr_items").as_deref(), Some("1"));

    let list = [&[0, 0, 0, 2][..], KEY].concat();
    let observed = wire.ask(&Request { value: &list, ..Request::new(Opcode::Observe) });
    assert_eq!((observed.status, &observed.value[7..]), (Status::Success, &read.cas.to_be_bytes()[..]));
    // An active copy is no replica.
    node.switch(BUCKET, VbId(0), true);
    assert_eq!(wire.ask(&get(Opcode::GetReplica)).status, Status::NotMyVbucket);
    assert_eq!(wire.ask(&replica).status, Status::NotMyVbucket);
}

#[test]
fn vbuckets_are_listed_by_what_they_are() {
    let node = Node::new();
    let mut wire = wire(&node);
    become_replica(&node);
    node.switch(BUCKET, VbId(1), false);
    let listed = |wire: &mut Wire, state: u8| {
        let extras = [0, 0, 0, state];
        wire.ask(&Request { extras: &extras, ..Request::new(Opcode::GetAllVbSeqnos) }).value.len() / 10
    };
    let by_state = [0, 1, 2, 3, 4].map(|state| listed(&mut wire, state));
    assert_eq!(by_state, [63, 62, 1, 0, 1], "alive, active, replica, pending, dead");
    let stats = wire.ask_all(&Request { key: b"vbucket", ..Request::new(Opcode::Stat) });
    let of = |vb: &[u8]| stats.iter().find(|stat| stat.key == vb).map(|stat| stat.text());
    assert_eq!(of(b"vb_0").as_deref(), Some("replica"));
    assert_eq!(of(b"vb_1"), None, "there is nothing of it");
    assert_eq!(of(b"vb_2").as_deref(), Some("active"));
}

#[test]
fn without_a_lease_nothing_is_served_but_replicas() {
    let node = Node::new();
    let mut wire = wire(&node);
    let now = lease::clock_millis();
    node.shared.lease.require(now);
    for opcode in [Opcode::Get, Opcode::Delete, Opcode::GetMeta] {
        let refused = wire.ask(&get(opcode));
        assert_eq!(refused.status, Status::TemporaryFailure, "{opcode:?}");
        assert!(refused.text().contains("lost touch"), "{}", refused.text());
    }
    assert_eq!(wire.ask(&Request::new(Opcode::GetRandomKey)).status, Status::TemporaryFailure);
    let (extras, value) = lookup(DocFlags::NONE);
    let lookup_active = Request { extras: &extras, value: &value, ..get(Opcode::SubdocMultiLookup) };
    assert_eq!(wire.ask(&lookup_active).status, Status::TemporaryFailure);
    assert_eq!(wire.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    node.shared.lease.extend(now + 3_600_000);
    assert_eq!(wire.ask(&get(Opcode::Get)).status, Status::Success);
    node.shared.lease.waive();
    node.shared.lease.require(now);
    become_replica(&node);
    assert_eq!(wire.ask(&get(Opcode::GetReplica)).status, Status::Success);
}

#[test]
fn a_lease_that_runs_out_in_a_turn_is_noticed_before_what_was_read_since_is_served() {
    let node = Node::new();
    let mut wire = wire(&node);
    let (now, began) = (lease::clock_millis(), Reading::now());
    node.shared.lease.require(now + 3_600_000);
    wire.context.begin_turn(began);
    assert!(wire.context.require_lease().is_ok());
    node.shared.lease.waive();
    node.shared.lease.require(now);
    assert!(wire.context.require_lease().is_ok(), "as of the beginning of the turn");
    // A machine that slept has slept no time by the clock of turns.
    wire.context.go_on_with_turn(began);
    assert!(wire.context.require_lease().is_err());
}
