//! A few seconds of fuzzing for certificates, lists of roles, and what members of the group say and write, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;

use crate::{metadata::x509, rights::roles::RoleGrant};

fn certificate(bytes: &[u8]) {
    let _ = x509::Certificate::read(bytes);
    let text = String::from_utf8_lossy(bytes);
    let blocks = x509::pem_blocks(&text).count();
    assert!(x509::pem_contents(&text).count() <= blocks);
    let _ = x509::Certificate::of_pem(&text);
}

#[test]
fn fuzz_certificate() {
    runner::run("certificate", certificate);
}

fn roles(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(grants) = RoleGrant::parse_list(text) else { return };
    let again: Vec<String> = grants.iter().map(RoleGrant::text).collect();
    assert_eq!(RoleGrant::parse_list(&again.join(",")).as_ref(), Ok(&grants), "{again:?}");
}

#[test]
fn fuzz_roles() {
    runner::run("roles", roles);
}

#[test]
fn fuzz_letter() {
    runner::run("letter", crate::consensus::read_fuzzed);
}
