//! Single statistics, as backup tools ask for them.

use cluster::Command;
use serde_json::json;
use settee_admin::Notice;

use crate::node::{ADMIN, CLUSTER, TestNode};

#[test]
fn one_figure_of_a_bucket_is_told_node_by_node() {
    let node = TestNode::initialized();
    node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    let answer = node.get("/pools/default/buckets/b/stats/curr_items").json();
    let name = node.get("/nodes/self").json()["hostname"].as_str().unwrap().to_owned();
    assert_eq!(answer["nodeStats"], json!({ name: [7] }));
    assert_eq!((&answer["samplesCount"], &answer["isPersistent"]), (&json!(1), &json!(true)));
    assert_eq!(answer["timestamp"].as_array().unwrap().len(), 1);
    assert_eq!(node.get("/pools/default/buckets/b/stats/unheard_of").status, 404);
    assert_eq!(node.get("/pools/default/buckets/absent/stats/curr_items").status, 404);
}

#[test]
fn configurations_name_no_node_by_its_uuid() {
    let node = TestNode::initialized();
    let config = node.get("/pools/default/nodeServices").json();
    assert!(config["nodesExt"][0].get("nodeUUID").is_none(), "7.6.4 does not have it");
}

#[test]
fn prometheus_is_told_where_the_nodes_are() {
    let node = TestNode::initialized();
    node.node.add_members(1);
    let targets =
        |query: &str| node.get(&format!("/prometheus_sd_config{query}")).json()[0]["targets"].clone();
    let own = node.address.port();
    assert_eq!(targets("?port=insecure"), json!([format!("127.0.0.1:{own}"), "127.99.0.2:8091"]));
    // The second one has no port for TLS.
    assert_eq!(targets(""), json!(["127.0.0.1:18091"]));
    assert_eq!(targets("?network=external"), json!([]));
    let labelled = node.get("/prometheus_sd_config?clusterLabels=uuidAndName").json();
    assert_eq!(labelled[0]["labels"], json!({ "cluster_uuid": CLUSTER, "cluster_name": "c1" }));
    let yaml = node.get("/prometheus_sd_config?type=yaml&port=insecure&clusterLabels=uuidOnly").body;
    let expected = format!(
        "- targets:\n    - \"127.0.0.1:{own}\"\n    - \"127.99.0.2:8091\"\n  labels:\n    cluster_uuid: \"{CLUSTER}\"\n"
    );
    assert_eq!(yaml, expected);
    for wrong in ["?port=8091", "?type=xml", "?network=", "?disposition=x", "?clusterLabels=all"] {
        assert_eq!(node.get(&format!("/prometheus_sd_config{wrong}")).status, 400, "{wrong}");
    }
    assert_eq!(node.send("GET", "/prometheus_sd_config", None, None).status, 401);
}

#[test]
fn samples_are_told_for_a_time_and_to_nodes_of_the_cluster() {
    let node = TestNode::initialized();
    // A member that does not answer is left out.
    node.node.add_members(1);
    let created = node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    assert_eq!(created.status, 202, "{}", created.body);
    let answer = node.get("/pools/default/buckets/b/stats?zoom=hour").json();
    let op = &answer["op"];
    assert_eq!((&op["interval"], &op["samplesCount"]), (&json!(4000), &json!(1)));
    assert_eq!(
        op["samples"],
        json!({
            "curr_items": [7], "ep_max_size": [104_857_600], "timestamp": [1_700_000_000_000_u64],
        })
    );
    for wrong in ["", "hours", "Hour"] {
        assert_eq!(node.get(&format!("/pools/default/buckets/b/stats?zoom={wrong}")).status, 400, "{wrong}");
    }
    let ask = |user, body| node.send("POST", "/_settee/samples", user, Some(body));
    let question = "{\"bucket\":\"b\",\"zoom\":\"day\"}";
    assert_eq!(ask(ADMIN, question).status, 401, "an administrator is no node");
    node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    let member = Some("@settee:between-nodes");
    assert_eq!(ask(member, question).json()["values"]["curr_items"], json!([7.0]));
    assert_eq!(ask(member, "{\"bucket\":\"closed\",\"zoom\":\"day\"}").status, 404);
    assert_eq!(ask(member, "{\"bucket\":\"b\",\"zoom\":\"century\"}").status, 400);
}

#[test]
fn forecasts_are_shown_the_soonest_first_and_by_the_rights_of_the_reader() {
    let node = TestNode::initialized();
    for bucket in ["a", "b"] {
        node.post("/pools/default/buckets", &format!("name={bucket}&ramQuota=100&replicaNumber=0"));
    }
    let seen = |user: Option<&str>| -> Vec<String> {
        let told = node.send("GET", "/settee/forecast", user, None);
        assert_eq!(told.status, 200, "{}", told.body);
        let text = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap_or("-").to_owned();
        let all = told.json()["forecasts"].as_array().unwrap().clone();
        all.iter().map(|one| format!("{} {}", text(one, "what"), text(one, "bucket"))).collect()
    };
    assert_eq!(seen(ADMIN), ["metadata a", "memory a", "memory b", "disk -"]);
    let first = node.get("/settee/forecast").json()["forecasts"][1].clone();
    let host = node.get("/nodes/self").json()["hostname"].clone();
    assert_eq!(
        first,
        json!({
            "what": "memory", "node": host, "bucket": "a", "value": 50.0, "limit": 100.0, "perDay": 2.5,
            "outlook": "dated", "likely": "2023-12-04T22:13:20.000Z", "early": "2023-12-03T22:13:20.000Z",
            "pastForecasts": [{ "days": 7, "percent": 1.5, "forecasts": 3 }], "madeAt": "2023-11-14T22:13:20.000Z",
        })
    );
    let form = "password=secret-1&roles=data_monitoring[a]";
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/ann", ADMIN, Some(form)).status, 200);
    assert_eq!(seen(Some("ann:secret-1")), ["metadata a", "memory a"]);
    assert_eq!(node.send("GET", "/settee/forecast", None, None).status, 401);
    let objective = "operation=get&latencyUs=2000&targetPercent=99.9";
    let set = node.send("PUT", "/settee/slo/b/reads", ADMIN, Some(objective));
    assert_eq!(set.status, 200, "{}", set.body);
    assert_eq!(seen(ADMIN).last().map(String::as_str), Some("objective b"));
    let told = node.get("/settee/forecast").json();
    let budget = told["forecasts"].as_array().unwrap().last().unwrap();
    assert!(budget["what"] == "objective" && budget.get("pastForecasts").is_none(), "{budget}");
}

#[test]
fn alerts_of_a_bucket_are_for_those_who_may_see_it_and_probes_write_for_those_who_may_write() {
    let node = TestNode::initialized();
    for bucket in ["a", "b"] {
        node.post("/pools/default/buckets", &format!("name={bucket}&ramQuota=100&replicaNumber=0"));
    }
    for (user, roles) in [("ann", "bucket_admin[a]"), ("ben", "bucket_admin[b]"), ("cat", "cluster_admin")] {
        let form = format!("password=secret-1&roles={roles}");
        let made = node.send("PUT", &format!("/settings/rbac/users/local/{user}"), ADMIN, Some(&form));
        assert_eq!(made.status, 200, "{}", made.body);
    }
    let firing = |user: &str| {
        let told = node.send("GET", "/settee/alerts", Some(&format!("{user}:secret-1")), None);
        assert_eq!(told.status, 200, "{}", told.body);
        told.json()["firing"].as_array().unwrap().len()
    };
    assert_eq!((firing("ann"), firing("ben")), (0, 1));
    let notices = [Notice::new("b", "Writers of b wait."), Notice::new("", "The disk is full.")];
    *node.node.notices.lock().unwrap() = notices.to_vec();
    let popped_up = |user: &str| {
        let pool = node.send("GET", "/pools/default", Some(&format!("{user}:secret-1")), None).json();
        pool["alerts"].as_array().unwrap().len()
    };
    assert_eq!((popped_up("ann"), popped_up("ben")), (1, 2));
    let put = |user: Option<&str>, form: &str| node.send("PUT", "/settee/probe", user, Some(form)).status;
    let cat = Some("cat:secret-1");
    assert_eq!((put(cat, "buckets=all"), put(cat, "writes=true")), (200, 403));
    assert_eq!(
        (put(ADMIN, "writes=true"), put(cat, "buckets=none"), put(cat, "writes=false")),
        (200, 403, 200)
    );
}

#[test]
fn the_last_minute_of_latency_is_told_apart_from_what_was_before() {
    let node = TestNode::initialized();
    node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    let reads = |zoom: &str| {
        let told = node.get(&format!("/settee/latency/b?zoom={zoom}")).json();
        assert_eq!(told["zoom"], zoom);
        let all = told["operations"]["get"]["all"].clone();
        (told["timestamps"].as_array().unwrap().len(), all["count"].clone(), all["p99Us"].as_f64().unwrap())
    };
    let (steps, count, p99) = reads("minute");
    assert_eq!((steps, count), (12, json!(12)));
    assert!((100.0..=112.0).contains(&p99), "{p99}");
    let (steps, count, p99) = reads("minutes");
    assert_eq!((steps, count), (120, json!(1092)));
    assert!(p99 >= 1_000.0, "{p99}");
    assert_eq!(node.get("/settee/latency/b?zoom=second").status, 400);
}

#[test]
fn the_directory_of_statistics_says_what_there_are_samples_of() {
    let node = TestNode::initialized();
    node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    let directory = node.get("/pools/default/buckets/b/statsDirectory").json();
    let entry = |name: &str| json!({ "name": name, "title": "Says something", "desc": "Says something." });
    let expected = json!([
        { "blockName": "Bucket", "stats": [entry("ep_max_size"), entry("curr_items")] },
        { "blockName": "Process", "stats": [entry("settee_node_mem_connections")] },
    ]);
    assert_eq!(directory["blocks"], expected, "words are no samples");
    assert_eq!(node.get("/pools/default/buckets/absent/statsDirectory").status, 404);
    assert_eq!(node.send("GET", "/pools/default/buckets/b/statsDirectory", None, None).status, 401);
}

#[test]
fn the_nodes_own_log_is_shown_to_those_who_may_see_security() {
    let node = TestNode::initialized();
    let log = &base::recent_log::OF_PROCESS;
    log.add("2026-11-27T08:00:00Z  WARN a: the disk is slow bucket=\"b\"\n");
    log.add("2026-11-27T08:00:01Z  INFO b: all is well\n");
    let texts = |query: &str| -> Vec<String> {
        let told = node.get(&format!("/settee/logs?{query}"));
        assert_eq!(told.status, 200, "{query}: {}", told.body);
        let lines = told.json()["lines"].as_array().cloned().unwrap_or_default();
        lines.iter().map(|line| line["text"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(texts("").len(), 2);
    assert!(
        texts("level=warn")[..] == ["2026-11-27T08:00:00Z  WARN a: the disk is slow bucket=\"b\"".to_owned()]
    );
    assert_eq!(texts("contains=well&limit=1").len(), 1);
    assert_eq!(texts("contains=nothing"), Vec::<String>::new());
    let newest = node.get("/settee/logs?limit=0").json()["newest"].as_u64().unwrap();
    assert_eq!(texts(&format!("after={newest}")), Vec::<String>::new());
    for wrong in ["level=loud", "after=x", "limit=-1"] {
        assert_eq!(node.get(&format!("/settee/logs?{wrong}")).status, 400, "{wrong}");
    }
    let made = node.send(
        "PUT",
        "/settings/rbac/users/local/ann",
        ADMIN,
        Some("password=secret-1&roles=bucket_admin[*]"),
    );
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!(node.send("GET", "/settee/logs", Some("ann:secret-1"), None).status, 403);
}

#[test]
fn what_a_mail_server_has_said_is_for_those_who_may_set_it() {
    let node = TestNode::initialized();
    let form = Some("password=password&roles=ro_admin");
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/watcher", ADMIN, form).status, 200);
    let failure = |user| {
        let shown = node.send("GET", "/settings/alerts", user, None);
        assert_eq!((shown.status, &shown.json()["settee"]["sent"]), (200, &json!(1)));
        shown.json()["settee"]["lastFailure"].clone()
    };
    assert_eq!(failure(ADMIN)["text"], "550 no such user");
    let shown = failure(Some("watcher:password"));
    assert_eq!((&shown["text"], shown["at"].is_string()), (&json!(null), true));
}
