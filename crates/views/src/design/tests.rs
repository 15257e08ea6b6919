use super::*;

/// Takes what begins with `function`, and calls numbers no function.
struct Words;

impl Compiler for Words {
    fn check(&mut self, source: &str) -> Result<(), Invalid> {
        match source {
            _ if source.starts_with("function") => Ok(()),
            _ if source.parse::<f64>().is_ok() => Err(Invalid::NotAFunction),
            _ => Err(Invalid::Syntax("SyntaxError: unexpected (line 1:2)".to_owned())),
        }
    }
}

fn parse(text: &str) -> Result<DesignDocument, Refusal> {
    DesignDocument::parse(text.as_bytes(), &mut Words)
}

#[test]
fn refusals_have_the_documented_texts() {
    let cases = [
        (r#"{"views":1}"#, "The field `views' is not a json object."),
        (r#"{"views":null}"#, "The field `views' is not a json object."),
        (r#"{"views":{"":{"map":"function"}}}"#, "View name cannot be an empty string"),
        (r#"{"views":{"v ":{}}}"#, "View name `v ` cannot have leading or trailing whitespace"),
        (r#"{"views":{"\tv":{}}}"#, "View name `\tv` cannot have leading or trailing whitespace"),
        (r#"{"views":{"v":[]}}"#, "Value for view `v' is not a json object."),
        (r#"{"views":{"v":{}}}"#, "The `map' field for the view `v' is missing."),
        (r#"{"views":{"v":{"map":1}}}"#, "The `map' field of the view `v' is not a json string."),
        (
            r#"{"views":{"v":{"map":"function","reduce":null}}}"#,
            "The `reduce' field of the view `v' is not a json string.",
        ),
        (
            r#"{"views":{"v":{"map":"function","reduce":"_foo"}}}"#,
            "Invalid built-in reduce function for view `v': _foo",
        ),
        (
            r#"{"views":{"v":{"map":"function","reduce":"_count "}}}"#,
            "Invalid built-in reduce function for view `v': _count ",
        ),
        (
            r#"{"views":{"v":{"map":"functio"}}}"#,
            "Syntax error in the map function of the view `v': SyntaxError: unexpected (line 1:2)",
        ),
        (
            r#"{"views":{"v":{"map":"function","reduce":"x"}}}"#,
            "Syntax error in the reduce function of the view `v': SyntaxError: unexpected (line 1:2)",
        ),
        (
            r#"{"views":{"v":{"map":"12"}}}"#,
            "Syntax error in the map function of the view `v': Invalid function: (12)",
        ),
    ];
    for (text, reason) in cases {
        assert_eq!(parse(text), Err(Refusal::design(reason)), "{text}");
    }
    let refused = parse("{\"views\":").unwrap_err();
    assert_eq!((refused.status, refused.error), (400, "bad_request"));
    assert!(refused.reason.starts_with("invalid UTF-8 JSON: "), "{}", refused.reason);
    assert!(DesignDocument::parse(b"{\"a\":\"\xff\"}", &mut Words).is_err());
}

#[test]
fn a_document_keeps_what_it_does_not_know() {
    let text = r#"{ "language":"javascript", "x":[1.0], "spatial":{}, "options":{"updateMinChanges":7,"y":1},
        "index_xattr_on_deleted_docs":true,
        "views":{"b":{"map":"function 1","reduce":"_sum","options":{"collation":"raw"}},"a":{"map":"function 2"}}}"#;
    let document = parse(text).unwrap();
    assert_eq!(document.text, text);
    assert_eq!(document.views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(document.view("b").unwrap().reduce, Some(Reduction::Sum));
    assert_eq!((document.update_min_changes, document.replica_update_min_changes), (Some(7), None));
    assert!(document.maps_deleted);
    assert_eq!(parse("{}").unwrap().views, []);
    assert!(is_development("dev_x") && !is_development("x_dev_"));
}

#[test]
fn of_names_that_come_twice_the_last_one_counts() {
    let text = r#"{"views":1,"views":{"a":{"map":"function 1"},"b":{"map":"function 2"},"a":{"map":"x","map":"function 3"}}}"#;
    let document = parse(text).unwrap();
    let views: Vec<_> = document.views.iter().map(|view| (view.name.as_str(), view.map.as_str())).collect();
    assert_eq!(views, [("a", "function 3"), ("b", "function 2")]);
}

fn signature(text: &str) -> Signature {
    parse(text).unwrap().signature()
}

#[test]
fn equal_views_are_one_index() {
    let one = signature(r#"{"views":{"a":{"map":"function 1","reduce":"_sum"},"b":{"map":"function 2"}}}"#);
    let again = r#"{"x":1,"options":{"updateMinChanges":7},"views":{"b":{"map":"function 2"},"a":{"reduce":"_sum","map":"function 1"}}}"#;
    assert_eq!(one, signature(again));
    for other in [
        r#"{"views":{"a":{"map":"function 1","reduce":"_count"},"b":{"map":"function 2"}}}"#,
        r#"{"views":{"a":{"map":"function 2","reduce":"_sum"},"b":{"map":"function 1"}}}"#,
        r#"{"views":{"c":{"map":"function 1","reduce":"_sum"},"b":{"map":"function 2"}}}"#,
        r#"{"views":{"a":{"map":"function 1","reduce":"_sum"}}}"#,
        r#"{"index_xattr_on_deleted_docs":true,"views":{"a":{"map":"function 1","reduce":"_sum"},"b":{"map":"function 2"}}}"#,
    ] {
        assert_ne!(one, signature(other), "{other}");
    }
    assert_eq!(one.to_string().len(), 32);
}

#[test]
fn equal_maps_share_their_rows() {
    let document = parse(
        r#"{"views":{"c":{"map":"function 1","reduce":"_sum"},"a":{"map":"function 1","reduce":"_count"},
            "b":{"map":"function 0"},"d":{"map":"function 1","reduce":"_sum"}}}"#,
    )
    .unwrap();
    let maps = document.maps();
    let names: Vec<Vec<&str>> =
        maps.iter().map(|map| map.views.iter().map(|view| view.name.as_str()).collect()).collect();
    assert_eq!(names, [vec!["b"], vec!["a", "c", "d"]]);
    assert_eq!(maps[1].reductions().collect::<Vec<_>>(), [&Reduction::Count, &Reduction::Sum]);
}

#[test]
fn too_many_functions_are_refused() {
    let views = |count: usize, map: &dyn Fn(usize) -> usize| {
        let view = |at| format!(r#""v{at}":{{"map":"function {}","reduce":"function {at}"}}"#, map(at));
        format!(r#"{{"views":{{{}}}}}"#, (0..count).map(view).collect::<Vec<_>>().join(","))
    };
    assert!(parse(&views(FUNCTIONS_MAX, &|at| at)).is_ok());
    assert!(parse(&views(FUNCTIONS_MAX + 1, &|at| at)).is_err());
    assert!(parse(&views(FUNCTIONS_MAX, &|_| 0)).is_ok());
    assert!(parse(&views(FUNCTIONS_MAX + 1, &|_| 0)).is_err());
}
