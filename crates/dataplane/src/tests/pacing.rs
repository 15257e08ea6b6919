//! Mutations that wait until the disk has caught up, and everything that does not wait with them.
//!
//! The bucket is on a real segment log; it is flushed and paced by hand.

use base::{Status, VbId};
use cluster::{BucketParams, Command, LegacyParams};
use engine::Pressure;
use protocol::{
    binary::{Opcode, Request},
    hello::Feature,
};

use super::{
    harness::{Node, Wire, encode, replies},
    logins::log_in,
    waiting::{open_to_everybody, wire},
};
use crate::{ListenerKind, connection::After};

const MIB: usize = 1 << 20;

fn set<'a>(key: &'a [u8], value: &'a [u8], opaque: u32) -> Request<'a> {
    Request { key, value, extras: &[0; 8], opaque: opaque.into(), ..Request::new(Opcode::Set) }
}

fn of(opcode: Opcode, key: &[u8], opaque: u32) -> Vec<u8> {
    encode(&Request { key, opaque: opaque.into(), ..Request::new(opcode) })
}

/// Writes what the disk does not take until mutations are paced and no credit is left.
fn press(node: &Node, wire: &mut Wire) {
    let value = vec![b'x'; MIB];
    for number in 0..64 {
        let key = format!("big{number}");
        let request = Request { vbucket: VbId(number % 64), ..set(key.as_bytes(), &value, 1000) };
        if replies(&wire.feed(&encode(&request))).is_empty() {
            return;
        }
        node.pace();
    }
    panic!("nothing was held back");
}

#[test]
fn only_the_mutation_waits_where_execution_is_unordered() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::UnorderedExecution, Feature::Xerror]);
    assert_eq!(wire.ask(&set(b"here", b"1", 0)).status, Status::Success);
    press(&node, &mut wire);
    assert_eq!(node.pace(), Pressure::Pacing);
    assert!(wire.feed(&encode(&set(b"later", b"2", 1))).is_empty(), "held back");
    let delete = of(Opcode::Delete, b"here", 3);
    let touch =
        Request { key: b"here", extras: &[0, 0, 1, 0], opaque: 4.into(), ..Request::new(Opcode::Touch) };
    let answers = replies(&wire.feed(&[of(Opcode::Get, b"here", 2), encode(&touch), delete].concat()));
    let answered: Vec<_> = answers.iter().map(|reply| (reply.opaque, reply.status)).collect();
    assert_eq!(answered, [(2, Status::Success), (4, Status::Success), (3, Status::Success)]);
    assert_eq!(replies(&wire.feed(&of(Opcode::Get, b"later", 5)))[0].status, Status::KeyNotFound);

    node.flush();
    assert_eq!(node.pace(), Pressure::None);
    wire.deliver(&node);
    let answers = replies(&wire.feed(b""));
    assert!(answers.iter().any(|reply| reply.opaque == 1 && reply.status == Status::Success));
    assert_eq!(replies(&wire.feed(&of(Opcode::Get, b"later", 6)))[0].value, b"2");
    assert_eq!(node.stats("disk").pacing.refused, 0);
}

#[test]
fn in_order_the_connection_waits_and_goes_on_in_order() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::Xerror]);
    press(&node, &mut wire);
    assert_eq!(wire.after, After::Blocked);
    assert!(wire.feed(&[encode(&set(b"k", b"v", 1)), of(Opcode::Get, b"k", 2)].concat()).is_empty());
    node.flush();
    node.pace();
    wire.deliver(&node);
    let answers = replies(&wire.feed(b""));
    assert_eq!(answers.iter().map(|reply| reply.opaque).collect::<Vec<_>>(), [1000, 1, 2]);
    assert_eq!(answers[2].value, b"v");
}

#[test]
fn a_user_who_may_not_write_is_told_so_at_once_and_takes_no_turn() {
    let mut node = Node::with_disk();
    node.put_user("looker", "lookerpw", "data_reader[disk]");
    let mut writer = wire(&node, &[Feature::UnorderedExecution]);
    press(&node, &mut writer);
    let mut looker = node.connect(ListenerKind::Kv);
    looker.hello(&[Feature::Xerror]);
    log_in(&mut looker, "looker", "lookerpw");
    let select = Request { key: b"disk", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(looker.ask(&select).status, Status::Success);
    assert_eq!(looker.ask(&set(b"k", b"v", 1)).status, Status::NoAccess);
    assert_eq!(node.stats("disk").pacing.waiting, 1, "the writer's");
}

#[test]
fn what_has_waited_long_enough_is_refused_and_has_not_happened() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::UnorderedExecution, Feature::Xerror]);
    press(&node, &mut wire);
    assert!(wire.feed(&encode(&set(b"k", b"v", 1))).is_empty());
    wire.time_out_all();
    let answers = replies(&wire.feed(b""));
    let answer = answers.iter().find(|reply| reply.opaque == 1).unwrap();
    assert_eq!(answer.status, Status::TemporaryFailure);
    assert!(String::from_utf8_lossy(&answer.value).contains("waits for the disk"), "{answer:?}");
    assert_eq!(node.pace(), Pressure::Refusing);
    let stats = node.stats("disk");
    assert_eq!((stats.pacing.waiting, stats.pacing.refused, stats.tmp_oom_errors), (0, 2, 2));
    node.flush();
    node.pace();
    wire.deliver(&node);
    assert!(wire.feed(b"").is_empty(), "nobody is answered twice");
    assert_eq!(replies(&wire.feed(&of(Opcode::Get, b"k", 2)))[0].status, Status::KeyNotFound);
    assert_eq!(wire.ask(&set(b"k", b"v", 3)).status, Status::Success);
}

#[test]
fn a_connection_that_goes_away_leaves_nothing_behind() {
    let node = Node::with_disk();
    let mut gone = wire(&node, &[Feature::UnorderedExecution]);
    press(&node, &mut gone);
    assert_eq!(node.stats("disk").pacing.waiting, 1);
    gone.connection.leave(&gone.context);
    let stats = node.stats("disk").pacing;
    assert_eq!(
        (stats.waiting, stats.waiting_bytes, stats.refused),
        (0, 0, 0),
        "though nothing was let through"
    );
    drop(gone);
    node.flush();
    node.pace();
    let mut other = wire(&node, &[]);
    assert_eq!(other.ask(&set(b"k", b"v", 1)).status, Status::Success);
}

#[test]
fn a_connection_whose_bucket_is_closed_to_it_leaves_nothing_behind() {
    let on_the_port = |node: &mut Node, is_on: bool| {
        let legacy = LegacyParams { memcached_port: Some(is_on), ..LegacyParams::default() };
        let params = BucketParams { legacy, ..BucketParams::default() };
        node.apply(&Command::UpdateBucket { name: "disk".into(), params });
    };
    type Opening<'a> = &'a dyn Fn(&mut Node, bool);
    let ways: [(ListenerKind, Opening<'_>); 2] =
        [(ListenerKind::Kv, &open_to_everybody), (ListenerKind::Memcached, &on_the_port)];
    for (kind, open) in ways {
        let mut node = Node::with_disk();
        open(&mut node, true);
        let mut gone = node.connect(kind);
        if kind == ListenerKind::Kv {
            let select = Request { key: b"disk", ..Request::new(Opcode::SelectBucket) };
            assert_eq!(gone.ask(&select).status, Status::Success);
        }
        press(&node, &mut gone);
        assert_eq!(node.stats("disk").pacing.waiting, 1);
        open(&mut node, false);
        assert!(gone.feed(b"").is_empty());
        assert_eq!(gone.after, After::Close);
        gone.connection.leave(&gone.context);
        assert_eq!(node.stats("disk").pacing.waiting, 0, "{kind:?}");
    }
}

/// However little comes with the request: the whole document goes to the disk once more.
#[test]
fn a_mutation_that_grows_a_document_is_paced_by_what_it_writes() {
    let node = Node::with_disk();
    let features = [Feature::UnorderedExecution, Feature::Xerror];
    let mut writer = wire(&node, &features);
    let large = [&b"{\"a\":\""[..], &vec![b'x'; MIB], b"\"}"].concat();
    assert_eq!(writer.ask(&set(b"large", &large, 0)).status, Status::Success);
    press(&node, &mut writer);
    // Of each connection little may wait.
    let mut others = Vec::new();
    let mut grow = |request: &Request<'_>| {
        let before = node.stats("disk").pacing.waiting_bytes;
        let mut other = wire(&node, &features);
        assert!(other.feed(&encode(request)).is_empty(), "held back");
        others.push(other);
        node.stats("disk").pacing.waiting_bytes - before
    };
    let append = Request { key: b"large", value: b"y", opaque: 1.into(), ..Request::new(Opcode::Append) };
    let path = b"b";
    let extras = [&(path.len() as u16).to_be_bytes()[..], &[0]].concat();
    let upsert = Request {
        key: b"large",
        extras: &extras,
        value: b"b1",
        opaque: 2.into(),
        ..Request::new(Opcode::SubdocDictUpsert)
    };
    for request in [&append, &Request { opcode: Opcode::Prepend, ..append }, &upsert] {
        let bytes = grow(request);
        assert!(bytes > MIB as u64, "{:?} is taken for {bytes} bytes", request.opcode);
    }
    let small = grow(&set(b"large", b"small", 3));
    assert!(small < 1_000, "what replaces the document is not paced by that: {small}");
}
