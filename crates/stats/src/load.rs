//! What loads a node: keys and clients that many operations go to, and its connections. Nodes tell it to one another.

use serde::{Deserialize, Serialize};

/// What takes most of a bucket's operations on a node, by samples of the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotReport {
    /// The bucket.
    pub bucket: String,
    /// Operations on documents a second.
    pub per_second: f64,
    /// Keys, the hottest first.
    pub keys: Vec<HotKey>,
    /// Addresses from which operations have come, as far as they were noticed.
    pub addresses: u64,
    /// Addresses of clients, the busiest first.
    pub clients: Vec<HotClient>,
}

/// A key that many operations go to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKey {
    /// The key, as its application wrote it.
    pub key: Vec<u8>,
    /// The number of its collection.
    pub collection: u32,
    /// Its part of the bucket's operations on the node, from 0 to 1.
    pub share: f64,
    /// Operations a second.
    pub per_second: f64,
}

/// An address from which many operations come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotClient {
    /// The bucket.
    pub bucket: String,
    /// The address, without a port.
    pub address: String,
    /// Its part of the bucket's operations on the node, from 0 to 1.
    pub share: f64,
    /// Operations a second.
    pub per_second: f64,
}

/// A client's connection to a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionLoad {
    /// Where the client is; empty where that is not known.
    pub client: String,
    /// The user that has logged in; empty where nobody has.
    pub user: String,
    /// The bucket; empty where none is selected.
    pub bucket: String,
    /// What the client calls itself.
    pub agent: String,
    /// Answered operations a second.
    pub per_second: f64,
    /// Bytes that have come, a second.
    pub read_per_second: f64,
    /// Bytes that have gone out, a second.
    pub written_per_second: f64,
    /// Milliseconds since something has come.
    pub idle_ms: u64,
    /// Under TLS.
    pub is_tls: bool,
    /// Changes are streamed on it.
    pub is_stream: bool,
    /// It is another node's, or a node's own.
    pub is_internal: bool,
}

/// Connections of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionsReport {
    /// How many are open.
    pub open: u64,
    /// Those with the most load, the busiest first.
    pub busiest: Vec<ConnectionLoad>,
    /// Addresses from which many operations come, by bucket.
    pub clients: Vec<HotClient>,
}
