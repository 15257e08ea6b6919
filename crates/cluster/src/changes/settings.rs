//! Settings objects, and changes of them that are made of what they were.
//!
//! A node that lays a request over an object, or adds to a list, has read the object before. Another node may change it in between. So such
//! a change says which revision it replaces, and is refused where the object has another one by now: its sender makes it anew.

use serde_json::Value;

use crate::metadata::{ClusterError, Metadata, error::refused, level::SETTINGS_REPLACED};

impl Metadata {
    /// The revision of a settings object, which is another one after each change. It is nothing for an object that was changed last
    /// before objects had revisions, or never.
    #[must_use]
    pub fn setting_revision(&self, path: &str) -> Option<u64> {
        self.settings_changed.get(path).copied()
    }

    /// Whether every member understands changes of settings that say which revision they replace.
    #[must_use]
    pub fn replaces_settings(&self) -> bool {
        self.level >= SETTINGS_REPLACED
    }

    pub(crate) fn put_setting(&mut self, path: &str, value: &Value) -> Result<(), ClusterError> {
        self.check_setting(path, value)?;
        if self.replaces_settings() {
            // The version that the metadata are about to have.
            self.settings_changed.insert(path.to_owned(), self.version.saturating_add(1));
        }
        self.settings.insert(path.to_owned(), value.clone());
        Ok(())
    }

    pub(crate) fn replace_setting(
        &mut self,
        path: &str,
        over: Option<u64>,
        value: &Value,
    ) -> Result<(), ClusterError> {
        if over != self.setting_revision(path) {
            return Err(refused("Somebody else has changed this setting at the same time. Try again."));
        }
        self.put_setting(path, value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{changes::Command, metadata::level::LEVEL};

    #[test]
    fn a_change_that_is_made_of_an_older_setting_is_refused() {
        let path = "settee/alerts/silences";
        let replace = |over, value| Command::ReplaceSetting { path: path.into(), over, value };
        let empty = Metadata::new("c".repeat(32), 64);
        let first = empty.apply(&replace(empty.setting_revision(path), json!(["a"]))).unwrap().0;
        let refused = first.apply(&replace(empty.setting_revision(path), json!(["b"]))).unwrap_err();
        assert!(refused.to_string().contains("Try again"), "{refused}");
        let second = first.apply(&replace(first.setting_revision(path), json!(["a", "b"]))).unwrap().0;
        assert_eq!(second.settings[path], json!(["a", "b"]));
        // A change that asks nothing counts as well, even one that leaves the value as it is.
        let put = Command::PutSetting { path: path.into(), value: json!(["a", "b"]) };
        let put = second.apply(&put).unwrap().0;
        assert!(put.apply(&replace(second.setting_revision(path), json!([]))).is_err());
        let other = Command::PutSetting { path: "stats".into(), value: json!({}) };
        let other = put.apply(&other).unwrap().0;
        assert!(other.apply(&replace(put.setting_revision(path), json!([]))).is_ok(), "another setting");
    }

    #[test]
    fn below_the_level_settings_have_no_revision() {
        let below = Metadata { level: SETTINGS_REPLACED - 1, ..Metadata::new("c".repeat(32), 64) };
        let put = Command::PutSetting { path: "stats".into(), value: json!({}) };
        let put = below.apply(&put).unwrap().0;
        assert!(put.settings_changed.is_empty() && put.setting_revision("stats").is_none());
        let replace = Command::ReplaceSetting { path: "stats".into(), over: None, value: json!({}) };
        assert!(put.apply(&replace).is_err(), "members would not understand it");
        let risen = Metadata { level: LEVEL, ..put };
        assert!(risen.apply(&replace).is_ok(), "it was changed last before");
    }
}
