//! What REST asks of a node's audit trail, and what the node answers.

use std::collections::BTreeMap;

use base::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A place in the files of a node's trail, that stays the same when files are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailPlace {
    /// Which file: the node's name for it.
    pub file: u64,
    /// Where in it, in bytes.
    pub at: u64,
}

/// What nodes are asked for: the newest events of their trails, from a place of each backwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailQuestion {
    /// Only events of this user.
    pub user: Option<String>,
    /// Only events of this name.
    pub event: Option<String>,
    /// How many, at most.
    pub limit: usize,
    /// Only events that begin before these places. A node without one begins at its newest event.
    pub before: BTreeMap<NodeId, TrailPlace>,
}

/// An event of a trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailEvent {
    /// Where its line begins.
    pub place: TrailPlace,
    /// The object in its line.
    pub event: Value,
}

/// What a node has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailPage {
    /// The newest first.
    pub events: Vec<TrailEvent>,
    /// From where the node would read on. Nothing where it has no older events.
    pub further: Option<TrailPlace>,
    /// Lines that are no events: torn ones, or damaged ones.
    pub unreadable: u64,
}
