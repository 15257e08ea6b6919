//! Placeholder: this crate's module header is written with its first code.
