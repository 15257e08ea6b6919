//! What callers say and hear: requests, options, answers, figures, and how a bucket calls back. Plain data.

pub mod doc;
pub mod notify;
pub mod options;
pub(crate) mod pressure;
pub mod request;
pub mod stats;
