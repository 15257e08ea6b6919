//! Which users may give which rights to others, and what opens data or the cluster to others.

use std::sync::atomic::Ordering::Relaxed;

use cluster::{Admin, BucketParams, Command, LegacyParams, UserDomain, auth::Credentials};

use crate::{
    http::open_stream,
    node::{ADMIN, TestNode},
};

fn put(node: &TestNode, by: Option<&str>, user: &str, roles: &str) -> u16 {
    let form = format!("password=password&roles={roles}");
    node.send("PUT", &format!("/settings/rbac/users/local/{user}"), by, Some(&form)).status
}

fn with_user(roles: &str) -> TestNode {
    let node = TestNode::initialized();
    assert_eq!(put(&node, ADMIN, "somebody", roles), 200, "{roles}");
    node
}

const SOMEBODY: Option<&str> = Some("somebody:password");

#[test]
fn only_full_administrators_give_full_rights_and_nobody_raises_his_own() {
    let node = with_user("security_admin");
    // In one step, and in two: by way of a role that asks for less.
    for roles in ["admin", "security_admin", "cluster_admin", "security_admin,cluster_admin"] {
        assert_eq!(put(&node, SOMEBODY, "somebody", roles), 403, "{roles}");
    }
    for roles in ["security_admin", "security_admin_local", "ro_admin"] {
        assert_eq!(put(&node, SOMEBODY, "friend", roles), 403, "{roles}");
    }
    assert_eq!(put(&node, SOMEBODY, "friend", "admin"), 403);
    assert_eq!(put(&node, SOMEBODY, "friend", "cluster_admin"), 200);
    assert_eq!(put(&node, Some("friend:password"), "other", "admin"), 403);

    // A friend with both rights is still none of the full administrators.
    assert_eq!(put(&node, ADMIN, "both", "security_admin,cluster_admin"), 200);
    assert_eq!(put(&node, Some("both:password"), "friend", "admin"), 403);
    assert_eq!(put(&node, Some("both:password"), "both", "admin"), 403);
    assert_eq!(put(&node, ADMIN, "full", "admin"), 200);
    assert_eq!(put(&node, Some("full:password"), "second", "admin"), 200);
}

#[test]
fn groups_are_no_way_round() {
    let node = with_user("security_admin");
    let group = |by, name: &str, roles: &str| {
        node.send("PUT", &format!("/settings/rbac/groups/{name}"), by, Some(&format!("roles={roles}"))).status
    };
    assert_eq!(group(SOMEBODY, "full", "admin"), 403);
    assert_eq!(group(ADMIN, "full", "admin"), 200);
    assert_eq!(group(ADMIN, "cluster", "cluster_admin"), 200);
    let join = |user: &str, group: &str| {
        let form = format!("password=password&roles=security_admin&groups={group}");
        node.send("PUT", &format!("/settings/rbac/users/local/{user}"), SOMEBODY, Some(&form)).status
    };
    assert_eq!(join("friend", "full"), 403);
    assert_eq!(join("somebody", "cluster"), 403, "his own");
    assert_eq!(group(ADMIN, "mine", "replication_admin"), 200);
    let form = Some("roles=security_admin&groups=mine");
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/somebody", ADMIN, form).status, 200);
    assert_eq!(group(SOMEBODY, "mine", "replication_admin,cluster_admin"), 403, "a group that he is in");
    assert_eq!(group(SOMEBODY, "another", "replication_admin,cluster_admin"), 200);
}

#[test]
fn a_security_administrator_does_not_become_the_administrator_by_his_password() {
    let node = with_user("security_admin");
    let form = Some("username=Administrator&password=mine-now&port=SAME");
    assert_eq!(node.send("POST", "/settings/web", SOMEBODY, form).status, 403);
    assert_eq!(put(&node, ADMIN, "full", "admin"), 200);
    assert_eq!(put(&node, SOMEBODY, "full", ""), 403, "nor a full administrator's");
    assert_eq!(node.send("DELETE", "/settings/rbac/users/local/full", SOMEBODY, None).status, 403);
    assert_eq!(
        node.send("PATCH", "/settings/rbac/users/local/full", SOMEBODY, Some("locked=true")).status,
        403
    );
    assert_eq!(node.send("POST", "/settings/web", ADMIN, form).status, 200);
}

#[test]
fn what_opens_a_bucket_to_clients_without_a_user_needs_the_right_over_security() {
    let node = with_user("cluster_admin");
    assert_eq!(put(&node, ADMIN, "owner", "bucket_admin[*]"), 200);
    let bucket = |by, path: &str, form: &str| node.send("POST", path, by, Some(form));
    let create = |by, more: &str| {
        bucket(by, "/pools/default/buckets", &format!("name=b&ramQuotaMB=100&replicaNumber=0{more}")).status
    };
    let openers = ["saslPassword=secret", "legacyPasswordless=true", "legacyMemcachedPort=true"];
    for opener in openers {
        assert_eq!(create(SOMEBODY, &format!("&{opener}")), 403, "{opener}");
    }
    // What older tools send along, and asks for nothing.
    assert_eq!(create(SOMEBODY, "&authType=sasl&saslPassword="), 202);
    for opener in openers {
        for by in [SOMEBODY, Some("owner:password")] {
            assert_eq!(bucket(by, "/pools/default/buckets/b", opener).status, 403, "{opener}");
        }
    }
    assert_eq!(bucket(SOMEBODY, "/pools/default/buckets/b", "ramQuotaMB=110&saslPassword=").status, 200);
    assert_eq!(bucket(ADMIN, "/pools/default/buckets/b", "saslPassword=secret").status, 200);
    let shown = |by| node.send("GET", "/pools/default/buckets/b", by, None).body.contains("\"secret\"");
    assert!(shown(ADMIN));
    assert!(!shown(SOMEBODY) && !shown(Some("owner:password")), "nor do they read it");
}

#[test]
fn only_a_user_with_the_right_over_security_adds_a_node() {
    let (node, second) = (with_user("cluster_admin"), TestNode::fresh_with_uuid("2222"));
    let form = format!("hostname=http://{}&user=&password=&services=kv", second.address);
    let add = |by| node.send("POST", "/controller/addNode", by, Some(&form));
    assert_eq!(add(SOMEBODY).status, 403);
    let groups = node.get("/pools/default/serverGroups").json();
    let uri = groups["groups"][0]["addNodeURI"].as_str().unwrap().to_owned();
    assert_eq!(node.send("POST", &uri, SOMEBODY, Some(&form)).status, 403);
    for path in ["/_settee/introduce", "/_settee/join"] {
        assert_eq!(node.send("POST", path, SOMEBODY, Some("{}")).status, 403, "{path}");
    }
    let added = add(ADMIN);
    assert_eq!(added.status, 200, "{}", added.body);
}

#[test]
fn a_manifest_shows_a_user_of_a_scope_or_a_collection_that_and_no_more() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0").status, 202);
    for scope in ["s", "t"] {
        assert_eq!(node.post("/pools/default/buckets/b/scopes", &format!("name={scope}")).status, 200);
        for collection in ["c", "d"] {
            let path = format!("/pools/default/buckets/b/scopes/{scope}/collections");
            assert_eq!(node.post(&path, &format!("name={collection}")).status, 200);
        }
    }
    let sees = |roles: &str| -> Vec<String> {
        assert_eq!(put(&node, ADMIN, "somebody", roles), 200, "{roles}");
        let told = node.send("GET", "/pools/default/buckets/b/scopes", SOMEBODY, None);
        assert_eq!(told.status, 200, "{roles}: {}", told.body);
        let text = |one: &serde_json::Value| one["name"].as_str().unwrap().to_owned();
        let list = |all: &serde_json::Value| all.as_array().unwrap().clone();
        let scopes = list(&told.json()["scopes"]).into_iter().map(|scope| {
            let collections: Vec<_> = list(&scope["collections"]).iter().map(text).collect();
            format!("{}: {}", text(&scope), collections.join(" "))
        });
        let mut scopes: Vec<_> = scopes.collect();
        scopes.sort();
        scopes
    };
    assert_eq!(sees("data_reader[b:s:c]"), ["s: c"]);
    assert_eq!(sees("data_writer[b:t]"), ["t: c d"]);
    assert_eq!(sees("data_reader[b:s:d],data_reader[b:t:c]"), ["s: d", "t: c"]);
    assert_eq!(sees("data_reader[b]").len(), 3, "the default scope as well");
}

#[test]
fn a_stream_ends_when_its_user_is_locked() {
    let node = with_user("data_reader[*]");
    let bucket = node.post("/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0");
    assert_eq!(bucket.status, 202, "{}", bucket.body);
    let mut stream = open_stream(node.address, "/pools/default/bs/b", SOMEBODY);
    assert!(stream.next().is_some_and(|config| config.contains("\"name\":\"b\"")));
    assert!(stream.next().is_some_and(|end| end == "\n\n\n\n"));
    node.node.apply(&Command::LockUser { name: "somebody".into(), locked: true }).unwrap();
    let params = BucketParams { ram_quota_mb: Some(110), ..BucketParams::default() };
    node.node.apply(&Command::UpdateBucket { name: "b".into(), params }).unwrap();
    assert_eq!(stream.next(), None);
}

/// The test's client waits 20 s for an answer.
#[test]
fn a_long_list_of_permissions_keeps_the_node_from_nothing() {
    let node = with_user("views_reader[*]");
    assert_eq!(node.post("/pools/default", "memoryQuota=4000").status, 200);
    for number in 0..30 {
        let form = format!("name=b{number}&ramQuotaMB=100&replicaNumber=0");
        let made = node.post("/pools/default/buckets", &form);
        assert_eq!(made.status, 202, "{}", made.body);
    }
    let names: Vec<String> =
        (0..100_000).map(|number| format!("cluster.scope[.:{number}].data!write")).collect();
    let answer = node.send("POST", "/pools/default/checkPermissions", SOMEBODY, Some(&names.join(",")));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json().as_object().map(serde_json::Map::len), Some(names.len()));
}

/// Otherwise he goes on with all that he had, for as long as this node does not hear of it.
#[test]
fn a_user_who_may_have_been_removed_changes_nothing() {
    let node = with_user("admin");
    let removed = Command::DeleteUser { domain: UserDomain::Local, name: "somebody".into() };
    node.node.unheard.lock().unwrap().push(removed);
    node.node.hears_nobody.store(true, Relaxed);
    let bucket = "name=b&ramQuota=100&replicaNumber=0";
    for (method, path, form) in [
        ("PUT", "/settings/rbac/users/local/friend", Some("password=password&roles=admin")),
        ("POST", "/pools/default", Some("clusterName=mine")),
        ("POST", "/pools/default/buckets", Some(bucket)),
        ("DELETE", "/settings/rbac/users/local/somebody", None),
    ] {
        let refused = node.send(method, path, SOMEBODY, form);
        assert_eq!(refused.status, 503, "{method} {path}: {}", refused.body);
    }
    // What changes nothing goes on, and so does what an operator needs where no majority is left.
    assert_eq!(node.send("GET", "/pools/default", SOMEBODY, None).status, 200);
    let permissions = Some("cluster.pools!read");
    assert_eq!(node.send("POST", "/pools/default/checkPermissions", SOMEBODY, permissions).status, 200);
    let fail_over = |form: &str| node.send("POST", "/controller/failOver", SOMEBODY, Some(form));
    let refused = fail_over("otpNode=ns_1@none");
    assert_eq!((refused.status, &*refused.body), (504, "Cannot safely perform a failover at the moment"));
    let judged = fail_over("otpNode=ns_1@none&allowUnsafe=true");
    assert_eq!((judged.status, &*judged.body), (400, "Unknown server given [ns_1@none]"));
    node.node.hears_nobody.store(false, Relaxed);
    assert_eq!(put(&node, SOMEBODY, "friend", "admin"), 401);
    assert_eq!(put(&node, ADMIN, "friend", "admin"), 200);
    node.node.hears_nobody.store(true, Relaxed);
    assert_eq!(node.send("POST", "/controller/hardResetNode", ADMIN, None).status, 200);
}

/// Tools send along what is. A user who may not open the bucket must not do so by that.
#[test]
fn an_edit_that_opens_nothing_does_not_open_what_another_node_has_closed_meanwhile() {
    let node = with_user("bucket_admin[*]");
    let openers = "legacyPasswordless=true&legacyMemcachedPort=true";
    let create = format!("name=b&ramQuotaMB=100&replicaNumber=0&{openers}");
    assert_eq!(node.post("/pools/default/buckets", &create).status, 202);
    let legacy =
        LegacyParams { passwordless: Some(false), memcached_port: Some(false), ..LegacyParams::default() };
    let params = BucketParams { legacy, ..BucketParams::default() };
    let closing = Command::UpdateBucket { name: "b".into(), params };
    let edit = |by| {
        node.node.meanwhile.lock().unwrap().push(closing.clone());
        let form = format!("ramQuotaMB=110&{openers}");
        assert_eq!(node.send("POST", "/pools/default/buckets/b", by, Some(&form)).status, 200);
        let bucket = node.node.metadata_now().buckets["b"].clone();
        (bucket.ram_quota_mb, bucket.legacy.passwordless, bucket.legacy.memcached_port)
    };
    assert_eq!(edit(SOMEBODY), (110, false, false));
    assert_eq!(edit(ADMIN), (110, true, true), "who may open it has asked for that");
}

#[test]
fn an_administrator_who_changes_nothing_brings_no_old_password_back() {
    let node = TestNode::initialized();
    let admin = Admin { name: "Administrator".into(), credentials: Credentials::new("changed-1", [7; 32]) };
    node.node.meanwhile.lock().unwrap().push(Command::SetAdmin(admin));
    // Another change lets the other node have its turn.
    assert_eq!(node.post("/settings/web", "port=SAME").status, 200);
    assert_eq!(node.post("/pools/default", "clusterName=c2").status, 200);
    assert_eq!(node.get("/pools/default").status, 401);
    assert_eq!(node.send("GET", "/pools/default", Some("Administrator:changed-1"), None).status, 200);
}
