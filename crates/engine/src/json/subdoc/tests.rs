//! Statuses and results of single operations. Random ones are compared with a naive implementation in
//! `tests/it/subdoc/`.

use super::*;

type Answer = Result<&'static str, Status>;

fn at(document: &str, path: &str) -> Result<String, Status> {
    let path = Path::parse(path.as_bytes())?;
    let value = get(document.as_bytes(), &path);
    assert_eq!(exists(document.as_bytes(), &path), value.map(|_| ()));
    Ok(String::from_utf8(value?.to_vec()).unwrap())
}

fn counted(document: &str, path: &str) -> Result<usize, Status> {
    count(document.as_bytes(), &Path::parse(path.as_bytes())?)
}

fn edited(document: &str, path: &str, edit: Edit<'_>, create_parents: bool) -> Result<String, Status> {
    let mut out = b"left from before".to_vec();
    apply(document.as_bytes(), &Path::parse(path.as_bytes())?, &edit, create_parents, &mut out)?;
    assert!(crate::json::is_json(&out));
    Ok(String::from_utf8(out).unwrap())
}

/// Without and with the creation of parents.
fn check<'a>(edit: impl Fn(&'a [u8]) -> Edit<'a>, cases: &[(&str, &str, &'a str, Answer, Answer)]) {
    for (document, path, value, strict, creating) in cases {
        let edited = |create| edited(document, path, edit(value.as_bytes()), create);
        assert_eq!(edited(false).as_deref(), strict.as_deref(), "{document} {path} {value}");
        assert_eq!(
            edited(true).as_deref(),
            creating.as_deref(),
            "{document} {path} {value}, creating parents"
        );
    }
}

const NOT_FOUND: Answer = Err(Status::SubdocPathNotFound);
const MISMATCH: Answer = Err(Status::SubdocPathMismatch);
const INVALID: Answer = Err(Status::SubdocPathInvalid);
const EXISTS: Answer = Err(Status::SubdocPathExists);
const CANNOT_INSERT: Answer = Err(Status::SubdocValueCannotInsert);
const NOT_JSON: Answer = Err(Status::SubdocDocNotJson);

/// So many arrays inside each other.
fn arrays(depth: usize, inside: &str) -> String {
    ["[".repeat(depth), inside.to_owned(), "]".repeat(depth)].concat()
}

#[test]
fn values_are_found_as_they_are_spelled() {
    let document = r#" {"key1" : "val1","sub":{"k":"v[}\"{"}, "list":["e1", "e2" ,"e3" ],"nested":[  ["n",2,3]  ],
        "empty":[], "U\u002DEscape":null, "\"q\\":true, "n":-1.5e3 , "dot.ted":{"`":1}} "#;
    for (path, value) in [
        ("key1", Ok(r#""val1""#)),
        ("sub.k", Ok(r#""v[}\"{""#)),
        ("sub", Ok(r#"{"k":"v[}\"{"}"#)),
        ("list[1]", Ok(r#""e2""#)),
        ("list[-1]", Ok(r#""e3""#)),
        ("nested[-1][-1]", Ok("3")),
        ("nested[0].[0]", Ok(r#""n""#)),
        ("U-Escape", Ok("null")),
        (r#"\"q\\"#, Ok("true")),
        ("n", Ok("-1.5e3")),
        ("`dot.ted`.````", Ok("1")),
        ("", Ok(document.trim())),
        ("list[3]", NOT_FOUND),
        ("empty[0]", NOT_FOUND),
        ("empty[-1]", NOT_FOUND),
        ("empty[-1].x", NOT_FOUND),
        ("nope", NOT_FOUND),
        ("sub.nope.deeper", NOT_FOUND),
        ("key1[9]", MISMATCH),
        ("key1.x", MISMATCH),
        ("sub[0]", MISMATCH),
        ("list.x", MISMATCH),
        ("list[0].x", MISMATCH),
        ("list[-1].x", MISMATCH),
        ("[0]", MISMATCH),
        ("sub..k", INVALID),
    ] {
        assert_eq!(at(document, path).as_deref(), value.as_deref(), "{path}");
    }
    assert_eq!(at("[ 1, 2, 3,       4        ]", "[-1]").as_deref(), Ok("4"));
}

#[test]
fn documents_that_are_no_containers_have_no_parts() {
    assert_eq!(at("12", "a").as_deref(), MISMATCH.as_deref());
    assert_eq!(at("null", "[0]").as_deref(), MISMATCH.as_deref());
    assert_eq!(at("\"text\"", "a").as_deref(), NOT_JSON.as_deref());
    assert_eq!(at("", "a").as_deref(), NOT_JSON.as_deref());
    assert_eq!(at(" ", "a").as_deref(), NOT_JSON.as_deref());
}

#[test]
fn what_is_no_json_ends_the_scan() {
    for document in [
        "{",
        "{\"a",
        "{\"a\"",
        "{\"a\":",
        "{\"b\":1",
        "{\"b\":1,",
        "{\"b\":[",
        "{\"b\":\"\\",
        "{1:2}",
        "{\"b\":}",
    ] {
        assert_eq!(at(document, "a").as_deref(), NOT_JSON.as_deref(), "{document}");
    }
    for document in ["[", "[1", "[1,", "[,]", "[1}"] {
        assert_eq!(at(document, "[7]").as_deref(), NOT_JSON.as_deref(), "{document}");
    }
}

#[test]
fn of_equal_keys_the_first_that_fits_counts() {
    let document = r#"{"a":1,"a":{"b":2},"a":{"b":3}}"#;
    assert_eq!(at(document, "a").as_deref(), Ok("1"));
    assert_eq!(at(document, "a.b").as_deref(), Ok("2"));
    assert_eq!(at(document, "a.c").as_deref(), NOT_FOUND.as_deref());
    assert_eq!(at(document, "a[0]").as_deref(), MISMATCH.as_deref());
    assert_eq!(edited(document, "a", Edit::Delete, false).as_deref(), Ok(r#"{"a":{"b":2},"a":{"b":3}}"#));
}

#[test]
fn members_and_elements_are_counted() {
    assert_eq!(counted(r#"{"array":[1,2,3,4]}"#, "array"), Ok(4));
    assert_eq!(counted(r#"{"array":[1,2,3,4]}"#, "array[0]"), Err(Status::SubdocPathMismatch));
    assert_eq!(counted(r#"{"a":"k"}"#, "n"), Err(Status::SubdocPathNotFound));
    assert_eq!(counted(r#"{"a":"k"}"#, "a"), Err(Status::SubdocPathMismatch));
    assert_eq!(counted(r#"{"array":[ [] ]}"#, "array[-1]"), Ok(0));
    for (document, members) in
        [("[]", 0), ("{}", 0), ("{ \"a\":1 , \"b\":[1,2] }", 2), ("[[1,2],{\"a\":\"]\"}]", 2)]
    {
        assert_eq!(counted(document, ""), Ok(members), "{document}");
    }
    assert_eq!(counted("7", ""), Err(Status::SubdocPathMismatch));
}

#[test]
fn members_are_added() {
    check(
        Edit::DictAdd,
        &[
            ("{}", "a", "1", Ok(r#"{"a":1}"#), Ok(r#"{"a":1}"#)),
            (r#"{"b":2}"#, "a", "[1]", Ok(r#"{"b":2,"a":[1]}"#), Ok(r#"{"b":2,"a":[1]}"#)),
            (r#"{"a":2}"#, "a", "1", EXISTS, EXISTS),
            ("{}", "a.b.c", "1", NOT_FOUND, Ok(r#"{"a":{"b":{"c":1}}}"#)),
            (r#"{"a":{"x":0} }"#, "a.b.c", "1", NOT_FOUND, Ok(r#"{"a":{"x":0,"b":{"c":1}} }"#)),
            ("{}", r#"x.\"y"#, "null", NOT_FOUND, Ok(r#"{"x":{"\"y":null}}"#)),
            ("{}", "`a.b`", "1", Ok(r#"{"a.b":1}"#), Ok(r#"{"a.b":1}"#)),
            ("{}", "`a``b`", "1", Ok(r#"{"a`b":1}"#), Ok(r#"{"a`b":1}"#)),
            ("{}", "a[0].b", "1", NOT_FOUND, NOT_FOUND),
            (r#"{"a":[]}"#, "a[0].b", "1", NOT_FOUND, NOT_FOUND),
            (r#"{"a":[{}]}"#, "a[-1].b.c", "1", NOT_FOUND, Ok(r#"{"a":[{"b":{"c":1}}]}"#)),
            (r#"{"a":[{}]}"#, "a[0]", "1", INVALID, INVALID),
            (r#"{"a":[{}]}"#, "a[7]", "1", INVALID, INVALID),
            (r#"{"a":{}}"#, "a[7]", "1", MISMATCH, MISMATCH),
            (r#"{"a":1}"#, "a.b", "1", MISMATCH, MISMATCH),
            ("[]", "a", "1", MISMATCH, MISMATCH),
            ("7", "a", "1", MISMATCH, MISMATCH),
            ("{}", "", "1", CANNOT_INSERT, CANNOT_INSERT),
            ("[]", "key", "blah", CANNOT_INSERT, CANNOT_INSERT),
            ("{}", "a", "1,2", CANNOT_INSERT, CANNOT_INSERT),
            ("{}", "a", "{\"foo\"}", CANNOT_INSERT, CANNOT_INSERT),
            ("{}", "a", "nul", CANNOT_INSERT, CANNOT_INSERT),
            ("{}", "a", "", Err(Status::Invalid), Err(Status::Invalid)),
        ],
    );
}

#[test]
fn members_are_set_and_replaced() {
    check(
        Edit::DictUpsert,
        &[
            (r#"{"a":2,"b":3}"#, "a", "[1]", Ok(r#"{"a":[1],"b":3}"#), Ok(r#"{"a":[1],"b":3}"#)),
            ("{}", "a.b", "1", NOT_FOUND, Ok(r#"{"a":{"b":1}}"#)),
            (r#"{"a":[1]}"#, "a[0]", "1", INVALID, INVALID),
            (r#"{"a":[1]}"#, "a[-1]", "1", INVALID, INVALID),
            ("[null]", "", "1", CANNOT_INSERT, CANNOT_INSERT),
        ],
    );
    check(
        Edit::Replace,
        &[
            (r#"{"a":2,"b":3}"#, "a", "[1]", Ok(r#"{"a":[1],"b":3}"#), Ok(r#"{"a":[1],"b":3}"#)),
            (r#"{"a":[1, 2]}"#, "a[1]", "9", Ok(r#"{"a":[1, 9]}"#), Ok(r#"{"a":[1, 9]}"#)),
            (r#"{"a":[1, 2 ]}"#, "a[-1]", "9", Ok(r#"{"a":[1, 9 ]}"#), Ok(r#"{"a":[1, 9 ]}"#)),
            (r#"{"a":[1]}"#, "a[1]", "9", NOT_FOUND, NOT_FOUND),
            ("{}", "a", "9", NOT_FOUND, NOT_FOUND),
            ("{}", "", "9", CANNOT_INSERT, CANNOT_INSERT),
        ],
    );
}

#[test]
fn deletions_take_one_comma_along() {
    for (document, path, answer) in [
        ("[1,2]", "[0]", Ok("[2]")),
        ("[1,2]", "[1]", Ok("[1]")),
        ("[1,2 , 3]", "[1]", Ok("[1, 3]")),
        ("[1]", "[0]", Ok("[]")),
        ("[ 1 ]", "[-1]", Ok("[  ]")),
        ("[1, 2]", "[-1]", Ok("[1]")),
        (r#"{"0": 1,"1": 2.0}"#, "0", Ok(r#"{"1": 2.0}"#)),
        (r#"{"0": 1 , "1": 2.0 }"#, "1", Ok(r#"{"0": 1  }"#)),
        (r#"[0,[10,20,[100]],{"k":"v"}]"#, "[1][2][0]", Ok(r#"[0,[10,20,[]],{"k":"v"}]"#)),
        (r#"[0,[10,20,[100]],{"k":"v"}]"#, "[1]", Ok(r#"[0,{"k":"v"}]"#)),
        (r#"[{"a":1,"b":2}]"#, "[-1].a", Ok(r#"[{"b":2}]"#)),
        ("[]", "[0]", NOT_FOUND),
        ("[]", "[-1]", NOT_FOUND),
        ("{}", "a", NOT_FOUND),
        ("[]", "a", MISMATCH),
        ("[]", "", CANNOT_INSERT),
    ] {
        assert_eq!(
            edited(document, path, Edit::Delete, false).as_deref(),
            answer.as_deref(),
            "{document} {path}"
        );
    }
}

#[test]
fn arrays_are_pushed_to() {
    check(
        Edit::PushLast,
        &[
            ("[]", "", "1", Ok("[1]"), Ok("[1]")),
            (" [1 ] ", "", "2, 3", Ok(" [1 ,2, 3] "), Ok(" [1 ,2, 3] ")),
            (r#"{"a":[1]}"#, "a", "2", Ok(r#"{"a":[1,2]}"#), Ok(r#"{"a":[1,2]}"#)),
            ("[[ ]]", "[-1]", "123", Ok("[[ 123]]"), Ok("[[ 123]]")),
            ("{}", "a", "1,2", NOT_FOUND, Ok(r#"{"a":[1,2]}"#)),
            (r#"{"x":1}"#, "a.b", "1", NOT_FOUND, Ok(r#"{"x":1,"a":{"b":[1]}}"#)),
            ("{}", "a[0]", "1", NOT_FOUND, NOT_FOUND),
            (r#"{"a":[null]}"#, "a[1]", "1", NOT_FOUND, NOT_FOUND),
            ("{}", "", "1", MISMATCH, MISMATCH),
            ("7", "", "1", NOT_JSON, NOT_JSON),
            (r#"{"a":{}}"#, "a", "1", MISMATCH, MISMATCH),
            ("[null]", "foo.bar", "null", MISMATCH, MISMATCH),
            ("[]", "", "notjson", CANNOT_INSERT, CANNOT_INSERT),
            ("[]", "", "1,", CANNOT_INSERT, CANNOT_INSERT),
        ],
    );
    check(
        Edit::PushFirst,
        &[
            ("[]", "", "1", Ok("[1]"), Ok("[1]")),
            ("[ 1]", "", "2, 3", Ok("[ 2, 3,1]"), Ok("[ 2, 3,1]")),
            (r#"{"a":[4]}"#, "a", "1,2", Ok(r#"{"a":[1,2,4]}"#), Ok(r#"{"a":[1,2,4]}"#)),
            ("{}", "a", "1", NOT_FOUND, Ok(r#"{"a":[1]}"#)),
            (r#"{"a":[null]}"#, "a[1]", "1", NOT_FOUND, NOT_FOUND),
            (r#"{"a":[]}"#, "a[-1]", "1", NOT_FOUND, NOT_FOUND),
            ("{}", "", "1", MISMATCH, MISMATCH),
            ("7", "", "1", MISMATCH, MISMATCH),
        ],
    );
}

#[test]
fn elements_are_inserted() {
    check(
        Edit::Insert,
        &[
            ("[1,2,4,5]", "[2]", "3", Ok("[1,2,3,4,5]"), Ok("[1,2,3,4,5]")),
            ("[1]", "[0]", "-1,0", Ok("[-1,0,1]"), Ok("[-1,0,1]")),
            ("[1]", "[1]", "2", Ok("[1,2]"), Ok("[1,2]")),
            ("[]", "[0]", "2", Ok("[2]"), Ok("[2]")),
            (r#"{"a":[[1]]}"#, "a[-1].[0]", "0", Ok(r#"{"a":[[0,1]]}"#), Ok(r#"{"a":[[0,1]]}"#)),
            ("[1]", "[2]", "3", NOT_FOUND, NOT_FOUND),
            ("{}", "a[0]", "3", NOT_FOUND, NOT_FOUND),
            ("{}", "[0]", "null", MISMATCH, MISMATCH),
            ("[1]", "[-1]", "3", INVALID, INVALID),
            ("[1]", "[0].any", "3", INVALID, INVALID),
            ("[1]", "", "3", INVALID, INVALID),
            ("[]", "[0]", "blah", CANNOT_INSERT, CANNOT_INSERT),
        ],
    );
}

#[test]
fn unique_elements_are_primitive() {
    check(
        Edit::AddUnique,
        &[
            ("[]", "", "0", Ok("[0]"), Ok("[0]")),
            ("[0]", "", " 0 ", EXISTS, EXISTS),
            (r#"["1", 1.0]"#, "", "1", Ok(r#"["1", 1.0,1]"#), Ok(r#"["1", 1.0,1]"#)),
            (r#"["1"]"#, "", "111", Ok(r#"["1",111]"#), Ok(r#"["1",111]"#)),
            (r#"[null,true,"s"]"#, "", r#""s""#, EXISTS, EXISTS),
            (r#"{"a":[1]}"#, "a", "2", Ok(r#"{"a":[1,2]}"#), Ok(r#"{"a":[1,2]}"#)),
            ("{}", "a", "2", NOT_FOUND, Ok(r#"{"a":[2]}"#)),
            ("[[1]]", "[-1]", "1", EXISTS, EXISTS),
            ("[1,[]]", "", "1", EXISTS, EXISTS),
            ("[[],1]", "", "1", MISMATCH, MISMATCH),
            ("[1,{}]", "", "2", MISMATCH, MISMATCH),
            ("{}", "", "1", MISMATCH, MISMATCH),
            (r#"{"a":"s"}"#, "a", "1", MISMATCH, MISMATCH),
            ("[]", "", "[]", CANNOT_INSERT, CANNOT_INSERT),
            ("[]", "", "{\"a\":1}", CANNOT_INSERT, CANNOT_INSERT),
            ("[]", "", "1,2", CANNOT_INSERT, CANNOT_INSERT),
        ],
    );
}

#[test]
fn counters_count_in_64_bits() {
    let count = |document: &str, path: &str, delta: i64, create| {
        let mut out = Vec::new();
        let path = Path::parse(path.as_bytes()).unwrap();
        let counted = apply(document.as_bytes(), &path, &Edit::Counter(delta), create, &mut out)?;
        Ok::<_, Status>((counted.unwrap(), String::from_utf8(out).unwrap()))
    };
    let near_max = format!("{{\"n\":{}}}", i64::MAX - 1);
    let near_min = format!("[{}]", i64::MIN + 1);
    assert_eq!(count(&near_max, "n", 1, false), Ok((i64::MAX, format!("{{\"n\":{}}}", i64::MAX))));
    assert_eq!(count(&near_max, "n", 2, false), Err(Status::SubdocValueCannotInsert));
    assert_eq!(count(&near_min, "[0]", -1, false), Ok((i64::MIN, format!("[{}]", i64::MIN))));
    assert_eq!(count(&near_min, "[0]", -2, false), Err(Status::SubdocValueCannotInsert));
    assert_eq!(count("{\"n\":-0}", "n", 3, false), Ok((3, "{\"n\":3}".to_owned())));
    assert_eq!(count("{}", "n", 3, false), Ok((3, "{\"n\":3}".to_owned())));
    assert_eq!(count("{}", "a.n", 3, false), Err(Status::SubdocPathNotFound));
    assert_eq!(count("{}", "a.n", -3, true), Ok((-3, "{\"a\":{\"n\":-3}}".to_owned())));
    for path in ["[1]", "[-1]"] {
        assert_eq!(count("[]", path, 1, true), Err(Status::SubdocPathNotFound));
    }
    assert_eq!(count("{}", "a[0]", 1, false), Err(Status::SubdocPathNotFound));
    assert_eq!(count("{}", "a[0]", 1, true), Err(Status::SubdocPathInvalid));
    for (value, status) in [
        ("true", Status::SubdocPathMismatch),
        ("null", Status::SubdocPathMismatch),
        ("\"1\"", Status::SubdocPathMismatch),
        ("[0]", Status::SubdocPathMismatch),
        ("1.1", Status::SubdocPathMismatch),
        ("1e1", Status::SubdocPathMismatch),
        ("9223372036854775808", Status::SubdocNumberRange),
        ("-9223372036854775809", Status::SubdocNumberRange),
    ] {
        assert_eq!(count(&format!("{{\"n\":{value}}}"), "n", 1, false), Err(status), "{value}");
    }
    for delta in ["bad", "3.14", "-", "43f", "0", "-0", "01", "+1", " 1", "", "9223372036854775808"] {
        assert_eq!(parse_delta(delta.as_bytes()), Err(Status::SubdocDeltaInvalid), "{delta}");
    }
    assert_eq!(parse_delta(b"-9223372036854775808"), Ok(i64::MIN));
}

#[test]
fn depth_is_limited() {
    let path = |steps: usize| "[0]".repeat(steps);
    // 31 arrays and a number are 32 levels.
    assert_eq!(at(&arrays(31, "1"), &path(31)).as_deref(), Ok("1"));
    assert_eq!(at(&arrays(32, ""), &path(31)).as_deref(), Ok("[]"));
    assert_eq!(at(&arrays(32, "1"), &path(31)), Err(Status::SubdocDocTooDeep));
    let beside = format!("[{},2]", arrays(32, ""));
    assert_eq!(at(&beside, "[1]"), Err(Status::SubdocDocTooDeep));
    assert_eq!(
        at(&format!("[2,{}]", arrays(60, "")), "[0]").as_deref(),
        Ok("2"),
        "what comes after is not looked at"
    );

    let deepest = arrays(31, "1");
    assert_eq!(edited(&deepest, &path(31), Edit::Replace(b"2"), false), Ok(arrays(31, "2")));
    assert_eq!(edited(&deepest, &path(31), Edit::Replace(b"[]"), false), Ok(arrays(32, "")));
    assert_eq!(edited(&deepest, &path(31), Edit::Replace(b"[5]"), false), Err(Status::SubdocValueTooDeep));
    assert_eq!(edited(&deepest, &path(30), Edit::PushLast(b"5"), false), Ok(arrays(31, "1,5")));
    assert_eq!(edited(&deepest, &path(31), Edit::PushFirst(b"5"), false), Err(Status::SubdocValueTooDeep));
    assert_eq!(
        edited("{}", &["k"; 31].join("."), Edit::DictAdd(b"1"), true).map(|text| text.len()),
        Ok(31 * 6 + 1)
    );
    assert_eq!(edited("{}", &["k"; 32].join("."), Edit::DictAdd(b"1"), true), Err(Status::SubdocPathTooBig));
    assert_eq!(edited("[]", "", Edit::PushLast(arrays(31, "").as_bytes()), false), Ok(arrays(32, "")));
    assert_eq!(
        edited("[]", "", Edit::PushLast(arrays(32, "").as_bytes()), false),
        Err(Status::SubdocValueTooDeep)
    );
}
