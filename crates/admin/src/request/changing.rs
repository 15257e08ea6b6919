//! Changes of settings that are made of what the settings are: a list with one more, or a form laid over an object.
//!
//! Two of them at the same time must not lose one that was acknowledged. On one node they take turns. Of two nodes the cluster takes one,
//! and the other node makes its own anew of what the setting is by then.

use std::time::Duration;

use cluster::{ClusterError, Command, Metadata};
use http::{AuditKind, reply::Refusal};
use serde_json::Value;
use tokio::time::timeout;

use super::call::Call;

/// How long a request waits for those before it.
const TURN: Duration = Duration::from_secs(3);
/// How often a change is made anew.
const ATTEMPTS: usize = 20;

impl Call {
    /// Has the cluster change a setting. `change` makes the new value, and what the client is told, of what the request sees then. Without
    /// a value nothing is changed.
    pub(crate) async fn change_setting<T>(
        &self,
        path: &str,
        change: impl Fn(&Self) -> Result<(Option<Value>, T), Refusal>,
    ) -> Result<T, Refusal> {
        // Where the cluster does not answer, requests do not wait for one another's patience.
        let _turn = timeout(TURN, self.api.changing.lock()).await;
        let mut now = self.anew()?;
        let mut attempts = 1..=ATTEMPTS;
        loop {
            let (value, told) = change(&now)?;
            let Some(value) = value else { return Ok(told) };
            let refused = match self.api.control.submit(command(&now.meta, path, value)).await {
                Ok(_) => return Ok(told),
                Err(error @ ClusterError::MembersRefused(_)) => error,
                Err(error) => {
                    // Those who call tell auditors of what was made.
                    self.audit_end(&Err::<(), _>(error.clone()), AuditKind::SettingsChanged, path, "");
                    return Err(error.into());
                }
            };
            // The cluster has refused what was changed meanwhile: this node may not have heard of that yet.
            self.api.control.catch_up().await;
            let before = now.meta.setting_revision(path);
            now = self.anew()?;
            if attempts.next().is_none() || now.meta.setting_revision(path) == before {
                return Err(refused.into());
            }
        }
    }

    /// The same request by what is known now, which its sender must have the right to still.
    pub(crate) fn anew(&self) -> Result<Self, Refusal> {
        let now = self.now();
        now.check()?;
        Ok(now)
    }
}

fn command(meta: &Metadata, path: &str, value: Value) -> Command {
    let path = path.to_owned();
    if !meta.replaces_settings() {
        return Command::PutSetting { path, value };
    }
    let over = meta.setting_revision(&path);
    Command::ReplaceSetting { path, over, value }
}
