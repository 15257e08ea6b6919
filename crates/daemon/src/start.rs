//! Starting a node, step by step: each takes what those before have made.

use std::{
    io,
    sync::{Arc, mpsc::Receiver},
    time::Duration,
};

use admin::NodeControl as _;
use arc_swap::ArcSwap;
use cluster::{
    Metadata,
    consensus::{Consensus, LogError},
};
use dataplane::{
    ListenerKind, Shared, WorkerOptions, Workers,
    account::{Accounted, NodePool},
    limits,
    links::Links,
    shared::Snapshot,
};
use parking_lot::Mutex;
use service::Service;
use tokio::{runtime::Runtime, sync::watch};

use crate::{
    audit::AuditLog,
    buckets::{compaction, disk_guard, housekeeping, open::OpenBuckets, pacing},
    control::{self, Control, compacting, everywhere, flushing},
    copies::{orchestration::Orchestration, reconciler, reporting},
    duties::{clocks, turns},
    files::{
        data_dir::{self, DataDir},
        disk::Disk,
    },
    past::gauges::Gauges,
    running::{Node, Plane, Running},
    services::{self, ServicePorts, Services},
    setup::{
        certificates::NodeCertificates,
        error::{FILES_MIN, ServeError},
        identity::{Beginning, ThisNode, fresh_node},
        listeners::{self, Listeners},
        options::{PortsInUse, Program, ServeOptions},
    },
    talk::{
        agreement::{self, Agreement, Applied, Inbox},
        peers::Peers,
        questions::Questions,
    },
    threads::{node_thread::NodeThread, spawn::spawn},
    watching::objectives::Objectives,
};

impl Node {
    /// Starts a node; it serves when this returns.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start(options: ServeOptions) -> Result<Self, ServeError> {
        start(&options, services::all())
    }
}

/// See [`Node::start`]. The node runs these services.
pub(crate) fn start(options: &ServeOptions, services: Vec<Box<dyn Service>>) -> Result<Node, ServeError> {
    // Some of what is started cannot say that no file is left: it panics.
    let files = limits::raise_file_limit();
    if files < FILES_MIN {
        return Err(ServeError::FewFiles(files));
    }
    let data_dir = Arc::new(DataDir::open(&options.data_dir)?);
    let listeners = Listeners::bind(options.listen, &options.ports)?;
    let ports = listeners.ports()?;
    let beginning = Beginning::of(&data_dir, options, &ports)?;
    let seed = beginning.seed;
    let member = beginning.group.member();
    let this_node = Arc::new(ThisNode::new(member.uuid.clone(), member.node));
    // From here on what fails ends what was begun: see [`Running`].
    let mut running = Running::default();
    let plane = &*running.plane.insert(Plane::start(options, &data_dir, beginning.group.metadata())?);
    plane.shared.node_tls.use_keys(Arc::clone(&beginning.keys));
    let disk = Disk::new(options.disk.limits);
    let buckets = plane.open_buckets(options, (data_dir, disk.clone()), &this_node);
    running.buckets = Some(Arc::clone(&buckets));
    follow_metadata(&buckets, &beginning.group);
    let node_threads = (&mut running.node_threads, &mut running.pacing);
    start_node_threads(options, &disk, &buckets, &plane.shared, node_threads)?;
    let control_plane = &*running.control_plane.insert(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("control")
            .enable_all()
            .build()?,
    );
    let agreed = Agreed::start(beginning, this_node, plane, control_plane, (options, ports))?;
    running.agreement = Some(Arc::clone(&agreed.agreement));
    let control = agreed.control(options, seed, plane, &buckets, control_plane)?;
    running.control = Some(Arc::clone(&control));
    if let Some(init) = &options.init {
        control_plane.block_on(control.initialize_unattended(init))?;
    }
    let background = Background { runtime: control_plane, shutdown: &running.shutdown };
    let copies = (&mut running.links, &mut running.reconciler);
    background.look_after_copies(seed, plane, &control, &buckets, copies)?;
    let services = (services, options.functions.clone());
    let services =
        background.serve(listeners, (&plane.workers, &plane.shared), (&control, &buckets), services)?;
    let services = running.services.insert(services);
    tell_services(services, &control, &buckets)?;
    control_plane.spawn(Arc::clone(&control).note_address(ports, running.shutdown.subscribe()));
    let node = Node { ports, listen: options.listen, running };
    if let Some(path) = &options.ports_file {
        listeners::write_ports_file(path, &node.report())
            .map_err(|source| ServeError::PortsFile { path: path.clone(), source })?;
    }
    Ok(node)
}

impl Plane {
    fn start(
        options: &ServeOptions,
        data_dir: &DataDir,
        metadata: &Arc<Metadata>,
    ) -> Result<Self, ServeError> {
        let certificate = NodeCertificates::at_start(options, data_dir)?;
        let trail = data_dir.audit_log();
        let cannot = |error: io::Error| {
            io::Error::new(error.kind(), format!("{} cannot be opened: {error}", trail.display()))
        };
        let audit = Arc::new(AuditLog::open(&trail).map_err(cannot)?);
        let unpublished = Snapshot::new(Arc::clone(metadata), Default::default(), None);
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
        match NodeCertificates::new(options, data_dir, &certificate, &shared.node_tls, tls) {
            Ok(certificates) => Ok(Self { audit, shared, workers, certificates: Arc::new(certificates) }),
            Err(error) => {
                workers.stop(Duration::ZERO);
                Err(error.into())
            }
        }
    }

    fn open_buckets(
        &self,
        options: &ServeOptions,
        (data_dir, disk): (Arc<DataDir>, Disk),
        this_node: &Arc<ThisNode>,
    ) -> Arc<OpenBuckets> {
        Arc::new(OpenBuckets::new(
            (data_dir, disk),
            Arc::clone(&self.shared),
            self.workers.notifier(),
            options.workers,
            Arc::clone(this_node),
        ))
    }
}

/// Opens what the node's metadata have.
fn follow_metadata(buckets: &OpenBuckets, group: &Consensus) {
    if group.has_caught_up()
        && let Err(error) = buckets.remove_unknown(group.metadata())
    {
        tracing::error!(%error, "files of dropped buckets stay until the next start");
    }
    // The other buckets must not suffer: the node serves them and says what is wrong.
    if let Err(unavailable) = buckets.reconcile(group.metadata()) {
        for error in unavailable.reasons() {
            tracing::error!(%error, "a bucket is not available");
        }
    }
}

/// The threads that serve all buckets, in the order in which they are stopped. Pacing is apart: it outlives the loops.
fn start_node_threads(
    options: &ServeOptions,
    disk: &Disk,
    buckets: &Arc<OpenBuckets>,
    shared: &Arc<Shared>,
    (threads, pacing): (&mut Vec<NodeThread>, &mut Option<NodeThread>),
) -> Result<(), ServeError> {
    let list = || {
        let buckets = Arc::clone(buckets);
        move || buckets.metered_buckets()
    };
    let wake_flags = buckets.wake_flags().clone();
    threads.push(housekeeping::start(list(), shared, wake_flags.housekeeping)?);
    threads.push(compaction::start(list(), Arc::clone(shared))?);
    let guarded = (options.data_dir.as_path(), options.disk);
    threads.push(disk_guard::start(disk.files(), guarded, list(), Arc::clone(shared))?);
    *pacing = Some(pacing::start(list(), wake_flags.pacing, Arc::clone(shared))?);
    Ok(())
}

/// The node's part in what the cluster agrees on, before anything of it is carried out.
struct Agreed {
    agreement: Arc<Agreement>,
    metadata: Arc<Metadata>,
    caught_up: bool,
    peers: Arc<Peers>,
    this_node: Arc<ThisNode>,
    to_carry_out: Receiver<Applied>,
}

impl Agreed {
    fn start(
        Beginning { group, store, seed, keys }: Beginning,
        this_node: Arc<ThisNode>,
        plane: &Plane,
        control_plane: &Runtime,
        (options, ports): (&ServeOptions, PortsInUse),
    ) -> Result<Self, ServeError> {
        let shared = &plane.shared;
        let inbox = Inbox::new();
        let peers = Arc::new(Peers::new(
            control_plane.handle().clone(),
            Arc::clone(&shared.account),
            Arc::clone(&shared.node_tls),
            inbox.on_verdict(),
        ));
        let (metadata, caught_up) = (Arc::clone(group.metadata()), group.has_caught_up());
        let (applied, to_carry_out) = std::sync::mpsc::channel();
        let (listen, memory_quota_mb) = (options.listen, options.memory_quota_mb);
        let parts = agreement::Parts {
            group,
            store: Box::new(store),
            peers: Arc::clone(&peers),
            this_node: Arc::clone(&this_node),
            seed,
            fresh: Box::new(move || {
                fresh_node(listen, &ports, memory_quota_mb, &keys)
                    .map_err(|error| LogError::Unreadable(error.to_string()))
            }),
            applied,
            memory: Accounted::new(&shared.account, NodePool::Consensus, 0),
        };
        let agreement = Agreement::start(inbox, parts)?;
        Ok(Self { agreement, metadata, caught_up, peers, this_node, to_carry_out })
    }

    /// Has carried out what is agreed on.
    fn control(
        self,
        options: &ServeOptions,
        seed: u64,
        plane: &Plane,
        buckets: &Arc<OpenBuckets>,
        control_plane: &Runtime,
    ) -> Result<Arc<Control>, ServeError> {
        let control = Control::new(control::Parts {
            metadata: self.metadata,
            agreement: Arc::clone(&self.agreement),
            questions: Questions::new(
                control_plane.handle().clone(),
                Arc::clone(&self.peers),
                Arc::clone(&self.this_node),
            ),
            peers: self.peers,
            caught_up: self.caught_up,
            origin: seed,
            buckets: Arc::clone(buckets),
            shared: Arc::clone(&plane.shared),
            wakes: plane.workers.notifier(),
            audit: Arc::clone(&plane.audit),
            gauges: Arc::new(Gauges::new(&options.data_dir)),
            objectives: Objectives::open(options.data_dir.join(data_dir::OBJECTIVES)),
            certificates: Arc::clone(&plane.certificates),
            this_node: self.this_node,
            listen: options.listen,
        });
        let (me, to_carry_out) = (Arc::downgrade(&control), self.to_carry_out);
        self.agreement.join_at_stop(spawn("metadata", move || Control::follow(&me, &to_carry_out))?);
        control.answer_peers();
        compacting::answer(&control);
        clocks::answer(&control);
        turns::answer(&control);
        everywhere::answer(&control);
        flushing::answer(&control, &plane.shared, &plane.workers.notifier(), control_plane.handle());
        Ok(control)
    }
}

/// Where tasks run, and what tells them to end.
struct Background<'a> {
    runtime: &'a Runtime,
    shutdown: &'a watch::Sender<bool>,
}

impl Background<'_> {
    /// The links to other nodes, and the thread that makes copies what they shall be.
    fn look_after_copies(
        &self,
        seed: u64,
        plane: &Plane,
        control: &Arc<Control>,
        buckets: &Arc<OpenBuckets>,
        (running_links, running_reconciler): (&mut Option<Arc<Links>>, &mut Option<NodeThread>),
    ) -> Result<(), ServeError> {
        let shared = &plane.shared;
        let links = Links::start(Arc::clone(shared), &plane.workers, self.runtime.handle().clone(), {
            let wake_flag = Arc::clone(&buckets.wake_flags().reconciler);
            move || wake_flag.wake()
        });
        *running_links = Some(Arc::clone(&links));
        let orchestration = Orchestration::new(control);
        let (reports, newest) = watch::channel(None);
        let reporting = reporting::Parts {
            control: Arc::clone(control),
            orchestration: Arc::clone(&orchestration),
            shared: Arc::clone(shared),
            reports: newest,
        };
        self.runtime.spawn(reporting::run(reporting, self.shutdown.subscribe()));
        self.runtime.spawn(orchestration.run(self.shutdown.subscribe()));
        *running_reconciler = Some(reconciler::start(reconciler::Parts {
            control: Arc::clone(control),
            buckets: Arc::clone(buckets),
            links,
            shared: Arc::clone(shared),
            reports,
            start: node::Start { boot: seed, at: shared.now().wall_nanos },
        })?);
        Ok(())
    }

    /// Lets clients in: to documents, to REST, to the services.
    fn serve(
        &self,
        listeners: Listeners,
        (workers, shared): (&Workers, &Arc<Shared>),
        (control, buckets): (&Arc<Control>, &Arc<OpenBuckets>),
        (services, functions): (Vec<Box<dyn Service>>, Program),
    ) -> Result<Services, ServeError> {
        workers.add_listener(listeners.kv, ListenerKind::Kv)?;
        workers.add_listener(listeners.kv_tls, ListenerKind::KvTls)?;
        if let Some(memcached) = listeners.memcached {
            workers.add_listener(memcached, ListenerKind::Memcached)?;
        }
        let _context = self.runtime.enter();
        let front = control.serve(self.runtime, (listeners.mgmt, listeners.mgmt_tls), self.shutdown)?;
        let questions = control.questions();
        let context = |service| service::Context {
            gate: Arc::clone(control) as Arc<dyn http::Gate>,
            revisions: control.watch(),
            is_current: {
                let control = Arc::clone(control);
                Arc::new(move || control.caught_up())
            },
            front: Arc::clone(&front),
            changes: Arc::clone(control) as Arc<dyn service::Changes>,
            functions: {
                let functions = functions.clone();
                Arc::new(move || functions.command())
            },
            nodes: questions.of(service),
            alarms: Arc::clone(buckets.alarms()),
            readiness: Arc::clone(buckets.readiness()),
            missed: Arc::clone(buckets.missed()),
            place: buckets.place_of(service),
            holds: {
                let held = Mutex::new(Accounted::new(&shared.account, NodePool::Services, 0));
                Arc::new(move |bytes| held.lock().set(bytes))
            },
            clock: {
                let shared = Arc::clone(shared);
                Arc::new(move || shared.now())
            },
            inflate: protocol::snappy::inflate,
            runtime: self.runtime.handle().clone(),
        };
        let service_ports = ServicePorts {
            questions: Arc::clone(questions),
            listeners: listeners.services,
            tls: control.tls_now(),
            limits: http::Limits::default(),
            shutdown: self.shutdown,
        };
        Services::start(services, &context, service_ports)
    }
}

/// From now on services hear of buckets, and statistics show what services tell.
fn tell_services(
    services: &mut Services,
    control: &Arc<Control>,
    buckets: &Arc<OpenBuckets>,
) -> Result<(), ServeError> {
    control.show_services(services.figures());
    let (knows, open) = (Arc::clone(control), Arc::clone(buckets));
    let wake_flag = Arc::clone(&buckets.wake_flags().services);
    Ok(services.tell(wake_flag, move || knows.caught_up(), move || open.list())?)
}
