//! The past of statistics: what figures were, where that is kept, and what it foretells.

pub(crate) mod forecasts;
pub(crate) mod gauges;
pub(crate) mod history;
pub(crate) mod latency_past;
