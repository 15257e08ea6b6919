//! What a node is started with, and why it could not be.

pub(crate) mod certificates;
pub(crate) mod closing;
pub(crate) mod error;
pub(crate) mod identity;
pub(crate) mod listeners;
pub(crate) mod options;
pub(crate) mod random;
