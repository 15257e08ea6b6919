use super::*;
use crate::collation::row_key;

fn refused(query: &str, has_reduction: bool) -> Refusal {
    Parameters::parse(query, None).and_then(|parameters| parameters.query(has_reduction)).expect_err(query)
}

fn query(text: &str, has_reduction: bool) -> Query {
    let parsed = Parameters::parse(text, None).and_then(|parameters| parameters.query(has_reduction));
    parsed.unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"))
}

#[test]
fn a_query_has_a_limited_number_of_keys() {
    let of = |count: usize| format!("keys=[{}]", vec!["1"; count].join(","));
    assert_eq!(query(&of(parameters::KEYS_MAX), false).ranges.len(), parameters::KEYS_MAX);
    let refused = refused(&of(parameters::KEYS_MAX + 1), false);
    assert_eq!(
        (refused.status, refused.reason.as_str()),
        (400, "`keys` parameter has more than 65536 keys.")
    );
}

#[test]
fn refusals_have_the_documented_texts() {
    let range = "No rows can match your key range, reverse your start_key and end_key or set descending=";
    let cases = [
        ("limit=x", "Invalid value for integer parameter: \"x\""),
        ("skip=", "Invalid value for integer parameter: \"\""),
        ("limit=-1", "Invalid value for positive integer parameter: \"-1\""),
        ("descending=x", "Invalid boolean parameter: \"x\""),
        ("stale=x", "stale only available as stale=ok, stale=update_after or stale=false"),
        ("_type=x", "_type only available as _type=main or _type=replica"),
        ("count=1", "Query parameter 'count' is now 'limit'."),
        ("keys=[1]&startkey=1", "Query parameter `start_key` is not compatible with multi-get"),
        ("key=1&keys=[1]", "Query parameter `start_key` is not compatible with multi-get"),
        ("keys=[1]&end_key=1", "Query parameter `end_key` is not compatible with multi-get"),
        ("startkey=2&endkey=1", &format!("{range}true")),
        ("startkey=1&endkey=2&descending=true", &format!("{range}false")),
    ];
    for (text, reason) in cases {
        for has_reduction in [false, true] {
            assert_eq!(refused(text, has_reduction), Refusal::query(reason), "{text}");
        }
    }
    let of_maps = "Invalid URL parameter 'group' or  'group_level' for non-reduce view.";
    for text in ["group=true", "group=false", "group_level=1"] {
        assert_eq!(refused(text, false), Refusal::query(of_maps), "{text}");
        assert_eq!(refused(&format!("{text}&reduce=false"), true), Refusal::query(of_maps), "{text}");
    }
    let reason = "Invalid URL parameter `reduce` for map view.";
    assert_eq!(refused("reduce=true", false), Refusal::query(reason));
    let cases = [
        ("group=true&group_level=1", "Query parameter `group_level` is not compatible with `group`"),
        ("include_docs=true", "Query parameter `include_docs` is invalid for reduce views."),
        ("conflicts=true", "Query parameter `conflicts` is invalid for reduce views."),
        ("keys=[1]", "Multi-key fetchs for reduce view must include `group=true`"),
        ("keys=[1]&group_level=1", "Multi-key fetchs for reduce view must include `group=true`"),
    ];
    for (text, reason) in cases {
        assert_eq!(refused(text, true), Refusal::query(reason), "{text}");
    }
}

#[test]
fn bad_requests_have_the_documented_texts() {
    let on_error =
        "Invalid value (`x`) for the parameter `on_error`. It must be `continue` (default) or `stop`.";
    assert_eq!(refused("on_error=x", false), Refusal::bad_request(on_error));
    let timeout = "Query parameter `connection_timeout` must be an integer";
    assert_eq!(refused("connection_timeout=x", false), Refusal::bad_request(timeout));
    assert_eq!(refused("keys={}", false), Refusal::bad_request("`keys` parameter is not an array."));
    for text in ["key=a", "startkey=%22", "endkey=", "keys=[", "key=%ff"] {
        let refusal = refused(text, false);
        assert_eq!((refusal.status, refusal.error), (400, "bad_request"), "{text}");
        assert!(refusal.reason.starts_with("invalid UTF-8 JSON: "), "{text}: {}", refusal.reason);
    }
    assert_eq!(refused("key=%22%5cud800%22", false), Refusal::bad_request("Unexpected character in key"));
}

#[test]
fn what_clients_rely_on_is_accepted() {
    let plain = query("", false);
    assert_eq!((plain.skip, plain.limit, plain.descending), (0, 10_000_000_000, false));
    assert_eq!(plain.ranges, [Range { lower: Vec::new(), upper: None }]);
    assert_eq!((plain.stale, plain.on_error, plain.grouping), (Stale::UpdateAfter, OnError::Continue, None));
    let unknown = "update_seq=true&list=x&_=1&bbox=1&callback=f&reduce=false&include_docs=true&conflicts=TRUE&_type=Main";
    assert_eq!(query(unknown, false), plain);
    assert_eq!(query("reduce=true", true).grouping, Some(Grouping::All));
    assert_eq!(query("group=false", true).grouping, Some(Grouping::All));
    assert_eq!(query("group=True", true).grouping, Some(Grouping::Exact));
    assert_eq!(query("group_level=2", true).grouping, Some(Grouping::Level(2)));
    assert_eq!(query("reduce=false", true).grouping, None);
    assert_eq!(query("reduce=false&include_docs=true", true).grouping, None);
    assert_eq!(query("limit=99999999999999999999999", false).limit, u64::MAX);
    assert_eq!(query("limit=3&limit=%2B007", false).limit, 7);
    assert_eq!(query("stale=OK&stale=False", false).stale, Stale::False);
    assert!(query("full_set=true", false).full_set && !query("full_set=TRUE", false).full_set);
    assert_eq!(query("key=1&startkey=0.5", false), query("start_key=0.5&end_key=1.0", false));
}

#[test]
fn bodies_are_read_where_they_are_json() {
    let parse = |content_type, body: &str| {
        Parameters::parse("on_error=stop", Some(Body { content_type, bytes: body.as_bytes() }))
            .and_then(|parameters| parameters.query(false))
    };
    let json = Some("application/json; charset=utf-8");
    let refusal = parse(None, "{}").unwrap_err();
    assert_eq!((refusal.status, refusal.error), (415, "bad_content_type"));
    assert_eq!(refusal.reason, "Content-Type must be application/json");
    assert!(parse(Some("text/plain"), "{}").is_err());
    assert_eq!(parse(json, "[]").unwrap_err(), Refusal::bad_request("Request body must be a JSON object"));
    assert!(parse(json, "").unwrap_err().reason.starts_with("invalid UTF-8 JSON: "));
    assert_eq!(
        parse(json, "{\"keys\":1}").unwrap_err(),
        Refusal::bad_request("`keys` parameter is not an array.")
    );
    assert_eq!(parse(json, "{}").unwrap().on_error, OnError::Stop);
    let body = "{\"keys\":[2, \"a\"],\"on_error\":\"continue\",\"connection_timeout\":7,\"limit\":1}";
    let query = parse(json, body).unwrap();
    assert_eq!(
        (query.ranges.len(), query.on_error, query.connection_timeout),
        (2, OnError::Continue, Some(7))
    );
    assert_eq!(query.limit, 10_000_000_000);
}

/// The rows that a query finds among three documents with each of three keys, in the order in which it gives them.
fn found(text: &str) -> String {
    let query = query(text, false);
    let mut rows = Vec::new();
    for key in ["1", "2", "3"] {
        for docid in ["a", "b", "c"] {
            let (mut encoded, mut row) = (Vec::new(), Vec::new());
            encode(key, &mut encoded).unwrap();
            row_key(&encoded, docid, 0, &mut row);
            rows.push((row, format!("{key}{docid}")));
        }
    }
    let mut names: Vec<String> = Vec::new();
    for range in &query.ranges {
        let mut inside: Vec<String> =
            rows.iter().filter(|(row, _)| range.contains(row)).map(|(_, name)| name.clone()).collect();
        if query.descending {
            inside.reverse();
        }
        names.extend(inside);
    }
    names.join(" ")
}

#[test]
fn ranges_are_what_was_asked_for() {
    let all = "1a 1b 1c 2a 2b 2c 3a 3b 3c";
    let cases = [
        ("", all),
        ("key=2", "2a 2b 2c"),
        ("startkey=2", "2a 2b 2c 3a 3b 3c"),
        ("endkey=2", "1a 1b 1c 2a 2b 2c"),
        ("endkey=2&inclusive_end=false", "1a 1b 1c"),
        ("startkey=1&endkey=2&inclusive_end=false", "1a 1b 1c"),
        ("startkey=2&startkey_docid=b", "2b 2c 3a 3b 3c"),
        ("startkey=2&startkey_docid=bb", "2c 3a 3b 3c"),
        ("endkey=2&endkey_docid=b", "1a 1b 1c 2a 2b"),
        ("endkey=2&endkey_docid=b&inclusive_end=false", "1a 1b 1c 2a"),
        ("startkey_docid=b&endkey_docid=a", all),
        ("key=2&startkey_docid=b&endkey_docid=b", "2b"),
        ("key=2&startkey_docid=c&endkey_docid=a", ""),
        ("key=2&inclusive_end=false", ""),
        ("descending=true", "3c 3b 3a 2c 2b 2a 1c 1b 1a"),
        ("descending=true&key=2", "2c 2b 2a"),
        ("descending=true&startkey=2", "2c 2b 2a 1c 1b 1a"),
        ("descending=true&endkey=2", "3c 3b 3a 2c 2b 2a"),
        ("descending=true&endkey=2&inclusive_end=false", "3c 3b 3a"),
        ("descending=true&startkey=2&startkey_docid=b", "2b 2a 1c 1b 1a"),
        ("descending=true&endkey=2&endkey_docid=b", "3c 3b 3a 2c 2b"),
        ("descending=true&endkey=2&endkey_docid=b&inclusive_end=false", "3c 3b 3a 2c"),
        ("keys=[3,1,3.0]", "3a 3b 3c 1a 1b 1c 3a 3b 3c"),
        ("keys=[]", ""),
        ("keys=[4]", ""),
    ];
    for (text, expected) in cases {
        assert_eq!(found(text), expected, "{text}");
    }
}
