//! What a node does again and again while it runs, each duty a task or a thread of its own; and what it serves.

pub(crate) mod alerting;
pub(crate) mod clocks;
mod history;
mod mail;
mod objectives;
mod probing;
mod serving;
mod ticks;
pub(crate) mod turns;
mod webhook;
