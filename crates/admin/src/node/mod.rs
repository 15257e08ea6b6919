//! The node as REST knows it: what it is asked for and told ([`control`]), and the words for its answers.

pub(crate) mod alerts;
pub(crate) mod audit;
pub(crate) mod certificates;
pub(crate) mod cluster_status;
pub(crate) mod control;
pub(crate) mod counted;
pub mod documents;
pub(crate) mod events;
pub(crate) mod forecasts;
pub mod latency;
pub(crate) mod mail;
pub(crate) mod merged;
pub(crate) mod probes;
pub(crate) mod time;
pub(crate) mod versions;
