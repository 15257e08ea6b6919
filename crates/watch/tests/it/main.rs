//! Alerts, objectives and probes by their public surface.

mod alerts;
mod probe;
mod properties;
mod silences;
mod turns;
