//! A few seconds of fuzzing for form bodies, paths and names of rights, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;

use std::collections::BTreeMap;

use crate::{
    form::{Form, decode},
    permissions,
};

fn form(text: &[u8]) {
    let _ = decode(text, false);
    let Some(form) = Form::parse(text) else { return };
    let mut errors = BTreeMap::new();
    for (name, _) in form.fields() {
        let last = form.get(name);
        assert!(last.is_some(), "a field that was parsed is found");
        let _ = form.integer::<u64>(name, &mut errors);
        let _ = form.boolean(name, &mut errors);
    }
}

#[test]
fn fuzz_form() {
    runner::run("form", form);
}

fn permission(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(asked) = permissions::parse(text) else { return };
    let again = permissions::name(asked.privilege, asked.bucket);
    let again = permissions::parse(&again).map(|again| (again.privilege, again.bucket.map(str::to_owned)));
    assert_eq!(again, Some((asked.privilege, asked.bucket.map(str::to_owned))), "{text}");
}

#[test]
fn fuzz_permission() {
    runner::run("permission", permission);
}
