//! Cluster metadata: what nodes, buckets, users and settings exist, and what may be done to them.
//!
//! The state is one value, [`Metadata`], and every change is a [`Command`]. The function [`Metadata::apply`] is pure,
//! so a log of commands replays to the same state anywhere. Everything a change needs that is not in the state (uuids,
//! salts, hashed passwords, times) travels inside the command.
//!
//! From the state are derived: the configurations clients route by ([`config`]), who somebody is and what he may do
//! ([`auth`]). The nodes of a cluster agree on it by [`consensus`], whose log is the only I/O here.
//!
//! The crate's rooms, from the top down. An import runs downward or stays in its room, which a test in `crates/tidy` holds.
//!
//! | room | what is in it |
//! |---|---|
//! | `orchestrator` | what the leader proposes next; what nodes report to it |
//! | `consensus` | the Raft group that agrees on changes |
//! | `changes` | commands, and how each changes the state |
//! | `auth` | who somebody is, and what he may do |
//! | `metadata` | the state, and what can be read from it |
//! | `rights` | what logins are checked against; roles and privileges |
//!
//! Deliberately absent: sockets, clocks, threads, documents. `daemon` carries out what is decided here.

pub mod auth;
mod changes;
pub mod consensus;
#[cfg(test)]
mod fuzz;
mod metadata;
pub mod orchestrator;
mod rights;

pub use changes::{
    Applied, Command, bucket,
    bucket::{BucketChange, BucketParams, LegacyParams},
    command::{AutoFailoverChange, Initialize, QuotaChange, UserChange},
    design_documents,
    design_documents::DesignDocumentChange,
    members::EJECTED,
    moves,
    moves::{VbChange, VbStep},
    objectives,
    objectives::ObjectiveChange,
    rebalancing,
    rebalancing::{FailOver, StartGracefulFailover, StartRebalance},
    reforming::TERMS_LEAP,
    users,
};
pub use metadata::{
    Admin, AlternateAddress, AuditPolicy, Authority, BucketInfo, ClusterError, FieldErrors, Group,
    LegacyAccess, Metadata, NodeInfo, Ports, Quotas, User, UserDomain,
    certificates::{
        CLIENTS as CLIENT_CERT_SETTINGS, CertificateUse, ClientCertAuth, Mapping, NamePath,
        TRUSTED as TRUSTED_CA_SETTINGS, TrustedCa, is_name_of_node,
    },
    config,
    design_documents::{DesignDocument, DesignDocuments, Revision},
    encryption,
    encryption::EncryptionLevel,
    file::{METADATA_FILE, MetadataFileError, read_metadata_file},
    invariants,
    lease::Lease,
    objectives::{Objective, Operation},
    placement, strict,
    telemetry::{
        AppTelemetry, TELEMETRY_CLIENTS_MAX, TELEMETRY_INTERVAL_SECS, TELEMETRY_PATH, TELEMETRY_SETTING,
    },
    topology,
    topology::{
        AutoFailover, Departed, Exclusion, Membership, Parted, Rebalance, RebalanceKind, RebalanceOutcome,
        RebalanceResult, Recovery, ServerGroup, VbPhase, VbPlan,
    },
    x509,
};
pub use orchestrator::{
    Documents, Health, NodeProgress, Orchestrator, RebalanceProgress, divergence,
    divergence::Divergence,
    report,
    report::{BucketReport, LatencyReport, NodeReport, Pressure, VbReport, Weight},
};
pub use rights::roles;

/// What every member of a cluster understands of the metadata.
pub mod level {
    pub use crate::{changes::level::check, metadata::level::LEVEL};
}
