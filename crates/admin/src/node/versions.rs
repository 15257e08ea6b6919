//! The versions that answers show.

/// The compatibility version in the form REST shows it; test suites of SDKs parse it.
pub const PRODUCT_VERSION: &str = "7.6.4-0000-enterprise";
/// Settee's own version, in fields of its own.
pub const SETTEE_VERSION: &str = env!("CARGO_PKG_VERSION");
