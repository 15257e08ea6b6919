//! One request on its way: what it asks for, the right that it needs, and what its answer may show.

mod answers;
mod api;
pub(crate) mod asking;
mod call;
mod changing;
pub(crate) mod collecting;
pub(crate) mod figures;
mod rights;
mod route;
pub(crate) mod stream;
mod telemetry;

pub use api::Api;
pub(crate) use call::{AskedRoute, Call};
#[cfg(test)]
pub(crate) use rights::{Named, Sender};
pub(crate) use route::{Alone, Needs, Route, UNDECIDED_FAILOVER};
