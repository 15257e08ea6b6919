//! The REST API against a node that is nothing but metadata, over real sockets.

#![allow(clippy::unwrap_used, reason = "tests")]

mod alternate;
mod audit;
mod browser;
mod certificates;
mod changing;
mod cluster;
mod collecting;
mod conformance;
mod connections;
mod console;
mod documents;
mod fuzz;
mod health;
mod http;
mod loads;
mod node;
mod quota;
mod rights;
mod sizing;
mod statistics;
mod streaming;
mod telemetry;
mod tls;
