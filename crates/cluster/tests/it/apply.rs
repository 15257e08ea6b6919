//! Commands against the state: what they change, what they refuse, and that they replay.

use std::{collections::BTreeSet, time::Instant};

use base::{BucketUuid, CollectionId, ManifestUid, NodeId, ScopeId};
use serde_json::Value;
use settee_cluster::{
    Admin, Applied, BucketParams, ClusterError, Command, Initialize, LegacyParams, Metadata, NodeInfo, Ports,
    QuotaChange, StartRebalance, UserChange, UserDomain,
    auth::{
        Credentials, Domain, INTERNAL_USER, Identity, PasswordCache, Privilege, check_cram_md5,
        check_password, privileges,
    },
    config,
    roles::{ROLES, RoleGrant, Target},
};

const NODE: &str = "0123456789abcdef0123456789abcdef";

fn credentials(password: &str) -> Credentials {
    Credentials::new(password, [7; 32])
}

fn params(fields: &[(&str, &str)]) -> BucketParams {
    let form: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    BucketParams::from_form(&form).unwrap()
}

fn create(name: &str, fields: &[(&str, &str)]) -> Command {
    let mut all = vec![("ramQuotaMB", "100"), ("replicaNumber", "0")];
    all.extend(fields);
    Command::CreateBucket {
        name: name.into(),
        uuid: BucketUuid(format!("uuid-of-{name}")),
        params: params(&all),
    }
}

fn collection(bucket: &str, scope: &str, name: &str) -> Command {
    Command::CreateCollection {
        bucket: bucket.into(),
        scope: scope.into(),
        collection: name.into(),
        max_ttl: 0,
    }
}

fn scope(bucket: &str, name: &str) -> Command {
    Command::CreateScope { bucket: bucket.into(), scope: name.into() }
}

fn user(name: &str, password: Option<&str>, roles: &str, groups: &[&str]) -> Command {
    Command::PutUser(UserChange {
        domain: UserDomain::Local,
        name: name.into(),
        uuid: format!("uuid-of-{name}"),
        full_name: None,
        credentials: password.map(credentials),
        roles: Some(RoleGrant::parse_list(roles).unwrap()),
        groups: Some(groups.iter().map(|group| (*group).to_owned()).collect::<BTreeSet<_>>()),
        locked: None,
        now_ms: 1,
    })
}

fn group(name: &str, roles: &str) -> Command {
    Command::PutGroup {
        name: name.into(),
        description: String::new(),
        roles: RoleGrant::parse_list(roles).unwrap(),
        ldap_group_ref: String::new(),
    }
}

fn setup() -> Vec<Command> {
    let ports = Ports { mgmt: 8091, kv: 11210, capi: 8092, memcached: 11211, ..Ports::default() };
    let node = NodeInfo::first(NODE.into(), "127.0.0.1".into(), ports);
    let initialize = Initialize {
        admin: Admin { name: "Administrator".into(), credentials: credentials("password") },
        cluster_name: Some("c1".into()),
        quotas: QuotaChange { data_mb: Some(1000), ..QuotaChange::default() },
    };
    vec![Command::SetNode(node), Command::Initialize(initialize)]
}

fn applied(commands: &[Command]) -> Metadata {
    let start = Metadata::new("c".repeat(32), 500);
    commands.iter().fold(start, |state, command| {
        state.apply(command).unwrap_or_else(|error| panic!("{command:?}: {error}")).0
    })
}

fn with(more: &[Command]) -> Metadata {
    applied(&[setup(), more.to_vec()].concat())
}

fn refusal(state: &Metadata, command: &Command) -> String {
    state.apply(command).expect_err("should be refused").to_string()
}

#[test]
fn equal_commands_lead_to_equal_states() {
    let commands = [
        setup(),
        vec![
            create("b", &[]),
            scope("b", "s"),
            collection("b", "s", "c"),
            group("g", "data_reader[b]"),
            user("u", Some("secret1"), "data_writer[b:s:c]", &["g"]),
            Command::PutSetting { path: "stats".into(), value: Value::Bool(true) },
            Command::DropScope { bucket: "b".into(), scope: "s".into() },
            Command::DeleteBucket { name: "b".into() },
        ],
    ]
    .concat();
    let replayed: Vec<Command> = serde_json::from_str(&serde_json::to_string(&commands).unwrap()).unwrap();
    let state = applied(&commands);
    assert_eq!(state, applied(&replayed));
    assert_eq!(state.version, commands.len() as u64);
    assert_eq!(serde_json::from_str::<Metadata>(&serde_json::to_string(&state).unwrap()).unwrap(), state);
}

#[test]
fn the_revision_grows_with_what_clients_route_by_and_with_nothing_else() {
    let state = with(&[create("b", &[])]);
    let after = |command: &Command| state.apply(command).unwrap().0.rev - state.rev;
    assert_eq!(after(&scope("b", "s")), 1);
    assert_eq!(after(&create("c", &[])), 1);
    assert_eq!(after(&Command::DeleteBucket { name: "b".into() }), 1);
    assert_eq!(after(&user("u", Some("secret1"), "", &[])), 0);
    assert_eq!(after(&Command::PutSetting { path: "stats".into(), value: Value::Null }), 0);
    assert_eq!(after(&Command::SetQuota(QuotaChange { data_mb: Some(600), ..QuotaChange::default() })), 0);
}

#[test]
fn a_refused_command_changes_nothing() {
    let state = with(&[create("b", &[])]);
    let before = state.clone();
    assert_eq!(refusal(&state, &create("B", &[])), "Bucket with given name already exists");
    assert_eq!(refusal(&state, &Command::DeleteBucket { name: "x".into() }), "Requested resource not found.");
    assert_eq!(refusal(&state, &setup()[1]), "Cluster is already initialized.");
    assert_eq!(state, before);
}

#[test]
fn quotas_of_buckets_stay_within_the_node_s() {
    let state = with(&[create("a", &[("ramQuotaMB", "600")])]);
    let too_large = "RAM quota specified is too large to be provisioned into this cluster.";
    assert_eq!(refusal(&state, &create("b", &[("ramQuotaMB", "401")])), too_large);
    let state = state.apply(&create("b", &[("ramQuotaMB", "400")])).unwrap().0;
    let grow = |name: &str, quota: &str| Command::UpdateBucket {
        name: name.into(),
        params: params(&[("ramQuotaMB", quota)]),
    };
    assert_eq!(refusal(&state, &grow("a", "601")), too_large);
    let state = state.apply(&grow("a", "500")).unwrap().0;
    assert!(state.apply(&grow("b", "500")).is_ok());
    assert_eq!(refusal(&state, &grow("b", &i64::MAX.to_string())), too_large);
    let shrink =
        |data_mb| Command::SetQuota(QuotaChange { data_mb: Some(data_mb), ..QuotaChange::default() });
    assert!(refusal(&state, &shrink(899)).contains("cannot be less than 900MB"));
    assert!(state.apply(&shrink(900)).is_ok());
}

#[test]
fn tombstones_stay_three_days_unless_the_bucket_says_otherwise() {
    let state = with(&[create("a", &[]), create("b", &[("purgeInterval", "0.5")])]);
    let secs = |name: &str| state.buckets[name].purge_interval_secs();
    assert_eq!((secs("a"), secs("b")), (259_200, 43_200));
    for refused in ["0", "61", "NaN", "x"] {
        let form = [("purgeInterval".to_owned(), refused.to_owned())];
        assert!(BucketParams::from_form(&form).is_err(), "{refused}");
    }
}

#[test]
fn only_the_last_bucket_that_asked_has_the_memcached_port() {
    let port = [("legacyMemcachedPort", "1")];
    let state = with(&[create("a", &port), create("b", &port)]);
    assert_eq!(state.memcached_port_bucket().unwrap().0, "b");
    let again = Command::UpdateBucket { name: "a".into(), params: params(&port) };
    assert_eq!(state.apply(&again).unwrap().0.memcached_port_bucket().unwrap().0, "a");
}

#[test]
fn ids_of_scopes_and_collections_never_come_back() {
    let mut state = with(&[create("b", &[])]);
    let mut seen = BTreeSet::from([0]);
    for round in 1..=20_u64 {
        for command in [scope("b", "s"), collection("b", "s", "c")] {
            state = state.apply(&command).unwrap().0;
        }
        let found = state.buckets["b"].manifest.scope("s").unwrap();
        assert!(seen.insert(found.id.get()) && seen.insert(found.collections[0].id.get()));
        let (next, done) =
            state.apply(&Command::DropScope { bucket: "b".into(), scope: "s".into() }).unwrap();
        assert_eq!(done, Applied::Manifest(ManifestUid(3 * round)));
        state = next;
    }
    assert!(!seen.iter().any(|id| (1..8).contains(id)), "1 to 7 are reserved");
}

#[test]
fn the_default_collection_can_go_but_not_come_back_and_its_scope_stays() {
    let drop = |name: &str| Command::DropCollection {
        bucket: "b".into(),
        scope: "_default".into(),
        collection: name.into(),
    };
    let state = with(&[create("b", &[]), drop("_default")]);
    assert!(state.buckets["b"].manifest.collection(CollectionId::DEFAULT).is_none());
    assert!(
        refusal(&state, &collection("b", "_default", "_default"))
            .contains("_default collection is not allowed")
    );
    let scope = Command::DropScope { bucket: "b".into(), scope: "_default".into() };
    assert_eq!(refusal(&state, &scope), "Deleting _default scope is not allowed");
}

#[test]
fn names_and_expiries_of_collections_are_checked() {
    let state = with(&[create("b", &[])]);
    for name in ["", "_a", "%a", "a b", "ä", &"x".repeat(252)] {
        assert!(matches!(state.apply(&scope("b", name)), Err(ClusterError::Invalid(_))), "{name:?}");
    }
    assert!(state.apply(&scope("b", &"x".repeat(251))).is_ok());
    let ttl = |max_ttl| Command::CreateCollection {
        bucket: "b".into(),
        scope: "_default".into(),
        collection: "c".into(),
        max_ttl,
    };
    let stored = |max_ttl| {
        let state = state.apply(&ttl(max_ttl)).unwrap().0;
        state.buckets["b"].manifest.scopes[0].collections[1].max_ttl_secs
    };
    assert_eq!((stored(-1), stored(0), stored(9)), (Some(0), None, Some(9)));
    assert!(state.apply(&ttl(-2)).is_err() && state.apply(&ttl(1 << 31)).is_err());
}

#[test]
fn dropping_something_takes_the_rights_on_it_along() {
    let state = with(&[
        create("b", &[]),
        scope("b", "s"),
        collection("b", "s", "c"),
        group("g", "data_reader[b:s]"),
        user("u", Some("secret1"), "data_reader[b:s:c],data_writer[b],data_writer[*]", &["g"]),
    ]);
    let roles = |state: &Metadata| (state.users["u"].roles.len(), state.groups["g"].roles.len());
    assert_eq!(roles(&state), (3, 1));
    let drop = Command::DropCollection { bucket: "b".into(), scope: "s".into(), collection: "c".into() };
    let state = state.apply(&drop).unwrap().0;
    assert_eq!(roles(&state), (2, 1));
    let state = state.apply(&Command::DropScope { bucket: "b".into(), scope: "s".into() }).unwrap().0;
    assert_eq!(roles(&state), (2, 0));
    let state = state.apply(&Command::DeleteBucket { name: "b".into() }).unwrap().0;
    assert_eq!(roles(&state), (1, 0));
}

#[test]
fn a_bucket_that_is_emptied_is_another_one_with_all_but_the_documents() {
    let state = with(&[
        create("b", &[]),
        scope("b", "s"),
        collection("b", "s", "c"),
        user("u", Some("secret1"), "data_reader[b:s:c]", &[]),
    ]);
    let flush = |uuid: &str| Command::FlushBucket { name: "b".into(), uuid: BucketUuid(uuid.into()) };
    let emptied = state.apply(&flush("another")).unwrap().0;
    let (before, after) = (&state.buckets["b"], &emptied.buckets["b"]);
    assert_eq!(after.uuid, BucketUuid("another".into()));
    assert_eq!((&after.manifest, after.ram_quota_mb), (&before.manifest, before.ram_quota_mb));
    assert_eq!(emptied.users["u"].roles.len(), 1);
    assert!(emptied.rev > state.rev, "clients look where it is");
    for (now, then) in after.vbs.iter().zip(before.vbs.iter()) {
        assert_eq!((&now.chain, now.term), (&then.chain, then.term + 1));
    }
    let absent = Command::FlushBucket { name: "x".into(), uuid: BucketUuid("y".into()) };
    assert_eq!(refusal(&state, &absent), "Requested resource not found.");
    let other =
        NodeInfo { id: NodeId(1), ..NodeInfo::first("2".repeat(32), "127.0.0.2".into(), Ports::default()) };
    let two = state.apply(&Command::AddNode(other)).unwrap().0;
    let start = StartRebalance { id: "r".into(), keep: vec![NodeId(0), NodeId(1)], eject: vec![], now_ms: 1 };
    let moving = two.apply(&Command::StartRebalance(start)).unwrap().0;
    assert_eq!(refusal(&moving, &flush("third")), "Cannot flush buckets during rebalance");
}

#[test]
fn roles_are_granted_on_what_exists_and_read_back() {
    let state = with(&[create("b", &[]), scope("b", "s"), collection("b", "s", "c")]);
    for text in ["data_reader[x]", "data_reader[b:x]", "data_reader[b:s:x]"] {
        assert!(refusal(&state, &user("u", Some("secret1"), text, &[])).ends_with(&format!("[{text}]")));
    }
    let malformed = [
        "data_reader",
        "admin[b]",
        "nonsense",
        "data_reader[",
        "data_reader[]",
        "data_reader[b:s:c:d]",
        "bucket_admin[b:s]",
        "data_reader[*:s]",
        "data_reader[b:*:c]",
        "data_reader[b]x",
    ];
    for text in malformed {
        assert_eq!(RoleGrant::parse(text), None, "{text}");
    }
    for text in ["admin", "bucket_admin[*]", "data_reader[b]", "data_reader[b:s]", "data_reader[b:s:c]"] {
        assert_eq!(RoleGrant::parse(text).unwrap().text(), text);
    }
    assert_eq!(RoleGrant::parse("data_reader[b:*:*]").unwrap().text(), "data_reader[b]");
    assert_eq!(RoleGrant::parse("data_reader[*:*:*]").unwrap().target, Target::AnyBucket);
    let ids: BTreeSet<_> = ROLES.iter().map(|role| role.id).collect();
    assert_eq!(ids.len(), ROLES.len());
}

#[test]
fn rights_follow_roles_scope_by_scope() {
    let state = with(&[
        create("b", &[]),
        create("other", &[]),
        scope("b", "s"),
        collection("b", "s", "c"),
        collection("b", "s", "d"),
        group("g", "data_monitoring[b]"),
        user("u", Some("secret1"), "data_reader[b:s:c],data_writer[b:s]", &["g"]),
    ]);
    let manifest = &state.buckets["b"].manifest;
    let found = manifest.scope("s").unwrap();
    let (scope, c, d) = (found.id, found.collections[0].id, found.collections[1].id);
    let identity = Identity::unproved("u", Domain::Local);
    let held = privileges(&state, &identity, Some("b"));
    assert!(held.has_in(scope, c, Privilege::Read) && held.has_in(scope, c, Privilege::Upsert));
    assert!(!held.has_in(scope, d, Privilege::Read) && held.has_in(scope, d, Privilege::Upsert));
    assert!(!held.has_in(ScopeId::DEFAULT, CollectionId::DEFAULT, Privilege::Upsert));
    assert!(held.has(Privilege::SimpleStats), "from the group");
    assert!(held.is_scoped() && !held.has(Privilege::Read) && held.has_somewhere(Privilege::Read));
    assert!(privileges(&state, &identity, Some("other")).is_empty());
    assert!(privileges(&state, &identity, Some("absent")).is_empty());
    assert!(!privileges(&state, &identity, None).has(Privilege::ClusterAdmin));
    let admin = Identity::unproved("Administrator", Domain::Admin);
    assert!(privileges(&state, &admin, Some("b")).has(Privilege::DcpProducer));
    assert!(privileges(&state, &Identity::anonymous(), Some("b")).is_empty());
}

#[test]
fn administrators_of_the_cluster_do_not_read_documents() {
    let state =
        with(&[create("b", &[]), user("u", Some("secret1"), "cluster_admin,ro_admin,bucket_admin[*]", &[])]);
    let identity = Identity::unproved("u", Domain::Local);
    let held = privileges(&state, &identity, Some("b"));
    assert!(held.has(Privilege::BucketWrite) && held.has(Privilege::Stats));
    for privilege in [Privilege::Read, Privilege::Upsert, Privilege::Delete, Privilege::DcpProducer] {
        assert!(!held.has(privilege), "{privilege:?}");
    }
}

#[test]
fn the_nodes_of_a_cluster_know_one_another_by_its_secret() {
    let cache = PasswordCache::new([1; 32]);
    let check = |state: &Metadata, password: &str| {
        let checked = check_password(state, INTERNAL_USER, password);
        assert_eq!(cache.check(state, INTERNAL_USER, password), checked);
        assert_eq!(cache.recall(state, INTERNAL_USER, password), checked);
        checked
    };
    let state = with(&[create("b", &[])]);
    assert_eq!(check(&Metadata { secret: String::new(), ..state.clone() }, ""), None);
    let state = Metadata { secret: "0123abcd".into(), ..state };
    assert_eq!(check(&state, "0123abce"), None);
    let node = check(&state, "0123abcd").unwrap();
    assert!(node.is_internal() && privileges(&state, &node, Some("b")).has(Privilege::DcpProducer));
    let namesake = Identity::unproved(INTERNAL_USER, Domain::Local);
    assert!(!namesake.is_internal() && privileges(&state, &namesake, Some("b")).is_empty());
}

#[test]
fn passwords_are_checked_cached_and_changed() {
    let state = with(&[user("u", Some("secret1"), "", &[])]);
    let found = check_password(&state, "u", "secret1").unwrap();
    assert_eq!((found.name.as_str(), found.domain), ("u", Domain::Local));
    assert_eq!(check_password(&state, "Administrator", "password").unwrap().domain, Domain::Admin);
    for (name, password) in [("u", "secret2"), ("u", ""), ("nobody", "secret1"), ("", "")] {
        assert_eq!(check_password(&state, name, password), None, "{name}");
    }
    let cache = PasswordCache::new([1; 32]);
    assert_eq!(cache.recall(&state, "u", "secret1"), None);
    assert!(cache.check(&state, "u", "secret1").is_some() && cache.check(&state, "u", "wrong").is_none());
    assert!(cache.recall(&state, "u", "secret1").is_some() && cache.recall(&state, "u", "wrong").is_none());
    let change = |identity, password| Command::ChangePassword {
        identity,
        credentials: Credentials::new(password, [9; 32]),
        now_ms: 2,
    };
    let changed = state.apply(&change(found.clone(), "secret2")).unwrap().0;
    assert_eq!(cache.recall(&changed, "u", "secret1"), None);
    assert!(check_password(&changed, "u", "secret2").is_some());
    let locked = state.apply(&Command::LockUser { name: "u".into(), locked: true }).unwrap().0;
    assert_eq!(
        (cache.recall(&locked, "u", "secret1"), check_password(&locked, "u", "secret1")),
        (None, None)
    );
    let gone = state.apply(&Command::DeleteUser { domain: UserDomain::Local, name: "u".into() }).unwrap().0;
    assert_eq!(cache.recall(&gone, "u", "secret1"), None);
    assert!(gone.apply(&change(found, "secret3")).is_err());
    assert!(state.apply(&change(Identity::anonymous(), "secret3")).is_err());
}

#[test]
fn a_user_that_is_kept_elsewhere_may_do_nothing_while_locked() {
    let change = |locked| {
        Command::PutUser(UserChange {
            domain: UserDomain::External,
            name: "carl".into(),
            uuid: "uuid-of-carl".into(),
            full_name: None,
            credentials: None,
            roles: Some(RoleGrant::parse_list("data_reader[*]").unwrap()),
            groups: None,
            locked: Some(locked),
            now_ms: 1,
        })
    };
    // Logged in before the lock.
    let carl = Identity::unproved("carl", Domain::External);
    let reads = |state: &Metadata| privileges(state, &carl, Some("b")).has_somewhere(Privilege::Read);
    let state = with(&[change(false)]);
    assert!(reads(&state));
    assert!(!reads(&state.apply(&change(true)).unwrap().0));
}

/// The least of a few times is the work, whatever else the machine does.
#[test]
fn the_time_of_a_refusal_tells_nothing_of_the_name() {
    let state = with(&[user("u", Some("secret1"), "", &[]), user("locked", Some("secret1"), "", &[])]);
    let lock = Command::LockUser { name: "locked".into(), locked: true };
    let state = state.apply(&lock).unwrap().0;
    let cache = PasswordCache::new([1; 32]);
    let takes = |name: &str| {
        let times = (0..5).map(|_| {
            let begun = Instant::now();
            assert_eq!(cache.check(&state, name, "wrong"), None, "{name}");
            begun.elapsed()
        });
        times.min().unwrap()
    };
    let known = takes("u");
    for name in ["nobody", "locked"] {
        let taken = takes(name);
        assert!(taken > known / 4 && taken < known * 4, "{name}: {taken:?}, a known name: {known:?}");
    }
}

#[test]
fn legacy_access_is_off_until_switched_on_and_only_for_that_bucket() {
    let state = with(&[create("a", &[]), create("b", &[])]);
    assert!(!state.buckets["a"].legacy.is_on());
    let legacy = LegacyParams {
        sasl_password: Some("bucketpw".into()),
        credentials: Some(credentials("bucketpw")),
        ..LegacyParams::default()
    };
    let change = Command::UpdateBucket {
        name: "a".into(),
        params: BucketParams { legacy, ..BucketParams::default() },
    };
    let state = state.apply(&change).unwrap().0;
    let bucket = check_password(&state, "a", "bucketpw").unwrap();
    assert_eq!(bucket.domain, Domain::Bucket);
    assert!(privileges(&state, &bucket, Some("a")).has(Privilege::Upsert));
    assert!(privileges(&state, &bucket, Some("b")).is_empty());
    let digest = settee_cluster::auth::cram_md5_digest(b"bucketpw", b"<challenge>");
    assert!(check_cram_md5(&state, "a", b"<challenge>", &digest).is_some());
    assert!(check_cram_md5(&state, "a", b"<another>", &digest).is_none());
    assert!(check_cram_md5(&state, "b", b"<challenge>", "").is_none());
    let open = Command::UpdateBucket { name: "b".into(), params: params(&[("legacyPasswordless", "1")]) };
    let state = state.apply(&open).unwrap().0;
    let nobody = Identity::anonymous();
    assert!(privileges(&state, &nobody, Some("b")).has(Privilege::Read));
    assert!(privileges(&state, &nobody, Some("a")).is_empty());
    let take = Command::UpdateBucket { name: "a".into(), params: params(&[("saslPassword", "")]) };
    let state = state.apply(&take).unwrap().0;
    assert_eq!(check_password(&state, "a", "bucketpw"), None);
    assert!(privileges(&state, &bucket, Some("a")).is_empty(), "an older login is worth nothing any more");
    let port = Command::UpdateBucket { name: "a".into(), params: params(&[("legacyMemcachedPort", "1")]) };
    let state = state.apply(&port).unwrap().0;
    let on_the_port = Identity::unproved("a", Domain::Bucket);
    assert!(privileges(&state, &on_the_port, Some("a")).has(Privilege::Upsert));
    assert!(privileges(&state, &on_the_port, Some("b")).is_empty());
}

#[test]
fn a_bucket_is_open_or_has_a_password_in_whatever_order_it_is_asked() {
    let open = create("b", &[("legacyPasswordless", "1")]);
    let update = |fields: &[(&str, &str)]| Command::UpdateBucket { name: "b".into(), params: params(fields) };
    let state = with(&[open]);
    assert!(state.apply(&update(&[("saslPassword", "bucketpw")])).is_err());
    let both = update(&[("saslPassword", "bucketpw"), ("legacyPasswordless", "0")]);
    let state = state.apply(&both).unwrap().0;
    assert!(state.apply(&update(&[("legacyPasswordless", "1")])).is_err());
    assert!(state.apply(&update(&[("saslPassword", ""), ("legacyPasswordless", "1")])).is_ok());
}

#[test]
fn an_administrator_who_was_replaced_is_nobody() {
    let state = with(&[create("b", &[])]);
    let old = check_password(&state, "Administrator", "password").unwrap();
    let admin = Admin { name: "root".into(), credentials: credentials("password") };
    let state = state.apply(&Command::SetAdmin(admin)).unwrap().0;
    assert!(privileges(&state, &old, Some("b")).is_empty() && privileges(&state, &old, None).is_empty());
    let new = check_password(&state, "root", "password").unwrap();
    assert!(privileges(&state, &new, None).has(Privilege::SecurityAdmin));
}

#[test]
fn auditing_is_on_until_it_is_switched_off() {
    let state = with(&[]);
    assert!(state.audit_policy().enabled);
    for (value, audited) in [(serde_json::json!(false), false), (serde_json::json!(true), true)] {
        let value = serde_json::json!({ "auditdEnabled": value });
        let state = state.apply(&Command::PutSetting { path: "audit".into(), value }).unwrap().0;
        assert_eq!(state.audit_policy().enabled, audited);
    }
}

#[test]
fn configurations_have_what_clients_cannot_do_without() {
    let state = with(&[create("b", &[("numVBuckets", "64"), ("replicaNumber", "2")])]);
    let json: Value = serde_json::from_str(&config::bucket_config(&state, "b", NODE).unwrap()).unwrap();
    assert_eq!(json["rev"], state.rev);
    assert_eq!(json["nodesExt"][0]["thisNode"], true);
    assert_eq!(
        json["nodesExt"][0]["services"],
        serde_json::json!({ "mgmt": 8091, "kv": 11210, "capi": 8092 })
    );
    assert_eq!(json["nodes"][0]["ports"], serde_json::json!({ "direct": 11210, "proxy": 11211 }));
    assert_eq!(json["nodes"][0]["couchApiBase"], "http://$HOST:8092/b%2Buuid-of-b");
    let map = json["vBucketServerMap"]["vBucketMap"].as_array().unwrap();
    assert_eq!((map.len(), &map[63]), (64, &serde_json::json!([0, -1, -1])));
    assert_eq!(config::bucket_config(&state, "x", NODE), None);
    let cluster: Value = serde_json::from_str(&config::cluster_config(&state, NODE)).unwrap();
    assert!(cluster.get("nodeLocator").is_none() && cluster.get("name").is_none());
    assert_eq!(cluster["clusterName"], "c1");
}

#[test]
fn only_hosts_that_mean_something_elsewhere_are_named() {
    let meta = with(&[]);
    let mut node = meta.nodes[0].clone();
    for (host, named, in_url) in [
        ("127.0.0.1", None, "$HOST"),
        ("localhost", None, "$HOST"),
        ("0.0.0.0", None, "$HOST"),
        ("127.0.0.2", Some("127.0.0.2"), "127.0.0.2"),
        ("db1.example.com", Some("db1.example.com"), "db1.example.com"),
        ("fd00::1", Some("fd00::1"), "[fd00::1]"),
    ] {
        node.host = host.into();
        assert_eq!(
            (config::named_host(&meta, &node), config::host_in_url(&meta, &node).as_str()),
            (named, in_url)
        );
    }
    let mut two = meta.clone();
    two.nodes.push(NodeInfo { id: NodeId(1), ..node.clone() });
    node.host = "127.0.0.1".into();
    // A client of the other node would look for this one there.
    assert_eq!(config::named_host(&two, &node), Some("127.0.0.1"));
}
