//! The audit trail: logins and administrative changes, one JSON object a line, appended to `audit.log`
//! ([`super::audit_trail`]).
//!
//! Events come from workers and from REST through a bounded queue to one writer thread, so that nobody waits for
//! the disk. When the queue is full events are counted as lost, and the next line written says how many. Failed logins and denials, of
//! which strangers and users can cause any number, are counted before the queue ([`super::repeated`]) and never drive other events
//! out. Of what their senders have made up a line has [`CLAIM_CHARS_MAX`] characters. The log has a line for each line of failed logins.

use std::{
    net::IpAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cluster::{AuditPolicy, auth::Domain};
use http::AuditKind;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    audit_trail::{Rotation, Trail},
    repeated::{Repeated, Sender, Summary, WINDOW},
};
use crate::shared::{self, LoginEvent};

/// Events that may wait for the writer.
const QUEUE_EVENTS_MAX: usize = 4096;
/// How often the writer looks for counts that have to be told.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Failed logins of an address, and denials of a sender, that have a line of their own.
const FAILURES_TOLD: u64 = 1;
const DENIALS_TOLD: u64 = 16;
/// Characters of a name or path that a sender without the right has made up.
const CLAIM_CHARS_MAX: usize = 256;

/// What is counted before the queue.
struct Counted {
    failures: Mutex<Repeated>,
    denials: Mutex<Repeated>,
}

/// Handle to the writer thread; dropping it writes what is queued and ends the thread.
pub(crate) struct AuditLog {
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
            let failures = self.counted.failures.lock().due(now);
            let denials = self.counted.denials.lock().due(now);
            self.tell(failures, denials);
        }
        let failures = self.counted.failures.lock().rest();
        let denials = self.counted.denials.lock().rest();
        self.tell(failures, denials);
    }

    fn tell(&mut self, failures: Vec<Summary>, denials: Vec<Summary>) {
        for summary in failures {
            let from = name_of(&summary.of);
            tracing::warn!(%from, count = summary.count, "more logins failed; see audit.log for the first one");
            self.tell_one("login failure", &summary);
        }
        for summary in denials {
            self.tell_one("access denied", &summary);
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
        let [failures, denials] = [FAILURES_TOLD, DENIALS_TOLD].map(|lines| Mutex::new(Repeated::new(lines)));
        let counted = Arc::new(Counted { failures, denials });
        let (queue, events) = sync_channel::<Value>(QUEUE_EVENTS_MAX);
        let writer = Writer {
            trail,
            enabled: Arc::clone(&enabled),
            rotation: Arc::clone(&rotation),
            counted: Arc::clone(&counted),
        };
        let writer = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&events))?;
        Ok(Self {
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

    /// Records `event`, an object, unless the trail is switched off.
    pub(crate) fn record(&self, event: Value) {
        if self.enabled.load(Ordering::Relaxed) {
            self.record_always(event);
        }
    }

    /// Records a failed login, unless the address has failed a moment ago: then it is only counted.
    pub(crate) fn record_failure(&self, from: Option<IpAddr>, event: Value) {
        let note = |from| self.counted.failures.lock().note(Sender::Address(from), Instant::now());
        let is_told = from.is_none_or(note);
        if is_told {
            tracing::info!(user = ?event["user"], peer = ?event["peer"], "login failed");
            self.record(event);
        }
    }

    /// Records a denial, unless its sender has had many a moment ago: then it is only counted.
    pub(crate) fn record_denial(&self, by: Option<Sender>, event: Value) {
        let note = |by| self.counted.denials.lock().note(by, Instant::now());
        if by.is_none_or(note) {
            self.record(event);
        }
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
    match event {
        shared::AuditEvent::LoginFailed(login) => {
            log.record_failure(login.peer.map(|peer| peer.ip()), of_data_plane(event));
        }
        _ => log.record(of_data_plane(event)),
    }
}

/// Writes down an event of the REST API.
pub(crate) fn record_rest(log: &AuditLog, event: &http::AuditEvent) {
    let line = of_rest(event);
    match (event.kind, event.subject.as_str()) {
        (AuditKind::SettingsChanged, "audit") => log.record_always(line),
        (AuditKind::LoginFailure, _) => log.record_failure(event.peer.map(|peer| peer.ip()), line),
        (AuditKind::AccessDenied, _) => {
            let by = match event.user.domain {
                Domain::Anonymous => event.peer.map(|peer| Sender::Address(peer.ip())),
                _ => Some(Sender::User(event.user.name.clone())),
            };
            log.record_denial(by, line);
        }
        _ => log.record(line),
    }
}

/// A login or flush over the data ports as a line of the trail.
fn of_data_plane(event: &shared::AuditEvent) -> Value {
    match event {
        shared::AuditEvent::LoginSucceeded(login) => of_login("login success", login),
        shared::AuditEvent::LoginFailed(login) => of_login("login failure", login),
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
        AuditKind::LoginSuccess => "login success",
        AuditKind::LoginFailure => "login failure",
        AuditKind::Logout => "logout",
        AuditKind::AccessDenied => "access denied",
        AuditKind::ClusterChanged => "cluster changed",
        AuditKind::NodeChanged => "node changed",
        AuditKind::BucketChanged => "bucket changed",
        AuditKind::CollectionsChanged => "collections changed",
        AuditKind::ViewsChanged => "views changed",
        AuditKind::UsersChanged => "users changed",
        AuditKind::PasswordChanged => "password changed",
        AuditKind::SettingsChanged => "settings changed",
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
        assert_eq!(at_address, 50_000 + DENIALS_TOLD, "each line of a user names the address");
        assert_eq!(denials("user", "ann"), 50_000);
        assert!(text.len() < 64 << 10, "{} bytes", text.len());
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
