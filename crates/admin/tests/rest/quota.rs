//! Quotas of buckets that hold something.

use crate::node::TestNode;

#[test]
fn a_cut_below_what_has_to_stay_in_memory_is_refused_unless_it_is_meant() {
    let test = TestNode::initialized();
    let created = test.post("/pools/default/buckets", "name=heavy&ramQuotaMB=512&replicaNumber=0");
    assert_eq!(created.status, 202, "{}", created.body);
    let quota = || test.get("/pools/default/buckets/heavy").json()["quota"]["rawRAM"].as_u64().unwrap() >> 20;

    let refused = test.post("/pools/default/buckets/heavy", "ramQuotaMB=249");
    assert_eq!((refused.status, quota()), (400, 512));
    let text = refused.json()["errors"]["ramQuotaMB"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("RAM quota cannot be set below current usage.") && text.contains("250 MiB"),
        "{text}"
    );

    assert_eq!(test.post("/pools/default/buckets/heavy", "ramQuotaMB=250").status, 200);
    assert_eq!(test.post("/pools/default/buckets/heavy?ignore_warnings=1", "ramQuotaMB=128").status, 200);
    assert_eq!(quota(), 128);
    // What it has already may be repeated, and more is always welcome.
    assert_eq!(test.post("/pools/default/buckets/heavy", "ramQuotaMB=128&flushEnabled=1").status, 200);
    assert_eq!(test.post("/pools/default/buckets/heavy", "ramQuotaMB=200").status, 200);
}
