//! Buckets that hold something: their quotas, and their end.

use std::sync::atomic::Ordering::Relaxed;

use crate::node::{ADMIN, TestNode};

#[test]
fn a_cut_below_what_has_to_stay_in_memory_is_refused_unless_it_is_meant() {
    let test = TestNode::initialized();
    let created = test.post("/pools/default/buckets", "name=heavy&ramQuotaMB=512&replicaNumber=0");
    assert_eq!(created.status, 202, "{}", created.body);
    let quota = || test.get("/pools/default/buckets/heavy").json()["quota"]["rawRAM"].as_u64().unwrap() >> 20;

    let refused = test.post("/pools/default/buckets/heavy", "ramQuotaMB=329");
    assert_eq!((refused.status, quota()), (400, 512));
    let text = refused.json()["errors"]["ramQuotaMB"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("RAM quota cannot be set below current usage.")
            && text.contains("needs a quota of 330 MiB"),
        "{text}"
    );

    assert_eq!(test.post("/pools/default/buckets/heavy", "ramQuotaMB=330").status, 200);
    assert_eq!(test.post("/pools/default/buckets/heavy?ignore_warnings=1", "ramQuotaMB=128").status, 200);
    assert_eq!(quota(), 128);
    // What it has already may be repeated, and more is always welcome.
    assert_eq!(test.post("/pools/default/buckets/heavy", "ramQuotaMB=128&flushEnabled=1").status, 200);
    assert_eq!(test.post("/pools/default/buckets/heavy", "ramQuotaMB=200").status, 200);
}

#[test]
fn a_bucket_that_a_lagging_node_serves_on_is_not_gone_and_its_name_is_not_free() {
    let test = TestNode::initialized();
    let create = || test.post("/pools/default/buckets", "name=b&ramQuotaMB=100&replicaNumber=0");
    assert_eq!(create().status, 202);
    test.node.lagging.store(1, Relaxed);
    let drop = || test.send("DELETE", "/pools/default/buckets/b", ADMIN, None);
    let dropped = drop();
    assert_eq!(dropped.status, 500, "{}", dropped.body);
    assert_eq!(dropped.json()["_"], "Bucket deletion not yet complete, but will continue.\r\n");
    assert_eq!(test.get("/pools/default/buckets/b").status, 404, "it is dropped all the same");
    let refused = create();
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.json()["_"], "Bucket with given name still exists");
    test.node.lagging.store(0, Relaxed);
    assert_eq!(create().status, 202);
    assert_eq!(drop().status, 200);
}
