//! The metadata, what may be done to them, and what the orchestrator makes of reports. Models that are run from seeds have targets of
//! their own.

#![allow(clippy::unwrap_used, reason = "tests")]

mod apply;
mod elections;
mod failover_rules;
mod latency_objective;
mod meant;
mod metadata_file;
