//! Cluster metadata: what nodes, buckets, users and settings exist, and what may be done to them.
//!
//! The state is one value, [`Metadata`], and every change is a [`Command`]. The function [`Metadata::apply`] is pure,
//! so a log of commands replays to the same state anywhere. Everything a change needs that is not in the state (uuids,
//! salts, hashed passwords, times) travels inside the command.
//!
//! From the state are derived: the configurations clients route by ([`config`]), who somebody is and what he may do
//! ([`auth`]). The nodes of a cluster agree on it by [`consensus`], whose log is the only I/O here.
//!
//! Deliberately absent: sockets, clocks, threads, documents. `daemon` carries out what is decided here.

pub mod auth;
pub mod bucket;
mod certificates;
mod collections;
mod command;
pub mod config;
pub mod consensus;
pub mod design_documents;
pub mod divergence;
pub mod encryption;
mod error;
#[cfg(test)]
mod fuzz;
mod indexed;
pub mod invariants;
mod lease;
pub mod level;
mod maps;
mod members;
mod metadata;
mod metadata_file;
mod migration;
pub mod moves;
pub mod objectives;
pub mod orchestrator;
pub mod placement;
pub mod rebalancing;
mod reforming;
pub mod report;
pub mod roles;
mod shared;
pub mod strict;
pub mod topology;
pub mod users;
pub mod x509;

pub use bucket::{BucketParams, LegacyParams};
pub use certificates::{
    CLIENTS as CLIENT_CERT_SETTINGS, CertificateUse, ClientCertAuth, Mapping, NamePath,
    TRUSTED as TRUSTED_CA_SETTINGS, TrustedCa, is_name_of_node,
};
pub use command::{Applied, Command, Initialize, QuotaChange, UserChange};
pub use design_documents::{DesignDocument, DesignDocumentChange, DesignDocuments};
pub use divergence::Divergence;
pub use encryption::{Authority, EncryptionLevel};
pub use error::{ClusterError, FieldErrors};
pub use lease::Lease;
pub use metadata::{
    Admin, AlternateAddress, AuditPolicy, BucketInfo, Group, LegacyAccess, Metadata, NodeInfo, Ports, Quotas,
    User, UserDomain,
};
pub use metadata_file::{METADATA_FILE, MetadataFileError, read_metadata_file};
pub use moves::{VbChange, VbStep};
pub use objectives::{Objective, ObjectiveChange, Operation};
pub use orchestrator::{Documents, Health, NodeProgress, Orchestrator, RebalanceProgress};
pub use rebalancing::{FailOver, StartGracefulFailover, StartRebalance};
pub use reforming::TERMS_LEAP;
pub use report::{BucketReport, LatencyReport, NodeReport, Pressure, VbReport, Weight};
pub use topology::{
    AutoFailover, Departed, Exclusion, Membership, Parted, Rebalance, RebalanceKind, RebalanceOutcome,
    RebalanceResult, Recovery, ServerGroup, VbPhase, VbPlan,
};
