//! One request: what it asks, the session it belongs to, what it may use, where it stops, and how it is answered.

pub(crate) mod admission;
pub(crate) mod ahead;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod dcp;
pub(crate) mod exchange;
pub(crate) mod fetch;
pub(crate) mod located;
pub(crate) mod opcodes;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod stage;
pub mod value;
