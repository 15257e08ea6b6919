//! `settee get`, `cat`, `set`, `rm` and `ls`: documents for a curious hand. Single documents go to the node that has them, as with any
//! client; keys are listed over REST.
//!
//! The exit code is 3 where a document is not there, or is there against the wish, so that scripts need not read texts.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use base::{Cas, Status, bucket::DurabilityLevel};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use client::{Client, ClientError, Document, Login, WriteOptions, rest::percent};
use serde_json::{Value, json};

use super::{Failure, cluster::failed, view::place::Place};

/// What clients mark JSON with.
const JSON_FLAGS: u32 = 0x0200_0006;
/// Keys that one request lists.
const KEYS_AT_ONCE: usize = 9_999;
/// Longest value.
const VALUE_BYTES_MAX: u64 = 20 << 20;
/// No key that begins with a prefix lies behind this one.
const END: char = '\u{10ffff}';
/// The exit code where a document is not there, or is there against the wish.
const OTHERWISE: u8 = 3;

/// Where documents are.
#[derive(Args, Clone)]
struct Where {
    #[command(flatten)]
    place: Place,

    /// The scope
    #[arg(long, default_value = "_default", value_name = "NAME")]
    scope: String,

    /// The collection
    #[arg(long, default_value = "_default", value_name = "NAME")]
    collection: String,
}

/// Documents.
#[derive(Args)]
struct Keys {
    /// Their keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    #[command(flatten)]
    at: Where,
}

const EXIT: &str = "\
The exit code is 3 where a document is not there (or, for set, where it is there with --add or has changed with --cas), 1 for another
failure, and 2 for wrong usage.";

/// Show documents
#[derive(Args)]
#[command(after_help = format!("\
{EXIT}

EXAMPLES
  export SETTEE_USERNAME=admin SETTEE_PASSWORD=secret SETTEE_BUCKET=songs
  settee get TRAAAAW128F429D538
  settee get --json album/1 album/2 | jq .value.title"))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    of: Keys,

    /// Print one JSON object a line: key, cas, flags, and value, which is base64 in `base64` where it is no JSON
    #[arg(long)]
    json: bool,
}

/// Write the values of documents to standard output, byte by byte
#[derive(Args)]
#[command(after_help = format!("\
{EXIT}

EXAMPLES
  settee cat picture/7 -b songs -u admin > picture.png"))]
pub(crate) struct CatArgs {
    #[command(flatten)]
    of: Keys,
}

/// Write a document
#[derive(Args)]
#[command(after_help = format!("\
The value is checked to be JSON, and marked as such for clients, unless --binary is given.

{EXIT}

EXAMPLES
  settee set album/1 '{{\"title\": \"Blue\"}}' -b songs -u admin
  settee set album/1 --file album.json --cas 1732690000000000000
  settee set picture/7 --binary --file picture.png
  echo '[1,2]' | settee set list -                        reads standard input"))]
pub(crate) struct SetArgs {
    /// Its key
    #[arg(value_name = "KEY")]
    key: String,

    /// The value; - reads standard input
    #[arg(value_name = "VALUE", required_unless_present = "file", conflicts_with = "file")]
    value: Option<String>,

    /// Take the value from a file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// The value need not be JSON
    #[arg(long)]
    binary: bool,

    /// Only if there is no such document yet
    #[arg(long, conflicts_with = "cas")]
    add: bool,

    /// Only if the document still has this CAS, which `get` shows
    #[arg(long, value_name = "CAS")]
    cas: Option<u64>,

    /// Seconds that it lives; without this it keeps the time that it has
    #[arg(long, value_name = "SECONDS")]
    expiry: Option<u32>,

    /// When the write counts as done
    #[arg(long, value_name = "LEVEL", value_parser = ["majority", "majorityAndPersistActive", "persistToMajority"])]
    durability: Option<String>,

    /// Print {"key":…,"cas":…}
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: Where,
}

/// Delete documents
#[derive(Args)]
#[command(after_help = format!("\
{EXIT}

EXAMPLES
  settee rm album/1 album/2 -b songs -u admin
  settee ls old/ | settee rm -                             reads keys from standard input, one a line"))]
pub(crate) struct RmArgs {
    /// Their keys; - reads keys from standard input, one a line
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    /// Only if the document still has this CAS
    #[arg(long, value_name = "CAS")]
    cas: Option<u64>,

    #[command(flatten)]
    at: Where,
}

/// List keys, in order
#[derive(Args)]
#[command(after_help = "\
Keys of a bucket of the type ephemeral cannot be listed. Keys with control characters, line ends among them, are left out without
--json: a line of the list is always one key.

EXAMPLES
  settee ls album/ -b songs -u admin
  settee ls --limit 0 -b songs                             all keys
  settee ls --json album/                                  one JSON string a line: keys may have line ends in them")]
pub(crate) struct LsArgs {
    /// How the keys begin
    #[arg(default_value = "", value_name = "PREFIX")]
    prefix: String,

    /// Keys at most; 0 for all
    #[arg(long, default_value_t = 1000, value_name = "N")]
    limit: usize,

    /// Print keys as JSON strings
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: Where,
}

impl Where {
    fn connect(&self) -> Result<Client, Failure> {
        let bucket = self.place.open()?;
        let (user, password) = bucket.access().login();
        let login = Login {
            user: Some((user.to_owned(), password.to_owned())),
            bucket: Some(bucket.name().to_owned()),
            collections: true,
        };
        let cannot = |error| Failure::doing("cannot reach documents", error);
        let mut client = Client::connect(bucket.documents()?, &login).map_err(cannot)?;
        if (self.scope.as_str(), self.collection.as_str()) != ("_default", "_default") {
            let found = client.collection_id(&self.scope, &self.collection);
            client.collection = found.map_err(|error| {
                Failure::doing(
                    format_args!("cannot find collection {}.{}", self.scope, self.collection),
                    error,
                )
            })?;
        }
        Ok(client)
    }
}

/// Does something with each key and tells of those for which it could not be done: `act` says whether it was.
fn each(keys: &[String], mut act: impl FnMut(&str) -> Result<bool, Failure>) -> Result<ExitCode, Failure> {
    let mut missing = false;
    for key in keys {
        if !act(key)? {
            eprintln!("settee: there is no document {key:?}");
            missing = true;
        }
    }
    Ok(if missing { ExitCode::from(OTHERWISE) } else { ExitCode::SUCCESS })
}

fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(|failure| {
        eprintln!("settee: {failure}");
        ExitCode::FAILURE
    })
}

fn read(client: &mut Client, key: &str) -> Result<Option<Document>, Failure> {
    client.get(key.as_bytes()).map_err(|error| Failure::doing(format_args!("cannot read {key:?}"), error))
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    io::stdout().write_all(bytes).map_err(|error| Failure::doing("standard output takes nothing", error))
}

pub(crate) fn get(args: &GetArgs) -> ExitCode {
    ended(args.of.at.connect().and_then(|mut client| {
        each(&args.of.keys, |key| {
            let Some(document) = read(&mut client, key)? else { return Ok(false) };
            write(if args.json { line(key, &document) } else { page(key, &document) }.as_bytes())?;
            Ok(true)
        })
    }))
}

/// A document on one line of JSON.
fn line(key: &str, document: &Document) -> String {
    let mut shown = json!({ "key": key, "cas": document.cas.0.to_string(), "flags": document.flags });
    // Its own text: digits that a number of ours could not hold stay as they are.
    match serde_json::from_slice::<&serde_json::value::RawValue>(&document.value) {
        Ok(value) => {
            let shown = shown.to_string();
            format!(
                "{},\"value\":{}}}\n",
                shown.trim_end_matches('}'),
                value.get().replace(['\n', '\r'], " ")
            )
        }
        Err(_) => {
            shown["base64"] = STANDARD.encode(&document.value).into();
            format!("{shown}\n")
        }
    }
}

/// A document for a reader.
fn page(key: &str, document: &Document) -> String {
    let head = format!(
        "{key:?}  CAS {}, flags {}, {} bytes\n",
        document.cas.0,
        document.flags,
        document.value.len()
    );
    let body = match serde_json::from_slice::<Value>(&document.value) {
        // The laid-out form shows what the text says only where nothing is lost on the way.
        Ok(value) if value.to_string().len() == packed_len(&document.value) => format!("{value:#}\n"),
        _ => match std::str::from_utf8(&document.value) {
            Ok(text) if !text.chars().any(|one| one.is_control() && !one.is_whitespace()) => {
                format!("{text}\n")
            }
            _ => "(no text: settee cat writes its bytes)\n".to_owned(),
        },
    };
    head + &body
}

/// Bytes of a JSON text without white space between its tokens.
fn packed_len(text: &[u8]) -> usize {
    let (mut length, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        if in_string || !byte.is_ascii_whitespace() {
            length += 1;
        }
        match byte {
            b'"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = in_string && *byte == b'\\' && !escaped;
    }
    length
}

pub(crate) fn cat(args: &CatArgs) -> ExitCode {
    ended(args.of.at.connect().and_then(|mut client| {
        each(&args.of.keys, |key| {
            let Some(document) = read(&mut client, key)? else { return Ok(false) };
            write(&document.value)?;
            Ok(true)
        })
    }))
}

pub(crate) fn set(args: &SetArgs) -> ExitCode {
    ended(stored(args))
}

fn stored(args: &SetArgs) -> Result<ExitCode, Failure> {
    let value = value(args)?;
    if !args.binary {
        serde_json::from_slice::<serde::de::IgnoredAny>(&value).map_err(|error| {
            Failure::doing(
                "the value is no JSON (a text needs quotation marks; --binary takes anything)",
                error,
            )
        })?;
    }
    let mut client = args.at.connect()?;
    let options = WriteOptions {
        flags: if args.binary { 0 } else { JSON_FLAGS },
        expiry: args.expiry.unwrap_or(0),
        cas: Cas(args.cas.unwrap_or(0)),
        preserve_ttl: args.expiry.is_none() && !args.add,
        durability: args.durability.as_deref().map(level),
    };
    let key = args.key.as_bytes();
    let outcome =
        if args.add { client.add(key, &value, &options) } else { client.put(key, &value, &options) };
    match outcome {
        Ok(mutation) if args.json => {
            write(format!("{}\n", json!({ "key": args.key, "cas": mutation.cas.0.to_string() })).as_bytes())?;
        }
        Ok(_) => {}
        Err(error) => return otherwise(&args.key, "not written", error),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a refusal that the user has asked for is, with its exit code; any other failure.
fn otherwise(key: &str, what: &str, error: ClientError) -> Result<ExitCode, Failure> {
    let why = match error.status() {
        Some(Status::KeyExists) => "there is one with another CAS, or one at all; `settee get` shows it",
        Some(Status::KeyNotFound) => "there is none",
        _ => return Err(Failure::doing(format_args!("document {key:?} is {what}"), error)),
    };
    eprintln!("settee: document {key:?} is {what}: {why}");
    Ok(ExitCode::from(OTHERWISE))
}

fn level(name: &str) -> DurabilityLevel {
    match name {
        "majority" => DurabilityLevel::Majority,
        "majorityAndPersistActive" => DurabilityLevel::MajorityAndPersistActive,
        _ => DurabilityLevel::PersistToMajority,
    }
}

fn value(args: &SetArgs) -> Result<Vec<u8>, Failure> {
    let value = match (&args.file, args.value.as_deref()) {
        (Some(path), _) => contents(path),
        (None, Some("-")) => limited(io::stdin()),
        (None, text) => Ok(text.unwrap_or_default().as_bytes().to_vec()),
    };
    let value = value.map_err(|error| Failure::doing("cannot read the value", error))?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(Failure("the value is longer than 20 MiB, which a document may have at most".to_owned()));
    }
    Ok(value)
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    limited(fs::File::open(path)?)
}

/// One byte more than a value may have, so that a longer one is noticed.
fn limited(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    from.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value)?;
    Ok(value)
}

pub(crate) fn rm(args: &RmArgs) -> ExitCode {
    ended(removed(args))
}

fn removed(args: &RmArgs) -> Result<ExitCode, Failure> {
    let keys = match args.keys.as_slice() {
        [one] if one == "-" => {
            let lines = io::stdin().lines().collect::<io::Result<Vec<_>>>();
            lines.map_err(|error| Failure::doing("cannot read keys", error))?
        }
        keys => keys.to_vec(),
    };
    let options = WriteOptions { cas: Cas(args.cas.unwrap_or(0)), ..WriteOptions::default() };
    let mut client = args.at.connect()?;
    let mut code = ExitCode::SUCCESS;
    for key in &keys {
        if let Err(error) = client.delete(key.as_bytes(), &options) {
            code = otherwise(key, "not deleted", error)?;
        }
    }
    Ok(code)
}

pub(crate) fn ls(args: &LsArgs) -> Result<(), Failure> {
    let bucket = args.at.place.open()?;
    let base = format!(
        "/pools/default/buckets/{}/scopes/{}/collections/{}/docs",
        percent(bucket.name()),
        percent(&args.at.scope),
        percent(&args.at.collection)
    );
    let mut left = if args.limit == 0 { usize::MAX } else { args.limit };
    let mut from = args.prefix.clone();
    let mut last: Option<String> = None;
    while left > 0 {
        // The first key of a further page is the last one of the page before.
        let wanted = left.min(KEYS_AT_ONCE).saturating_add(usize::from(last.is_some()));
        let path = page_of(&base, &from, &args.prefix, wanted);
        let told = bucket.rest.get_json(&path).map_err(|error| failed("cannot list keys", error))?;
        let rows = told["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let keys = rows.iter().filter_map(|row| row["id"].as_str());
        let mut out = String::new();
        for key in keys.filter(|key| last.as_deref() != Some(key)).take(left) {
            match listed(key, args.json) {
                Some(line) => out += &line,
                None => eprintln!("settee: key {key:?} is left out: --json shows it"),
            }
            left -= 1;
        }
        write(out.as_bytes())?;
        match rows.last().and_then(|row| row["id"].as_str()) {
            Some(key) if rows.len() >= wanted => from = key.to_owned(),
            _ => return Ok(()),
        }
        last = Some(from.clone());
    }
    Ok(())
}

/// A key on a line. None: a reader of lines would take it for several keys, or a terminal for a command.
fn listed(key: &str, json: bool) -> Option<String> {
    if json {
        return Some(format!("{}\n", Value::from(key)));
    }
    (!key.chars().any(char::is_control)).then(|| format!("{key}\n"))
}

fn page_of(base: &str, from: &str, prefix: &str, limit: usize) -> String {
    let json = |text: &str| percent(&Value::from(text).to_string());
    format!("{base}?limit={limit}&startkey={}&endkey={}", json(from), json(&format!("{prefix}{END}")))
}

#[cfg(test)]
mod tests {
    use base::Datatype;

    use super::*;

    fn document(value: &[u8]) -> Document {
        Document { value: value.to_vec(), flags: 6, cas: Cas(7), datatype: Datatype::default() }
    }

    #[test]
    fn a_document_on_a_line_keeps_every_digit() {
        let long = r#"{"n": 12345678901234567890123.50, "s": "a\nb"}"#;
        assert_eq!(
            line("k", &document(long.as_bytes())),
            format!("{{\"cas\":\"7\",\"flags\":6,\"key\":\"k\",\"value\":{long}}}\n")
        );
        assert_eq!(
            line("k", &document(&[0, 1])),
            "{\"base64\":\"AAE=\",\"cas\":\"7\",\"flags\":6,\"key\":\"k\"}\n"
        );
    }

    #[test]
    fn a_reader_sees_json_laid_out_unless_that_would_change_it() {
        let shown = |value: &[u8]| page("k", &document(value)).split_once('\n').unwrap().1.to_owned();
        assert_eq!(shown(b"{\"a\":[1]}"), "{\n  \"a\": [\n    1\n  ]\n}\n");
        assert_eq!(shown(b"{ \"a\" : 1.50 }"), "{ \"a\" : 1.50 }\n");
        assert_eq!(shown(b"plain"), "plain\n");
        assert!(shown(b"\x1b[2J").starts_with("(no text"));
    }

    #[test]
    fn a_line_of_a_list_is_one_key() {
        assert_eq!(listed("old/1 é", false).as_deref(), Some("old/1 é\n"));
        assert_eq!(listed("old/1\nalbum/1", true).as_deref(), Some("\"old/1\\nalbum/1\"\n"));
        for unsafe_key in ["old/1\nalbum/1", "old/\r", "\x1b[2J", "\u{9b}2J"] {
            assert_eq!(listed(unsafe_key, false), None, "{unsafe_key:?}");
        }
    }

    #[test]
    fn what_a_page_asks_for_is_escaped() {
        assert_eq!(
            page_of("/d", "a b", "a", 3),
            "/d?limit=3&startkey=%22a%20b%22&endkey=%22a%F4%8F%BF%BF%22"
        );
    }
}
