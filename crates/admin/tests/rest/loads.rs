//! Hot keys and connections over REST: users see keys of documents that they may read, and nobody else sees names or addresses.

use crate::node::{ADMIN, TestNode};

fn with_user(node: &TestNode, name: &str, roles: &str) -> String {
    let form = format!("password=secret-1&roles={roles}");
    let made = node.send("PUT", &format!("/settings/rbac/users/local/{name}"), ADMIN, Some(&form));
    assert_eq!(made.status, 200, "{}", made.body);
    format!("{name}:secret-1")
}

#[test]
fn hot_keys_are_shown_to_users_that_may_read_them() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    assert_eq!(node.post("/pools/default/buckets/b/scopes", "name=s").status, 200);
    assert_eq!(node.post("/pools/default/buckets/b/scopes/s/collections", "name=c").status, 200);
    let told = |user: Option<&str>| {
        let answer = node.send("GET", "/settee/hot/b", user, None);
        let keys = (answer.status == 200).then(|| {
            let keys = answer.json()["keys"].as_array().unwrap().clone();
            keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        });
        keys.ok_or(answer.status)
    };
    let all = told(ADMIN).unwrap();
    assert!(all.contains(&"_default".to_owned()) && all.contains(&"c".to_owned()), "{all:?}");
    let of_c = with_user(&node, "of-c", "data_reader[b:s:c]");
    assert_eq!(told(Some(&of_c)), Ok(vec!["c".to_owned()]));
    // These see figures and settings, and no documents.
    for (name, role) in [("viewer", "ro_admin"), ("cluster", "cluster_admin"), ("of-none", "data_writer[b]")]
    {
        let user = with_user(&node, name, role);
        assert_eq!(told(Some(&user)), Err(403), "{role}");
    }
    assert_eq!(node.send("GET", "/settee/hot/none", ADMIN, None).status, 404);
}

#[test]
fn connections_are_shown_to_users_that_may_see_logs() {
    let node = TestNode::initialized();
    let told = node.get("/settee/connections").json();
    let clients: Vec<_> = told["connections"].as_array().unwrap().iter().map(|one| &one["client"]).collect();
    assert_eq!(clients, ["10.0.0.2:2", "10.0.0.1:1"], "the busiest first");
    assert_eq!(told["open"][0]["connections"], 2);
    let one = node.get("/settee/connections?limit=1").json();
    assert_eq!(one["connections"].as_array().unwrap().len(), 1);
    for wrong in ["0", "1001", "x", "-1"] {
        assert_eq!(node.get(&format!("/settee/connections?limit={wrong}")).status, 400, "{wrong}");
    }
    let user = with_user(&node, "cluster", "cluster_admin");
    assert_eq!(node.send("GET", "/settee/connections", Some(&user), None).status, 403);
}
