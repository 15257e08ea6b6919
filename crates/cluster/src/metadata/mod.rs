//! The state that a cluster agrees on, and what can be read from it: configurations, leases, certificates, maps.

pub(crate) mod authority;
pub(crate) mod certificates;
pub mod config;
pub(crate) mod design_documents;
pub mod encryption;
pub(crate) mod epoch;
pub(crate) mod error;
pub(crate) mod file;
mod indexed;
pub mod invariants;
pub(crate) mod lease;
pub(crate) mod level;
pub(crate) mod maps;
mod migration;
pub(crate) mod objectives;
pub mod placement;
pub(crate) mod shared;
pub(crate) mod state;
pub mod strict;
pub(crate) mod telemetry;
pub mod topology;
pub mod x509;

pub use authority::Authority;
pub use error::{ClusterError, FieldErrors};
pub use state::{
    Admin, AlternateAddress, AuditPolicy, BucketInfo, Group, LegacyAccess, Metadata, NodeInfo, Ports, Quotas,
    User, UserDomain,
};
