//! A node's archive: what this node asks itself, one answer after the other.
//!
//! Invariants:
//! - No more than one answer is in memory, and an archive has no more bytes than [`ARCHIVE_BYTES_MAX`].
//! - An archive has its name once it is whole and synced. What was not finished is removed, however the work ends.
//! - The node's own folder has the last few archives only.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    body::{Bytes, to_bytes},
    http::{Method, StatusCode},
};
use cluster::UserDomain;
use collect::{Archive, OF_BUCKET, OF_CLUSTER, OF_NODE, Redaction, cleaned, file_name};
use http::{BoxFuture, form::Form, reply::Refusal};
use tokio::{task::spawn_blocking, time::timeout};

use super::Begin;
use crate::{
    node::{control::Obstacle, time::now_ms},
    request::{Call, figures::ClusterFigures},
    routes::{dispatch, health, table},
};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer that is kept.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of an archive.
const ARCHIVE_BYTES_MAX: u64 = 256 << 20;
/// Archives in the node's own folder, the one in progress included.
const ARCHIVES_KEPT: usize = 3;
/// Bytes of a refusal that are noted.
const REFUSAL_CHARS: usize = 200;
/// The end of the name of what is not whole.
const UNFINISHED: &str = "part";

/// Has an archive made at `path`, in the node's own folder or one that somebody named.
pub(super) fn gather(
    call: &Call,
    begin: Begin,
    path: PathBuf,
    is_own: bool,
) -> BoxFuture<'static, Result<(), String>> {
    let redaction = begin.salt.as_ref().map(|salt| redaction(call, &begin, salt));
    let call = Call { user: begin.user, ..call.clone() };
    Box::pin(async move {
        if call.api.control.obstacles().contains(&Obstacle::Disk) {
            return Err("The disk takes no documents: nothing else is written to it.".into());
        }
        let cannot = format!("cannot write {}", path.display());
        let opened = on_disk(&cannot, move || Unfinished::open(&path, is_own, now_ms() / 1000)).await;
        let mut archive = opened?;
        for (name, asked, bucket) in everything(&call) {
            let answer = match timeout(PATIENCE, ask(&call, asked, bucket.as_deref())).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            let redaction = redaction.clone();
            let asked = asked.replace("{}", bucket.as_deref().unwrap_or_default());
            let added = on_disk(&cannot, move || {
                archive.add(&name, &asked, answer, redaction.as_ref())?;
                Ok(archive)
            });
            archive = added.await?;
        }
        let is_redacted = redaction.is_some();
        on_disk(&cannot, move || archive.finish(is_redacted)).await
    })
}

/// Does something with files where that holds nobody up.
async fn on_disk<T: Send + 'static>(
    cannot: &str,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    match spawn_blocking(act).await {
        Ok(done) => done.map_err(|error| format!("{cannot}: {error}")),
        Err(_) => Err(format!("{cannot}: the node stops")),
    }
}

/// Names in the archive, what is asked for, and of which bucket.
fn everything(call: &Call) -> Vec<(String, &'static str, Option<String>)> {
    let of_cluster = OF_CLUSTER.iter().map(|(name, path)| (format!("cluster/{name}"), *path, None));
    let of_buckets = call.meta.buckets.keys().flat_map(|bucket| {
        let name = move |name: &str| format!("bucket-{}/{name}", file_name(bucket));
        OF_BUCKET.iter().map(move |(file, path)| (name(file), *path, Some(bucket.clone())))
    });
    let of_node = OF_NODE.iter().map(|(name, path)| (format!("node/{name}"), *path, None));
    of_node.chain(of_cluster).chain(of_buckets).collect()
}

/// What stands for the users that the cluster knows, and the one that asks.
fn redaction(call: &Call, begin: &Begin, salt: &str) -> Redaction {
    let domains = [UserDomain::Local, UserDomain::External];
    let listed = domains.into_iter().flat_map(|domain| call.meta.users_of(domain).keys());
    let admin = call.meta.admin.iter().map(|admin| admin.name.as_str());
    let names = listed.map(String::as_str).chain(admin).chain([begin.user.name.as_str()]);
    Redaction::with(names, salt.as_bytes().to_vec())
}

/// What this node answers to the administrator; or why it does not.
fn ask(call: &Call, asked: &str, bucket: Option<&str>) -> BoxFuture<'static, Result<Bytes, String>> {
    let (path, query) = asked.split_once('?').unwrap_or((asked, ""));
    let segment = |segment: &str| match (segment, bucket) {
        ("{}", Some(bucket)) => bucket.to_owned(),
        _ => segment.to_owned(),
    };
    let path: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(segment).collect();
    let (api, meta) = (call.api.clone(), call.api.control.metadata());
    let route = table::find("GET", &path);
    let query = Form::parse(query.as_bytes()).unwrap_or_default();
    let (method, body, status) = (Method::GET, Bytes::new(), api.control.cluster_status());
    let call = Call { meta, method, route, path, query, body, status, ..call.clone() };
    Box::pin(async move {
        let probed = health::answer(call.api.control.as_ref(), &call.meta, &call.method, &call.path);
        let reply = match probed {
            Some(reply) => reply,
            None => {
                let figures = match route.is_some_and(|route| route.needs_figures) {
                    true => call.api.figures.fresh(&call.api.control, &call.meta).await,
                    false => ClusterFigures::default(),
                };
                let call = Call { figures: figures.into(), ..call };
                match dispatch(&call).await {
                    Ok(reply) => reply,
                    Err(Refusal(reply)) => *reply,
                }
            }
        };
        let status = reply.status();
        let body = to_bytes(reply.into_body(), ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| format!("the answer could not be kept: {error}"))?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let text: String = String::from_utf8_lossy(&body).chars().take(REFUSAL_CHARS).collect();
        Err(format!("{}: {}", status.as_u16(), text.replace(['\r', '\n'], " ").trim()))
    })
}

/// An archive that is not whole. It is removed unless it is finished.
struct Unfinished {
    archive: Option<Archive<BufWriter<File>>>,
    file: File,
    path: PathBuf,
}

impl Unfinished {
    fn open(path: &Path, is_own: bool, unix_secs: u64) -> io::Result<Self> {
        if is_own && let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
            make_room(folder)?;
        }
        // Nobody else on this machine is to read it, and nothing that is there is written over.
        if path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let part = unfinished(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
        let archive = Some(Archive::new(BufWriter::new(file.try_clone()?), unix_secs));
        Ok(Self { archive, file, path: path.to_path_buf() })
    }

    fn add(
        &mut self,
        name: &str,
        asked: &str,
        answer: Result<Bytes, String>,
        redaction: Option<&Redaction>,
    ) -> io::Result<()> {
        let Some(archive) = self.archive.as_mut() else { return Ok(()) };
        let body = match answer {
            Ok(body) => cleaned(body.into(), redaction),
            Err(why) => {
                let why = redaction.map_or(why.clone(), |redaction| redaction.apply(&why));
                archive.note(name.to_owned(), why, asked);
                return Ok(());
            }
        };
        if archive.bytes() + body.len() as u64 > ARCHIVE_BYTES_MAX {
            let why = format!("left out: an archive has {ARCHIVE_BYTES_MAX} bytes at most");
            archive.note(name.to_owned(), why, asked);
            return Ok(());
        }
        archive.add(name, &body)?;
        archive.note(name.to_owned(), format!("{} bytes", body.len()), asked);
        Ok(())
    }

    fn finish(mut self, is_redacted: bool) -> io::Result<()> {
        if let Some(archive) = self.archive.take() {
            archive.finish(is_redacted)?;
        }
        // Order matters: what has the name of an archive is whole.
        self.file.sync_all()?;
        fs::rename(unfinished(&self.path), &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A finished one has another name by now.
        if let Err(error) = fs::remove_file(unfinished(&self.path))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, path = %self.path.display(), "an archive that is not whole stays");
        }
    }
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension(format!("tar.{UNFINISHED}"))
}

/// Removes what a crash has left, and the oldest archives until there is a place for one more.
fn make_room(folder: &Path) -> io::Result<()> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("collectinfo-"));
        match path.extension() {
            Some(end) if is_ours && end == UNFINISHED => fs::remove_file(&path)?,
            Some(end) if is_ours && end == "tar" => archives.push(path),
            _ => {}
        }
    }
    // Their names begin with their times.
    archives.sort();
    let many = (archives.len() + 1).saturating_sub(ARCHIVES_KEPT);
    archives.iter().take(many).try_for_each(fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_last_archives_and_nothing_unfinished() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["collectinfo-2.tar", "collectinfo-1.tar", "collectinfo-0.tar.part", "mine.tar"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        for name in ["collectinfo-3.tar", "collectinfo-4.tar"] {
            let unfinished = Unfinished::open(&dir.path().join(name), true, 0).unwrap();
            unfinished.finish(false).unwrap();
        }
        drop(Unfinished::open(&dir.path().join("collectinfo-5.tar"), true, 0).unwrap());
        let listed = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut listed: Vec<_> = listed.map(|name| name.into_string().unwrap()).collect();
        listed.sort();
        assert_eq!(listed, ["collectinfo-3.tar", "collectinfo-4.tar", "mine.tar"]);
        let again = Unfinished::open(&dir.path().join("collectinfo-4.tar"), true, 0);
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
    }

    #[test]
    fn an_archive_leaves_out_what_it_has_no_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let mut archive = Unfinished::open(&path, false, 0).unwrap();
        let half = Bytes::from(vec![b'x'; ANSWER_BYTES_MAX]);
        for number in 0..6 {
            archive.add(&number.to_string(), "/x", Ok(half.clone()), None).unwrap();
        }
        archive.add("small", "/x", Ok(Bytes::from_static(b"y")), None).unwrap();
        archive.finish(false).unwrap();
        let bytes = fs::metadata(&path).unwrap().len();
        assert!(bytes < ARCHIVE_BYTES_MAX + 65_536, "{bytes}");
        let listed = std::process::Command::new("tar").arg("-tf").arg(&path).output().unwrap();
        assert!(String::from_utf8(listed.stdout).unwrap().contains("small"));
    }
}
