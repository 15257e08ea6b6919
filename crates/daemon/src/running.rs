//! A running node: what it holds, and how it stops. [`crate::start`] makes one.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use dataplane::{Workers, links::Links};

use crate::{
    audit::AuditLog,
    buckets::open::OpenBuckets,
    control::Control,
    services::Services,
    setup::{
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

/// A running node. One that is dropped without [`Node::stop`] stops all the same: its threads end by nothing else.
pub struct Node {
    pub(crate) ports: PortsInUse,
    pub(crate) listen: IpAddr,
    /// Until it is stopped.
    pub(crate) running: Option<Running>,
}

/// What a node runs.
pub(crate) struct Running {
    pub(crate) workers: Workers,
    pub(crate) buckets: Arc<OpenBuckets>,
    /// In the order in which they are stopped.
    pub(crate) node_threads: Vec<NodeThread>,
    pub(crate) pacing: NodeThread,
    pub(crate) reconciler: NodeThread,
    pub(crate) services: Services,
    pub(crate) links: Arc<Links>,
    pub(crate) agreement: Arc<Agreement>,
    pub(crate) control: Arc<Control>,
    pub(crate) control_plane: tokio::runtime::Runtime,
    pub(crate) shutdown: tokio::sync::watch::Sender<bool>,
    // Last: dropped after everything that reports to it.
    pub(crate) _audit: Arc<AuditLog>,
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
        // By now nothing is counted or sampled any more.
        self.control.write_pasts(DRAIN_GRACE);
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
