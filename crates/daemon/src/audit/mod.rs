//! The audit trail: logins and administrative changes, one JSON object a line, appended to `audit.log`
//! ([`crate::audit::trail`]).
//!
//! Events come from workers and from REST through a bounded queue to one writer thread, so that nobody waits for the disk. When the queue
//! is full events are counted as lost, and the next line written says how many. Strangers and users can cause any number of logins, failed
//! logins and denials. These are counted before the queue ([`crate::audit::repeated`]) and never drive other events out. Of what their
//! senders have made up a line has [`CLAIM_CHARS_MAX`] characters. The log has a line for each line of failed logins.

mod reading;
mod repeated;
mod trail;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use admin::{TrailPage, TrailPlace, TrailQuestion};
use cluster::{AuditPolicy, auth::Domain};
use dataplane::shared::{self, LoginEvent};
use http::AuditKind;
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::{
    repeated::{Repeated, Sender, Summary, WINDOW},
    trail::{Rotation, Trail},
};

/// Events that may wait for the writer.
const QUEUE_EVENTS_MAX: usize = 4096;
/// How often the writer looks for counts that have to be told.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What senders can cause any number of, and how many of one sender have a line of their own.
const COUNTED: [(&str, u64); 6] = [
    (LOGIN_FAILURE, 1),
    (ACCESS_DENIED, 16),
    (LOGIN_SUCCESS, 256),
    (LOGOUT, 256),
    (DOCUMENT_READ, 256),
    (DOCUMENT_CHANGED, 256),
];
const LOGIN_FAILURE: &str = "login failure";
const ACCESS_DENIED: &str = "access denied";
const LOGIN_SUCCESS: &str = "login success";
const LOGOUT: &str = "logout";
const DOCUMENT_READ: &str = "document read";
const DOCUMENT_CHANGED: &str = "document changed";
/// Characters of a name or path that a sender without the right has made up.
const CLAIM_CHARS_MAX: usize = 256;

/// What is counted before the queue, in the order of [`COUNTED`].
type Counted = Mutex<[Repeated; COUNTED.len()]>;

/// Handle to the writer thread; dropping it writes what is queued and ends the thread.
pub(crate) struct AuditLog {
    path: PathBuf,
    enabled: Arc<AtomicBool>,
    rotation: Arc<Mutex<Rotation>>,
    counted: Arc<Counted>,
    queue: Option<SyncSender<Value>>,
    lost: AtomicU64,
    writer: Option<JoinHandle<()>>,
}

/// What the writer thread has.
struct Writer {
    trail: Trail,
    enabled: Arc<AtomicBool>,
    rotation: Arc<Mutex<Rotation>>,
    counted: Arc<Counted>,
}

impl Writer {
    fn run(mut self, events: &Receiver<Value>) {
        loop {
            match events.recv_timeout(LOOK_EVERY) {
                Ok(event) => self.write(&event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Instant::now();
            let due = self.counted.lock().each_mut().map(|repeated| repeated.due(now));
            self.tell(due);
        }
        let rest = self.counted.lock().each_mut().map(Repeated::rest);
        self.tell(rest);
    }

    fn tell(&mut self, counted: [Vec<Summary>; COUNTED.len()]) {
        for ((name, _), summaries) in COUNTED.into_iter().zip(counted) {
            for summary in summaries {
                if name == LOGIN_FAILURE {
                    let from = name_of(&summary.of);
                    tracing::warn!(%from, count = summary.count, "more logins failed; see audit.log for the first one");
                }
                self.tell_one(name, &summary);
            }
        }
    }

    fn tell_one(&mut self, name: &str, summary: &Summary) {
        if !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        let member = if matches!(summary.of, Sender::User(_)) { "user" } else { "peer" };
        let of = name_of(&summary.of);
        self.write(&stamped(json!({
            "name": name, member: of, "repeated": summary.count, "within_secs": WINDOW.as_secs(),
        })));
    }

    fn write(&mut self, event: &Value) {
        let rotation = *self.rotation.lock();
        self.trail.write(&format!("{event}\n"), rotation, SystemTime::now());
    }
}

fn name_of(sender: &Sender) -> String {
    match sender {
        Sender::Address(address) => address.to_string(),
        Sender::User(name) => name.clone(),
        Sender::Others => "other addresses".to_owned(),
    }
}

fn stamped(mut event: Value) -> Value {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    event["timestamp_ms"] = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX).into();
    event
}

impl AuditLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let trail = Trail::open(path)?;
        let (enabled, rotation) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let counted = Arc::new(Mutex::new(COUNTED.map(|(_, lines)| Repeated::new(lines))));
        let (queue, events) = sync_channel::<Value>(QUEUE_EVENTS_MAX);
        let writer = Writer {
            trail,
            enabled: Arc::clone(&enabled),
            rotation: Arc::clone(&rotation),
            counted: Arc::clone(&counted),
        };
        let writer = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&events))?;
        Ok(Self {
            path: path.to_owned(),
            enabled,
            rotation,
            counted,
            queue: Some(queue),
            lost: AtomicU64::new(0),
            writer: Some(writer),
        })
    }

    /// Follows what an administrator has set.
    pub(crate) fn obey(&self, policy: &AuditPolicy) {
        self.enabled.store(policy.enabled, Ordering::Relaxed);
        *self.rotation.lock() =
            Rotation { bytes: policy.rotate_bytes, age: policy.rotate_age, prune_age: policy.prune_age };
    }

    /// The newest events before a place in the trail. Reads files. Nothing where they cannot be read.
    pub(crate) fn page(&self, question: &TrailQuestion, before: Option<TrailPlace>) -> Option<TrailPage> {
        let page = reading::page(&self.path, question, before);
        page.inspect_err(|error| tracing::warn!(%error, "the audit trail could not be read")).ok()
    }

    /// Records `event`, an object, unless the trail is switched off.
    pub(crate) fn record(&self, event: Value) {
        if self.enabled.load(Ordering::Relaxed) {
            self.record_always(event);
        }
    }

    /// Records an event of a kind that is counted, unless its sender has caused many a moment ago: then it is only counted.
    fn record_counted(&self, by: Option<Sender>, event: Value) {
        let at = COUNTED.iter().position(|(name, _)| event["name"] == *name);
        let note = |by| {
            let mut counted = self.counted.lock();
            at.and_then(|at| counted.get_mut(at)).is_none_or(|repeated| repeated.note(by, Instant::now()))
        };
        if !by.is_none_or(note) {
            return;
        }
        if event["name"] == LOGIN_FAILURE {
            tracing::info!(user = ?event["user"], peer = ?event["peer"], "login failed");
        }
        self.record(event);
    }

    /// Records `event`, stamped with the wall clock, whether the trail is on or off: for the switch itself.
    pub(crate) fn record_always(&self, event: Value) {
        let Some(queue) = &self.queue else { return };
        let mut event = stamped(event);
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            event["events_lost_before"] = lost.into();
        }
        if let Err(TrySendError::Full(_)) = queue.try_send(event) {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes down a login or flush over the data ports.
pub(crate) fn record_data_plane(log: &AuditLog, event: &shared::AuditEvent) {
    let line = of_data_plane(event);
    match event {
        shared::AuditEvent::LoginFailed(login) => {
            log.record_counted(login.peer.map(|peer| Sender::Address(peer.ip())), line);
        }
        shared::AuditEvent::LoginSucceeded(login) => {
            log.record_counted(Some(Sender::User(login.user.clone())), line);
        }
        shared::AuditEvent::BucketFlushed { .. } => log.record(line),
    }
}

/// Writes down an event of the REST API.
pub(crate) fn record_rest(log: &AuditLog, event: &http::AuditEvent) {
    let line = of_rest(event);
    let address = || event.peer.map(|peer| Sender::Address(peer.ip()));
    let user = || Some(Sender::User(event.user.name.clone()));
    match (event.kind, event.subject.as_str()) {
        (AuditKind::SettingsChanged, "audit") => log.record_always(line),
        (AuditKind::LoginFailure, _) => log.record_counted(address(), line),
        (AuditKind::AccessDenied, _) if event.user.domain == Domain::Anonymous => {
            log.record_counted(address(), line);
        }
        (AuditKind::AccessDenied | AuditKind::LoginSuccess | AuditKind::Logout, _)
        | (AuditKind::DocumentRead | AuditKind::DocumentChanged, _) => {
            log.record_counted(user(), line);
        }
        _ => log.record(line),
    }
}

/// A login or flush over the data ports as a line of the trail.
fn of_data_plane(event: &shared::AuditEvent) -> Value {
    match event {
        shared::AuditEvent::LoginSucceeded(login) => of_login(LOGIN_SUCCESS, login),
        shared::AuditEvent::LoginFailed(login) => of_login(LOGIN_FAILURE, login),
        shared::AuditEvent::BucketFlushed { bucket, user } => {
            json!({ "name": "bucket flushed", "user": user, "subject": bucket })
        }
    }
}

fn of_login(name: &str, login: &LoginEvent) -> Value {
    json!({
        "name": name, "user": claim(&login.user), "domain": login.domain, "mechanism": login.mechanism,
        "peer": login.peer, "local": login.local,
    })
}

/// An event of the REST API as a line of the trail.
fn of_rest(event: &http::AuditEvent) -> Value {
    let name = match event.kind {
        AuditKind::LoginSuccess => LOGIN_SUCCESS,
        AuditKind::LoginFailure => LOGIN_FAILURE,
        AuditKind::Logout => LOGOUT,
        AuditKind::AccessDenied => ACCESS_DENIED,
        AuditKind::ClusterChanged => "cluster changed",
        AuditKind::NodeChanged => "node changed",
        AuditKind::BucketChanged => "bucket changed",
        AuditKind::CollectionsChanged => "collections changed",
        AuditKind::ViewsChanged => "views changed",
        AuditKind::UsersChanged => "users changed",
        AuditKind::PasswordChanged => "password changed",
        AuditKind::SettingsChanged => "settings changed",
        AuditKind::DocumentRead => DOCUMENT_READ,
        AuditKind::DocumentChanged => DOCUMENT_CHANGED,
    };
    let claimed = |text: &str| match event.kind {
        AuditKind::LoginFailure | AuditKind::AccessDenied => claim(text),
        _ => text.to_owned(),
    };
    json!({
        "name": name, "user": claimed(&event.user.name), "domain": event.user.domain, "peer": event.peer,
        "subject": claimed(&event.subject), "details": claimed(&event.details),
    })
}

/// What a sender has made up, cut where it is long.
fn claim(text: &str) -> String {
    match text.char_indices().nth(CLAIM_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use cluster::auth::Identity;

    use super::*;

    #[test]
    fn a_trail_that_is_off_takes_nothing_but_the_switch() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        log.obey(&AuditPolicy { enabled: false, ..AuditPolicy::default() });
        log.record(serde_json::json!({ "user": "unseen" }));
        log.record_always(serde_json::json!({ "user": "switch" }));
        log.obey(&AuditPolicy::default());
        log.record(serde_json::json!({ "user": "seen" }));
        drop(log);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(!text.contains("unseen") && text.contains("switch") && text.contains("\"seen"), "{text}");
    }

    #[test]
    fn strangers_who_fail_all_the_time_do_not_fill_the_disk_or_drive_other_events_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        let login = LoginEvent {
            user: "guess".into(),
            domain: None,
            mechanism: "PLAIN",
            peer: Some("10.0.0.1:4000".parse().unwrap()),
            local: None,
        };
        for _ in 0..100_000 {
            record_data_plane(&log, &shared::AuditEvent::LoginFailed(login.clone()));
        }
        log.record(json!({ "name": "users changed" }));
        drop(log);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().any(|line| line["name"] == "users changed"), "{text}");
        assert!(lines.iter().all(|line| line["events_lost_before"].is_null()), "{text}");
        let (first, counted) =
            (&lines[0], lines.iter().filter_map(|line| line["repeated"].as_u64()).sum::<u64>());
        assert_eq!((&first["user"], counted), (&json!("guess"), 99_999), "{text}");
        assert!(lines.len() < 10, "{text}");
    }

    #[test]
    fn denials_do_not_fill_the_disk_or_drive_other_events_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        for user in [Identity::anonymous(), Identity::unproved("ann", Domain::Local)] {
            let denied = http::AuditEvent {
                kind: AuditKind::AccessDenied,
                user,
                peer: Some("10.0.0.1:4000".parse().unwrap()),
                subject: "é/".repeat(20_000),
                details: format!("cluster.bucket[{}].views!read", "b".repeat(20_000)),
            };
            (0..50_000).for_each(|_| record_rest(&log, &denied));
        }
        log.record(json!({ "name": "users changed" }));
        drop(log);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().any(|line| line["name"] == "users changed"));
        assert!(lines.iter().all(|line| line["events_lost_before"].is_null()));
        let denials = |member: &str, of: &str| {
            let of_sender = |line: &&Value| line["name"] == "access denied" && line[member] == of;
            let repeated = |line: &Value| line["repeated"].as_u64().unwrap_or(1);
            lines.iter().filter(of_sender).map(repeated).sum::<u64>()
        };
        let at_address = denials("peer", "10.0.0.1:4000") + denials("peer", "10.0.0.1");
        let lines_of_user = COUNTED.iter().find(|(name, _)| *name == ACCESS_DENIED).unwrap().1;
        assert_eq!(at_address, 50_000 + lines_of_user, "each line of a user names the address");
        assert_eq!(denials("user", "ann"), 50_000);
        assert!(text.len() < 64 << 10, "{} bytes", text.len());
    }

    #[test]
    fn a_user_who_logs_in_all_the_time_does_not_drive_other_events_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        for kind in
            [AuditKind::LoginSuccess, AuditKind::Logout, AuditKind::DocumentRead, AuditKind::DocumentChanged]
        {
            let session = http::AuditEvent {
                kind,
                user: Identity::unproved("ann", Domain::Local),
                peer: Some("10.0.0.1:4000".parse().unwrap()),
                subject: "rest".into(),
                details: String::new(),
            };
            (0..50_000).for_each(|_| record_rest(&log, &session));
        }
        log.record(json!({ "name": "users changed" }));
        drop(log);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().any(|line| line["name"] == "users changed"));
        let repeated = |line: &Value| line["repeated"].as_u64().unwrap_or(1);
        for name in [LOGIN_SUCCESS, LOGOUT, DOCUMENT_READ, DOCUMENT_CHANGED] {
            let told: Vec<u64> = lines.iter().filter(|line| line["name"] == name).map(repeated).collect();
            assert_eq!(told.iter().sum::<u64>(), 50_000, "{name}");
            assert!(told.len() < 300, "{name}: {} lines", told.len());
        }
    }

    #[test]
    fn acts_on_documents_over_rest_say_who_did_what_to_which_document() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        for (kind, details) in [
            (AuditKind::DocumentRead, ""),
            (AuditKind::DocumentChanged, "POST"),
            (AuditKind::DocumentChanged, "DELETE"),
        ] {
            let act = http::AuditEvent {
                kind,
                user: Identity::unproved("ann", Domain::Local),
                peer: Some("10.0.0.1:4000".parse().unwrap()),
                subject: "songs/_default/_default/album/1".into(),
                details: details.into(),
            };
            record_rest(&log, &act);
        }
        drop(log);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> =
            lines.iter().map(|line| (line["name"].as_str(), line["details"].as_str())).collect();
        let expected = [
            (Some(DOCUMENT_READ), Some("")),
            (Some(DOCUMENT_CHANGED), Some("POST")),
            (Some(DOCUMENT_CHANGED), Some("DELETE")),
        ];
        assert_eq!(told, expected, "{text}");
        for line in lines {
            assert_eq!(
                (&line["user"], &line["domain"], &line["peer"]),
                (&json!("ann"), &json!("local"), &json!("10.0.0.1:4000"))
            );
            assert_eq!(line["subject"], "songs/_default/_default/album/1");
        }
    }

    #[test]
    fn events_are_on_disk_when_the_log_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let log = AuditLog::open(&path).unwrap();
        log.record(serde_json::json!({ "name": "login success", "user": "a" }));
        log.record(serde_json::json!({ "name": "login failure", "user": "b" }));
        drop(log);
        let text = std::fs::read_to_string(path).unwrap();
        let users: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["user"].to_string())
            .collect();
        assert_eq!(users, ["\"a\"", "\"b\""]);
    }
}
