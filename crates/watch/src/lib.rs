//! Judges what nodes measure: whether objectives are met, and how fast their error budgets are used; and which alerts
//! fire.
//!
//! Pure arithmetic: callers bring the figures and the time. Invariants:
//! - What is kept takes bounded memory, however long a node runs and however its clock is set.
//! - Counts of several nodes add up: judging their sum is judging the cluster.
//! - Where too little was counted, nothing is said.

#![forbid(unsafe_code)]

pub mod alerts;
pub mod burn;
pub mod hot;
pub mod pacing;
pub mod probe;
pub mod ring;
pub mod sdk;
pub mod silences;
pub mod skew;
pub mod stored;
pub mod touch;
pub mod trend;
pub mod turns;

pub use burn::{Counts, Judgement, RULES, Rule, Severity, Span, Spans, judge};
pub use ring::Ring;
