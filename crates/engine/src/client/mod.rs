//! What clients do: operations on documents, and range scans. Both are methods of [`Bucket`](crate::Bucket).

mod conflict;
pub(crate) mod ops;
pub mod range_scan;
