//! Where did the time go? Facts about this machine, what it did while a run went on, and what follows, in sentences.
//!
//! A fact that the machine hides (in a container, on another kernel) is "not available", never guessed.

mod activity;
mod agreement;
mod findings;
mod histograms;
mod host;
mod memory;
mod phases;
mod sockets;

pub use activity::Activity;
pub use agreement::{Agreement, Side};
pub use findings::{Circumstances, Surroundings, findings, of_workers, surroundings};
pub use histograms::Histograms;
pub use host::{Check, Verdict, checks, worth_knowing};
pub use phases::{by_operation, by_phase};
pub use sockets::Sockets;
