//! The audit trail: logins and administrative changes, one JSON object a line, appended to `audit.log`
//! ([`super::audit_trail`]).
//!
//! Events come from workers and from REST through a bounded queue to one writer thread, so that nobody waits for
//! the disk. When the queue is full events are counted as lost, and the next line written says how many. Failed logins,
//! of which strangers can cause any number, are counted before the queue ([`super::login_failures`]): they never drive
//! other events out, and the log has a line for each line of the trail.

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

use cluster::AuditPolicy;
use http::AuditKind;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    audit_trail::{Rotation, Trail},
    login_failures::{LoginFailures, Summary, WINDOW},
};
use crate::shared::{self, LoginEvent};

/// Events that may wait for the writer.
const QUEUE_EVENTS_MAX: usize = 4096;
/// How often the writer looks for counts of failed logins that have to be told.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Handle to the writer thread; dropping it writes what is queued and ends the thread.
pub(crate) struct AuditLog {
    enabled: Arc<AtomicBool>,
    rotation: Arc<Mutex<Rotation>>,
    failures: Arc<Mutex<LoginFailures>>,
    queue: Option<SyncSender<Value>>,
    lost: AtomicU64,
    writer: Option<JoinHandle<()>>,
}

/// What the writer thread has.
struct Writer {
    trail: Trail,
    enabled: Arc<AtomicBool>,
    rotation: Arc<Mutex<Rotation>>,
    failures: Arc<Mutex<LoginFailures>>,
}

impl Writer {
    fn run(mut self, events: &Receiver<Value>) {
        loop {
            match events.recv_timeout(LOOK_EVERY) {
                Ok(event) => self.write(&event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let due = self.failures.lock().due(Instant::now());
            self.tell(due);
        }
        let rest = self.failures.lock().rest();
        self.tell(rest);
    }

    fn tell(&mut self, summaries: Vec<Summary>) {
        for summary in summaries {
            let from = summary.from.map_or_else(|| "other addresses".to_owned(), |from| from.to_string());
            tracing::warn!(%from, count = summary.count, "more logins failed; see audit.log for the first one");
            if self.enabled.load(Ordering::Relaxed) {
                self.write(&stamped(json!({
                    "name": "login failure", "peer": from, "repeated": summary.count, "within_secs": WINDOW.as_secs(),
                })));
            }
        }
    }

    fn write(&mut self, event: &Value) {
        let rotation = *self.rotation.lock();
        self.trail.write(&format!("{event}\n"), rotation, SystemTime::now());
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
        let (enabled, rotation, failures) = (Arc::new(AtomicBool::new(true)), Arc::default(), Arc::default());
        let (queue, events) = sync_channel::<Value>(QUEUE_EVENTS_MAX);
        let writer = Writer {
            trail,
            enabled: Arc::clone(&enabled),
            rotation: Arc::clone(&rotation),
            failures: Arc::clone(&failures),
        };
        let writer = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&events))?;
        Ok(Self {
            enabled,
            rotation,
            failures,
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
        let is_told = from.is_none_or(|from| self.failures.lock().note(from, Instant::now()));
        if is_told {
            tracing::info!(user = ?event["user"], peer = ?event["peer"], "login failed");
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
        "name": name, "user": login.user, "domain": login.domain, "mechanism": login.mechanism,
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
    json!({
        "name": name, "user": event.user.name, "domain": event.user.domain, "peer": event.peer,
        "subject": event.subject, "details": event.details,
    })
}

#[cfg(test)]
mod tests {
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
