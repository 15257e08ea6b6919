//! A few seconds of fuzzing for form bodies and paths, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;

use std::collections::BTreeMap;

use crate::form::{Form, decode};

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
