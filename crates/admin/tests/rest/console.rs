//! The web console's files and sessions: who gets a cookie, what it is good for, and what ends it.

use ::http::AuditKind;

use crate::{
    http::{Response, request_with},
    node::{ADMIN, TestNode},
};

const FORM: &str = "application/x-www-form-urlencoded";

/// Sends a request as a browser does that shows the console; `cookie`: what the node gave it.
fn browse(node: &TestNode, method: &str, path: &str, cookie: Option<&str>, form: Option<&str>) -> Response {
    let mut headers = vec![("ns-server-ui", "yes")];
    headers.extend(cookie.map(|cookie| ("Cookie", cookie)));
    request_with(node.address, method, path, &headers, form.map(|form| (FORM, form)))
}

/// The cookie that a login is answered with, as a browser sends it back.
fn log_in(node: &TestNode, user: &str, password: &str) -> Option<String> {
    let answer = browse(node, "POST", "/uilogin", None, Some(&format!("user={user}&password={password}")));
    assert_eq!(
        answer.status,
        if answer.headers.contains_key("set-cookie") { 200 } else { 400 },
        "{}",
        answer.body
    );
    answer.headers.get("set-cookie").map(|cookie| cookie.split(';').next().unwrap_or_default().to_owned())
}

fn status(node: &TestNode, path: &str, cookie: &str) -> u16 {
    browse(node, "GET", path, Some(cookie), None).status
}

#[test]
fn a_login_gives_a_cookie_that_only_the_console_can_use() {
    let node = TestNode::initialized();
    let answer = browse(&node, "POST", "/uilogin", None, Some("user=Administrator&password=password"));
    assert_eq!(answer.status, 200);
    let cookie = answer.headers.get("set-cookie").cloned().unwrap_or_default();
    let name = format!("ui-auth-127.0.0.1%3A{}=", node.address.port());
    assert!(cookie.starts_with(&name), "{cookie}");
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let whoami = browse(&node, "GET", "/whoami", Some(cookie), None);
    assert_eq!(whoami.json()["id"], "Administrator");
    let changed = browse(&node, "POST", "/pools/default", Some(cookie), Some("clusterName=c9"));
    assert_eq!((changed.status, node.node.metadata_now().cluster_name.as_str()), (200, "c9"));

    // Without the header the cookie is nobody's.
    let bare = request_with(node.address, "GET", "/pools/default", &[("Cookie", cookie)], None);
    assert_eq!(bare.status, 401);
    // A page of another origin has the browser's cookies at most.
    for foreign in [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")] {
        let headers = [("ns-server-ui", "yes"), ("Cookie", cookie), foreign];
        let form = Some((FORM, "clusterName=theirs"));
        assert_eq!(
            request_with(node.address, "POST", "/pools/default", &headers, form).status,
            403,
            "{foreign:?}"
        );
    }
    let rebound = [("ns-server-ui", "yes"), ("Cookie", cookie), ("Host", "evil.example")];
    assert_eq!(request_with(node.address, "GET", "/pools/default", &rebound, None).status, 421);
    assert_eq!(node.node.metadata_now().cluster_name, "c9");
}

#[test]
fn a_page_of_somebody_else_logs_nobody_in_or_out() {
    let node = TestNode::initialized();
    let cookie = log_in(&node, "Administrator", "password").unwrap();
    for (path, body) in [("/uilogin", "user=Administrator&password=password"), ("/uilogout", "")] {
        let headers =
            [("ns-server-ui", "yes"), ("Cookie", cookie.as_str()), ("Origin", "http://evil.example")];
        let answer = request_with(node.address, "POST", path, &headers, Some((FORM, body)));
        assert_eq!((answer.status, answer.headers.get("set-cookie")), (403, None), "{path}");
    }
    assert_eq!(status(&node, "/pools/default", &cookie), 200);
}

#[test]
fn a_session_ends_with_its_logout_and_with_its_login() {
    let node = TestNode::initialized();
    let put = |password: &str| {
        let form = format!("password={password}&roles=ro_admin");
        assert_eq!(node.send("PUT", "/settings/rbac/users/local/ann", ADMIN, Some(&form)).status, 200);
    };
    let lock = |locked: bool| {
        let form = format!("locked={locked}");
        assert_eq!(node.send("PATCH", "/settings/rbac/users/local/ann", ADMIN, Some(&form)).status, 200);
    };
    put("secret-1");
    let cookie = log_in(&node, "ann", "secret-1").unwrap();
    assert_eq!(status(&node, "/pools/default", &cookie), 200);
    assert_eq!(browse(&node, "POST", "/pools/default", Some(&cookie), Some("clusterName=x")).status, 403);
    let out = browse(&node, "POST", "/uilogout", Some(&cookie), Some(""));
    assert!(out.status == 200 && out.headers["set-cookie"].contains("Max-Age=0"), "{:?}", out.headers);
    let over = browse(&node, "GET", "/pools/default", Some(&cookie), None);
    assert_eq!((over.status, over.headers.get("www-authenticate")), (401, None), "the console asks itself");

    let cookie = log_in(&node, "ann", "secret-1").unwrap();
    put("secret-2");
    assert_eq!(status(&node, "/pools/default", &cookie), 401, "another password");
    let cookie = log_in(&node, "ann", "secret-2").unwrap();
    lock(true);
    assert_eq!(status(&node, "/pools/default", &cookie), 401, "a lock");
    assert_eq!(log_in(&node, "ann", "secret-2"), None);
    lock(false);
    let cookie = log_in(&node, "ann", "secret-2").unwrap();
    assert_eq!(node.send("DELETE", "/settings/rbac/users/local/ann", ADMIN, None).status, 200);
    assert_eq!(status(&node, "/pools/default", &cookie), 401, "a removed user");
    let kinds: Vec<_> = node.node.audited.lock().unwrap().iter().map(|event| event.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == AuditKind::Logout).count(), 1);
}

#[test]
fn logins_that_fail_count_as_on_every_other_way_in() {
    let node = TestNode::initialized();
    for _ in 0..5 {
        assert_eq!(log_in(&node, "Administrator", "guess"), None);
    }
    let sixth = browse(&node, "POST", "/uilogin", None, Some("user=Administrator&password=guess"));
    let basic = node.send("GET", "/pools", Some("Administrator:password"), None);
    assert!(sixth.status == 429 || basic.status == 429, "{} {}", sixth.status, basic.status);
    let failures = node.node.audited.lock().unwrap();
    let failures = failures.iter().filter(|event| event.kind == AuditKind::LoginFailure).count();
    assert!((5..=6).contains(&failures), "{failures}");
}

#[test]
fn clients_older_than_users_have_no_session() {
    let node = TestNode::initialized();
    let created =
        node.post("/pools/default/buckets", "name=old&ramQuota=100&replicaNumber=0&saslPassword=pigeon");
    assert_eq!(created.status, 202, "{}", created.body);
    assert_eq!(node.send("GET", "/pools/default/buckets/old", Some("old:pigeon"), None).status, 200);
    assert_eq!(log_in(&node, "old", "pigeon"), None);
    assert_eq!(log_in(&node, "@settee", "anything"), None);
    assert_eq!(log_in(&node, "", ""), None);
}

#[test]
fn a_browser_is_led_to_the_console_and_nobody_else_is() {
    let node = TestNode::initialized();
    let ask = |path: &str, headers: &[(&str, &str)]| request_with(node.address, "GET", path, headers, None);
    let led = ask("/", &[("Accept", "text/html,application/xhtml+xml;q=0.9")]);
    assert_eq!((led.status, led.headers.get("location").map(String::as_str)), (302, Some("/ui/")));
    for accept in ["*/*", "application/json"] {
        assert_eq!(ask("/", &[("Accept", accept)]).status, 200, "{accept}");
    }
    let page = ask("/ui/", &[]);
    assert_eq!(page.status, 200);
    assert!(page.headers["content-security-policy"].starts_with("default-src 'self'"), "{:?}", page.headers);
    assert!(!page.headers["content-security-policy"].contains("unsafe"));
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    assert_eq!(page.headers["x-frame-options"], "DENY");
    let tag = page.headers["etag"].as_str();
    assert_eq!(ask("/ui/", &[("If-None-Match", tag)]).status, 304);
    for path in ["/ui/nothing.js", "/ui/a/b", "/ui/..%2Findex.html"] {
        assert_eq!(ask(path, &[]).status, 404, "{path}");
    }
}
