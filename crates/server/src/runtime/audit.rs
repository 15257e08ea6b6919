//! The audit trail: logins and administrative changes, one JSON object a line, appended to `audit.log`
//! ([`super::audit_trail`]).
//!
//! Events come from workers and from REST through a bounded queue to one writer thread, so that nobody waits for
//! the disk. When the queue is full events are counted as lost, and the next line written says how many.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{SystemTime, UNIX_EPOCH},
};

use admin::AuditKind;
use cluster::AuditPolicy;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::audit_trail::{Rotation, Trail};
use crate::shared::{self, LoginEvent};

/// Events that may wait for the writer.
const QUEUE_EVENTS_MAX: usize = 4096;

/// Handle to the writer thread; dropping it writes what is queued and ends the thread.
pub(crate) struct AuditLog {
    enabled: AtomicBool,
    rotation: Arc<Mutex<Rotation>>,
    queue: Option<SyncSender<Value>>,
    lost: AtomicU64,
    writer: Option<JoinHandle<()>>,
}

impl AuditLog {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let mut trail = Trail::open(path)?;
        let rotation = Arc::new(Mutex::new(Rotation::default()));
        let (queue, events) = sync_channel::<Value>(QUEUE_EVENTS_MAX);
        let told = Arc::clone(&rotation);
        let writer = std::thread::Builder::new().name("audit".into()).spawn(move || {
            for event in events {
                let rotation = *told.lock();
                trail.write(&format!("{event}\n"), rotation, SystemTime::now());
            }
        })?;
        let enabled = AtomicBool::new(true);
        Ok(Self { enabled, rotation, queue: Some(queue), lost: AtomicU64::new(0), writer: Some(writer) })
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

    /// Records `event`, stamped with the wall clock, whether the trail is on or off: for the switch itself.
    pub(crate) fn record_always(&self, mut event: Value) {
        let Some(queue) = &self.queue else { return };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        event["timestamp_ms"] = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX).into();
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

/// A login or flush over the data ports as a line of the trail.
pub(crate) fn of_data_plane(event: &shared::AuditEvent) -> Value {
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
pub(crate) fn of_rest(event: &admin::AuditEvent) -> Value {
    let name = match event.kind {
        AuditKind::LoginSuccess => "login success",
        AuditKind::LoginFailure => "login failure",
        AuditKind::AccessDenied => "access denied",
        AuditKind::ClusterChanged => "cluster changed",
        AuditKind::NodeChanged => "node changed",
        AuditKind::BucketChanged => "bucket changed",
        AuditKind::CollectionsChanged => "collections changed",
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
