//! Composition: everything a node consists of, started in the order in which its parts rely on one another and
//! stopped in the reverse one.
//!
//! Start: data directory (locked) → metadata → listeners bound → workers → buckets open → listeners served → REST
//! → "ready" reported. A client that can connect therefore meets buckets that answer. Stop: REST and workers first,
//! then each bucket writes and syncs what is dirty, then the audit trail is closed.

mod agreement;
mod attendant;
mod audit;
mod audit_trail;
mod background;
mod bell;
#[cfg(test)]
mod bell_tests;
mod buckets;
mod certificates;
mod closing;
mod compacting;
mod compaction;
mod company;
mod control;
mod data_dir;
mod disk;
mod disk_guard;
mod flushing;
mod gauges;
mod housekeeping;
mod http;
mod identity;
mod internal;
mod listeners;
mod login_failures;
pub(crate) mod machine;
mod maps;
mod options;
mod orchestration;
mod pacing;
mod peers;
mod pressure_log;
mod proposals;
mod roll_call;
mod shards;
mod standing;
mod steward;

use std::{io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use cluster::{ClusterError, consensus::LogError};

use self::{
    agreement::{Agreement, Inbox},
    attendant::Attendant,
    audit::AuditLog,
    background::spawn,
    buckets::OpenBuckets,
    certificates::NodeCertificates,
    control::{Control, ControlListeners},
    data_dir::DataDir,
    gauges::Gauges,
    identity::{Beginning, ThisNode, fresh_node},
    listeners::Listeners,
    orchestration::Orchestration,
    peers::Peers,
};
pub use self::{
    closing::NotClosed,
    data_dir::DataDirError,
    listeners::ListenError,
    machine::memory_bytes as machine_memory_bytes,
    options::{DiskFreeMin, DiskOptions, InitBucket, InitOptions, PortOptions, PortsInUse, ServeOptions},
};
pub use storage::DiskLimits;

use crate::{
    ListenerKind, Shared, WorkerOptions, Workers,
    account::{Accounted, NodePool},
    links::Links,
    shared::Snapshot,
    tls::TlsError,
};

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

/// A running node.
pub struct Node {
    ports: PortsInUse,
    listen: IpAddr,
    workers: Workers,
    buckets: Arc<OpenBuckets>,
    housekeeping: Attendant,
    compaction: Attendant,
    disk_guard: Attendant,
    pacing: Attendant,
    steward: Attendant,
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
        let data_dir = Arc::new(DataDir::open(&options.data_dir)?);
        let listeners = Listeners::bind(options.listen, &options.ports)?;
        let ports = listeners.ports()?;
        let Beginning { group, store, seed } = Beginning::of(&data_dir, &options, &ports)?;
        let metadata = Arc::clone(group.metadata());
        let this_node = Arc::new(ThisNode::new(group.member().uuid.clone(), group.member().node));
        let certificate = NodeCertificates::at_start(&options, &data_dir)?;

        let audit = Arc::new(AuditLog::open(&data_dir.audit_log())?);
        let unpublished = Snapshot::new(Arc::clone(&metadata), Default::default(), None);
        let shared = Shared::new(unpublished, control::data_plane_audit(&audit))?;
        let tls = certificate.server_config(Arc::clone(&shared.node_tls))?;
        let worker_options = WorkerOptions {
            workers: options.workers,
            connections_max: options.connections_max,
            tls: Some(Arc::clone(&tls)),
            ..WorkerOptions::default()
        };
        let workers = Workers::start(&worker_options, Arc::clone(&shared))?;
        let tls = workers.tls().unwrap_or_else(|| Arc::new(ArcSwap::new(tls)));
        let certificates =
            Arc::new(NodeCertificates::new(&options, &data_dir, &certificate, &shared.node_tls, tls)?);
        let wakes = workers.notifier();
        let disk = disk::Disk::new(options.disk.limits);
        let buckets = Arc::new(OpenBuckets::new(
            (data_dir, disk.clone()),
            Arc::clone(&shared),
            wakes.clone(),
            options.workers,
            Arc::clone(&this_node),
        ));
        if group.has_caught_up() {
            buckets.remove_unknown(&metadata)?;
        }
        if let Err(error) = buckets.reconcile(&metadata) {
            // The other buckets must not suffer: the node serves them and says what is wrong.
            tracing::error!(%error, "a bucket is not available");
        }
        let list = Arc::clone(&buckets);
        let bells = buckets.bells().clone();
        let housekeeping = housekeeping::start(move || list.patients(), &shared, bells.housekeeping)?;
        let list = Arc::clone(&buckets);
        let guarded = (options.data_dir.as_path(), options.disk);
        let compaction = compaction::start(
            {
                let list = Arc::clone(&buckets);
                move || list.patients()
            },
            Arc::clone(&shared),
        )?;
        let disk_guard =
            disk_guard::start(disk.files(), guarded, move || list.patients(), Arc::clone(&shared))?;
        let list = Arc::clone(&buckets);
        let pacing = pacing::start(move || list.patients(), bells.pacing, Arc::clone(&shared))?;
        let control_plane = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("control")
            .enable_all()
            .build()?;
        let inbox = Inbox::new();
        let peers = Arc::new(Peers::new(
            control_plane.handle().clone(),
            Arc::clone(&shared.account),
            Arc::clone(&shared.node_tls),
            inbox.on_verdict(),
        ));
        let caught_up = group.has_caught_up();
        let (applied, to_carry_out) = std::sync::mpsc::channel();
        let (listen, memory_quota_mb) = (options.listen, options.memory_quota_mb);
        let agreement = Agreement::start(
            inbox,
            agreement::Parts {
                group,
                store: Box::new(store),
                peers: Arc::clone(&peers),
                this_node: Arc::clone(&this_node),
                seed,
                fresh: Box::new(move || {
                    fresh_node(listen, &ports, memory_quota_mb)
                        .map_err(|error| LogError::Unreadable(error.to_string()))
                }),
                applied,
                memory: Accounted::new(&shared.account, NodePool::Consensus, 0),
            },
        )?;
        let control = Control::new(control::Parts {
            metadata,
            agreement: Arc::clone(&agreement),
            peers,
            caught_up,
            origin: seed,
            buckets: Arc::clone(&buckets),
            shared: Arc::clone(&shared),
            wakes,
            audit: Arc::clone(&audit),
            gauges: Arc::new(Gauges::new(&options.data_dir)),
            certificates,
            this_node,
            listen: options.listen,
        });
        let me = Arc::downgrade(&control);
        agreement.join_at_stop(spawn("metadata", move || Control::follow(&me, &to_carry_out))?);
        control.answer_peers();
        compacting::answer(&control);
        flushing::answer(&control, &shared, &workers.notifier(), control_plane.handle());
        if let Some(init) = &options.init {
            control_plane.block_on(control.initialize_unattended(init))?;
        }

        let (shutdown, _) = tokio::sync::watch::channel(false);
        let links = Links::start(Arc::clone(&shared), &workers, control_plane.handle().clone(), {
            let bell = bells.steward;
            move || bell.ring()
        });
        let orchestration = Orchestration::new(&control);
        let (reports, newest) = tokio::sync::watch::channel(None);
        let reporting = steward::reporting::Parts {
            control: Arc::clone(&control),
            orchestration: Arc::clone(&orchestration),
            shared: Arc::clone(&shared),
            reports: newest,
        };
        control_plane.spawn(steward::reporting::run(reporting, shutdown.subscribe()));
        control_plane.spawn(orchestration.run(shutdown.subscribe()));
        let started = shared.now().wall_nanos;
        let steward = steward::start(steward::Parts {
            control: Arc::clone(&control),
            buckets: Arc::clone(&buckets),
            links: Arc::clone(&links),
            shared,
            reports,
            boot: seed,
            started,
        })?;

        workers.add_listener(listeners.kv, ListenerKind::Kv)?;
        workers.add_listener(listeners.kv_tls, ListenerKind::KvTls)?;
        if let Some(memcached) = listeners.memcached {
            workers.add_listener(memcached, ListenerKind::Memcached)?;
        }
        let Listeners { mgmt, mgmt_tls, capi, .. } = listeners;
        control.serve(&control_plane, ControlListeners { mgmt, mgmt_tls, capi }, &shutdown)?;
        control_plane.spawn(Arc::clone(&control).note_address(ports, shutdown.subscribe()));

        let node = Self {
            ports,
            listen: options.listen,
            workers,
            buckets,
            housekeeping,
            compaction,
            disk_guard,
            pacing,
            steward,
            links,
            agreement,
            control_plane,
            shutdown,
            _audit: audit,
        };
        if let Some(path) = options.ports_file {
            listeners::write_ports_file(&path, &node.report())
                .map_err(|source| ServeError::PortsFile { path, source })?;
        }
        Ok(node)
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
        self.control_plane.block_on(async {
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
    pub fn stop(self) -> Result<(), NotClosed> {
        tracing::info!("stopping");
        // While the others can still be reached.
        self.agreement.hand_over();
        self.shutdown.send_replace(true);
        self.steward.stop();
        self.links.stop();
        self.control_plane.shutdown_timeout(DRAIN_GRACE);
        self.agreement.stop();
        self.housekeeping.stop();
        self.compaction.stop();
        self.disk_guard.stop();
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
