//! Virtual attributes: documents about a document, made up when they are asked for (kv_engine
//! `docs/ExtendedAttributes.md`, `daemon/subdocument_context.cc`).

use std::fmt::Write as _;

use base::{Cas, Datatype, Now, Status};

use super::{
    lookup::xattrs_of,
    version::{Facts, Parts},
};

/// The name of each datatype bit, in the order they are told.
const DATATYPES: [(Datatype, &str); 3] =
    [(Datatype::SNAPPY, "snappy"), (Datatype::JSON, "json"), (Datatype::XATTR, "xattr")];

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The virtual attributes of one version, each under its own name, as an attribute of it would be.
///
/// # Errors
/// `SubdocXattrUnknownVattr` for any other key.
pub(super) fn document(
    key: &[u8],
    facts: &Facts,
    parts: &Parts<'_>,
    lists_system: bool,
    now: Now,
) -> Result<String, Status> {
    match key {
        b"$document" => Ok(format!("{{\"$document\":{}}}", about_document(facts, parts))),
        b"$vbucket" => Ok(about_vbucket(facts, now)),
        b"$XTOC" => Ok(table_of_contents(parts, lists_system)),
        _ => Err(Status::SubdocXattrUnknownVattr),
    }
}

/// `$document`.
pub(super) fn about_document(facts: &Facts, parts: &Parts<'_>) -> String {
    let mut out = String::with_capacity(320);
    for (name, value) in [
        ("CAS", hex(facts.cas.get())),
        ("datatype", datatypes(facts.datatype)),
        ("deleted", facts.deleted.to_string()),
        ("exptime", facts.expiry.to_string()),
        ("flags", facts.flags.to_string()),
        ("last_modified", last_modified(facts.cas)),
        ("revid", format!("\"{}\"", facts.rev)),
        ("seqno", hex(facts.seqno.get())),
        ("value_bytes", parts.body.len().to_string()),
        ("value_crc32c", format!("\"0x{:08x}\"", crc32c::crc32c(parts.body))),
        ("vbucket_uuid", hex(facts.vb_uuid.get())),
    ] {
        let separator = if out.is_empty() { '{' } else { ',' };
        let _ = write!(out, "{separator}\"{name}\":{value}");
    }
    out.push('}');
    out
}

/// A member of `$document`, as macros name it.
pub(super) fn document_member(name: &[u8], facts: &Facts, parts: &Parts<'_>) -> Option<String> {
    Some(match name {
        b"CAS" => hex(facts.cas.get()),
        b"vbucket_uuid" => hex(facts.vb_uuid.get()),
        b"seqno" => hex(facts.seqno.get()),
        b"revid" => format!("\"{}\"", facts.rev),
        b"exptime" => facts.expiry.to_string(),
        b"flags" => facts.flags.to_string(),
        b"value_bytes" => parts.body.len().to_string(),
        b"datatype" => datatypes(facts.datatype),
        b"deleted" => facts.deleted.to_string(),
        // A string in the attribute, a number in the macro.
        b"last_modified" => (facts.cas.get() / NANOS_PER_SEC).to_string(),
        _ => return None,
    })
}

fn hex(number: u64) -> String {
    format!("\"0x{number:016x}\"")
}

fn last_modified(cas: Cas) -> String {
    format!("\"{}\"", cas.get() / NANOS_PER_SEC)
}

fn datatypes(datatype: Datatype) -> String {
    let names = DATATYPES.iter().filter(|(bit, _)| datatype.contains(*bit));
    let mut names: Vec<String> = names.map(|(_, name)| format!("\"{name}\"")).collect();
    if names.is_empty() {
        names.push("\"raw\"".to_owned());
    }
    format!("[{}]", names.join(","))
}

/// `$vbucket`: its hybrid logical clock, which runs ahead of the wall clock when it has seen a CAS from the future.
fn about_vbucket(facts: &Facts, now: Now) -> String {
    let is_ahead = facts.last_cas.get() > now.wall_nanos;
    let seconds = facts.last_cas.get().max(now.wall_nanos) / NANOS_PER_SEC;
    let mode = if is_ahead { "logical" } else { "real" };
    format!("{{\"$vbucket\":{{\"HLC\":{{\"mode\":\"{mode}\",\"now\":\"{seconds}\"}}}}}}")
}

/// `$XTOC`: the keys of the attributes.
fn table_of_contents(parts: &Parts<'_>, lists_system: bool) -> String {
    let mut out = String::from("{\"$XTOC\":[");
    let mut separator = "";
    for (key, _) in xattrs_of(parts).iter().filter(|(key, _)| lists_system || !key.starts_with(b"_")) {
        let _ = write!(out, "{separator}\"{}\"", escaped(key));
        separator = ",";
    }
    out.push_str("]}");
    out
}

/// A key as the inside of a JSON string.
fn escaped(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len());
    for character in String::from_utf8_lossy(key).chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out
}
