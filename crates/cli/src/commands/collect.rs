//! `settee collect`: one archive of what support needs to know of a cluster. It has figures, settings and logs; documents, passwords and
//! keys of TLS are in none of what it asks for. User names are hashed unless somebody wants them.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args as ClapArgs;
use client::{Rest, rest::percent};
use serde_json::Value;

use super::{
    Failure,
    cluster::{Access, failed},
};
use crate::table::table;

/// How long a node may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a name in the header of an archive.
const NAME_BYTES_MAX: usize = 100;
const BLOCK: usize = 512;

/// What is asked of the node that answers first, for the whole cluster: a file and a path.
const OF_CLUSTER: [(&str, &str); 17] = [
    ("cluster.json", "/pools/default"),
    ("buckets.json", "/pools/default/buckets"),
    ("tasks.json", "/pools/default/tasks"),
    ("services.json", "/pools/default/nodeServices"),
    ("groups.json", "/pools/default/serverGroups"),
    ("certificates.json", "/pools/default/certificates"),
    ("alerts.json", "/settee/alerts"),
    ("silences.json", "/settee/alerts/silences"),
    ("objectives.json", "/settee/slo"),
    ("probe.json", "/settee/probe"),
    ("slow.json", "/settee/slow"),
    ("settings-auto-failover.json", "/settings/autoFailover"),
    ("settings-auto-compaction.json", "/settings/autoCompaction"),
    ("settings-rebalance.json", "/settings/rebalance"),
    ("settings-audit.json", "/settings/audit"),
    ("settings-security.json", "/settings/security"),
    ("settings-password-policy.json", "/settings/passwordPolicy"),
];
/// What is asked of every node.
const OF_NODE: [(&str, &str); 5] = [
    ("node.json", "/nodes/self"),
    ("health.json", "/health/ready"),
    ("metrics.txt", "/metrics"),
    ("changes.json", "/logs"),
    ("log.json", "/settee/logs?limit=10000"),
];
/// What is asked of the node that answers first, of every bucket.
const OF_BUCKET: [(&str, &str); 5] = [
    ("stats-minute.json", "/pools/default/buckets/{}/stats?zoom=minute"),
    ("stats-day.json", "/pools/default/buckets/{}/stats?zoom=day"),
    ("latency.json", "/settee/latency/{}?zoom=hour"),
    ("collections.json", "/pools/default/buckets/{}/scopes"),
    ("design-documents.json", "/pools/default/buckets/{}/ddocs"),
];

/// Collect what support needs to know into one archive
#[derive(ClapArgs)]
#[command(after_help = "\
The archive is a tar file with the answers of every node: its log, its figures, its health, and of the cluster its settings, buckets,
alerts and objectives. contents.txt in it lists every file, and what could not be asked. No documents, passwords or private keys are in
it. Names of users that the cluster knows are replaced by <ud>HASH</ud>, the same for one user in the whole archive; --no-redaction
leaves them. Names of users that are gone, or never were, may stand in the log.

Names of buckets, collections and nodes, addresses of clients, and functions of views are not replaced.

EXAMPLES
  settee collect -u admin
  settee collect --file /tmp/support.tar -u admin
  tar -xOf settee-collect-1732694400.tar contents.txt")]
pub(crate) struct Args {
    /// The archive [default: settee-collect-TIME.tar]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Leave names of users as they are
    #[arg(long)]
    no_redaction: bool,

    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let session = args.access.open()?;
    let nodes = session.nodes()?;
    let unix_secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let redaction =
        if args.no_redaction { None } else { Some(Redaction::of(&session.rest, args.access.login().0)?) };
    let path = args.file.clone().unwrap_or_else(|| format!("settee-collect-{unix_secs}.tar").into());
    let cannot = |error: io::Error| Failure::doing(format_args!("cannot write {}", path.display()), error);
    // Nobody else on this machine is to read it.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
    let mut archive = Archive { out: io::BufWriter::new(file), unix_secs, contents: Vec::new() };
    let mut ask = |rest: &Rest, name: String, path: &str| -> Result<(), Failure> {
        match rest.within(PATIENCE).get(path) {
            Ok(body) => {
                let body = cleaned(body, redaction.as_ref());
                archive.add(&name, &body).map_err(cannot)?;
                archive.note(name, format!("{} bytes", body.len()), path);
            }
            Err(error) => {
                let why = failed("not there", error).to_string();
                let why = redaction.as_ref().map_or(why.clone(), |redaction| redaction.apply(&why));
                archive.note(name, why, path);
            }
        }
        Ok(())
    };
    for (name, path) in OF_CLUSTER {
        ask(&session.rest, format!("cluster/{name}"), path)?;
    }
    let buckets = session.get("/pools/default/buckets?skipMap=true")?;
    for bucket in buckets.as_array().into_iter().flatten().filter_map(|bucket| bucket["name"].as_str()) {
        for (name, path) in OF_BUCKET {
            ask(
                &session.rest,
                format!("bucket-{}/{name}", file_name(bucket)),
                &path.replace("{}", &percent(bucket)),
            )?;
        }
    }
    for node in &nodes {
        for (name, path) in OF_NODE {
            ask(
                &args.access.rest(node.hostname()),
                format!("node-{}/{name}", file_name(node.hostname())),
                path,
            )?;
        }
    }
    let (files, missing) = archive.finish(redaction.is_some()).map_err(cannot)?;
    println!("{}: {files} files of {} nodes", path.display(), nodes.len());
    if missing > 0 {
        println!("{missing} things could not be asked: contents.txt in it says which and why");
    }
    Ok(())
}

/// An answer without what nobody else is to see: passwords, which administrators are shown of buckets that old clients open by
/// password, and names of users. In JSON only values are changed, so it stays JSON whatever users are called.
fn cleaned(body: Vec<u8>, redaction: Option<&Redaction>) -> Vec<u8> {
    if let Ok(mut value) = serde_json::from_slice::<Value>(&body) {
        return if clean(&mut value, redaction) { value.to_string().into_bytes() } else { body };
    }
    match redaction {
        Some(redaction) => redaction.apply(&String::from_utf8_lossy(&body)).into_bytes(),
        None => body,
    }
}

/// Cleans a value, and tells whether it was changed: numbers of any length stay as they were written where nothing was.
fn clean(value: &mut Value, redaction: Option<&Redaction>) -> bool {
    match value {
        Value::Array(values) => {
            let mut changed = false;
            for value in values {
                changed |= clean(value, redaction);
            }
            changed
        }
        Value::Object(members) => {
            let mut changed = false;
            for (name, value) in members {
                match value {
                    Value::String(text) if is_password(name) && !text.is_empty() => {
                        "(left out)".clone_into(text);
                        changed = true;
                    }
                    value => changed |= clean(value, redaction),
                }
            }
            changed
        }
        Value::String(text) => redaction.is_some_and(|redaction| {
            let without = redaction.apply(text);
            let changed = without != *text;
            *text = without;
            changed
        }),
        _ => false,
    }
}

fn is_password(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Mail servers have theirs under short names.
    name.contains("password") || name == "pass" || name == "emailpass"
}

/// A name that is one part of a path, whatever is in it.
fn file_name(text: &str) -> String {
    let kept = |one: char| if one.is_ascii_alphanumeric() || "-_.%".contains(one) { one } else { '_' };
    text.chars().take(60).map(kept).collect()
}

/// What stands for names of users.
struct Redaction {
    /// The longest first, since one may be in another.
    names: Vec<String>,
    salt: u64,
}

impl Redaction {
    /// With the users that the cluster shows, and the one that asks.
    fn of(rest: &Rest, own: &str) -> Result<Self, Failure> {
        let mut salt = [0; 8];
        getrandom::fill(&mut salt).map_err(|error| Failure::doing("the system has no randomness", error))?;
        let users = rest.get_json("/settings/rbac/users").map_err(|error| {
            failed("cannot read the users whose names are to be replaced (--no-redaction leaves them)", error)
        })?;
        let listed = users.as_array().into_iter().flatten().filter_map(|user| user["id"].as_str());
        Ok(Self::with(listed.chain([own]), u64::from_be_bytes(salt)))
    }

    fn with<'a>(names: impl Iterator<Item = &'a str>, salt: u64) -> Self {
        let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        Self { names, salt }
    }

    /// The text with every name replaced that is a word of its own.
    fn apply(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, name| self.without(&text, name))
    }

    fn without(&self, text: &str, name: &str) -> String {
        let mut hasher = DefaultHasher::new();
        (self.salt, name).hash(&mut hasher);
        let hash = format!("<ud>{:016x}</ud>", hasher.finish());
        let is_word = |one: char| one.is_alphanumeric() || one == '_' || one == '-';
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(name) {
            let (before, found) = rest.split_at(at);
            let (found, after) = found.split_at(name.len());
            let stands_alone = !before.chars().next_back().or(out.chars().next_back()).is_some_and(is_word)
                && !after.chars().next().is_some_and(is_word);
            out.push_str(before);
            out.push_str(if stands_alone { &hash } else { found });
            rest = after;
        }
        out + rest
    }
}

/// A tar archive, and what is in it.
struct Archive<W: Write> {
    out: W,
    unix_secs: u64,
    /// File, size or reason, and what was asked for.
    contents: Vec<[String; 3]>,
}

impl<W: Write> Archive<W> {
    fn note(&mut self, name: String, what: String, path: &str) {
        self.contents.push([name, what, path.to_owned()]);
    }

    fn add(&mut self, name: &str, body: &[u8]) -> io::Result<()> {
        self.out.write_all(&header(name, body.len(), self.unix_secs))?;
        self.out.write_all(body)?;
        self.out.write_all(&vec![0; body.len().next_multiple_of(BLOCK) - body.len()])
    }

    /// Adds the list of contents and ends it. How many files it has, and how many things are missing.
    fn finish(mut self, is_redacted: bool) -> io::Result<(usize, usize)> {
        let files = self.contents.iter().filter(|[_, what, _]| what.ends_with(" bytes")).count();
        let missing = self.contents.len() - files;
        let names = if is_redacted {
            "Names of users are replaced by <ud>HASH</ud>."
        } else {
            "Nothing is replaced."
        };
        let rows: Vec<Vec<String>> = std::mem::take(&mut self.contents).into_iter().map(Vec::from).collect();
        let list = table(&["FILE", "SIZE OR WHY IT IS MISSING", "ASKED FOR"], rows);
        let text = format!("What `settee collect` has asked of the cluster. {names}\n\n{list}");
        self.add("contents.txt", text.as_bytes())?;
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok((files + 1, missing))
    }
}

/// The header of a plain file in the format `ustar`.
fn header(name: &str, bytes: usize, unix_secs: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(place) = header.get_mut(at..at + text.len()) {
            place.copy_from_slice(text);
        }
    };
    put(0, name.as_bytes().get(..NAME_BYTES_MAX).unwrap_or(name.as_bytes()));
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, format!("{unix_secs:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(place) = header.get_mut(148..156) {
        place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_replaced_where_they_stand_alone() {
        let redaction = Redaction::with(["ann", "ann-marie", "Administrator", ""].into_iter(), 7);
        let text = redaction.apply(r#"{"user":"ann","by":"ann-marie"} annex joanna Administrator=ann"#);
        assert!(!text.contains("\"ann") && !text.contains("Administrator"), "{text}");
        assert!(text.contains(" annex joanna "), "{text}");
        let hashes: BTreeSet<&str> =
            text.split("<ud>").skip(1).filter_map(|part| part.split("</ud>").next()).collect();
        assert_eq!(hashes.len(), 3, "one for each name: {text}");
    }

    #[test]
    fn names_that_are_numbers_or_members_leave_json_what_it_is() {
        let redaction = Redaction::with(["100", "node"].into_iter(), 7);
        let shown = br#"{"node":{"ram":100},"user":"100","log":"node 100 asked"}"#.to_vec();
        let value: Value = serde_json::from_slice(&cleaned(shown, Some(&redaction))).unwrap();
        assert_eq!(value["node"]["ram"], 100);
        assert!(value["user"].as_str().unwrap().starts_with("<ud>"), "{value}");
        let log = value["log"].as_str().unwrap();
        assert!(!log.contains("node") && !log.contains("100"), "{log}");
    }

    #[test]
    fn passwords_of_buckets_are_left_out_and_all_else_stays() {
        let shown =
            br#"[{"name":"b","saslPassword":"carrier-pigeon","quota":{"rawRAM":1.50}},{"saslPassword":""}]"#;
        let text = String::from_utf8(cleaned(shown.to_vec(), None)).unwrap();
        assert!(!text.contains("pigeon") && text.contains("\"saslPassword\":\"(left out)\""), "{text}");
        assert!(text.contains("\"saslPassword\":\"\""), "{text}");
        let mail = br#"{"emailServer":{"user":"u","pass":"carrier"},"emailPass":"pigeon","passed":"x"}"#;
        let text = String::from_utf8(cleaned(mail.to_vec(), None)).unwrap();
        assert!(!text.contains("carrier") && !text.contains("pigeon") && text.contains("\"x\""), "{text}");
        for untouched in [&br#"{ "minLength": 6, "n": 12345678901234567890123 }"#[..], b"# HELP password\n"] {
            assert_eq!(cleaned(untouched.to_vec(), None), untouched);
        }
    }

    #[test]
    fn the_archive_is_one_that_tar_reads_and_lists_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let mut archive = Archive {
            out: std::fs::File::create(&path).unwrap(),
            unix_secs: 1_732_694_400,
            contents: Vec::new(),
        };
        archive.add("node-a_8091/log.json", &[b'x'; 700]).unwrap();
        archive.note("node-a_8091/log.json".into(), "700 bytes".into(), "/settee/logs");
        archive.note("node-a_8091/metrics.txt".into(), "not there: 403".into(), "/metrics");
        assert_eq!(archive.finish(true).unwrap(), (2, 1));
        let tar = |option: &str, file: &str| {
            let done = std::process::Command::new("tar").arg(option).arg(&path).arg(file).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        assert_eq!(tar("-xOf", "node-a_8091/log.json"), "x".repeat(700));
        let contents = tar("-xOf", "contents.txt");
        assert!(contents.contains("700 bytes") && contents.contains("not there: 403"), "{contents}");
    }

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(file_name("../[::1]:8091"), ".._[__1]_8091".replace(['[', ']'], "_"));
    }
}
