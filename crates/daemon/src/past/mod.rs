//! The past of statistics: what figures were, and where that is kept.

pub(crate) mod gauges;
pub(crate) mod history;
pub(crate) mod latency_past;
