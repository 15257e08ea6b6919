//! What a login is checked against, and which rights there are.

pub(crate) mod privilege;
pub mod roles;
pub(crate) mod scram;

pub use privilege::{Privilege, PrivilegeSet};
pub use scram::{
    Credentials, SALT_BYTES, SCRAM_ITERATIONS, ScramHash, ScramVerifier, cram_md5_digest, same_secret,
};
