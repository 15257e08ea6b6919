//! Whether nodes ask SDKs how long operations took at clients, as Couchbase 8 does: the setting, and what configurations say of it.

use serde_json::Value;

use crate::metadata::Metadata;

/// Where it is kept among the settings, and its path below `/settings/` in REST.
pub const TELEMETRY_SETTING: &str = "appTelemetry";
/// Where SDKs connect to, on the port of REST. Configurations name it while nodes ask.
pub const TELEMETRY_PATH: &str = "/_appTelemetry";
/// Most clients that a node asks.
pub const TELEMETRY_CLIENTS_MAX: u32 = 1_024;
/// Seconds from one question to the next.
pub const TELEMETRY_INTERVAL_SECS: u32 = 60;

/// How nodes ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppTelemetry {
    /// Most clients of a node.
    pub clients_max: u32,
    /// Seconds from one question to the next.
    pub interval_secs: u32,
}

impl Metadata {
    /// How nodes ask SDKs; none while they do not.
    #[must_use]
    pub fn app_telemetry(&self) -> Option<AppTelemetry> {
        let setting = self.settings.get(TELEMETRY_SETTING)?;
        let number = |name: &str, default: u32| {
            let value = setting.get(name).and_then(Value::as_u64);
            value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
        };
        (setting.get("enabled") == Some(&Value::Bool(true))).then(|| AppTelemetry {
            clients_max: number("maxScrapeClientsPerNode", TELEMETRY_CLIENTS_MAX),
            interval_secs: number("scrapeIntervalSeconds", TELEMETRY_INTERVAL_SECS).max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Command, NodeInfo, Ports, config::cluster_config};

    fn put(state: &Metadata, value: Value) -> Metadata {
        state.apply(&Command::PutSetting { path: TELEMETRY_SETTING.into(), value }).unwrap().0
    }

    #[test]
    fn clients_hear_in_a_newer_configuration_that_nodes_ask_and_that_they_ask_no_more() {
        let node = NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default());
        let off = Metadata::new("c".into(), 1024).apply(&Command::SetNode(node)).unwrap().0;
        let on = put(&off, json!({ "enabled": true, "scrapeIntervalSeconds": 90 }));
        assert_eq!(on.app_telemetry(), Some(AppTelemetry { clients_max: 1_024, interval_secs: 90 }));
        let again = put(&on, json!({ "enabled": false }));
        assert_eq!((off.app_telemetry(), again.app_telemetry()), (None, None));
        assert!(off.rev < on.rev && on.rev < again.rev);
        let told = |state: &Metadata| {
            let config: Value = serde_json::from_str(&cluster_config(state, &"1".repeat(32))).unwrap();
            let node = &config["nodesExt"][0];
            (node["appTelemetryPath"].clone(), node["nodeUUID"].clone())
        };
        assert_eq!(told(&on), (json!(TELEMETRY_PATH), json!("1".repeat(32))));
        assert_eq!([told(&off), told(&again)], [(Value::Null, Value::Null), (Value::Null, Value::Null)]);
    }

    #[test]
    fn nodes_of_earlier_versions_would_tell_clients_nothing_so_the_setting_waits_for_them() {
        let old =
            Metadata { level: crate::metadata::level::TELEMETRY - 1, ..Metadata::new("c".into(), 1024) };
        let command =
            Command::PutSetting { path: TELEMETRY_SETTING.into(), value: json!({ "enabled": true }) };
        let text = old.apply(&command).unwrap_err().to_string();
        assert!(text.contains("level"), "{text}");
        assert!(old.apply(&Command::PutSetting { path: "p".into(), value: Value::Null }).is_ok());
    }
}
