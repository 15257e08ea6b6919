//! Encryption between nodes: which of them want to be spoken to under TLS, how much goes under it, and who vouches for them.
//!
//! Each node has a switch of its own, because the tools of Couchbase turn them one by one. A node that speaks to another uses TLS
//! exactly where the other node's switch is on. All of them listen for both, always, so a cluster in which some are switched and
//! some are not is whole.
//!
//! Nodes know one another by their keys. While some node has none, the cluster's authority signs what they show to one another. Its
//! certificate and its key are part of the metadata then, and go once they are not needed any more.

use base::NodeId;
use serde_json::Value;

use crate::metadata::{Authority, ClusterError, Metadata, NodeInfo};

/// Where the level is kept: a settings object and its member, as REST has them.
const SETTINGS: &str = "security";
const LEVEL: &str = "clusterEncryptionLevel";
const TLS_MIN: &str = "tlsMinVersion";

/// How much of what is said to a node whose encryption is on goes under TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptionLevel {
    /// What nodes agree on and report, and REST.
    Control,
    /// Documents as well.
    All,
}

impl Metadata {
    /// Whether encryption is on for every node.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| node.encrypted)
    }

    /// How much goes under TLS where encryption is on.
    #[must_use]
    pub fn encryption_level(&self) -> EncryptionLevel {
        level_of(self.settings.get(SETTINGS))
    }

    /// Whether ports refuse TLS 1.2.
    #[must_use]
    pub fn requires_tls_1_3(&self) -> bool {
        let settings = self.settings.get(SETTINGS);
        settings.and_then(|settings| settings.get(TLS_MIN)).and_then(Value::as_str) == Some("tlsv1.3")
    }

    /// Whether nodes could be told from others under TLS.
    #[must_use]
    pub fn can_encrypt(&self) -> bool {
        self.knows_nodes_by_keys() || self.authority.is_some()
    }

    /// Nobody signs for nodes from now on: their keys tell who they are. The secret, which makes nobody a node any more, stays for salts of
    /// names that nobody has.
    pub(crate) fn retire_authority(&mut self) -> Result<(), ClusterError> {
        if !self.knows_nodes_by_keys() {
            return Err(refused("Some nodes have no key yet."));
        }
        self.authority = None;
        Ok(())
    }

    /// Whether documents go to that node under TLS.
    #[must_use]
    pub fn encrypts_data_to(&self, node: &NodeInfo) -> bool {
        node.encrypted && self.encryption_level() == EncryptionLevel::All
    }

    /// Whether a node that is added has encryption on from the start.
    #[must_use]
    pub fn encrypts_new_nodes(&self) -> bool {
        self.nodes.iter().any(|node| node.encrypted)
    }

    /// The first one stays: nodes have shown what it signed.
    pub(crate) fn set_authority(&mut self, authority: &Authority) {
        self.authority.get_or_insert_with(|| authority.clone());
    }

    pub(crate) fn set_node_encryption(&mut self, id: NodeId, on: bool) -> Result<(), ClusterError> {
        if on && !self.can_encrypt() {
            return Err(refused("The cluster has no certificate authority yet. Try again."));
        }
        if !on && self.encryption_level() != EncryptionLevel::Control {
            return Err(refused(
                "Can't disable nodeEncryption when the cluster encryption level has been set to all",
            ));
        }
        self.node_by_id_mut(id)?.encrypted = on;
        Ok(())
    }

    /// A level above the lowest would promise what is not so while encryption is off anywhere.
    pub(crate) fn check_setting(&self, path: &str, value: &Value) -> Result<(), ClusterError> {
        let asks_for_more = path == SETTINGS && level_of(Some(value)) != EncryptionLevel::Control;
        if asks_for_more && !self.is_encrypted() {
            let text = "Can't set cluster encryption level when cluster encryption is disabled.";
            return Err(ClusterError::field(LEVEL, text));
        }
        Ok(())
    }
}

fn level_of(settings: Option<&Value>) -> EncryptionLevel {
    let level = settings.and_then(|settings| settings.get(LEVEL)).and_then(Value::as_str);
    if level == Some("all") { EncryptionLevel::All } else { EncryptionLevel::Control }
}

fn refused(text: &str) -> ClusterError {
    ClusterError::field("nodeEncryption", text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{changes::Command, metadata::Ports};

    fn apply(metadata: &mut Metadata, command: Command) -> Result<(), ClusterError> {
        *metadata = metadata.apply(&command)?.0;
        Ok(())
    }

    fn two_nodes() -> Metadata {
        let mut metadata = Metadata::new("c".into(), 256);
        let first = NodeInfo::first("1".into(), "h1".into(), Ports::default());
        let second = NodeInfo { id: NodeId(1), ..NodeInfo::first("2".into(), "h2".into(), Ports::default()) };
        apply(&mut metadata, Command::SetNode(first)).unwrap();
        apply(&mut metadata, Command::AddNode(second)).unwrap();
        metadata
    }

    fn authority(name: &str) -> Command {
        Command::SetAuthority(Authority { certificate: name.into(), key: String::new() })
    }

    fn switch(node: u16, on: bool) -> Command {
        Command::SetNodeEncryption { node: NodeId(node), on }
    }

    fn level(level: &str) -> Command {
        Command::PutSetting { path: SETTINGS.into(), value: json!({ LEVEL: level }) }
    }

    #[test]
    fn the_level_rises_once_every_node_is_switched_on_and_falls_before_one_is_switched_off() {
        let mut metadata = two_nodes();
        assert!(apply(&mut metadata, switch(0, true)).is_err(), "nobody vouches for anybody yet");
        apply(&mut metadata, authority("first")).unwrap();
        apply(&mut metadata, authority("second")).unwrap();
        assert_eq!(
            metadata.authority.as_ref().unwrap().certificate,
            "first",
            "nodes have shown what it signed"
        );
        apply(&mut metadata, switch(0, true)).unwrap();
        assert!(!metadata.is_encrypted());
        assert!(apply(&mut metadata, level("all")).is_err(), "one of two");
        apply(&mut metadata, switch(1, true)).unwrap();
        assert!(metadata.is_encrypted());
        assert!(!metadata.encrypts_data_to(&metadata.nodes[0]));
        apply(&mut metadata, level("all")).unwrap();
        assert!(metadata.encrypts_data_to(&metadata.nodes[0]));
        assert!(apply(&mut metadata, switch(0, false)).is_err());
        apply(&mut metadata, level("control")).unwrap();
        apply(&mut metadata, switch(0, false)).unwrap();
    }

    #[test]
    fn what_nodes_shared_goes_once_each_of_them_has_a_key() {
        let mut metadata = two_nodes();
        apply(&mut metadata, authority("a")).unwrap();
        apply(&mut metadata, Command::SetSecret("shared".into())).unwrap();
        let retire = || Command::RetireAuthority;
        let key = |node| Command::SetNodeKey { node: NodeId(node), key: "key".into() };
        apply(&mut metadata, key(0)).unwrap();
        assert!(apply(&mut metadata, retire()).is_err() && metadata.accepts_secret(), "one of two");
        apply(&mut metadata, key(1)).unwrap();
        assert!(!metadata.accepts_secret());
        apply(&mut metadata, retire()).unwrap();
        assert_eq!(metadata.authority, None);
        apply(&mut metadata, switch(0, true)).unwrap();
        let without =
            NodeInfo { id: NodeId(2), ..NodeInfo::first("3".into(), "h3".into(), Ports::default()) };
        assert!(apply(&mut metadata, Command::AddNode(without.clone())).is_err(), "it has no key");
        apply(&mut metadata, Command::AddNode(NodeInfo { key: Some("key".into()), ..without })).unwrap();
        let below = Metadata { level: crate::metadata::level::NODE_KEYS - 1, ..two_nodes() };
        assert!(below.apply(&key(0)).is_err(), "older nodes do not know of keys");
    }

    #[test]
    fn a_node_that_is_added_has_what_the_others_have() {
        let third = NodeInfo { id: NodeId(2), ..NodeInfo::first("3".into(), "h3".into(), Ports::default()) };
        let mut metadata = two_nodes();
        apply(&mut metadata, authority("a")).unwrap();
        apply(&mut metadata, switch(1, true)).unwrap();
        apply(&mut metadata, Command::AddNode(third.clone())).unwrap();
        assert!(metadata.nodes[2].encrypted);

        let mut metadata = two_nodes();
        apply(&mut metadata, Command::AddNode(NodeInfo { encrypted: true, ..third })).unwrap();
        assert!(!metadata.nodes[2].encrypted, "whatever it had in its own cluster");
    }
}
