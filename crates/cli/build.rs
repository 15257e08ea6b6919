//! Tells the binary which commit it was built from, where the source is a clone of the repository.

use std::{path::Path, process::Command};

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn main() {
    // A commit moves the branch's file, a switch of branches moves HEAD.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD"].into_iter().chain(branch.as_deref()) {
        // A path that is not there would have the crate built anew each time.
        if let Some(path) = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let commit =
        git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "of an unknown commit".to_owned());
    println!("cargo::rustc-env=SETTEE_COMMIT={commit}");
}
