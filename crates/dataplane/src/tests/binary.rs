//! Commands of the binary protocol, request by request, over a connection without a socket.

use base::{Cas, CollectionId, Datatype, Status, VbId, bucket::CompressionMode};
use cluster::Command;
use engine::BucketChange;
use protocol::{
    binary::{Decoded, Impersonate, Opcode, Request, RequestInfo, ServerDuration, decode_frame_within},
    hello::Feature,
};

use super::harness::{Node, Reply, Wire, encode, replies};
use crate::{
    ListenerKind,
    connection::After,
    figures::meter::{LatencyStep, OpKind},
    net::output::BY_REFERENCE_BYTES,
};

const KEY: &[u8] = b"k1";

fn get(key: &[u8]) -> Request<'_> {
    Request { key, ..Request::new(Opcode::Get) }
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, value, extras: &[2, 0, 0, 0, 0, 0, 0, 0], ..Request::new(Opcode::Set) }
}

/// On the bucket that needs no password, with every feature an SDK asks for.
fn modern(node: &Node) -> Wire {
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[
        Feature::MutationSeqno,
        Feature::Xerror,
        Feature::SelectBucket,
        Feature::Snappy,
        Feature::Json,
        Feature::AltRequest,
        Feature::SyncReplication,
        Feature::Collections,
        Feature::PreserveTtl,
    ]);
    assert_eq!(
        wire.ask(&Request { key: b"default", ..Request::new(Opcode::SelectBucket) }).status,
        Status::Success
    );
    wire
}

fn with<'a>(wire: &mut Wire, request: Request<'a>) -> Reply {
    wire.ask(&Request { collection: Some(CollectionId::DEFAULT), ..request })
}

#[test]
fn a_document_comes_back_as_it_was_stored() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    assert_eq!(wire.ask(&get(KEY)).status, Status::KeyNotFound);
    let stored = wire.ask(&Request { opaque: 77.into(), ..set(KEY, b"value") });
    assert_eq!((stored.status, stored.opaque, stored.value.len()), (Status::Success, 77, 0));
    let read = wire.ask(&get(KEY));
    assert_eq!(
        (read.cas, read.extras.as_slice(), read.text().as_str()),
        (stored.cas, &[2, 0, 0, 0][..], "value")
    );
    let read = wire.ask(&Request { opcode: Opcode::Getk, ..get(KEY) });
    assert_eq!((read.key.as_slice(), read.text().as_str()), (KEY, "value"));
    let deleted = wire.ask(&Request { key: KEY, ..Request::new(Opcode::Delete) });
    assert_eq!(deleted.status, Status::Success);
    assert_eq!(wire.ask(&get(KEY)).text(), "Not found");
}

#[test]
fn large_values_go_by_reference_and_arrive_whole() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let value: Vec<u8> = (0..100_000_u32).map(|index| (index % 251) as u8).collect();
    assert_eq!(wire.ask(&set(KEY, &value)).status, Status::Success);
    let two = [encode(&get(KEY)), encode(&Request { opaque: 9.into(), ..get(KEY) })].concat();
    let replies = replies(&wire.feed(&two));
    assert_eq!(replies.iter().map(|reply| reply.opaque).collect::<Vec<_>>(), [0, 9]);
    assert!(replies.iter().all(|reply| reply.value == value));
}

#[test]
fn quiet_commands_speak_up_only_when_there_is_something_to_say() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    assert!(wire.ask_all(&Request { opcode: Opcode::Getq, ..get(KEY) }).is_empty());
    assert!(wire.ask_all(&Request { opcode: Opcode::Setq, ..set(KEY, b"v") }).is_empty());
    assert_eq!(wire.ask(&Request { opcode: Opcode::Addq, ..set(KEY, b"v") }).status, Status::KeyExists);
    assert_eq!(wire.ask(&Request { opcode: Opcode::Getkq, ..get(KEY) }).key, KEY);
    assert!(wire.ask_all(&Request { key: KEY, ..Request::new(Opcode::Deleteq) }).is_empty());
    assert_eq!(wire.ask(&Request { key: KEY, ..Request::new(Opcode::Deleteq) }).status, Status::KeyNotFound);
}

#[test]
fn a_multi_get_of_the_old_clients_ends_with_its_noop() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.ask(&set(b"a", b"1"));
    wire.ask(&set(b"c", b"3"));
    let mut batch = Vec::new();
    for (opaque, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
        batch.extend(encode(&Request { opcode: Opcode::Getq, opaque: opaque.into(), ..get(key) }));
    }
    batch.extend(encode(&Request { opaque: 4.into(), ..Request::new(Opcode::Noop) }));
    let replies = replies(&wire.feed(&batch));
    assert_eq!(replies.iter().map(|reply| reply.opaque).collect::<Vec<_>>(), [1, 3, 4]);
}

#[test]
fn counters_count_and_mind_their_edges() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let counter = |opcode, delta: u64, expiry: u32| {
        let mut extras = delta.to_be_bytes().to_vec();
        extras.extend(10_u64.to_be_bytes());
        extras.extend(expiry.to_be_bytes());
        encode(&Request { key: KEY, extras: &extras, ..Request::new(opcode) })
    };
    let mut count = |opcode, delta, expiry| replies(&wire.feed(&counter(opcode, delta, expiry))).remove(0);
    assert_eq!(count(Opcode::Increment, 1, u32::MAX).status, Status::KeyNotFound);
    assert_eq!(count(Opcode::Increment, 1, 0).value, 10_u64.to_be_bytes());
    assert_eq!(count(Opcode::Increment, 5, 0).value, 15_u64.to_be_bytes());
    assert_eq!(count(Opcode::Decrement, 100, 0).value, 0_u64.to_be_bytes());
    assert_eq!(wire.ask(&get(KEY)).text(), "0");
    wire.ask(&set(KEY, b"text"));
    assert_eq!(replies(&wire.feed(&counter(Opcode::Increment, 1, 0)))[0].status, Status::DeltaBadValue);
}

#[test]
fn locks_show_each_kind_of_client_the_status_it_knows() {
    let node = Node::new();
    let mut wire = modern(&node);
    let stored = with(&mut wire, set(KEY, b"v"));
    let locked =
        with(&mut wire, Request { key: KEY, extras: &[0, 0, 0, 10], ..Request::new(Opcode::GetLocked) });
    assert_eq!((locked.status, locked.text().as_str()), (Status::Success, "v"));
    assert_ne!(locked.cas, stored.cas);
    assert_eq!(with(&mut wire, get(KEY)).cas, u64::MAX);
    assert_eq!(with(&mut wire, set(KEY, b"w")).status, Status::Locked);
    let mut old = node.connect(ListenerKind::Kv);
    assert_eq!(old.ask(&set(KEY, b"w")).status, Status::KeyExists);
    let refused = old.ask(&Request { key: KEY, ..Request::new(Opcode::GetLocked) });
    assert_eq!((refused.status, refused.text().as_str()), (Status::TemporaryFailure, "Temporary failure"));
    let unlock = |cas| Request { key: KEY, cas: Cas(cas), ..Request::new(Opcode::UnlockKey) };
    assert_eq!(with(&mut wire, unlock(stored.cas)).status, Status::Locked);
    assert_eq!(with(&mut wire, unlock(locked.cas)).status, Status::Success);
    assert_eq!(with(&mut wire, unlock(locked.cas)).status, Status::NotLocked);
    assert_eq!(with(&mut wire, set(KEY, b"w")).status, Status::Success);
}

#[test]
fn mutations_carry_tokens_and_json_is_found_out() {
    let node = Node::new();
    let mut wire = modern(&node);
    let stored = with(&mut wire, set(KEY, b"{\"a\":1}"));
    assert_eq!(stored.extras.len(), 16);
    let read = with(&mut wire, get(KEY));
    assert_eq!(read.datatype, Datatype::JSON);
    // Claimed, and not true.
    with(&mut wire, Request { datatype: Datatype::JSON, ..set(KEY, b"{a:1}") });
    assert_eq!(with(&mut wire, get(KEY)).datatype, Datatype::RAW);
    // A client that did not negotiate the bit does not see it.
    with(&mut wire, set(KEY, b"[]"));
    assert_eq!(node.connect(ListenerKind::Kv).ask(&get(KEY)).datatype, Datatype::RAW);
}

#[test]
fn compressed_values_stay_so_for_those_who_understand_and_are_inflated_for_the_rest() {
    let node = Node::new();
    let mut wire = modern(&node);
    let json = format!("{{\"text\":\"{}\"}}", "x".repeat(500));
    let block = snap::raw::Encoder::new().compress_vec(json.as_bytes()).unwrap();
    let stored = with(&mut wire, Request { datatype: Datatype::SNAPPY, ..set(KEY, &block) });
    assert_eq!(stored.status, Status::Success);
    let read = with(&mut wire, get(KEY));
    assert_eq!((read.datatype, read.value), (Datatype(3), block.clone()));
    let read = node.connect(ListenerKind::Kv).ask(&get(KEY));
    assert_eq!((read.datatype, read.text()), (Datatype::RAW, json.clone()));
    let off = BucketChange { compression: Some(CompressionMode::Off), ..BucketChange::default() };
    node.bucket("default").reconfigure(off);
    with(&mut wire, Request { datatype: Datatype::SNAPPY, ..set(KEY, &block) });
    let read = with(&mut wire, get(KEY));
    assert_eq!(
        (read.datatype, read.text()),
        (Datatype::JSON, json),
        "where the bucket keeps none compressed"
    );
    let refused =
        with(&mut wire, Request { datatype: Datatype::SNAPPY, ..set(KEY, b"\xff\xff\xff\xff\xff\xff") });
    assert_eq!((refused.status, refused.datatype), (Status::Invalid, Datatype::JSON));
    assert!(refused.text().contains("\"context\""), "{}", refused.text());
    let mut old = node.connect(ListenerKind::Kv);
    let refused = old.ask(&Request { datatype: Datatype::SNAPPY, ..set(KEY, b"v") });
    assert_eq!((refused.status, refused.text().as_str()), (Status::Invalid, "Invalid arguments"));
}

#[test]
fn what_is_not_built_says_so_and_what_does_not_exist_as_well() {
    let node = Node::new();
    let mut wire = modern(&node);
    assert_eq!(wire.ask(&Request::new(Opcode::StopPersistence)).status, Status::NotSupported);
    let mut unknown = encode(&Request::new(Opcode::Noop));
    unknown[1] = 0xd9;
    assert_eq!(replies(&wire.feed(&unknown))[0].status, Status::UnknownCommand);
    assert_eq!(
        with(&mut wire, Request { opcode: Opcode::GetReplica, ..get(KEY) }).status,
        Status::NotMyVbucket
    );
    let hello = wire.ask(&Request { value: &[0, 7, 0, 0x1a], ..Request::new(Opcode::Hello) });
    assert_eq!(hello.value, [0, 7], "no report of units while nothing is metered");
}

#[test]
fn the_wrong_vbucket_brings_the_map_once() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Json, Feature::Xerror, Feature::DedupeNotMyVbucketMap, Feature::SnappyEverywhere]);
    let wrong = Request { vbucket: VbId(64), ..get(KEY) };
    let refused = wire.ask(&wrong);
    assert_eq!((refused.status, refused.datatype), (Status::NotMyVbucket, Datatype(3)));
    let json = snap::raw::Decoder::new().decompress_vec(&refused.value).unwrap();
    assert!(String::from_utf8(json).unwrap().contains("\"vBucketServerMap\""));
    assert!(wire.ask(&wrong).value.is_empty());
    let mut old = node.connect(ListenerKind::Kv);
    assert!(old.ask(&wrong).text().starts_with('{'));
    assert!(old.ask(&wrong).text().starts_with('{'));
}

#[test]
fn a_newer_map_is_pushed_to_those_who_asked_for_it() {
    let mut node = Node::new();
    let mut whole = node.connect(ListenerKind::Kv);
    whole.hello(&[Feature::Json, Feature::Duplex, Feature::ClustermapChangeNotification]);
    let mut brief = node.connect(ListenerKind::Kv);
    brief.hello(&[Feature::Json, Feature::Duplex, Feature::ClustermapChangeNotificationBrief]);
    for wire in [&mut whole, &mut brief] {
        let config = wire.ask(&Request::new(Opcode::GetClusterConfig));
        assert!(config.text().contains("\"name\":\"default\""), "{}", config.text());
        assert!(wire.feed(b"").is_empty());
    }
    node.apply(&Command::CreateScope { bucket: "default".into(), scope: "more".into() });
    let version = node.version();
    let pushed = replies(&whole.feed(b"")).remove(0);
    assert_eq!((pushed.magic, pushed.opcode, pushed.key.as_slice()), (0x82, 0x01, &b"default"[..]));
    assert!(pushed.text().contains(&format!("\"rev\":{}", version.rev)));
    let pushed = replies(&brief.feed(b"")).remove(0);
    let expected = [version.epoch.to_be_bytes(), version.rev.to_be_bytes()].concat();
    assert_eq!((pushed.magic, pushed.extras, pushed.value.len()), (0x82, expected.clone(), 0));
    assert!(whole.feed(b"").is_empty() && brief.feed(b"").is_empty(), "once");
    let known = brief.ask(&Request { extras: &expected, ..Request::new(Opcode::GetClusterConfig) });
    assert_eq!((known.status, known.value.len()), (Status::Success, 0));
    // Its answer to the push is none of our business.
    let mut answer = encode(&Request::new(Opcode::Set));
    answer[0] = 0x83;
    assert!(whole.feed(&answer).is_empty());
    assert!(matches!(whole.after, After::Need(_)));
}

/// What has waited is the newest by then, and nobody is told of what lies between.
#[test]
fn a_client_that_does_not_ask_is_told_of_no_newer_map_while_a_rebalance_goes_on() {
    let mut node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Json, Feature::Duplex, Feature::ClustermapChangeNotificationBrief]);
    let ask = |wire: &mut Wire| wire.ask(&Request::new(Opcode::GetClusterConfig)).text();
    let is_told = |wire: &mut Wire| !wire.feed(b"").is_empty();
    assert!(!ask(&mut wire).is_empty());
    node.rebalance(true);
    assert!(is_told(&mut wire));
    for more in ["one", "two", "three"] {
        node.apply(&Command::CreateScope { bucket: "default".into(), scope: more.into() });
        assert!(!is_told(&mut wire));
    }
    assert_eq!(wire.context.deadlines.len(), 1, "it is woken once");
    let newest = format!("\"rev\":{},", node.version().rev);
    assert!(ask(&mut wire).contains(&newest) && !is_told(&mut wire), "it has asked for the newest");

    let mut scopes = 0;
    let mut more = |node: &mut Node| {
        scopes += 1;
        node.apply(&Command::CreateScope { bucket: "default".into(), scope: format!("more{scopes}") });
    };
    more(&mut node);
    assert!(is_told(&mut wire), "it has asked for the one before");
    more(&mut node);
    assert!(!is_told(&mut wire));
    wire.connection.session.rest_pushes_until(0);
    assert!(is_told(&mut wire), "it may have that map from another node");
    more(&mut node);
    assert!(!is_told(&mut wire));
    node.rebalance(false);
    assert!(is_told(&mut wire), "the end waits for nothing");
}

#[test]
fn a_client_that_asks_for_what_has_moved_gets_the_map_that_nobody_is_told_of_yet() {
    let mut node = Node::new();
    let [mut asking, mut waiting] = [(); 2].map(|()| {
        let mut wire = node.connect(ListenerKind::Kv);
        let told = Feature::ClustermapChangeNotification;
        wire.hello(&[Feature::Json, Feature::Duplex, told, Feature::DedupeNotMyVbucketMap]);
        assert!(wire.ask(&Request::new(Opcode::GetClusterConfig)).text().starts_with('{'));
        wire
    });
    let mut old = node.connect(ListenerKind::Kv);
    node.holds_back = true;
    node.give_half_to("default", "127.0.0.1:11210".parse().unwrap());
    node.switch("default", VbId(2), false);
    let [moved, moving] = [1, 2].map(|vb| Request { vbucket: VbId(vb), ..get(KEY) });
    let newest = format!("\"rev\":{},", node.version().rev);
    assert!(asking.feed(b"").is_empty() && waiting.feed(b"").is_empty());

    let refused = waiting.ask(&moving);
    assert_eq!((refused.status, refused.value.len()), (Status::NotMyVbucket, 0), "there is no news of it");
    assert!(!old.ask(&moving).text().contains(&newest));
    let refused = asking.ask(&moved);
    assert_eq!(refused.status, Status::NotMyVbucket);
    assert!(refused.text().contains(&newest), "{}", refused.text());
    assert!(asking.ask(&moved).value.is_empty(), "once");
    assert!(asking.ask(&moving).value.is_empty() && asking.feed(b"").is_empty(), "nothing older");
    assert!(old.ask(&moved).text().contains(&newest));
    assert!(old.ask(&moving).text().contains(&newest), "nothing older");
    let asked = node.connect(ListenerKind::Kv).ask(&Request::new(Opcode::GetClusterConfig));
    assert!(asked.text().contains(&newest));

    node.holds_back = false;
    node.apply(&Command::SetClusterName("told".into()));
    let newest = format!("\"rev\":{},", node.version().rev);
    for wire in [&mut asking, &mut waiting] {
        assert!(replies(&wire.feed(b"")).remove(0).text().contains(&newest));
    }
}

#[test]
fn collections_are_found_by_name_used_by_id_and_gone_when_dropped() {
    let mut node = Node::new();
    let mut wire = modern(&node);
    node.apply(&Command::CreateScope { bucket: "default".into(), scope: "s".into() });
    let create = Command::CreateCollection {
        bucket: "default".into(),
        scope: "s".into(),
        collection: "c".into(),
        max_ttl: 0,
    };
    node.apply(&create);
    let found = wire.ask(&Request { value: b"s.c", ..Request::new(Opcode::CollectionsGetId) });
    assert_eq!((found.status, found.extras.len()), (Status::Success, 12));
    let id = CollectionId(u32::from_be_bytes(found.extras[8..].try_into().unwrap()));
    let here = |request| Request { collection: Some(id), ..request };
    assert_eq!(wire.ask(&here(set(KEY, b"in c"))).status, Status::Success);
    assert_eq!(wire.ask(&here(get(KEY))).text(), "in c");
    assert_eq!(with(&mut wire, get(KEY)).status, Status::KeyNotFound);
    let manifest = wire.ask(&Request::new(Opcode::CollectionsGetManifest)).text();
    assert!(manifest.contains("\"name\":\"c\""), "{manifest}");
    let drop =
        Command::DropCollection { bucket: "default".into(), scope: "s".into(), collection: "c".into() };
    node.apply(&drop);
    let gone = wire.ask(&here(get(KEY)));
    assert_eq!((gone.status, gone.datatype), (Status::UnknownCollection, Datatype::JSON));
    assert!(gone.text().contains("manifest_uid"), "{}", gone.text());
    for (path, status) in [
        (&b"s.c"[..], Status::UnknownCollection),
        (b"x.c", Status::UnknownScope),
        (b"no dot", Status::Invalid),
        (b"s.c!", Status::Invalid),
    ] {
        let reply = wire.ask(&Request { value: path, ..Request::new(Opcode::CollectionsGetId) });
        assert_eq!(reply.status, status, "{path:?}");
    }
    let scope = wire.ask(&Request { value: b"s", ..Request::new(Opcode::CollectionsGetScopeId) });
    assert_eq!(scope.extras.len(), 12);
}

#[test]
fn durability_is_honest_about_one_node() {
    let node = Node::new();
    let mut wire = modern(&node);
    let durable = |level, timeout_ms| {
        let durability = protocol::binary::Durability { level, timeout_ms };
        let info = RequestInfo { durability: Some(durability), ..RequestInfo::default() };
        Request { info, collection: Some(CollectionId::DEFAULT), ..set(KEY, b"v") }
    };
    use base::bucket::DurabilityLevel as Level;
    assert_eq!(wire.ask(&durable(Level::Majority, Some(1500))).status, Status::Success);
    let refused = wire.ask(&durable(Level::PersistToMajority, None)).status;
    assert_eq!(refused, Status::DurabilityInvalidLevel, "there is no disk");
}

#[test]
fn observe_and_seqnos_follow_the_mutations() {
    let node = Node::new();
    let mut wire = modern(&node);
    let stored = with(&mut wire, set(KEY, b"v"));
    let (uuid, seqno) = stored.extras.split_at(8);
    let observed = wire.ask(&Request { value: uuid, ..Request::new(Opcode::ObserveSeqno) });
    assert_eq!((observed.value[0], &observed.value[3..11], &observed.value[19..27]), (0, uuid, seqno));
    let list = [&[0, 0, 0, 3, 0][..], KEY].concat();
    let observed = wire.ask(&Request { value: &list, ..Request::new(Opcode::Observe) });
    assert_eq!(&observed.value[8..], stored.cas.to_be_bytes());
    let old = node
        .connect(ListenerKind::Kv)
        .ask(&Request { extras: &[0, 0, 0, 2, b'k', b'1'], ..Request::new(Opcode::Observe) });
    assert_eq!(&old.value[7..], stored.cas.to_be_bytes(), "as the clients of 2014 send it");
    assert_eq!(wire.ask(&Request::new(Opcode::Observe)).status, Status::Invalid);
    let all = wire.ask(&Request::new(Opcode::GetAllVbSeqnos));
    assert_eq!((all.value.len(), &all.value[2..10]), (64 * 10, seqno));
    let log = wire.ask(&Request::new(Opcode::GetFailoverLog));
    assert_eq!(&log.value[..8], uuid);
    let unknown = wire.ask(&Request { value: &[9; 8], ..Request::new(Opcode::ObserveSeqno) });
    assert_eq!(unknown.status, Status::KeyNotFound);
    let waiting = wire.ask(&Request { extras: seqno, ..Request::new(Opcode::SeqnoPersistence) });
    assert_eq!(waiting.status, Status::NotSupported, "there is no disk");
}

#[test]
fn metadata_can_be_read_and_brought_along() {
    let node = Node::new();
    let mut wire = modern(&node);
    let mut extras = vec![0, 0, 0, 5, 0, 0, 0, 0];
    extras.extend(9_u64.to_be_bytes());
    extras.extend(0x1234_0000_u64.to_be_bytes());
    let brought = Request { key: KEY, value: b"{}", extras: &extras, ..Request::new(Opcode::SetWithMeta) };
    assert_eq!(with(&mut wire, brought).status, Status::Success);
    let meta = with(&mut wire, Request { key: KEY, extras: &[2], ..Request::new(Opcode::GetMeta) });
    assert_eq!((meta.cas, meta.extras.len(), meta.extras[20]), (0x1234_0000, 21, 1));
    assert_eq!(&meta.extras[12..20], 9_u64.to_be_bytes());
    assert_eq!(
        with(&mut wire, brought).status,
        Status::KeyExists,
        "the same version does not win over itself"
    );
    with(&mut wire, Request { key: KEY, ..Request::new(Opcode::Delete) });
    let meta = with(&mut wire, Request { key: KEY, extras: &[2], ..Request::new(Opcode::GetMeta) });
    assert_eq!((meta.status, meta.extras[3]), (Status::Success, 1));
}

#[test]
fn statistics_come_as_pairs_and_end_with_an_empty_one() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.ask(&set(KEY, b"v"));
    wire.ask(&get(KEY));
    wire.ask(&get(b"absent"));
    let stats = |wire: &mut Wire, group: &[u8]| {
        let all = wire.ask_all(&Request { key: group, ..Request::new(Opcode::Stat) });
        let (last, pairs) = all.split_last().unwrap();
        assert!(last.key.is_empty() && last.value.is_empty());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        pairs.iter().map(|pair| (text(&pair.key), pair.text())).collect::<std::collections::HashMap<_, _>>()
    };
    let general = stats(&mut wire, b"");
    for (name, value) in [
        ("curr_items", "1"),
        ("cmd_get", "2"),
        ("get_misses", "1"),
        ("cmd_set", "1"),
        ("cmd_total_gets", "2"),
        ("cmd_total_sets", "1"),
        ("cmd_total_ops", "3"),
    ] {
        assert_eq!(general.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(general.contains_key("ep_total_enqueued"));
    assert_eq!(stats(&mut wire, b"vbucket").len(), 64);
    assert_eq!(stats(&mut wire, b"vbucket-seqno 0")["vb_0:high_seqno"], "1");
    assert!(stats(&mut wire, b"failovers 0").contains_key("vb_0:0:id"));
    assert!(stats(&mut wire, b"timings").keys().any(|name| name.starts_with("get_")));
    for group in [&b"vbucket-details"[..], b"memory", b"collections", b"scopes", b"settings", b"connections"]
    {
        assert!(!stats(&mut wire, group).is_empty());
    }
    assert_eq!(
        wire.ask(&Request { key: b"nonsense", ..Request::new(Opcode::Stat) }).status,
        Status::KeyNotFound
    );
}

#[test]
fn mutations_with_a_cas_are_counted_by_what_became_of_them() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let first = wire.ask(&set(KEY, b"v")).cas;
    let with = |wire: &mut Wire, cas, request| wire.ask(&Request { cas: Cas(cas), ..request });
    let second = with(&mut wire, first, set(KEY, b"w"));
    assert_eq!(second.status, Status::Success);
    assert_eq!(with(&mut wire, first, set(KEY, b"x")).status, Status::KeyExists);
    assert_eq!(with(&mut wire, 7, set(b"absent", b"x")).status, Status::KeyNotFound);
    assert_eq!(
        with(&mut wire, 7, Request { key: b"absent", ..Request::new(Opcode::Delete) }).status,
        Status::KeyNotFound
    );
    assert_eq!(
        wire.ask(&Request { key: b"absent", ..Request::new(Opcode::Delete) }).status,
        Status::KeyNotFound
    );
    // An unlocking names a CAS, too, and changes nothing.
    let locked = wire.ask(&Request { key: KEY, ..Request::new(Opcode::GetLocked) }).cas;
    assert_eq!(
        with(&mut wire, locked, Request { key: KEY, ..Request::new(Opcode::UnlockKey) }).status,
        Status::Success
    );
    let last = wire.ask(&get(KEY)).cas;
    assert_eq!(
        with(&mut wire, last, Request { key: KEY, ..Request::new(Opcode::Delete) }).status,
        Status::Success
    );
    let pairs = wire.ask_all(&Request::new(Opcode::Stat));
    let figure = |name: &str| pairs.iter().find(|pair| pair.key == name.as_bytes()).map(Reply::text);
    for (name, value) in [("cas_hits", "2"), ("cas_misses", "2"), ("cas_badval", "1")] {
        assert_eq!(figure(name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn responses_say_how_long_they_took_where_that_was_asked_for() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Tracing]);
    let bytes = wire.feed(&encode(&get(KEY)));
    assert_eq!((bytes[0], bytes[2], bytes[24]), (0x18, 3, 0x02));
    assert_eq!(replies(&bytes)[0].status, Status::KeyNotFound);
}

/// How long each of these answers says that it took.
fn told(mut bytes: &[u8]) -> Vec<ServerDuration> {
    let mut told = Vec::new();
    while let Decoded::Frame(frame) = decode_frame_within(bytes, usize::MAX) {
        told.push(frame.framing.parse_response().unwrap().server_duration.unwrap());
        bytes = &bytes[frame.packet_len()..];
    }
    assert!(bytes.is_empty());
    told
}

/// Nothing of a batch leaves before its end. So all of it took as long, for the client and in the histograms.
#[test]
fn a_client_is_told_the_time_that_the_histograms_have() {
    let node = Node::new();
    let mut wire = modern(&node);
    wire.hello(&[Feature::Tracing, Feature::Json]);
    let large = vec![b'x'; 2 * BY_REFERENCE_BYTES];
    for (key, value) in [(KEY, b"small".as_slice()), (b"large", &large)] {
        assert_eq!(wire.ask(&set(key, value)).status, Status::Success);
    }
    // That it is a document is looked at, which takes longer than all before it.
    let json = format!("[{}1]", "1,".repeat(1 << 20)).into_bytes();
    let unknown = [&[0x80, 0xee][..], &[0; 22]].concat();
    let batch = [
        encode(&get(b"large")),
        encode(&get(b"not there")),
        encode(&get(KEY)),
        unknown,
        encode(&get(b"large")),
        encode(&set(KEY, &json)),
    ];
    let counted = |kind| node.latencies("default", kind);
    assert!(counted(OpKind::Get).is_empty());
    let bytes = wire.feed(&batch.concat());
    assert!(wire.lent > 0, "a value is sent from where it is");
    let told = told(&bytes);
    assert_eq!(told.len(), batch.len());
    let longest = told[told.len() - 1];
    assert!(longest > ServerDuration::from_micros(100), "{longest:?}");
    assert!(told.iter().all(|one| *one == longest), "{told:?}");
    let steps = counted(OpKind::Get);
    let [LatencyStep { from_micros, to_micros, count: 4 }] = steps[..] else { panic!("{steps:?}") };
    let step = ServerDuration::from_micros(from_micros)..=ServerDuration::from_micros(to_micros);
    assert!(step.contains(&longest), "{longest:?} in {steps:?}");
}

/// Clients whose map is old send it to the right node next, where it counts.
#[test]
fn an_operation_for_another_node_counts_as_no_read() {
    let node = Node::new();
    let mut wire = modern(&node);
    with(&mut wire, set(KEY, b"v"));
    let reads = || node.latencies("default", OpKind::Get).iter().map(|step| step.count).sum::<u64>();
    assert_eq!(wire.ask(&Request { vbucket: VbId(64), ..get(KEY) }).status, Status::NotMyVbucket);
    assert_eq!(reads(), 0);
    assert_eq!(with(&mut wire, get(KEY)).status, Status::Success);
    assert_eq!(reads(), 1);
}

#[test]
fn flush_empties_where_it_is_allowed_and_quit_says_goodbye() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    assert!(wire.ask(&Request::new(Opcode::Version)).text().starts_with("7.6.4"));
    let bytes = wire.feed(&[encode(&Request::new(Opcode::Quit)), encode(&get(KEY))].concat());
    assert_eq!(replies(&bytes).len(), 1, "nothing is executed after a goodbye");
    assert_eq!(wire.after, After::Close);
}

#[test]
fn a_random_document_is_one_of_those_there() {
    let node = Node::new();
    let mut wire = modern(&node);
    let random = Request { extras: &[0; 4], ..Request::new(Opcode::GetRandomKey) };
    assert_eq!(wire.ask(&random).status, Status::KeyNotFound);
    with(&mut wire, set(KEY, b"v"));
    let reply = wire.ask(&random);
    assert_eq!((reply.key.as_slice(), reply.extras.len(), reply.text().as_str()), (KEY, 4, "v"));
}

#[test]
fn what_was_looked_up_in_a_bucket_does_not_hold_for_its_successor() {
    let mut node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    for (vbuckets, key) in [(16, b"a"), (64, b"b"), (16, b"c"), (64, b"d"), (16, b"e")] {
        assert_eq!(wire.ask(&get(key)).status, Status::KeyNotFound);
        let located = wire.connection.preview(&encode(&set(key, b"v")));
        assert!(located.is_some(), "a loop looks ahead");
        node.replace_cache(vbuckets);
        wire.context.previewed = located;
        assert_eq!(wire.ask(&set(key, b"v")).status, Status::Success);
        assert_eq!(node.connect(ListenerKind::Memcached).ask(&get(key)).status, Status::Success, "{key:?}");
    }
}

#[test]
fn nothing_is_done_with_the_rights_of_a_connection_that_was_to_be_done_with_others() {
    let node = Node::new();
    let mut wire = modern(&node);
    let impersonate = Some(Impersonate { name: b"reader", external: false });
    let user = RequestInfo { impersonate, ..RequestInfo::default() };
    let bearer = RequestInfo { token_id: Some(7), ..RequestInfo::default() };
    for (info, status) in [(user, Status::NotSupported), (bearer, Status::UnknownFrameInfo)] {
        assert_eq!(with(&mut wire, Request { info, ..set(KEY, b"v") }).status, status, "{info:?}");
    }
    assert_eq!(with(&mut wire, get(KEY)).status, Status::KeyNotFound);
}
