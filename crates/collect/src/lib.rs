//! What support needs to know of a cluster: what is asked for, what is left out or replaced, and the archive that has the answers.
//!
//! `settee collect` asks from outside and has one archive; nodes that are told to collect ask themselves, and have one each. Documents,
//! passwords and keys of TLS are in none of what is asked for.

#![forbid(unsafe_code)]

mod archive;
mod asked;
mod redaction;

pub use archive::Archive;
pub use asked::{OF_BUCKET, OF_CLUSTER, OF_NODE, file_name};
pub use redaction::{Redaction, cleaned};
