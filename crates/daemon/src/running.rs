//! A running node: what it holds, and how it stops. [`crate::start`] makes one.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use dataplane::{Shared, Workers, links::Links};

use crate::{
    audit::AuditLog,
    buckets::open::OpenBuckets,
    control::Control,
    services::Services,
    setup::{
        certificates::NodeCertificates,
        closing::NotClosed,
        error::ServeError,
        listeners,
        options::{PortsInUse, ServeOptions},
    },
    talk::agreement::Agreement,
    threads::node_thread::NodeThread,
};

/// How long requests under way may take to finish at a stop.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

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

/// A running node. One that is dropped without [`Node::stop`] stops all the same.
pub struct Node {
    pub(crate) ports: PortsInUse,
    pub(crate) listen: IpAddr,
    pub(crate) running: Running,
}

/// The loops, and what they go by.
pub(crate) struct Plane {
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) workers: Workers,
    pub(crate) certificates: Arc<NodeCertificates>,
}

/// What a node runs. Each part is here from its start on: where a later one cannot be started, all of them are stopped. Their threads end
/// by nothing else, and would keep the data directory.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) buckets: Option<Arc<OpenBuckets>>,
    /// In the order in which they are stopped.
    pub(crate) node_threads: Vec<NodeThread>,
    pub(crate) pacing: Option<NodeThread>,
    pub(crate) reconciler: Option<NodeThread>,
    pub(crate) services: Option<Services>,
    pub(crate) links: Option<Arc<Links>>,
    pub(crate) agreement: Option<Arc<Agreement>>,
    pub(crate) control: Option<Arc<Control>>,
    pub(crate) control_plane: Option<tokio::runtime::Runtime>,
    pub(crate) shutdown: tokio::sync::watch::Sender<bool>,
    // Last: with it goes the audit log, after everything that reports to it.
    pub(crate) plane: Option<Plane>,
}

impl Node {
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
        let Some(control_plane) = &self.running.control_plane else { return Ok(()) };
        control_plane.block_on(async {
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
        self.running.stop()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The caller has given the node up because of something else, and tells that.
        if let Err(error) = self.stop() {
            tracing::error!(%error, "a node that was given up has stopped uncleanly");
        }
    }
}

impl Running {
    /// Stops all that was started and was not stopped before.
    fn stop(&mut self) -> Result<(), NotClosed> {
        let Some(Plane { workers, audit: _until_the_end, .. }) = self.plane.take() else { return Ok(()) };
        tracing::info!("stopping");
        // While the others can still be reached.
        if let Some(agreement) = &self.agreement {
            agreement.hand_over();
        }
        self.shutdown.send_replace(true);
        self.reconciler.take().into_iter().for_each(NodeThread::stop);
        if let Some(links) = self.links.take() {
            links.stop();
        }
        if let Some(services) = &self.services {
            services.stopping();
        }
        if let Some(control_plane) = self.control_plane.take() {
            control_plane.shutdown_timeout(DRAIN_GRACE);
        }
        // By now nothing is counted or sampled any more.
        let control = self.control.take();
        if let Some(control) = &control {
            control.write_pasts(DRAIN_GRACE);
        }
        self.services.take().into_iter().for_each(Services::stop);
        let agreement = self.agreement.take();
        if let Some(agreement) = &agreement {
            agreement.stop();
        }
        self.node_threads.drain(..).for_each(NodeThread::stop);
        workers.stop(DRAIN_GRACE);
        self.pacing.take().into_iter().for_each(NodeThread::stop);
        self.buckets.take().map_or(Ok(()), |buckets| buckets.close())?;
        tracing::info!("stopped; everything is on disk");
        Ok(())
    }
}
