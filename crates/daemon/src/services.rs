//! The services of this node, in the order in which they are started.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use base::BucketUuid;
use engine::Bucket;
use http::{Limits, TlsNow};
use service::{Context, Event, Figures, Hearer, Lifecycle, Port, Running, Service};
use tokio::sync::watch;

use crate::{
    setup::error::ServeError,
    talk::questions::Questions,
    threads::{node_thread::NodeThread, wake_flag::WakeFlag},
};

/// Between two looks at copies for services that want to hear of them. The reconciler wakes this thread when it has done something.
const LOOK: Duration = Duration::from_millis(200);

/// Every service that this node runs.
pub(crate) fn all() -> Vec<Box<dyn Service>> {
    vec![Box::new(capi::Capi)]
}

/// What serves the ports of services.
pub(crate) struct ServicePorts<'a> {
    /// Bound and not taken yet, by [`Port::name`].
    pub(crate) listeners: Vec<(&'static str, TcpListener)>,
    pub(crate) tls: TlsNow,
    pub(crate) limits: Limits,
    /// Where other nodes ask.
    pub(crate) questions: Arc<Questions>,
    pub(crate) shutdown: &'a watch::Sender<bool>,
}

/// The services that run.
#[derive(Default)]
pub(crate) struct Services {
    /// In the order of their start.
    running: Vec<(&'static str, Box<dyn Running>)>,
    /// What hears of copies, in the same order.
    hearers: Vec<Box<dyn Hearer>>,
    /// What tells of buckets.
    figures: Vec<Arc<dyn Figures>>,
    /// Tells them.
    teller: Option<NodeThread>,
    pub(crate) questions: Option<Arc<Questions>>,
}

impl Services {
    /// Starts services one after the other, each behind its own ports, with what `context` gives it by its name. To be called within
    /// the runtime of that.
    ///
    /// # Errors
    /// A service cannot be started, or one of its ports is not bound. The services before it have been stopped again.
    pub(crate) fn start(
        services: Vec<Box<dyn Service>>,
        context: &dyn Fn(&'static str) -> Context,
        mut service_ports: ServicePorts<'_>,
    ) -> Result<Self, ServeError> {
        let mut all = Self { questions: Some(Arc::clone(&service_ports.questions)), ..Self::default() };
        for service in services {
            let name = service.name();
            match open(service, context(name), &mut service_ports) {
                Ok(running) => {
                    all.hearers.extend(running.hearer());
                    all.figures.extend(running.figures());
                    if let Some(answers) = running.answers() {
                        service_ports.questions.answered_by(name, answers);
                    }
                    if let Some(behind) = running.behind() {
                        service_ports.questions.reached_by(name, behind);
                    }
                    all.running.push((name, running));
                }
                Err(error) => {
                    all.stop();
                    return Err(error);
                }
            }
            tracing::debug!(service = name, "started");
        }
        Ok(all)
    }

    /// What tells of the buckets that services work for.
    pub(crate) fn figures(&self) -> Vec<Arc<dyn Figures>> {
        self.figures.clone()
    }

    /// Has services hear of the buckets that `open` lists, and of their copies. `ready` says whether the metadata by which the node
    /// acts on copies are new enough.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn tell(
        &mut self,
        wake_flag: Arc<WakeFlag>,
        ready: impl Fn() -> bool + Send + 'static,
        open: impl Fn() -> Vec<(BucketUuid, Arc<Bucket>)> + Send + 'static,
    ) -> io::Result<()> {
        let mut hearers = std::mem::take(&mut self.hearers);
        if hearers.is_empty() {
            return Ok(());
        }
        let teller = NodeThread::start("services", wake_flag, move |duty| {
            let mut lifecycle = Lifecycle::default();
            let mut tell = |event: Event| hearers.iter_mut().for_each(|hearer| hearer.hear(&event));
            while !duty.is_over() {
                if ready() {
                    lifecycle.look(&open(), &mut tell);
                } else {
                    // A node that is taken in anew opens a bucket once nobody holds the one that it had before.
                    lifecycle.let_go(&open(), &mut tell);
                }
                duty.rest(LOOK);
            }
            lifecycle.look(&[], &mut tell);
        });
        self.teller = Some(teller?);
        Ok(())
    }

    /// The node begins to stop: services end what would keep requests from ending.
    pub(crate) fn stopping(&self) {
        self.running.iter().for_each(|(_, running)| running.stopping());
    }

    /// Tells that every bucket is closed, then stops all services, the last one first. Their ports are served no longer by now.
    pub(crate) fn stop(self) {
        if let Some(teller) = self.teller {
            teller.stop();
        }
        for (name, running) in self.running.into_iter().rev() {
            if let Some(questions) = &self.questions {
                questions.forget(name);
            }
            running.stop();
            tracing::debug!(service = name, "stopped");
        }
    }
}

/// Starts one service, and has it answer on its ports.
fn open(
    service: Box<dyn Service>,
    context: Context,
    service_ports: &mut ServicePorts<'_>,
) -> Result<Box<dyn Running>, ServeError> {
    let taken: Result<Vec<_>, _> = service.ports().iter().map(|port| service_ports.take(*port)).collect();
    let taken = taken?;
    let running = service.start(context)?;
    for (port, listener) in taken {
        let tls = port.tls.then(|| Arc::clone(&service_ports.tls));
        let ended = service_ports.shutdown.subscribe();
        tokio::spawn(http::serve(listener, tls, running.surface(), service_ports.limits, ended));
    }
    Ok(running)
}

impl ServicePorts<'_> {
    fn take(&mut self, port: Port) -> Result<(Port, tokio::net::TcpListener), ServeError> {
        let bound = self.listeners.iter().position(|(name, _)| *name == port.name);
        let at = bound.ok_or_else(|| {
            ServeError::Refused(format!("no listener is bound for the port {} of a service", port.name))
        })?;
        Ok((port, tokio::net::TcpListener::from_std(self.listeners.swap_remove(at).1)?))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read, Write},
        net::{SocketAddr, TcpStream},
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use base::{NodeId, Now, VbId, VbRole, bucket::BucketKind};
    use cluster::Metadata;
    use engine::{BucketOptions, Notifier, Waiter, Work};
    use http::{AuditEvent, BoxFuture, Connection, Front, Gate, Surface, reply};
    use hyper::{body::Incoming, http::request::Parts};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::{setup::identity::ThisNode, talk::peers::Peers};

    struct Alone(Arc<Metadata>);

    impl Gate for Alone {
        fn metadata(&self) -> Arc<Metadata> {
            Arc::clone(&self.0)
        }

        fn audit(&self, _: AuditEvent) {}
    }

    /// Nobody asks it.
    struct Agrees;

    impl service::Changes for Agrees {
        fn change(
            &self,
            _: cluster::Command,
        ) -> BoxFuture<'_, Result<cluster::Applied, cluster::ClusterError>> {
            Box::pin(std::future::ready(Ok(cluster::Applied::Done)))
        }
    }

    /// Notes what is done with it.
    struct Recorder {
        name: &'static str,
        ports: &'static [Port],
        starts: bool,
        notes: mpsc::Sender<String>,
    }

    /// Notes what it hears.
    struct Listens(&'static str, mpsc::Sender<String>);

    impl Hearer for Listens {
        fn hear(&mut self, event: &Event) {
            let heard = match event {
                Event::BucketOpened { uuid, .. } => format!("{} opened", uuid.0),
                Event::Vb { vb, change, .. } => format!("{} {change:?}", vb.get()),
                Event::BucketClosed(uuid) => format!("{} closed", uuid.0),
            };
            self.1.send(format!("{} hears {heard}", self.0)).unwrap();
        }
    }

    struct Deaf;

    impl Notifier for Deaf {
        fn wake(&self, _: Waiter) {}

        fn work(&self, _: Work) {}
    }

    impl Service for Recorder {
        fn name(&self) -> &'static str {
            self.name
        }

        fn ports(&self) -> &'static [Port] {
            self.ports
        }

        fn start(self: Box<Self>, _: Context) -> io::Result<Box<dyn Running>> {
            self.notes.send(format!("start {}", self.name)).unwrap();
            if self.starts { Ok(self) } else { Err(io::Error::other("no")) }
        }
    }

    impl Running for Recorder {
        fn surface(&self) -> Arc<dyn Surface> {
            Arc::new(Hello(self.name))
        }

        fn hearer(&self) -> Option<Box<dyn Hearer>> {
            Some(Box::new(Listens(self.name, self.notes.clone())))
        }

        fn stop(self: Box<Self>) {
            self.notes.send(format!("stop {}", self.name)).unwrap();
        }
    }

    struct Hello(&'static str);

    impl Surface for Hello {
        fn answer(self: Arc<Self>, _: Parts, _: Incoming, _: Connection) -> BoxFuture<'static, reply::Reply> {
            Box::pin(async move { reply::text(hyper::StatusCode::OK, self.0) })
        }
    }

    struct World {
        runtime: Runtime,
        context: Context,
        questions: Arc<Questions>,
        shutdown: watch::Sender<bool>,
        notes: (mpsc::Sender<String>, Mutex<mpsc::Receiver<String>>),
    }

    impl World {
        fn new() -> Self {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let gate: Arc<dyn Gate> = Arc::new(Alone(Arc::new(Metadata::new("c".into(), 256))));
            let front = Arc::new(Front::new(Arc::clone(&gate), Arc::default()).unwrap());
            let handle = runtime.handle().clone();
            let peers = Peers::new(handle.clone(), Arc::default(), Arc::default(), |_, _| {});
            let this_node = Arc::new(ThisNode::new("n".into(), NodeId(0)));
            let questions = Questions::new(handle.clone(), Arc::new(peers), this_node);
            let context = Context {
                gate,
                revisions: watch::Sender::new(0).subscribe(),
                is_current: Arc::new(|| true),
                front,
                changes: Arc::new(Agrees),
                functions: Arc::new(|| unreachable!("no service runs functions")),
                nodes: questions.of("a"),
                alarms: Arc::default(),
                readiness: Arc::default(),
                missed: Arc::default(),
                place: service::Place {
                    fs: Arc::new(storage::RealFs),
                    dir: "/nowhere".into(),
                    room_min: Arc::new(|| 0),
                },
                holds: Arc::new(|_| {}),
                clock: Arc::new(Now::default),
                inflate: |_, _| false,
                runtime: handle,
            };
            let (sender, receiver) = mpsc::channel();
            Self {
                runtime,
                context,
                questions,
                shutdown: watch::Sender::new(false),
                notes: (sender, Mutex::new(receiver)),
            }
        }

        fn service(&self, name: &'static str, ports: &'static [Port], starts: bool) -> Box<dyn Service> {
            Box::new(Recorder { name, ports, starts, notes: self.notes.0.clone() })
        }

        /// Starts services, with a listener for the port "a"; returns its address.
        fn start(
            &self,
            services: Vec<Box<dyn Service>>,
            limits: Limits,
        ) -> (Result<Services, ServeError>, SocketAddr) {
            let _context = self.runtime.enter();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let service_ports = ServicePorts {
                listeners: vec![("a", listener)],
                tls: Arc::new(|| unreachable!("no port has TLS")),
                limits,
                questions: Arc::clone(&self.questions),
                shutdown: &self.shutdown,
            };
            (Services::start(services, &|_| self.context.clone(), service_ports), address)
        }

        fn noted(&self) -> Vec<String> {
            self.notes.1.lock().unwrap().try_iter().collect()
        }
    }

    const A: &[Port] = &[Port { name: "a", tls: false }];

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        // Shorter than what ends a silent connection where a test says nothing else.
        stream.set_read_timeout(Some(Limits::default().first * 8 / 10)).unwrap();
        stream
    }

    fn ask(address: SocketAddr) -> String {
        let mut stream = connect(address);
        stream.write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn services_start_in_order_and_stop_in_the_reverse_one() {
        let world = World::new();
        let services = vec![world.service("one", A, true), world.service("two", &[], true)];
        let (running, address) = world.start(services, Limits::default());
        assert_eq!(world.noted(), ["start one", "start two"]);
        assert!(ask(address).ends_with("one"));
        running.unwrap().stop();
        assert_eq!(world.noted(), ["stop two", "stop one"]);
    }

    fn bucket() -> Arc<Bucket> {
        let options = BucketOptions {
            kind: BucketKind::Ephemeral,
            vbuckets: 1,
            role: VbRole::Dead,
            ..BucketOptions::new("b", 64 << 20)
        };
        let now = Now { wall_nanos: 1 << 60, mono_millis: 0 };
        Bucket::open(options, Vec::new(), Arc::default(), Arc::new(Deaf), now).unwrap()
    }

    /// A node that was removed, and is taken in anew, is not caught up. It opens its bucket once nobody holds the one before.
    #[test]
    fn a_closed_bucket_is_let_go_of_while_the_node_is_not_caught_up() {
        let world = World::new();
        let mut running = world.start(vec![world.service("one", A, true)], Limits::default()).0.unwrap();
        world.noted();
        let bucket = bucket();
        let (wake_flag, list) = (
            Arc::<WakeFlag>::default(),
            Arc::new(Mutex::new(vec![(BucketUuid("b".into()), Arc::clone(&bucket))])),
        );
        let (is_ready, open) = (Arc::new(AtomicBool::new(true)), Arc::clone(&list));
        let ready = Arc::clone(&is_ready);
        running
            .tell(
                Arc::clone(&wake_flag),
                move || ready.load(Ordering::SeqCst),
                move || open.lock().unwrap().clone(),
            )
            .unwrap();
        let heard = || world.notes.1.lock().unwrap().recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(heard(), "one hears b opened");
        is_ready.store(false, Ordering::SeqCst);
        list.lock().unwrap().clear();
        wake_flag.wake();
        assert_eq!(heard(), "one hears b closed");
        running.stop();
    }

    #[test]
    fn every_service_hears_of_copies_in_order_and_of_no_bucket_once_it_stops() {
        let world = World::new();
        let services = vec![world.service("one", A, true), world.service("two", &[], true)];
        let mut running = world.start(services, Limits::default()).0.unwrap();
        world.noted();
        let bucket = bucket();
        bucket.make_replica(VbId(0), 1).unwrap();
        let (wake_flag, listed) = (Arc::<WakeFlag>::default(), Arc::clone(&bucket));
        let open = move || vec![(BucketUuid("b".into()), Arc::clone(&listed))];
        running.tell(Arc::clone(&wake_flag), || true, open).unwrap();
        let heard = |events: usize| -> Vec<String> {
            let notes = world.notes.1.lock().unwrap();
            (0..events).map(|_| notes.recv_timeout(Duration::from_secs(60)).unwrap()).collect()
        };
        let opened =
            ["one hears b opened", "two hears b opened", "one hears 0 Replica", "two hears 0 Replica"];
        assert_eq!(heard(4), opened);
        bucket.make_dead(VbId(0), 2).unwrap();
        wake_flag.wake();
        assert_eq!(heard(2), ["one hears 0 Gone", "two hears 0 Gone"]);
        running.stop();
        assert_eq!(world.noted(), ["one hears b closed", "two hears b closed", "stop two", "stop one"]);
        assert_eq!(Arc::strong_count(&bucket), 1, "nothing holds it any more");
    }

    #[test]
    fn services_before_one_that_does_not_start_are_stopped() {
        let world = World::new();
        let services = vec![world.service("one", &[], true), world.service("two", &[], false)];
        assert!(world.start(services, Limits::default()).0.is_err());
        assert_eq!(world.noted(), ["start one", "start two", "stop one"]);
    }

    #[test]
    fn a_service_whose_port_is_not_bound_is_not_started() {
        const B: &[Port] = &[Port { name: "b", tls: false }];
        let world = World::new();
        let services = vec![world.service("one", A, true), world.service("two", B, true)];
        let error = world.start(services, Limits::default()).0.err().unwrap().to_string();
        assert!(error.contains("port b"), "{error}");
        assert_eq!(world.noted(), ["start one", "stop one"]);
    }

    #[test]
    fn strangers_that_ask_nothing_keep_nobody_out_of_a_service() {
        let world = World::new();
        let limits = Limits { connections: 4, first: Duration::from_secs(3600), ..Limits::default() };
        let (running, address) = world.start(vec![world.service("one", A, true)], limits);
        let mut idle: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
        assert!(ask(address).ends_with("one"));
        // There are four places: older strangers were closed for the newer ones.
        assert_eq!(idle[0].read(&mut [0]).unwrap(), 0);
        running.unwrap().stop();
    }

    #[test]
    fn strangers_that_ask_nothing_in_time_are_closed() {
        let world = World::new();
        let limits = Limits { first: Duration::from_millis(50), ..Limits::default() };
        let (running, address) = world.start(vec![world.service("one", A, true)], limits);
        assert_eq!(connect(address).read(&mut [0]).unwrap(), 0);
        running.unwrap().stop();
    }
}
