//! Bytes: the memcached binary protocol with Couchbase's extensions, the memcached text protocol, HELLO, the
//! error map and the syntax of SASL messages.
//!
//! Everything here is a pure function from bytes to values or back: no socket, no clock, no thread, no
//! randomness, no cryptography. Decoders borrow from the input and allocate nothing on the data path;
//! encoders append to a `Vec<u8>`. Nothing that arrives from outside makes them panic, which the fuzz targets
//! in `fuzz/` and their stable twin in `tests/it/fuzz.rs` keep proving.
//!
//! What a request *means* is decided by the server; this crate says only whether it is well formed.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice
)]
#![cfg_attr(test, allow(clippy::unreachable, clippy::string_slice))]

pub mod binary;
pub mod error_map;
pub mod hello;
pub mod sasl;
pub mod snappy;
pub mod text;
