//! Composition: everything a node consists of, started in the order in which its parts rely on one another and
//! stopped in the reverse one.
//!
//! Start: data directory (locked) → metadata → listeners bound → workers → buckets open → listeners served → REST
//! → "ready" reported. A client that can connect therefore meets buckets that answer. Stop: REST and workers first,
//! then each bucket writes and syncs what is dirty, then the audit trail is closed.

mod attendant;
mod audit;
mod audit_trail;
mod background;
mod bell;
mod buckets;
mod compaction;
mod company;
mod control;
mod data_dir;
mod disk;
mod disk_guard;
mod gauges;
mod housekeeping;
mod listeners;
mod machine;
mod options;
mod pacing;
mod standing;

use std::{io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use cluster::{ClusterError, Metadata, MetadataStore, NodeInfo, Ports};

use self::{
    attendant::Attendant,
    audit::AuditLog,
    buckets::OpenBuckets,
    control::{Control, ControlListeners},
    data_dir::DataDir,
    gauges::Gauges,
    listeners::Listeners,
};
pub use self::{
    data_dir::DataDirError,
    listeners::ListenError,
    machine::memory_bytes as machine_memory_bytes,
    options::{DiskFreeMin, DiskOptions, InitBucket, InitOptions, PortOptions, PortsInUse, ServeOptions},
};
pub use storage::DiskLimits;

use crate::{
    ListenerKind, Shared, WorkerOptions, Workers,
    shared::Snapshot,
    tls::{Certificate, TlsError},
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
    /// The recorded metadata cannot be read or written.
    #[error(transparent)]
    Metadata(#[from] cluster::StoreError),
    /// The certificate cannot be read or made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Unattended initialisation was refused.
    #[error("the node cannot be initialised as asked: {0}")]
    Init(#[from] ClusterError),
    /// The ports file cannot be written.
    #[error("cannot write the ports file {path}: {source}")]
    PortsFile {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Threads or sockets could not be had.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Runs a node until SIGTERM or SIGINT, then stops it cleanly.
///
/// # Errors
/// When the node cannot be started; see [`ServeError`].
pub fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let node = Node::start(options)?;
    println!("{}", node.report());
    node.wait_for_signal()?;
    node.stop();
    Ok(())
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
        let (store, recorded) = MetadataStore::open(&data_dir.metadata())?;
        if recorded.is_none() {
            data_dir.require_no_buckets()?;
        }
        let listeners = Listeners::bind(options.listen, &options.ports)?;
        let ports = listeners.ports()?;
        let (metadata, this_node) = with_this_node(recorded, &options, &ports)?;
        store.save(&metadata)?;
        let metadata = Arc::new(metadata);
        let certificate = certificate(&options, &data_dir)?;
        let tls = certificate.server_config()?;

        let audit = Arc::new(AuditLog::open(&data_dir.audit_log())?);
        let unpublished = Snapshot::new(Arc::clone(&metadata), Default::default(), None);
        let shared = Shared::new(unpublished, control::data_plane_audit(&audit))?;
        let worker_options = WorkerOptions {
            workers: options.workers,
            connections_max: options.connections_max,
            tls: Some(Arc::clone(&tls)),
            ..WorkerOptions::default()
        };
        let workers = Workers::start(&worker_options, Arc::clone(&shared))?;
        data_dir
            .remove_unknown_buckets(|uuid| metadata.buckets.values().any(|bucket| bucket.uuid.0 == uuid))?;
        let wakes = workers.notifier();
        let disk = disk::Disk::new(options.disk.limits);
        let buckets = Arc::new(OpenBuckets::new(
            (data_dir, disk.clone()),
            Arc::clone(&shared),
            wakes.clone(),
            options.workers,
            this_node.clone(),
        ));
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
        let control = Control::new(control::Parts {
            metadata,
            store,
            buckets: Arc::clone(&buckets),
            shared,
            wakes,
            audit: Arc::clone(&audit),
            gauges: Arc::new(Gauges::new(&options.data_dir)),
            certificate: certificate.chain_pem.clone(),
            this_node,
            listen: options.listen,
        });
        if let Some(init) = &options.init {
            control.initialize_unattended(init)?;
        }

        workers.add_listener(listeners.kv, ListenerKind::Kv)?;
        workers.add_listener(listeners.kv_tls, ListenerKind::KvTls)?;
        if let Some(memcached) = listeners.memcached {
            workers.add_listener(memcached, ListenerKind::Memcached)?;
        }
        let control_plane = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("control")
            .enable_all()
            .build()?;
        let (shutdown, _) = tokio::sync::watch::channel(false);
        let Listeners { mgmt, mgmt_tls, capi, .. } = listeners;
        control.serve(&control_plane, ControlListeners { mgmt, mgmt_tls, capi, tls }, &shutdown)?;

        let node = Self {
            ports,
            listen: options.listen,
            workers,
            buckets,
            housekeeping,
            compaction,
            disk_guard,
            pacing,
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
    pub fn stop(self) {
        tracing::info!("stopping");
        self.shutdown.send_replace(true);
        self.control_plane.shutdown_timeout(DRAIN_GRACE);
        self.housekeeping.stop();
        self.compaction.stop();
        self.disk_guard.stop();
        self.workers.stop(DRAIN_GRACE);
        self.pacing.stop();
        self.buckets.close();
        tracing::info!("stopped; everything is on disk");
    }
}

/// The metadata with this node as it is started now: new on the first start, with today's address and ports later.
fn with_this_node(
    recorded: Option<Metadata>,
    options: &ServeOptions,
    ports: &PortsInUse,
) -> Result<(Metadata, String), ServeError> {
    let mut metadata = match recorded {
        Some(metadata) => metadata,
        None => Metadata::new(random_uuid()?, options.memory_quota_mb),
    };
    let uuid = match metadata.nodes.first() {
        Some(node) => node.uuid.clone(),
        None => random_uuid()?,
    };
    let host = metadata.nodes.first().map_or_else(|| options.listen.to_string(), |node| node.host.clone());
    let host = if host.parse::<IpAddr>().is_ok() { options.listen.to_string() } else { host };
    let in_use = Ports {
        mgmt: ports.mgmt,
        mgmt_tls: ports.mgmt_tls,
        kv: ports.kv,
        kv_tls: ports.kv_tls,
        capi: ports.capi,
        capi_tls: 0,
        memcached: ports.memcached,
    };
    let known = metadata.nodes.first().is_some_and(|node| node.host == host && node.ports == in_use);
    if !known {
        let node = NodeInfo::first(uuid.clone(), host, in_use);
        metadata = metadata.apply(&cluster::Command::SetNode(node))?.0;
    }
    if metadata.secret.is_empty() {
        let secret = [random_uuid()?, random_uuid()?].concat();
        metadata = metadata.apply(&cluster::Command::SetSecret(secret))?.0;
    }
    Ok((metadata, uuid))
}

fn certificate(options: &ServeOptions, data_dir: &DataDir) -> Result<Certificate, TlsError> {
    match &options.tls {
        Some((chain, key)) => Certificate::load(chain, key),
        None => {
            let hosts = [options.listen.to_string(), "localhost".into(), "127.0.0.1".into()];
            Certificate::self_signed(&data_dir.tls(), &hosts)
        }
    }
}

/// 128 random bits as 32 hexadecimal digits.
fn random_uuid() -> Result<String, ServeError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
