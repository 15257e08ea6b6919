//! Which logins succeed, which do not, and what they may do then. SCRAM and CRAM-MD5 without a socket; PLAIN, whose password
//! is hashed elsewhere, in `sockets`.

use std::sync::atomic::Ordering;

use base::{CollectionId, Status};
use cluster::{
    BucketParams, Command, LegacyParams,
    auth::{ScramHash, certified, cram_md5_digest},
};
use engine::Waiter;
use protocol::{
    binary::{Opcode, Request},
    hello::Feature,
    sasl::{
        plain::Plain,
        scram::{ClientFinal, ClientFirst, ServerFirst, auth_message, decode_server_final},
    },
};

use super::{
    harness::{Node, Wire},
    sockets::eventually,
};
use crate::{
    AuditEvent, ListenerKind,
    connection::After,
    state::{completion::Completion, helper::Chore},
};

fn hash(hash: ScramHash, message: &[u8]) -> Vec<u8> {
    match hash {
        ScramHash::Sha1 => <sha1::Sha1 as sha1::Digest>::digest(message).to_vec(),
        ScramHash::Sha256 => <sha2::Sha256 as sha2::Digest>::digest(message).to_vec(),
        ScramHash::Sha512 => <sha2::Sha512 as sha2::Digest>::digest(message).to_vec(),
    }
}

/// PBKDF2 for one block, which is what SCRAM's `Hi` is.
fn salted(kind: ScramHash, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
    let mut last = kind.hmac(password.as_bytes(), &[salt, &[0, 0, 0, 1]].concat());
    let mut sum = last.clone();
    for _ in 1..iterations {
        last = kind.hmac(password.as_bytes(), &last);
        sum.iter_mut().zip(&last).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// A whole SCRAM exchange as a client; checks the server's signature when it succeeds.
pub(super) fn scram(wire: &mut Wire, mechanism: &str, kind: ScramHash, user: &str, password: &str) -> Status {
    scram_with(wire, mechanism, kind, (user, password), || ())
}

/// The same, with something that happens between the messages.
pub(super) fn scram_with(
    wire: &mut Wire,
    mechanism: &str,
    kind: ScramHash,
    (user, password): (&str, &str),
    between: impl FnOnce(),
) -> Status {
    let bare = ClientFirst::encode_bare(user, "a nonce 0xffffffa7 with spaces");
    let first = format!("n,,{bare}");
    let key = mechanism.as_bytes();
    let reply = wire.ask(&Request { key, value: first.as_bytes(), ..Request::new(Opcode::SaslAuth) });
    assert_eq!(reply.status, Status::AuthContinue);
    let server = ServerFirst::decode(&reply.value).unwrap();
    let salted = salted(kind, password, &server.salt, server.iterations);
    let without_proof = ClientFinal::encode_without_proof(&server.nonce);
    let message = auth_message(bare.as_bytes(), &reply.value, &without_proof);
    let client_key = kind.hmac(&salted, b"Client Key");
    let signature = kind.hmac(&hash(kind, &client_key), &message);
    let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    between();
    let value = ClientFinal::encode(&without_proof, &proof);
    let reply = wire.ask(&Request { key, value: &value, ..Request::new(Opcode::SaslStep) });
    if reply.status == Status::Success {
        let expected = kind.hmac(&kind.hmac(&salted, b"Server Key"), &message);
        assert_eq!(decode_server_final(&reply.value).unwrap(), expected);
    }
    reply.status
}

pub(super) fn log_in(wire: &mut Wire, user: &str, password: &str) {
    assert_eq!(scram(wire, "SCRAM-SHA512", ScramHash::Sha512, user, password), Status::Success);
}

fn select(wire: &mut Wire, bucket: &str) -> Status {
    wire.ask(&Request { key: bucket.as_bytes(), ..Request::new(Opcode::SelectBucket) }).status
}

#[test]
fn every_scram_lets_the_right_password_in_and_no_other() {
    let node = Node::new();
    for (mechanism, kind) in [
        ("SCRAM-SHA512", ScramHash::Sha512),
        ("SCRAM-SHA256", ScramHash::Sha256),
        ("SCRAM-SHA1", ScramHash::Sha1),
    ] {
        let mut wire = node.connect(ListenerKind::Kv);
        assert_eq!(scram(&mut wire, mechanism, kind, "Administrator", "wrong"), Status::AuthError);
        assert_eq!(select(&mut wire, "travel"), Status::NoAccess);
        assert_eq!(scram(&mut wire, mechanism, kind, "nobody", "password"), Status::AuthError);
        assert_eq!(scram(&mut wire, mechanism, kind, "Administrator", "password"), Status::Success);
        assert_eq!(select(&mut wire, "travel"), Status::Success);
    }
    let audit = node.audit.lock().unwrap();
    let failed = audit.iter().filter(|event| matches!(event, AuditEvent::LoginFailed(_))).count();
    assert_eq!((failed, audit.len()), (6, 9));
}

#[test]
fn a_user_with_the_longest_name_logs_in() {
    let mut node = Node::new();
    let name = "\u{1f6cb}".repeat(128);
    node.put_user(&name, "longpw", "data_reader[travel]");
    log_in(&mut node.connect(ListenerKind::Kv), &name, "longpw");
}

#[test]
fn steps_out_of_order_and_unknown_mechanisms_fail() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let step =
        Request { key: b"SCRAM-SHA512", value: b"c=biws,r=x,p=eA==", ..Request::new(Opcode::SaslStep) };
    assert_eq!(wire.ask(&step).status, Status::AuthError);
    let auth = Request { key: b"GSSAPI", value: b"x", ..Request::new(Opcode::SaslAuth) };
    assert_eq!(wire.ask(&auth).status, Status::AuthError);
    let auth = Request { key: b"SCRAM-SHA512", value: b"n,,n=Administrator,r=abc", ..auth };
    assert_eq!(wire.ask(&auth).status, Status::AuthContinue);
    assert_eq!(wire.ask(&step).status, Status::AuthError, "another nonce");
    assert_eq!(wire.ask(&step).status, Status::AuthError, "an exchange ends with its failure");
}

/// A connection of a client at that address.
fn connect_from(node: &Node, address: [u8; 4]) -> Wire {
    let mut wire = node.connect(ListenerKind::Kv);
    wire.connection.session.peer = Some((address, 1).into());
    wire
}

#[test]
fn guesses_are_refused_after_a_few_whatever_the_mechanism() {
    let mechanisms: [(&[u8], &[u8], &[u8]); 3] = [
        (b"SCRAM-SHA512", b"n,,n=Administrator,r=abc", b"c=biws,r=x,p=eA=="),
        (b"SCRAM-SHA512", b"n,,n=@settee,r=abc", b"c=biws,r=x,p=eA=="),
        (b"CRAM-MD5", b"", b"secret 00000000000000000000000000000000"),
    ];
    for (key, first, last) in mechanisms {
        let node = Node::new();
        let guess = |address| {
            let mut wire = connect_from(&node, address);
            let began = wire.ask(&Request { key, value: first, ..Request::new(Opcode::SaslAuth) }).status;
            let goes_on = began == Status::AuthContinue;
            let step = Request { key, value: last, ..Request::new(Opcode::SaslStep) };
            if goes_on { wire.ask(&step).status } else { began }
        };
        let address = [192, 0, 2, 1];
        assert!((0..4).all(|_| guess(address) == Status::AuthError), "a few cost nothing");
        // The time of refusals doubles, so a slow machine meets it too.
        assert!((0..12).any(|_| guess(address) == Status::TemporaryFailure), "{key:?}");
        assert_eq!(guess([192, 0, 2, 2]), Status::AuthError, "from another address it is checked");
    }
}

#[test]
fn exchanges_that_were_begun_before_a_failure_are_no_free_guesses() {
    let node = Node::new();
    let key = b"SCRAM-SHA512";
    let begun = (0..100).map(|_| {
        let mut wire = connect_from(&node, [192, 0, 2, 1]);
        let value = b"n,,n=Administrator,r=abc";
        let first = Request { key, value, ..Request::new(Opcode::SaslAuth) };
        assert_eq!(wire.ask(&first).status, Status::AuthContinue);
        wire
    });
    let step = Request { key, value: b"c=biws,r=x,p=eA==", ..Request::new(Opcode::SaslStep) };
    let mut begun: Vec<_> = begun.collect();
    let checked =
        begun.iter_mut().filter_map(|wire| (wire.ask(&step).status == Status::AuthError).then_some(()));
    assert!(checked.count() < 20, "the others are refused unchecked");
}

#[test]
fn an_address_with_many_checks_waits_and_others_do_not() {
    let node = Node::new();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let helper = node.connect(ListenerKind::Kv).context.helper;
    // No password is hashed meanwhile.
    let hold = move || {
        let _ = wait.recv();
        Completion::Login(None)
    };
    helper.submit(Chore::Password, Waiter { worker: 0, connection: 0, ticket: 0 }, hold).unwrap();
    let begin = |number: u8, address: [u8; 4]| {
        let mut wire = connect_from(&node, address);
        wire.context.helper = helper.clone();
        let message = Plain::encode(&format!("user{number}"), b"password");
        let auth = Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) };
        wire.ask_all(&auth).first().map(|reply| reply.status)
    };
    let crowd = [192, 0, 2, 1];
    assert!((0..16).all(|number| begin(number, crowd).is_none()), "sixteen wait");
    assert_eq!(begin(16, crowd), Some(Status::TemporaryFailure));
    assert_eq!(begin(17, [192, 0, 2, 2]), None, "that of another address waits with them");
    drop(go_on);
    eventually("the sixteen are checked", || begin(18, crowd).is_none());
}

#[test]
fn a_certificate_stands_for_users_that_are_not_locked_and_for_no_bucket() {
    let mut node = Node::new();
    let named = |node: &Node, name: &str| certified(&node.shared.snapshot().metadata, name).is_some();
    assert!(named(&node, "reader") && named(&node, "Administrator"));
    assert!(!named(&node, "secret") && !named(&node, "nobody"), "a bucket's own name, and nobody's");
    node.apply(&Command::LockUser { name: "reader".into(), locked: true });
    assert!(!named(&node, "reader"), "a locked user");
}

#[test]
fn a_bucket_of_the_old_world_opens_with_its_own_name() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let list = wire.ask(&Request::new(Opcode::SaslListMechs)).text();
    assert_eq!(list, "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 CRAM-MD5 PLAIN");
    let challenge = wire.ask(&Request { key: b"CRAM-MD5", ..Request::new(Opcode::SaslAuth) });
    assert_eq!(challenge.status, Status::AuthContinue);
    let answer = format!("secret {}", cram_md5_digest(b"secretpw", &challenge.value));
    let step = Request { key: b"CRAM-MD5", value: answer.as_bytes(), ..Request::new(Opcode::SaslStep) };
    assert_eq!(wire.ask(&step).status, Status::Success);
    let set = Request { key: b"k", value: b"v", extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(wire.ask(&set).status, Status::Success, "its bucket is selected");
    assert_eq!(wire.ask(&step).status, Status::AuthError, "a challenge serves once");
    let travel = super::harness::encode(&Request { key: b"travel", ..Request::new(Opcode::SelectBucket) });
    assert!(wire.feed(&travel).is_empty() && wire.after == After::Close, "no status of that world says it");
}

#[test]
fn nobody_is_anybody_without_a_password() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    for bucket in ["travel", "secret", "cache", "no such bucket"] {
        assert_eq!(select(&mut wire, bucket), Status::NoAccess, "{bucket}");
    }
    assert_eq!(select(&mut wire, "default"), Status::Success);
    assert_eq!(select(&mut wire, "@no bucket@"), Status::Success);
    let get = Request { key: b"k", ..Request::new(Opcode::Get) };
    assert_eq!(wire.ask(&get).status, Status::NoBucket);
    assert_eq!(wire.ask(&Request::new(Opcode::GetClusterConfig)).status, Status::NoAccess);
}

#[test]
fn what_a_node_that_is_behind_does_not_know_is_not_there_yet() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Xerror]);
    log_in(&mut wire, "Administrator", "password");
    node.shared.behind.store(true, Ordering::Release);
    assert_eq!(select(&mut wire, "new"), Status::KeyNotFound);
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let mut nobody = node.connect(ListenerKind::Kv);
    assert_eq!(select(&mut nobody, "travel"), Status::KeyNotFound, "whose right to it may be news");
    node.shared.behind.store(false, Ordering::Release);
    assert_eq!(select(&mut wire, "new"), Status::NoAccess);
}

#[test]
fn rights_are_checked_per_operation_and_per_collection() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Collections, Feature::Xerror, Feature::Json]);
    log_in(&mut wire, "reader", "readerpw");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let airline = Some(CollectionId(9));
    let default = Some(CollectionId::DEFAULT);
    let get = |collection| Request { key: b"k", collection, ..Request::new(Opcode::Get) };
    let set = |collection| Request {
        key: b"k",
        value: b"v",
        extras: &[0; 8],
        collection,
        ..Request::new(Opcode::Set)
    };
    assert_eq!(wire.ask(&get(default)).status, Status::KeyNotFound);
    assert_eq!(wire.ask(&set(default)).status, Status::NoAccess);
    let flush = wire.ask(&Request::new(Opcode::Flush));
    assert_eq!(flush.status, Status::NoAccess);

    log_in(&mut wire, "airline", "airlinepw");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    assert_eq!(wire.ask(&set(airline)).status, Status::Success);
    assert_eq!(wire.ask(&get(airline)).text(), "v");
    assert_eq!(
        wire.ask(&get(default)).status,
        Status::UnknownCollection,
        "what may not be seen does not exist"
    );
    let manifest = wire.ask(&Request::new(Opcode::CollectionsGetManifest)).text();
    assert!(manifest.contains("airline"), "{manifest}");
}

#[test]
fn a_right_withdrawn_and_a_bucket_dropped_take_effect_at_once() {
    let mut node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Xerror]);
    log_in(&mut wire, "reader", "readerpw");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let get = Request { key: b"k", ..Request::new(Opcode::Get) };
    assert_eq!(wire.ask(&get).status, Status::KeyNotFound);
    node.give_roles("reader", "");
    assert_ne!(wire.ask(&get).status, Status::KeyNotFound);
    node.apply(&Command::DeleteBucket { name: "travel".into() });
    assert!(wire.feed(b"").is_empty());
    assert_eq!(wire.after, After::Close);
}

#[test]
fn rights_withdrawn_are_gone_with_the_next_request() {
    let mut node = Node::new();
    let get = Request { key: b"k", ..Request::new(Opcode::Get) };
    // A bucket's own password taken away, from a client that has and from one that has no bucket selected.
    let mut inside = node.connect(ListenerKind::Kv);
    inside.hello(&[Feature::Xerror]);
    log_in(&mut inside, "secret", "secretpw");
    assert_eq!(inside.ask(&get).status, Status::KeyNotFound);
    let mut outside = node.connect(ListenerKind::Kv);
    outside.hello(&[Feature::Xerror]);
    log_in(&mut outside, "secret", "secretpw");
    assert_eq!(select(&mut outside, "@no bucket@"), Status::Success);
    // A client without a login, of a bucket that was open to everybody.
    let mut anybody = node.connect(ListenerKind::Kv);
    assert_eq!(anybody.ask(&get).status, Status::KeyNotFound);
    let update = |name: &str, legacy| Command::UpdateBucket {
        name: name.into(),
        params: BucketParams { legacy, ..BucketParams::default() },
    };
    node.apply(&update("secret", LegacyParams { sasl_password: Some(String::new()), ..Default::default() }));
    node.apply(&update("default", LegacyParams { passwordless: Some(false), ..Default::default() }));
    for wire in [&mut inside, &mut outside, &mut anybody] {
        assert!(wire.feed(b"").is_empty());
        assert_eq!(wire.after, After::Close, "it has to log in anew");
    }
    let mut anybody = node.connect(ListenerKind::Kv);
    assert_eq!(anybody.ask(&get).status, Status::NoBucket);
    assert_eq!(anybody.ask(&Request::new(Opcode::GetClusterConfig)).status, Status::NoAccess);
}

/// Whose rights a stream has is decided when the connection is opened for streams.
#[test]
fn a_login_that_was_begun_before_a_connection_streams_does_not_end_after() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Xerror]);
    let challenge = wire.ask(&Request { key: b"CRAM-MD5", ..Request::new(Opcode::SaslAuth) });
    assert_eq!(select(&mut wire, "default"), Status::Success);
    // A producer.
    let extras = &[0, 0, 0, 0, 0, 0, 0, 1];
    let open = Request { key: b"streams", extras, ..Request::new(Opcode::DcpOpen) };
    assert_eq!(wire.ask(&open).status, Status::Success);
    let answer = format!("secret {}", cram_md5_digest(b"secretpw", &challenge.value));
    let step = Request { key: b"CRAM-MD5", value: answer.as_bytes(), ..Request::new(Opcode::SaslStep) };
    assert_eq!(wire.ask(&step).status, Status::NotSupported);
    assert!(!wire.connection.session.is_logged_in());
}

#[test]
fn messages_that_cannot_be_read_are_failed_logins_too() {
    let node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let auth = Request { key: b"PLAIN", value: b"no zeros", ..Request::new(Opcode::SaslAuth) };
    assert_eq!(wire.ask(&auth).status, Status::AuthError);
    let audit = node.audit.lock().unwrap();
    assert!(matches!(&audit[..], [AuditEvent::LoginFailed(event)] if event.mechanism == "PLAIN"));
}
