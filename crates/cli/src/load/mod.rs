//! The load driver: one thread, one epoll loop, any number of connections, each with a bounded number of requests
//! in flight (closed loop).
//!
//! What it takes care of, because popular tools do not: every connection draws its own key sequence; keys reach
//! every vBucket; values are random and incompressible, and carry what is needed to recognise them when they come
//! back, so wrong answers are seen; hits, misses and errors are counted apart and only successes make up the rate;
//! a "temporary failure" is retried with back-off and its latency runs from the first attempt.
//!
//! `settee load` measures with it, `settee songs load` fills buckets with it: they differ in their [`Records`].
//! Rates that are held rather than reached (open loop) are not here yet.

mod driver;
mod histogram;
mod process;
pub(crate) mod records;
mod target;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use driver::{Driver, Order, Phase, Stop};
pub(crate) use histogram::{Latencies, Tally};
pub(crate) use process::Usage;
pub(crate) use records::{Records, SyntheticRecords};
pub(crate) use target::{LoadError, Target};
pub(crate) use wire::Protocol;
