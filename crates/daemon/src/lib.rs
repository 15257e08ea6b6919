//! Composition: everything a node consists of, started in the order in which its parts rely on one another and
//! stopped in the reverse one.
//!
//! Start ([`start`]): data directory (locked) → metadata → listeners bound → workers → buckets open → listeners served → REST
//! → [`services`] → "ready" reported. A client that can connect therefore meets buckets that answer. Stop: REST, services and
//! workers first, then each bucket writes and syncs what is dirty, then the audit trail is closed.

mod agreement;
mod alerting;
mod audit;
mod audit_trail;
mod background;
mod broadcast;
mod buckets;
mod certificates;
mod clocks;
mod closing;
mod compacting;
mod compaction;
mod control;
mod data_dir;
mod disk;
mod disk_guard;
mod everywhere;
mod flushing;
#[cfg(test)]
mod fuzz;
mod gauges;
mod group_commit;
mod history;
mod housekeeping;
mod http;
mod identity;
mod internal;
mod latency_past;
mod listeners;
mod loads;
mod maps;
mod node_thread;
mod objectives;
mod options;
mod orchestration;
mod pacing;
mod peers;
mod pressure_log;
mod priority;
mod probing;
mod proposals;
mod questions;
mod reconciler;
mod repeated;
mod services;
mod shards;
mod start;
mod statistics;
mod sync;
#[cfg(test)]
mod tests;
mod wake_flag;
#[cfg(test)]
mod wake_flag_tests;
mod webhook;

use std::{io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use cluster::{ClusterError, consensus::LogError};
use dataplane::{Workers, links::Links, tls::TlsError};

use self::{
    agreement::Agreement, audit::AuditLog, buckets::OpenBuckets, node_thread::NodeThread, services::Services,
};
pub use self::{
    closing::NotClosed,
    data_dir::DataDirError,
    listeners::ListenError,
    options::{
        DiskFreeMin, DiskOptions, InitBucket, InitOptions, PortOptions, PortsInUse, Program, ServeOptions,
    },
};
pub use dataplane::{limits, machine::memory_bytes as machine_memory_bytes};
pub use storage::DiskLimits;

/// How long requests under way may take to finish at a stop.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// See [`DataDirError`].
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// See [`ListenError`].
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The metadata of an earlier version cannot be read.
    #[error(transparent)]
    MetadataFile(#[from] cluster::MetadataFileError),
    /// The log of the metadata cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The certificate cannot be read or made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Unattended initialisation was refused.
    #[error("the node cannot be initialised as asked: {0}")]
    Init(#[from] ClusterError),
    /// What the node was started with is not possible here.
    #[error("{0}")]
    Refused(String),
    /// The ports file cannot be written.
    #[error("cannot write the ports file {path}: {source}")]
    PortsFile {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The node has served and stopped, but not cleanly.
    #[error(transparent)]
    NotClosed(#[from] NotClosed),
    /// Threads or sockets could not be had.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Runs a node until SIGTERM or SIGINT, then stops it cleanly.
///
/// # Errors
/// When the node cannot be started, or has stopped without everything on disk; see [`ServeError`].
pub fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let node = Node::start(options)?;
    println!("{}", node.report());
    node.wait_for_signal()?;
    Ok(node.stop()?)
}

/// A running node. One that is dropped without [`Node::stop`] stops all the same: its threads end by nothing else.
pub struct Node {
    ports: PortsInUse,
    listen: IpAddr,
    /// Until it is stopped.
    running: Option<Running>,
}

/// What a node runs.
struct Running {
    workers: Workers,
    buckets: Arc<OpenBuckets>,
    /// In the order in which they are stopped.
    node_threads: Vec<NodeThread>,
    pacing: NodeThread,
    reconciler: NodeThread,
    services: Services,
    links: Arc<Links>,
    agreement: Arc<Agreement>,
    control_plane: tokio::runtime::Runtime,
    shutdown: tokio::sync::watch::Sender<bool>,
    // Last: dropped after everything that reports to it.
    _audit: Arc<AuditLog>,
}

impl Node {
    /// Starts a node; it serves when this returns.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(options: ServeOptions) -> Result<Self, ServeError> {
        start::start(&options, services::all())
    }

    /// The ports in use.
    #[must_use]
    pub fn ports(&self) -> PortsInUse {
        self.ports
    }

    /// One line of JSON: address, ports, process id.
    #[must_use]
    pub fn report(&self) -> String {
        listeners::report(self.listen, &self.ports)
    }

    /// Waits for SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the signals cannot be watched.
    pub fn wait_for_signal(&self) -> io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let Some(running) = &self.running else { return Ok(()) };
        running.control_plane.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            Ok(())
        })
    }

    /// Stops serving, then writes and syncs everything that is dirty.
    ///
    /// # Errors
    /// When not all of it could be written, or the disk could not be told that nothing is missing.
    pub fn stop(mut self) -> Result<(), NotClosed> {
        self.running.take().map_or(Ok(()), Running::stop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The caller has given the node up because of something else, and tells that.
        if let Some(Err(error)) = self.running.take().map(Running::stop) {
            tracing::error!(%error, "a node that was given up has stopped uncleanly");
        }
    }
}

impl Running {
    fn stop(self) -> Result<(), NotClosed> {
        tracing::info!("stopping");
        // While the others can still be reached.
        self.agreement.hand_over();
        self.shutdown.send_replace(true);
        self.reconciler.stop();
        self.links.stop();
        self.services.stopping();
        self.control_plane.shutdown_timeout(DRAIN_GRACE);
        self.services.stop();
        self.agreement.stop();
        self.node_threads.into_iter().for_each(NodeThread::stop);
        self.workers.stop(DRAIN_GRACE);
        self.pacing.stop();
        self.buckets.close()?;
        tracing::info!("stopped; everything is on disk");
        Ok(())
    }
}

/// 128 random bits as 32 hexadecimal digits.
/// A password that nobody guesses, of letters and digits that are not taken for one another.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn random_password() -> Result<String, ServeError> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let letters = bytes.iter().filter_map(|byte| LETTERS.get(usize::from(byte % 32)));
    Ok(letters.map(|letter| char::from(*letter)).collect())
}

fn random_uuid() -> Result<String, ServeError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
