//! Talk with other nodes.

pub(crate) mod agreement;
pub(crate) mod http;
pub(crate) mod internal;
pub(crate) mod mail;
pub(crate) mod peers;
pub(crate) mod proposals;
pub(crate) mod questions;
