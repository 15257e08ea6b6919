//! Whole nodes in this process: how they and their users log in by certificates, and their services.

#![allow(clippy::unwrap_used, reason = "tests")]

mod certificates;
mod services;
#[path = "../support/mod.rs"]
mod support;

use settee_daemon as daemon;
