//! Requests that have to wait for the disk: what is answered when, and what may overtake them.
//!
//! The bucket is on a real segment log; its flusher and fetcher are run by hand, so that "not yet" is certain.

use base::{Datatype, Status, VbId, bucket::DurabilityLevel};
use cluster::{BucketParams, Command, LegacyParams};
use protocol::{
    binary::{
        Durability, Opcode, Request, RequestInfo,
        subdoc::{DocFlags, PathFlags, SPECS_MAX, Spec, SpecOp, encode_multi},
    },
    hello::Feature,
};

use super::{
    harness::{Node, Reply, Wire, encode, replies},
    logins::log_in,
};
use crate::{ListenerKind, connection::After, state::lease};

const KEY: &[u8] = b"k";

pub(super) fn wire(node: &Node, features: &[Feature]) -> Wire {
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(features);
    log_in(&mut wire, "Administrator", "password");
    let select = Request { key: b"disk", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(wire.ask(&select).status, Status::Success);
    wire
}

fn get(opaque: u32) -> Vec<u8> {
    encode(&Request { key: KEY, opaque: opaque.into(), ..Request::new(Opcode::Get) })
}

pub(super) fn durable_set(opaque: u32, timeout_ms: Option<u16>) -> Vec<u8> {
    let durability = Durability { level: DurabilityLevel::PersistToMajority, timeout_ms };
    let info = RequestInfo { durability: Some(durability), ..RequestInfo::default() };
    let extras = &[0; 8];
    encode(&Request {
        key: KEY,
        value: b"v",
        extras,
        info,
        opaque: opaque.into(),
        ..Request::new(Opcode::Set)
    })
}

fn opaques(bytes: &[u8]) -> Vec<u32> {
    replies(bytes).iter().map(|reply| reply.opaque).collect()
}

#[test]
fn a_durable_write_is_acknowledged_and_seen_once_it_is_on_disk() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::AltRequest, Feature::SyncReplication]);
    assert!(wire.feed(&durable_set(1, None)).is_empty());
    assert!(wire.feed(&get(2)).is_empty(), "in order: what follows waits");
    assert_eq!(wire.after, After::Blocked);
    node.flush();
    wire.deliver(&node);
    let answers = replies(&wire.feed(b""));
    assert_eq!(answers.iter().map(|reply| reply.opaque).collect::<Vec<_>>(), [1, 2]);
    assert!(answers.iter().all(|reply| reply.status == Status::Success));
    assert_eq!(answers[0].cas, answers[1].cas);
}

/// No status says that it may still be carried out.
#[test]
fn a_write_that_waits_while_its_bucket_is_closed_to_everybody_is_not_refused() {
    let mut node = Node::with_disk();
    open_to_everybody(&mut node, true);
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::AltRequest, Feature::SyncReplication, Feature::Xerror]);
    let select = Request { key: b"disk", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(wire.ask(&select).status, Status::Success);
    assert!(wire.feed(&durable_set(1, None)).is_empty());
    open_to_everybody(&mut node, false);
    node.flush();
    wire.deliver(&node);
    assert!(wire.feed(b"").is_empty());
    assert_eq!(wire.after, After::Close);
    assert_eq!(node.stats("disk").curr_items, 1, "it was carried out");
}

/// Opens the persistent bucket to clients without a login, or closes it.
pub(super) fn open_to_everybody(node: &mut Node, is_open: bool) {
    let legacy = LegacyParams { passwordless: Some(is_open), ..LegacyParams::default() };
    let params = BucketParams { legacy, ..BucketParams::default() };
    node.apply(&Command::UpdateBucket { name: "disk".into(), params });
}

/// Whichever node serves next has it, and lets nobody read an older value: `docs/promises.md`.
#[test]
fn a_write_that_is_durable_after_the_lease_has_run_out_is_acknowledged_all_the_same() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::AltRequest, Feature::SyncReplication]);
    assert!(wire.feed(&durable_set(1, None)).is_empty());
    node.shared.lease.require(lease::clock_millis());
    node.flush();
    wire.deliver(&node);
    let answers = replies(&wire.feed(&[get(2), durable_set(3, None)].concat()));
    let answered: Vec<_> = answers.iter().map(|reply| (reply.opaque, reply.status)).collect();
    let refused = Status::TemporaryFailure;
    assert_eq!(answered, [(1, Status::Success), (2, refused), (3, refused)]);
}

#[test]
fn others_overtake_a_waiting_write_where_that_was_negotiated_unless_there_is_a_barrier() {
    let node = Node::with_disk();
    let features = [Feature::AltRequest, Feature::SyncReplication, Feature::UnorderedExecution];
    let mut wire = wire(&node, &features);
    assert!(wire.feed(&durable_set(1, None)).is_empty());
    let early = replies(&wire.feed(&get(2)));
    assert_eq!(
        (early[0].opaque, early[0].status),
        (2, Status::KeyNotFound),
        "not visible before it is durable"
    );
    let noop = |opaque: u32| encode(&Request { opaque: opaque.into(), ..Request::new(Opcode::Noop) });
    assert!(wire.feed(&[noop(3), get(4)].concat()).is_empty(), "a command that does not reorder waits");
    node.flush();
    wire.deliver(&node);
    assert_eq!(opaques(&wire.feed(b"")), [1, 3, 4]);

    let barrier = RequestInfo { barrier: true, ..RequestInfo::default() };
    let fenced = encode(&Request { key: KEY, info: barrier, opaque: 6.into(), ..Request::new(Opcode::Get) });
    assert!(wire.feed(&[durable_set(5, None), fenced, get(7)].concat()).is_empty());
    node.flush();
    wire.deliver(&node);
    assert_eq!(opaques(&wire.feed(b"")), [5, 6, 7]);
}

#[test]
fn durable_writes_in_progress_are_counted_by_vbucket() {
    let node = Node::with_disk();
    let mut writer = wire(&node, &[Feature::AltRequest, Feature::SyncReplication]);
    let mut reader = wire(&node, &[]);
    let mut tracked = || {
        let stats = reader.ask_all(&Request { key: b"durability-monitor 0", ..Request::new(Opcode::Stat) });
        let of = |name: &str| stats.iter().find(|stat| stat.key == name.as_bytes()).map(Reply::text).unwrap();
        assert_eq!(of("vb_0:state"), "active");
        (of("vb_0:num_tracked"), of("vb_0:high_completed_seqno") == "0")
    };
    assert_eq!(tracked(), ("0".into(), true));
    assert!(writer.feed(&durable_set(1, None)).is_empty());
    assert_eq!(tracked(), ("1".into(), true));
    node.flush();
    writer.deliver(&node);
    assert_eq!(tracked(), ("0".into(), false));
}

#[test]
fn a_durable_write_that_takes_too_long_is_ambiguous() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::AltRequest, Feature::SyncReplication, Feature::Xerror]);
    assert!(wire.feed(&durable_set(1, Some(1))).is_empty());
    wire.time_out_all();
    assert_eq!(replies(&wire.feed(b""))[0].status, Status::SyncWriteAmbiguous);
    node.flush();
    wire.deliver(&node);
    assert_eq!(replies(&wire.feed(&get(2)))[0].status, Status::KeyNotFound, "it was aborted");
}

/// Each key of the list may need a fetch of its own.
#[test]
fn many_documents_that_are_on_disk_only_are_observed_at_once() {
    let mut node = Node::with_disk();
    let mut writer = wire(&node, &[]);
    let keys: Vec<String> = (0..40).map(|number| format!("cold{number}")).collect();
    let mut list = Vec::new();
    for key in keys.iter().map(String::as_bytes) {
        let set = Request { key, value: b"v", extras: &[0; 8], ..Request::new(Opcode::Set) };
        assert_eq!(writer.ask(&set).status, Status::Success);
        list.extend_from_slice(&[0, 0, 0, key.len() as u8]);
        list.extend_from_slice(key);
    }
    node.flush();
    drop(writer);
    node.reopen_disk();
    let mut wire = wire(&node, &[]);
    let observe = Request { value: &list, ..Request::new(Opcode::Observe) };
    let mut answer = wire.feed(&encode(&observe));
    for _ in 0..keys.len() {
        assert!(answer.is_empty());
        node.fetch();
        wire.deliver(&node);
        answer = wire.feed(b"");
    }
    let answer = replies(&answer).remove(0);
    assert_eq!((answer.status, answer.value.len()), (Status::Success, list.len() + 9 * keys.len()));
}

#[test]
fn seqno_persistence_answers_after_the_sync() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::MutationSeqno]);
    let set = Request { key: KEY, value: b"v", extras: &[0; 8], ..Request::new(Opcode::Set) };
    let token = wire.ask(&set).extras;
    let wait = encode(&Request { extras: &token[8..], ..Request::new(Opcode::SeqnoPersistence) });
    assert!(wire.feed(&wait).is_empty());
    node.flush();
    wire.deliver(&node);
    assert_eq!(replies(&wire.feed(b""))[0].status, Status::Success);
    assert_eq!(replies(&wire.feed(&wait))[0].status, Status::Success, "at once");
}

#[test]
fn documents_that_left_memory_are_fetched_while_their_requests_wait() {
    let mut node = Node::with_disk();
    {
        let mut wire = wire(&node, &[]);
        let set = |key, value| Request { key, value, extras: &[0; 8], ..Request::new(Opcode::Set) };
        assert_eq!(wire.ask(&set(KEY, b"cold")).status, Status::Success);
        assert_eq!(wire.ask(&set(b"n", b"5")).status, Status::Success);
    }
    node.flush();
    node.reopen_disk();
    let mut wire = wire(&node, &[]);
    let mut counter = 1_u64.to_be_bytes().to_vec();
    counter.extend([0; 12]);
    let requests = [
        get(1),
        encode(&Request { key: b"n", extras: &counter, opaque: 2.into(), ..Request::new(Opcode::Increment) }),
        encode(&Request { key: KEY, value: b"er", opaque: 3.into(), ..Request::new(Opcode::Append) }),
        get(4),
        encode(&Request { key: b"absent", opaque: 5.into(), ..Request::new(Opcode::Get) }),
    ];
    let mut answers = wire.feed(&requests.concat());
    for _ in 0..10 {
        node.fetch();
        wire.deliver(&node);
        answers.extend(wire.feed(b""));
    }
    let answers = replies(&answers);
    assert_eq!(answers.iter().map(|reply| reply.opaque).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!((answers[0].text(), answers[1].value.clone()), ("cold".into(), 6_u64.to_be_bytes().to_vec()));
    assert_eq!((answers[3].text(), answers[4].status), ("colder".into(), Status::KeyNotFound));
}

fn cold_keys() -> Vec<String> {
    (0..20).map(|number| format!("cold-{number}")).collect()
}

#[test]
fn a_pipeline_of_documents_on_disk_is_fetched_together() {
    let mut node = Node::with_disk();
    let keys = cold_keys();
    let each = |opcode, extras| {
        let request = |key: &String| encode(&Request { key: key.as_bytes(), extras, ..Request::new(opcode) });
        keys.iter().map(request).collect::<Vec<_>>().concat()
    };
    assert_eq!(replies(&wire(&node, &[]).feed(&each(Opcode::Set, &[0; 8]))).len(), keys.len());
    node.flush();
    node.reopen_disk();
    let mut wire = wire(&node, &[]);
    assert!(wire.feed(&each(Opcode::Get, &[])).is_empty());
    // Everything is asked for by now, so that one round of the fetchers serves the whole pipeline.
    node.fetch();
    wire.deliver(&node);
    let answers = replies(&wire.feed(b""));
    assert_eq!(answers.len(), keys.len());
    assert!(answers.iter().all(|answer| answer.status == Status::Success));
}

#[test]
fn so_is_a_list_of_them_in_text() {
    let mut node = Node::with_disk();
    for (name, on) in [("cache", false), ("disk", true)] {
        let legacy = LegacyParams { memcached_port: Some(on), ..LegacyParams::default() };
        let params = BucketParams { legacy, ..BucketParams::default() };
        node.apply(&Command::UpdateBucket { name: name.into(), params });
    }
    let keys = cold_keys();
    let sets: String = keys.iter().map(|key| format!("set {key} 0 0 1\r\nx\r\n")).collect();
    node.connect(ListenerKind::Memcached).feed(sets.as_bytes());
    node.flush();
    node.reopen_disk();
    let mut wire = node.connect(ListenerKind::Memcached);
    let (first, others) = keys.split_at(10);
    let asked = format!("get {}\r\nget {}\r\n", first.join(" "), others.join(" "));
    assert!(wire.feed(asked.as_bytes()).is_empty());
    let mut answer = Vec::new();
    // A list asks for its keys one after the other, a turn each; none waits for the disk again.
    node.fetch();
    for _ in 0..keys.len() {
        wire.deliver(&node);
        answer.extend(wire.feed(b""));
    }
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(answer.matches("VALUE cold-").count(), keys.len(), "{answer}");
}

#[test]
fn searches_in_large_documents_take_turns_with_other_connections() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    // As large as a loop looks at itself.
    let document = format!("{{\"a\":[{}1]}}", "1,".repeat(31 << 10));
    let set = Request { key: b"k", value: document.as_bytes(), extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(wire.ask(&set).status, Status::Success);
    let spec = Spec { op: SpecOp::Exists, flags: PathFlags::NONE, path: b"b", value: b"" };
    let (extras, value) = encode_multi(&[spec; SPECS_MAX], DocFlags::NONE, None).unwrap();
    let search =
        Request { key: b"k", extras: &extras, value: &value, ..Request::new(Opcode::SubdocMultiLookup) };
    let before = wire.turns;
    let answers = replies(&wire.feed(&encode(&search).repeat(64)));
    assert_eq!(answers.len(), 64);
    assert!(answers.iter().all(|answer| answer.status == Status::SubdocMultiPathFailure));
    assert!(wire.turns > before + 1, "64 MiB in one turn");
}

#[test]
fn documents_too_large_to_count_with_take_turns_with_other_connections() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let value = vec![b'x'; 8 << 20];
    let set = Request { key: b"k", value: &value, extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(wire.ask(&set).status, Status::Success);
    let count = Request { key: b"k", extras: &[0; 20], ..Request::new(Opcode::Increment) };
    let before = wire.turns;
    let answers = replies(&wire.feed(&encode(&count).repeat(32)));
    assert_eq!(answers.len(), 32);
    assert!(answers.iter().all(|answer| answer.status == Status::DeltaBadValue));
    assert!(wire.turns > before + 1, "256 MiB in one turn");
}

#[test]
fn a_scan_shows_attributes_only_where_they_are_understood() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::Xattr, Feature::Json, Feature::Xerror]);
    let spec = Spec { op: SpecOp::DictUpsert, flags: PathFlags::XATTR, path: b"a", value: b"1" };
    let (extras, value) = encode_multi(&[spec], DocFlags::CREATE, None).unwrap();
    let change =
        Request { key: KEY, extras: &extras, value: &value, ..Request::new(Opcode::SubdocMultiMutation) };
    assert_eq!(wire.ask(&change).status, Status::Success);
    node.flush();
    let config = br#"{"include_xattrs":true}"#;
    let create = Request { value: config, datatype: Datatype::JSON, ..Request::new(Opcode::RangeScanCreate) };
    assert!(wire.ask_all(&create).is_empty());
    node.backfill("disk");
    wire.time_out_all();
    let created = replies(&wire.feed(b"")).remove(0);
    assert_eq!(created.status, Status::Success);
    let extras = [&created.value[..], &[0; 12]].concat();
    let go_on = Request { extras: &extras, ..Request::new(Opcode::RangeScanContinue) };
    let mut other = node.connect(ListenerKind::Kv);
    other.hello(&[Feature::Json, Feature::Xerror]);
    log_in(&mut other, "Administrator", "password");
    let select = Request { key: b"disk", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(other.ask(&select).status, Status::Success);
    let scanned = other.ask(&go_on);
    assert_eq!(scanned.status, Status::RangeScanComplete);
    // Metadata, the key, and the body that such a document is created with.
    let datatype = Datatype(scanned.value[24]);
    assert!(!datatype.contains(Datatype::XATTR));
    assert_eq!(scanned.value[25..], [b"\x01", KEY, b"\x02{}"].concat());
}

#[test]
fn nothing_is_waited_for_until_the_end_of_time() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::Json, Feature::Xerror]);
    let uuid = node.vb_uuid("disk", VbId(0)).get();
    let config = format!(
        r#"{{"snapshot_requirements":{{"vb_uuid":"{uuid}","seqno":1000000,"timeout_ms":{}}}}}"#,
        u64::MAX
    );
    let create = Request {
        value: config.as_bytes(),
        datatype: Datatype::JSON,
        ..Request::new(Opcode::RangeScanCreate)
    };
    assert!(wire.ask_all(&create).is_empty());
    let now = wire.context.now.mono_millis;
    let deadline = wire.context.deadlines.peek().map(|std::cmp::Reverse((millis, _))| *millis);
    assert!(deadline.is_some_and(|deadline| deadline <= now + 3_600_000), "{deadline:?}");
    wire.time_out_all();
    assert_eq!(replies(&wire.feed(b""))[0].status, Status::TemporaryFailure);
}
