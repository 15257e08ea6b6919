//! Reading what another version may have written: what this version does not know is refused instead of dropped.
//!
//! `serde` passes over members of an object that it does not know. A change of the metadata would then do less on an older node
//! than on a newer one. The two would differ from there on. So whatever nodes have to agree on is read here.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Why something could not be read: malformed, or made by a newer version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(String);

/// Reads JSON of which nothing may be dropped.
///
/// # Errors
/// [`Unknown`] names the first thing that this version does not know.
pub fn read<T: Serialize + DeserializeOwned>(json: &[u8]) -> Result<T, Unknown> {
    let failed = |error: serde_json::Error| Unknown(error.to_string());
    let read = serde_json::from_slice::<T>(json).map_err(failed)?;
    let given = serde_json::from_slice::<Value>(json).map_err(failed)?;
    let kept = serde_json::to_value(&read).map_err(failed)?;
    match dropped(&given, &kept) {
        None => Ok(read),
        Some(name) => Err(Unknown(format!("\"{name}\" is not known to this version"))),
    }
}

/// A member of `given` that is not in `kept`, unless it says nothing.
fn dropped(given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(name, value)| {
            let inner = match kept.get(name) {
                Some(kept) => return dropped(value, kept).map(|inner| format!("{name}.{inner}")),
                None => says_something(value),
            };
            inner.then(|| name.clone())
        }),
        (Value::Array(given), Value::Array(kept)) => {
            given.iter().zip(kept).find_map(|(given, kept)| dropped(given, kept))
        }
        _ => None,
    }
}

/// Members that have their default are not written again.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        changes::Command,
        metadata::{Metadata, NodeInfo, Ports},
    };

    fn command(json: &str) -> Result<Command, String> {
        read(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_this_version_writes_is_read() {
        let node = NodeInfo::first("n".into(), "h".into(), Ports::default());
        let mut metadata = Metadata::new("c".into(), 256);
        for change in [Command::SetNode(node), Command::SetSecret("s".into())] {
            let json = serde_json::to_vec(&change).unwrap();
            assert_eq!(read::<Command>(&json).unwrap(), change);
            metadata = metadata.apply(&change).unwrap().0;
        }
        let json = serde_json::to_vec(&metadata).unwrap();
        assert_eq!(read::<Metadata>(&json).unwrap(), metadata);
    }

    #[test]
    fn a_newer_command_and_a_newer_member_are_refused_by_name() {
        assert!(command(r#"{"Levitate":{"node":1}}"#).unwrap_err().contains("Levitate"));
        let newer = r#"{"StopRebalance":{"now_ms":1,"gently":true}}"#;
        assert!(command(newer).unwrap_err().contains("StopRebalance.gently"));
        let deeper = r#"{"SetQuota":{"data_mb":1,"others_mb":{},"limits":{"a":1}}}"#;
        assert!(command(deeper).unwrap_err().contains("SetQuota.limits"));
    }

    #[test]
    fn members_that_say_nothing_may_go_and_those_that_are_absent_may_come() {
        let json = r#"{"StopRebalance":{"now_ms":1,"gently":false,"why":null,"nodes":[]}}"#;
        assert_eq!(command(json), Ok(Command::StopRebalance { id: None, now_ms: 1 }));
        let json = r#"{"SetQuota":{"others_mb":{}}}"#;
        assert!(command(json).is_ok(), "an older version wrote less");
    }
}
