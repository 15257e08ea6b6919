//! Replies cut anywhere, replies to something else, and requests byte for byte.

use super::*;

fn expected(verb: Verb, keys: usize) -> Expected {
    Expected { verb, number: 5, keys }
}

fn read<'a>(protocol: Protocol, verb: Verb, input: &'a [u8]) -> Parsed<'a> {
    protocol.read(expected(verb, 0), input, &mut Vec::new())
}

fn written(protocol: Protocol, verb: Verb, settings: &Settings) -> Vec<u8> {
    let mut out = Vec::new();
    let command =
        Command { verb, key: b"key", value: b"value", vb: VbId(0x0203), number: 7, cas: 9, settings };
    protocol.write(&command, &mut out);
    out
}

#[test]
fn text_replies_are_cut_at_their_last_byte() {
    let whole = b"VALUE k 0 5\r\nab\r\nc\r\nEND\r\nSTORED\r\n";
    for length in 0..whole.len() - 8 {
        assert_eq!(read(Protocol::Text, Verb::Get, &whole[..length]), Parsed::Incomplete, "{length}");
    }
    let hit = Parsed::Reply(Outcome::Hit(b"ab\r\nc", 0), whole.len() - 8, None);
    assert_eq!(read(Protocol::Text, Verb::Get, whole), hit);
    assert_eq!(read(Protocol::Text, Verb::Get, b"END\r\n"), Parsed::Reply(Outcome::Miss, 5, None));
    assert_eq!(read(Protocol::Text, Verb::Set, b"STORED\r\n"), Parsed::Reply(Outcome::Done, 8, None));
    assert_eq!(read(Protocol::Text, Verb::Incr, b"17\r\n"), Parsed::Reply(Outcome::Done, 4, None));
    assert_eq!(read(Protocol::Text, Verb::Add, b"NOT_STORED\r\n"), Parsed::Reply(Outcome::Miss, 12, None));
    let versioned = b"VALUE k 0 1 77\r\nx\r\nEND\r\n";
    assert_eq!(
        read(Protocol::Text, Verb::GetCas, versioned),
        Parsed::Reply(Outcome::Hit(b"x", 77), 24, None)
    );
    let refused = b"SERVER_ERROR temporary failure\r\n";
    assert_eq!(read(Protocol::Text, Verb::Set, refused), Parsed::Reply(Outcome::Temporary(None), 32, None));
    for garbage in [&b"END\r\n"[..], b"ERROR\r\n", b"\r\n"] {
        assert!(matches!(read(Protocol::Text, Verb::Set, garbage), Parsed::Broken(_)));
    }
    let overlong = read(Protocol::Text, Verb::Get, b"VALUE k 0 1\r\nabcdefghi\r\n");
    assert!(matches!(overlong, Parsed::Broken(_)));
    assert!(matches!(read(Protocol::Text, Verb::Get, &[b'x'; 4096]), Parsed::Broken(_)));
}

#[test]
fn a_binary_reply_must_be_the_next_one() {
    let reply = |opaque: u8| {
        let mut bytes = vec![0x81, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, opaque];
        bytes.extend_from_slice(&[0; 8]);
        bytes
    };
    assert_eq!(read(Protocol::Binary, Verb::Get, &reply(5)), Parsed::Reply(Outcome::Miss, 24, None));
    assert!(matches!(read(Protocol::Binary, Verb::Get, &reply(6)), Parsed::Broken(_)));
    assert!(matches!(read(Protocol::Binary, Verb::Get, b"HTTP"), Parsed::Broken(_)));
}

#[test]
fn why_something_has_to_wait_is_told_in_the_server_s_words() {
    let refused = |status: u8, body: &[u8]| {
        let mut bytes = vec![0x81, 1, 0, 0, 0, 0, 0, status, 0, 0, 0, body.len() as u8, 0, 0, 0, 5];
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(body);
        match read(Protocol::Couchbase, Verb::Set, &bytes) {
            Parsed::Reply(Outcome::Temporary(words), length, None) if length == bytes.len() => words,
            other => panic!("{other:?}"),
        }
    };
    let context = br#"{"error":{"context":"the \"disk\" is full","ref":"u"}}"#;
    assert_eq!(refused(0x86, context).as_deref(), Some("the \"disk\" is full"));
    for body in [&b""[..], b"Temporary failure", b"{\"error\":{\"context\":1}}", b"[]"] {
        assert_eq!(refused(0x86, body), None);
    }
    assert_eq!(refused(0xa2, b"").as_deref(), Some("SyncWriteInProgress (0xa2)"));
}

#[test]
fn the_server_s_own_time_is_read() {
    let mut bytes = vec![0x18, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5];
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[0x02, 0, 79]);
    assert_eq!(read(Protocol::Couchbase, Verb::Set, &bytes), Parsed::Reply(Outcome::Done, 27, Some(1002)));
}

#[test]
fn many_are_found_by_their_place() {
    let mut found = Vec::new();
    let redis = b"*3\r\n$2\r\nab\r\n$-1\r\n$0\r\n\r\n";
    for length in 0..redis.len() {
        let parsed = Protocol::Resp.read(expected(Verb::MultiGet, 3), &redis[..length], &mut found);
        assert_eq!(parsed, Parsed::Incomplete, "{length}");
    }
    let parsed = Protocol::Resp.read(expected(Verb::MultiGet, 3), redis, &mut found);
    assert_eq!(parsed, Parsed::Reply(Outcome::Many, redis.len(), None));
    assert_eq!(found, [(Some(0), 8..10), (Some(2), 21..21)]);
    let text = b"VALUE a 0 1\r\nx\r\nVALUE c 0 2\r\nyz\r\nEND\r\n";
    let parsed = Protocol::Text.read(expected(Verb::MultiGet, 3), text, &mut found);
    assert_eq!((parsed, found.len()), (Parsed::Reply(Outcome::Many, text.len(), None), 2));
    let frame = |opcode: u8, opaque: u8, extras: u8, body: &[u8]| {
        let mut bytes = vec![0x81, opcode, 0, 0, extras, 0, 0, 0, 0, 0, 0, body.len() as u8, 0, 0, 0, opaque];
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(body);
        bytes
    };
    let (hit, done) = (frame(9, 6, 4, b"\0\0\0\0v"), frame(10, 7, 0, b""));
    let part = Protocol::Binary.read(expected(Verb::MultiGet, 2), &hit, &mut found);
    assert_eq!(part, Parsed::Part(1, Outcome::Hit(b"v", 0), hit.len()));
    let parsed = Protocol::Binary.read(expected(Verb::MultiGet, 2), &done, &mut found);
    assert_eq!((parsed, found.len()), (Parsed::Reply(Outcome::Many, done.len(), None), 0));
    let other = Protocol::Binary.read(expected(Verb::MultiGet, 1), &done, &mut found);
    assert!(matches!(other, Parsed::Broken(_)), "no number of this request's");
    assert_eq!((Protocol::Binary.number(&done), Protocol::Binary.number(&done[..23])), (Some(7), None));
}

#[test]
fn redis_answers_are_told_apart() {
    let resp = Protocol::Resp;
    assert_eq!(read(resp, Verb::Set, b"+OK\r\n"), Parsed::Reply(Outcome::Done, 5, None));
    assert_eq!(read(resp, Verb::Add, b"$-1\r\n"), Parsed::Reply(Outcome::Miss, 5, None));
    assert_eq!(read(resp, Verb::Get, b"$3\r\na\r\n\r\n"), Parsed::Reply(Outcome::Hit(b"a\r\n", 0), 9, None));
    assert_eq!(read(resp, Verb::Delete, b":0\r\n"), Parsed::Reply(Outcome::Miss, 4, None));
    let refused = read(resp, Verb::Set, b"-OOM command not allowed\r\n");
    assert_eq!(refused, Parsed::Reply(Outcome::Failed("OOM command not allowed".to_owned()), 26, None));
    for garbage in [&b"$x\r\n"[..], b"\r\n", b"!\r\n", b"$1\r\nabc", b":1\r\n"] {
        assert!(matches!(read(resp, Verb::Set, garbage), Parsed::Broken(_)), "{garbage:?}");
    }
}

#[test]
fn redis_compares_under_watch() {
    let resp = Protocol::Resp;
    let plain = Settings::default();
    let watched =
        b"*1\r\n$7\r\nUNWATCH\r\n*2\r\n$5\r\nWATCH\r\n$3\r\nkey\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    assert_eq!(written(resp, Verb::GetCas, &plain), watched);
    let stored = b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n*1\r\n$4\r\nEXEC\r\n";
    assert_eq!(written(resp, Verb::SetCas, &plain), stored);
    let hit = b"+OK\r\n+OK\r\n$1\r\nx\r\n";
    let done = b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n";
    for (verb, whole) in [(Verb::GetCas, &hit[..]), (Verb::SetCas, &done[..])] {
        for length in 0..whole.len() {
            assert_eq!(read(resp, verb, &whole[..length]), Parsed::Incomplete, "{verb:?} {length}");
        }
    }
    assert_eq!(read(resp, Verb::GetCas, hit), Parsed::Reply(Outcome::Hit(b"x", 0), hit.len(), None));
    assert_eq!(read(resp, Verb::SetCas, done), Parsed::Reply(Outcome::Done, done.len(), None));
    let absent = b"+OK\r\n+OK\r\n$-1\r\n";
    assert_eq!(read(resp, Verb::GetCas, absent), Parsed::Reply(Outcome::Miss, absent.len(), None));
    let changed = b"+OK\r\n+QUEUED\r\n*-1\r\n";
    assert_eq!(read(resp, Verb::SetCas, changed), Parsed::Reply(Outcome::Miss, changed.len(), None));
    let full = b"+OK\r\n-OOM full\r\n-EXECABORT because\r\n";
    let refused = Outcome::Failed("OOM full".to_owned());
    assert_eq!(read(resp, Verb::SetCas, full), Parsed::Reply(refused, full.len(), None), "once, not thrice");
    let loading = b"+OK\r\n+OK\r\n-LOADING dataset\r\n";
    let later = Outcome::Temporary(Some("LOADING dataset".to_owned()));
    assert_eq!(read(resp, Verb::GetCas, loading), Parsed::Reply(later, loading.len(), None));
    let late = b"+OK\r\n-LOADING dataset\r\n-EXECABORT because\r\n";
    let Parsed::Reply(Outcome::Failed(_), ..) = read(resp, Verb::SetCas, late) else {
        panic!("without what was watched there is no second try");
    };
}

#[test]
fn redis_is_told_the_same_expiry() {
    let with = |expiry| Settings { expiry, ..Settings::default() };
    assert_eq!(
        written(Protocol::Resp, Verb::Touch, &with(60)),
        b"*3\r\n$6\r\nEXPIRE\r\n$3\r\nkey\r\n$2\r\n60\r\n"
    );
    let absolute = written(Protocol::Resp, Verb::Touch, &with(1_900_000_000));
    assert_eq!(absolute, b"*3\r\n$8\r\nEXPIREAT\r\n$3\r\nkey\r\n$10\r\n1900000000\r\n");
    let stored = String::from_utf8(written(Protocol::Resp, Verb::Set, &with(1_900_000_000))).expect("text");
    assert!(stored.ends_with("$4\r\nEXAT\r\n$10\r\n1900000000\r\n"), "{stored:?}");
}

#[test]
fn requests_are_what_servers_expect() {
    let plain = Settings { flags: 2, expiry: 60, ..Settings::default() };
    assert_eq!(written(Protocol::Text, Verb::Set, &plain), b"set key 2 60 5\r\nvalue\r\n");
    assert_eq!(written(Protocol::Text, Verb::SetCas, &plain), b"cas key 2 60 5 9\r\nvalue\r\n");
    assert_eq!(written(Protocol::Text, Verb::Incr, &plain), b"incr key 1\r\n");
    let add = b"*6\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n$2\r\nEX\r\n$2\r\n60\r\n$2\r\nNX\r\n";
    assert_eq!(written(Protocol::Resp, Verb::Add, &plain), add);
    let set = written(Protocol::Couchbase, Verb::Set, &plain);
    assert_eq!((&set[6..8], &set[12..16], set.len()), (&[2, 3][..], &[0, 0, 0, 7][..], 24 + 8 + 3 + 5));
    let settings = Settings {
        durability: Some((DurabilityLevel::PersistToMajority, None)),
        collection: Some(CollectionId(8)),
        path: b"field".to_vec(),
        ..Settings::default()
    };
    let durable = written(Protocol::Couchbase, Verb::Set, &settings);
    assert_eq!(
        (durable[0], durable[2], durable[3]),
        (0x08, 2, 4),
        "flexible, with a collection in front of the key"
    );
    assert_eq!(durable[24..26], [0x11, 3]);
    let field = written(Protocol::Couchbase, Verb::SubGet, &Settings { durability: None, ..settings });
    assert_eq!((field[1], &field[24..27], &field[31..]), (0xc5, &[0, 5, 0][..], &b"field"[..]));
}
