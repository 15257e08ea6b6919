//! Conversations in the memcached text protocol, and the plain memcached port's binary side.

use base::{BucketUuid, Status};
use cluster::{BucketParams, Command, LegacyParams};
use protocol::binary::{Opcode, Request};

use super::harness::{Node, Wire};
use crate::{ListenerKind, connection::After};

fn say(wire: &mut Wire, words: &str) -> String {
    String::from_utf8(wire.feed(words.as_bytes())).unwrap()
}

#[test]
fn the_usual_conversation() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    for (words, answer) in [
        ("get a\r\n", "END\r\n"),
        ("set a 7 0 5\r\nhello\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 7 5\r\nhello\r\nEND\r\n"),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("append a 0 0 2\r\n!!\r\nprepend a 0 0 1\r\n>\r\n", "STORED\r\nSTORED\r\n"),
        ("get b a c\r\n", "VALUE a 7 8\r\n>hello!!\r\nEND\r\n"),
        ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
        ("incr n 5\r\ndecr n 100\r\nincr x 1\r\n", "15\r\n0\r\nNOT_FOUND\r\n"),
        ("incr a 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("touch a 100\r\ntouch x 1\r\n", "TOUCHED\r\nNOT_FOUND\r\n"),
        ("gat 0 a x\r\n", "VALUE a 7 8\r\n>hello!!\r\nEND\r\n"),
        ("delete a\r\ndelete a\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("set q 0 0 1 noreply\r\nx\r\nget q\r\n", "VALUE q 0 1\r\nx\r\nEND\r\n"),
        ("set q 0 -1 1\r\nx\r\nget q\r\n", "STORED\r\nEND\r\n"),
        ("verbosity 1\r\n", "OK\r\n"),
        ("mg a\r\nnonsense\r\n", "ERROR\r\nERROR\r\n"),
    ] {
        assert_eq!(say(&mut wire, words), answer, "{words}");
    }
    assert!(say(&mut wire, "version\r\n").starts_with("VERSION 7.6.4"));
    assert!(say(&mut wire, "stats\r\n").contains("STAT curr_items 1\r\n"));
    assert_eq!(say(&mut wire, "stats reset\r\n"), "ERROR\r\n");
    assert_eq!(say(&mut wire, "quit\r\nget a\r\n"), "");
    assert_eq!(wire.after, After::Close);
}

#[test]
fn cas_compares() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    assert_eq!(say(&mut wire, "cas k 0 0 1 5\r\nx\r\n"), "NOT_FOUND\r\n");
    say(&mut wire, "set k 0 0 1\r\na\r\n");
    let line = say(&mut wire, "gets k\r\n");
    let cas = line.split([' ', '\r']).nth(4).unwrap().to_owned();
    assert_eq!(say(&mut wire, "cas k 0 0 1 0\r\nx\r\n"), "EXISTS\r\n");
    assert_eq!(say(&mut wire, &format!("cas k 0 0 1 {cas}\r\nb\r\n")), "STORED\r\n");
    assert_eq!(say(&mut wire, &format!("cas k 0 0 1 {cas}\r\nc\r\n")), "EXISTS\r\n");
    assert_eq!(say(&mut wire, "get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    let told = say(&mut wire, "stats\r\n");
    for line in ["STAT cas_hits 1\r\n", "STAT cas_misses 1\r\n", "STAT cas_badval 2\r\n"] {
        assert!(told.contains(line), "{line}");
    }
}

#[test]
fn commands_in_single_bytes_and_refused_blocks_keep_the_stream_in_step() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    let words = "set a 0 0 3\r\nabc\r\nset b 0 0 99999999\r\n";
    let answer: String = words.bytes().map(|byte| say(&mut wire, &char::from(byte).to_string())).collect();
    assert_eq!(answer, "STORED\r\nSERVER_ERROR object too large for cache\r\n");
    // The announced block is skipped, whatever it looks like.
    let mut left = 99_999_999 + 2;
    let chunk = "get a\r\n".repeat(1 << 17);
    while left > 0 {
        let piece = &chunk[..chunk.len().min(left)];
        assert_eq!(say(&mut wire, piece), "");
        left -= piece.len();
    }
    assert_eq!(say(&mut wire, "get a\r\n"), "VALUE a 0 3\r\nabc\r\nEND\r\n");
    assert_eq!(say(&mut wire, &"x".repeat(3000)), "CLIENT_ERROR line too long\r\n");
    assert_eq!(wire.after, After::Close);
}

#[test]
fn large_values_arrive_whole() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    let value = "v".repeat(50_000);
    assert_eq!(say(&mut wire, &format!("set big 1 0 50000\r\n{value}\r\n")), "STORED\r\n");
    let expected = format!("VALUE big 1 50000\r\n{value}\r\n");
    assert_eq!(say(&mut wire, "get big big\r\n"), format!("{expected}{expected}END\r\n"));
}

#[test]
fn a_long_list_of_keys_is_answered_in_pieces() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    let value = "v".repeat(10_000);
    let mut expected = String::new();
    let mut get = "get".to_owned();
    for index in 0..200 {
        say(&mut wire, &format!("set k{index} 0 0 10000\r\n{value}\r\n"));
        expected += &format!("VALUE k{index} 0 10000\r\n{value}\r\n");
        get += &format!(" k{index}");
    }
    assert!(
        say(&mut wire, &format!("{get}\r\nversion\r\n")).starts_with(&format!("{expected}END\r\nVERSION "))
    );
    assert!((1..300_000).contains(&wire.longest), "{}", wire.longest);
}

#[test]
fn the_binary_protocol_is_understood_on_the_same_port_and_goes_no_further() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    let set = Request { key: b"k", value: b"v", extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(wire.ask(&set).status, Status::Success);
    assert_eq!(say(&mut node.connect(ListenerKind::Memcached), "get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
    for opcode in [Opcode::Hello, Opcode::SaslListMechs, Opcode::GetClusterConfig] {
        assert_eq!(wire.ask(&Request::new(opcode)).status, Status::UnknownCommand, "{opcode:?}");
    }
    let select = Request { key: b"travel", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(wire.ask(&select).status, Status::UnknownCommand);
}

#[test]
fn without_a_bucket_the_port_says_so() {
    let mut node = Node::new();
    let mut open = node.connect(ListenerKind::Memcached);
    say(&mut open, "get a\r\n");
    let legacy = LegacyParams { memcached_port: Some(false), ..LegacyParams::default() };
    let params = BucketParams { legacy, ..BucketParams::default() };
    node.apply(&Command::UpdateBucket { name: "cache".into(), params });
    assert_eq!(say(&mut open, "get a\r\n"), "");
    assert_eq!(open.after, After::Close, "switched off under its clients");
    let mut wire = node.connect(ListenerKind::Memcached);
    assert!(say(&mut wire, "get a\r\n").starts_with("SERVER_ERROR"));
    assert_eq!(wire.after, After::Close);
}

#[test]
fn the_port_goes_on_with_the_bucket_that_is_in_the_place_of_one_that_was_emptied() {
    let mut node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    assert_eq!(say(&mut wire, "set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    let mut kv = node.connect(ListenerKind::Kv);
    super::logins::log_in(&mut kv, "Administrator", "password");
    let select = Request { key: b"cache", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(kv.ask(&select).status, Status::Success);
    let uuid = BucketUuid("f".repeat(32));
    node.apply(&Command::FlushBucket { name: "cache".into(), uuid });
    let words = "get a\r\nset a 0 0 1\r\ny\r\nget a\r\n";
    assert_eq!(say(&mut wire, words), "END\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n");
    assert!(kv.feed(&super::harness::encode(&Request::new(Opcode::Noop))).is_empty());
    assert_eq!(kv.after, After::Close, "who knows of buckets knows that this is another one");
}

#[test]
fn a_cache_has_one_place_for_a_key_whatever_vbucket_clients_name() {
    let mut node = Node::new();
    node.create_cache("ketama", LegacyParams { memcached_port: Some(true), ..LegacyParams::default() });
    let mut port = node.connect(ListenerKind::Memcached);
    let mut kv = node.connect(ListenerKind::Kv);
    super::logins::log_in(&mut kv, "Administrator", "password");
    let select = Request { key: b"ketama", ..Request::new(Opcode::SelectBucket) };
    assert_eq!(kv.ask(&select).status, Status::Success);
    for number in 0..20 {
        let key = format!("key{number}");
        say(&mut port, &format!("set {key} 0 0 1\r\nx\r\n"));
        // Alone and in a batch, which is looked up ahead.
        let get = Request { key: key.as_bytes(), ..Request::new(Opcode::Get) };
        assert_eq!(kv.ask(&get).status, Status::Success, "{key}");
        let both = [super::harness::encode(&get), super::harness::encode(&get)].concat();
        let replies = super::harness::replies(&kv.feed(&both));
        assert!(replies.len() == 2 && replies.iter().all(|reply| reply.status == Status::Success), "{key}");
    }
    kv.hello(&[protocol::hello::Feature::Collections]);
    let get = Request { key: b"\0key7", ..Request::new(Opcode::Get) };
    assert_eq!(kv.ask(&get).status, Status::Success, "the prefix does not count");
}

#[test]
fn values_too_large_to_count_with_take_turns_with_other_connections() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Memcached);
    let value = vec![b'x'; 8 << 20];
    let set = [format!("set k 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    assert_eq!(wire.feed(&set), b"STORED\r\n");
    let before = wire.turns;
    let answers = wire.feed("incr k 1\r\n".repeat(32).as_bytes());
    assert_eq!(
        answers.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"CLIENT_ERROR")).count(),
        32
    );
    assert!(wire.turns > before + 1, "256 MiB in one turn");
}
