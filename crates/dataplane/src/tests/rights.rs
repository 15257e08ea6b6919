//! What becomes of a connection when its user changes or goes: logins that end, and names that cannot be told apart. Also
//! what a user of a part of a bucket sees and may end.

use base::{CollectionId, Datatype, Status};
use cluster::{Admin, Command, UserChange, UserDomain, auth::Credentials};
use protocol::{
    binary::{
        Opcode, Request,
        dcp::{OpenFlags, request::OpenExtras},
    },
    hello::Feature,
    sasl::scram::{ClientFirst, ServerFirst},
};

use super::{
    harness::{Node, Wire, replies},
    logins::{log_in, scram_with},
    waiting::wire,
};
use crate::{ListenerKind, connection::After};

const GET: Request<'static> = Request { key: b"k", ..Request::new(Opcode::Get) };

/// A connection of `reader` that has read from its bucket.
fn reader(node: &Node) -> Wire {
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Xerror, Feature::Collections]);
    log_in(&mut wire, "reader", "readerpw");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let get = Request { collection: Some(CollectionId::DEFAULT), ..GET };
    assert_eq!(wire.ask(&get).status, Status::KeyNotFound);
    wire
}

fn select(wire: &mut Wire, bucket: &str) -> Status {
    wire.ask(&Request { key: bucket.as_bytes(), ..Request::new(Opcode::SelectBucket) }).status
}

/// A change of the user `reader` that changes nothing yet.
fn change() -> UserChange {
    UserChange {
        domain: UserDomain::Local,
        name: "reader".into(),
        uuid: String::new(),
        full_name: None,
        credentials: None,
        roles: None,
        groups: None,
        locked: None,
        now_ms: 0,
    }
}

fn is_ended(wire: &mut Wire) -> bool {
    wire.feed(b"").is_empty() && wire.after == After::Close
}

#[test]
fn a_login_ends_with_its_password_with_a_lock_and_with_its_user() {
    let ends: [fn(&mut Node); 4] = [
        |node| node.apply(&Command::LockUser { name: "reader".into(), locked: true }),
        |node| {
            let credentials = Some(Credentials::new("another", [9; 32]));
            node.apply(&Command::PutUser(UserChange { credentials, ..change() }));
        },
        |node| node.apply(&Command::DeleteUser { domain: UserDomain::Local, name: "reader".into() }),
        |node| {
            node.apply(&Command::DeleteUser { domain: UserDomain::Local, name: "reader".into() });
            node.put_user("reader", "readerpw", "data_reader[travel]");
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let mut node = Node::new();
        let mut wire = reader(&node);
        let full_name = Some("Reader".to_owned());
        node.apply(&Command::PutUser(UserChange { full_name, ..change() }));
        assert!(!is_ended(&mut wire), "{number}: the same user under another full name");
        end(&mut node);
        assert!(is_ended(&mut wire), "{number}");
    }
}

#[test]
fn an_administrator_that_is_replaced_streams_no_more() {
    let mut node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Xerror, Feature::Json, Feature::Collections]);
    log_in(&mut wire, "Administrator", "password");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let extras = OpenExtras { seqno: 0, flags: OpenFlags::PRODUCER.0 }.encode();
    let open = Request { key: b"connector", extras: &extras, ..Request::new(Opcode::DcpOpen) };
    assert_eq!(wire.ask(&open).status, Status::Success);
    let credentials = Credentials::new("another", [9; 32]);
    node.apply(&Command::SetAdmin(Admin { name: "Administrator".into(), credentials }));
    assert!(is_ended(&mut wire));
}

#[test]
fn a_password_that_changes_during_a_login_is_the_old_one() {
    let mut node = Node::new();
    let mut wire = node.connect(ListenerKind::Kv);
    let credentials = Some(Credentials::new("another", [9; 32]));
    let between = || node.apply(&Command::PutUser(UserChange { credentials, ..change() }));
    let hash = cluster::auth::ScramHash::Sha512;
    let status = scram_with(&mut wire, "SCRAM-SHA512", hash, ("reader", "readerpw"), between);
    assert_eq!(status, Status::AuthError);
}

/// The salts that a name is given, by mechanism.
fn salts(node: &Node, user: &str) -> Vec<Vec<u8>> {
    let mut wire = node.connect(ListenerKind::Kv);
    let mut salt = |mechanism: &str| {
        let first = format!("n,,{}", ClientFirst::encode_bare(user, "nonce"));
        let auth =
            Request { key: mechanism.as_bytes(), value: first.as_bytes(), ..Request::new(Opcode::SaslAuth) };
        let reply = wire.ask(&auth);
        assert_eq!(reply.status, Status::AuthContinue);
        ServerFirst::decode(&reply.value).unwrap().salt.to_vec()
    };
    ["SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1"].map(&mut salt).into()
}

#[test]
fn a_name_that_nobody_has_looks_like_one_that_somebody_has() {
    let secret = Command::SetSecret("of the cluster".into());
    let (mut one, mut other) = (Node::new(), Node::new());
    one.apply(&secret);
    other.apply(&secret);
    let (known, unknown) = (salts(&one, "reader"), salts(&one, "nobody"));
    for salts in [&known, &unknown] {
        assert!(
            salts[0] != salts[1] && salts[1] != salts[2] && salts[0] != salts[2],
            "one for each mechanism"
        );
    }
    assert_eq!(unknown, salts(&other, "nobody"), "every node says the same, before and after a restart");
    assert_ne!(unknown, salts(&one, "somebody"));
    one.apply(&Command::LockUser { name: "reader".into(), locked: true });
    assert_eq!(known, salts(&one, "reader"), "a lock cannot be seen from outside");
    let mut wire = one.connect(ListenerKind::Kv);
    let hash = cluster::auth::ScramHash::Sha512;
    assert_eq!(scram_with(&mut wire, "SCRAM-SHA512", hash, ("reader", "readerpw"), || ()), Status::AuthError);
}

#[test]
fn a_user_of_one_collection_is_told_of_no_scope_but_its_own() {
    let mut node = Node::new();
    node.apply(&Command::CreateScope { bucket: "travel".into(), scope: "hidden".into() });
    let mut wire = node.connect(ListenerKind::Kv);
    wire.hello(&[Feature::Xerror, Feature::Collections, Feature::Json]);
    log_in(&mut wire, "airline", "airlinepw");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let manifest = wire.ask(&Request::new(Opcode::CollectionsGetManifest)).text();
    assert!(manifest.contains("inventory") && manifest.contains("airline"), "{manifest}");
    assert!(!manifest.contains("hidden") && !manifest.contains("_default"), "{manifest}");
    let id = |path: &'static [u8]| Request { value: path, ..Request::new(Opcode::CollectionsGetScopeId) };
    assert_eq!(wire.ask(&id(b"inventory")).status, Status::Success);
    assert_eq!(wire.ask(&id(b"hidden")).status, Status::UnknownScope);
    let id = |path: &'static [u8]| Request { value: path, ..Request::new(Opcode::CollectionsGetId) };
    assert_eq!(wire.ask(&id(b"hidden.any")).status, Status::UnknownScope);
    assert_eq!(wire.ask(&id(b"none.any")).status, Status::UnknownScope);

    log_in(&mut wire, "reader", "readerpw");
    assert_eq!(select(&mut wire, "travel"), Status::Success);
    let manifest = wire.ask(&Request::new(Opcode::CollectionsGetManifest)).text();
    assert!(manifest.contains("hidden") && manifest.contains("_default"), "{manifest}");
}

#[test]
fn a_scan_is_ended_by_a_user_who_may_scan_its_collection_and_nobody_else() {
    let mut node = Node::with_disk();
    node.apply(&Command::CreateScope { bucket: "disk".into(), scope: "inner".into() });
    node.apply(&Command::CreateCollection {
        bucket: "disk".into(),
        scope: "inner".into(),
        collection: "c".into(),
        max_ttl: 0,
    });
    node.put_user("limited", "limitedpw", "data_reader[disk:inner:c]");
    let mut owner = wire(&node, &[Feature::Json, Feature::Xerror, Feature::Collections]);
    let set = Request {
        key: b"k",
        value: b"v",
        extras: &[0; 8],
        collection: Some(CollectionId::DEFAULT),
        ..Request::new(Opcode::Set)
    };
    assert_eq!(owner.ask(&set).status, Status::Success);
    node.flush();
    let create = Request { value: b"{}", datatype: Datatype::JSON, ..Request::new(Opcode::RangeScanCreate) };
    assert!(owner.ask_all(&create).is_empty());
    node.backfill("disk");
    owner.time_out_all();
    let created = replies(&owner.feed(b"")).remove(0);
    assert_eq!(created.status, Status::Success);

    let mut limited = node.connect(ListenerKind::Kv);
    limited.hello(&[Feature::Json, Feature::Xerror, Feature::Collections]);
    log_in(&mut limited, "limited", "limitedpw");
    assert_eq!(select(&mut limited, "disk"), Status::Success);
    let cancel = Request { extras: &created.value, ..Request::new(Opcode::RangeScanCancel) };
    assert_eq!(limited.ask(&cancel).status, Status::UnknownCollection);
    assert_eq!(owner.ask(&cancel).status, Status::Success, "it was still there");
}
