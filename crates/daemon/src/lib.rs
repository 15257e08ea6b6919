//! A node from its start to its stop. Its parts are started in the order in which they rely on one another, and stopped in the
//! reverse one.
//!
//! Start ([`start`]): data directory (locked) → metadata → listeners bound → workers → buckets open → listeners served → REST
//! → [`services`] → "ready" reported. A client that can connect therefore meets buckets that answer. Stop: REST, services and
//! workers first, then each bucket writes and syncs what is dirty, then the audit trail is closed.
//!
//! The crate's rooms, from the top down, below `start`, `services` and `running`. An import runs downward or stays in its room, which a test
//! in `crates/tidy` holds.
//!
//! | room | what is in it |
//! |---|---|
//! | `duties` | what a node does again and again: looks for alerts, probes, compares clocks, keeps pasts; and serving REST |
//! | `copies` | the reconciler, its reports, and the orchestration of the cluster by the node that leads |
//! | `control` | takes commands, has the cluster agree, carries out, answers REST and other nodes |
//! | `watching` | what was found by those duties: alerts, clocks, objectives, probes |
//! | `buckets` | the open buckets and the threads that serve them |
//! | `talk` | talk with other nodes: the group of the metadata, questions and answers, proposals |
//! | `past` | the past of statistics, in memory and in files, and what it foretells |
//! | `audit` | the audit trail |
//! | `statistics` | the statistics that are not the data path's |
//! | `setup` | what a node is started with: options, identity, listeners, certificates; and why it could not be |
//! | `files` | the data directory |
//! | `threads` | threads, what wakes them, their priority |

mod audit;
mod buckets;
mod control;
mod copies;
mod duties;
mod files;
#[cfg(test)]
mod fuzz;
mod past;
mod running;
mod services;
mod setup;
mod start;
mod statistics;
mod sync;
mod talk;
#[cfg(test)]
mod tests;
mod threads;
mod watching;

pub use dataplane::{limits, machine::memory_bytes as machine_memory_bytes};
pub use storage::DiskLimits;

pub use crate::{
    files::data_dir::DataDirError,
    running::{Node, serve},
    setup::{
        closing::NotClosed,
        error::ServeError,
        listeners::ListenError,
        options::{
            DiskFreeMin, DiskOptions, InitBucket, InitOptions, PortOptions, PortsInUse, Program, ServeOptions,
        },
        random::random_password,
    },
};
