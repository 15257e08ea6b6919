//! The seam between a node and its services: what a service is, and what it is given.
//!
//! A [`Service`] answers HTTP on ports of its own, beside the data plane and REST. The node starts its services in the order of its
//! list, once REST can be started. It stops them in the reverse order, before the buckets are closed.
//!
//! Rules: a service reaches the node through its [`Context`] and in no other way. The node knows nothing of a service but what is in
//! this crate.

mod alarm;
mod figures;
mod lifecycle;
mod missed;
mod questions;
mod readiness;

use std::{io, path::PathBuf, process::Command as Process, sync::Arc};

use base::Now;
use cluster::{Applied, ClusterError, Command};
use http::{Behind, BoxFuture, Front, Gate, Surface};
use storage::Fs;
use tokio::{runtime::Handle, sync::watch};

pub use self::{
    alarm::{Alarm, Alarms, WORKER},
    figures::{BucketFigures, Figures, Progress},
    lifecycle::{Change, Event, Hearer, Lifecycle},
    missed::Missed,
    questions::{Answer, Answers, AskError, Gone, NOT_RUNNING, Nodes, Parts, QUESTION_BYTES_MAX},
    readiness::Readiness,
};

/// A port that a service answers on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the ports file and, with `-` for `_`, in the flag `--port-NAME`.
    pub name: &'static str,
    /// Whether clients speak TLS there.
    pub tls: bool,
}

/// A service before its start.
pub trait Service: Send {
    /// What it is called in logs.
    fn name(&self) -> &'static str;

    /// The ports that it answers on.
    fn ports(&self) -> &'static [Port];

    /// Starts it. The node serves its ports once this has returned.
    ///
    /// # Errors
    /// The node does not start either.
    fn start(self: Box<Self>, context: Context) -> io::Result<Box<dyn Running>>;
}

/// A service after its start.
pub trait Running: Send {
    /// What answers on each of its ports.
    fn surface(&self) -> Arc<dyn Surface>;

    /// What answers requests that come by the management ports, if anything does: the web console can reach no other port.
    fn behind(&self) -> Option<Arc<dyn Behind>> {
        None
    }

    /// What hears of buckets and of copies of vBuckets, if anything does. The node takes it once, before it serves the ports.
    fn hearer(&self) -> Option<Box<dyn Hearer>> {
        None
    }

    /// What answers the same service on other nodes, if it may be asked. The node takes it once.
    fn answers(&self) -> Option<Arc<dyn Answers>> {
        None
    }

    /// What tells of the buckets that it works for, if anything does. The node takes it once.
    fn figures(&self) -> Option<Arc<dyn Figures>> {
        None
    }

    /// The node begins to stop: work that would keep requests from ending ends, and they fail. Ports are served for a moment more.
    fn stopping(&self) {}

    /// Ends it: when this returns, it has no thread left and holds no bucket. Its ports are served no longer by then.
    fn stop(self: Box<Self>);
}

/// What a service asks of the cluster.
pub trait Changes: Send + Sync + 'static {
    /// Has the cluster agree on a change. It is in the metadata of every node that can be reached when this resolves with success.
    fn change(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>>;
}

/// Where a service may keep files.
#[derive(Clone)]
pub struct Place {
    /// The files of this service. What it reads and writes counts against the node's budget of the disk.
    pub fs: Arc<dyn Fs>,
    /// The folder of this service. Nothing else is in it, and the service makes it if it needs one.
    pub dir: PathBuf,
    /// Tells how many bytes a service leaves free on the disk. It leaves more than documents do. So no writer of documents is
    /// refused because of what a service keeps.
    pub room_min: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// Appends the inflated form of a raw Snappy block, and tells whether it is one.
pub type Inflate = fn(&[u8], &mut Vec<u8>) -> bool;

/// What a service is given.
#[derive(Clone)]
pub struct Context {
    /// The node, as far as it decides who may come in: the metadata are there.
    pub gate: Arc<dyn Gate>,
    /// The revision of these metadata, for tasks that wait for the next one. It may tell of one a moment late.
    pub revisions: watch::Receiver<i64>,
    /// Whether the metadata are no older than the start of this node. Files that the metadata do not know may be removed then.
    pub is_current: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Judges requests. It is the one of REST: passwords that were wrong on one port count on the other.
    pub front: Arc<Front>,
    /// Has the cluster agree on changes.
    pub changes: Arc<dyn Changes>,
    /// Starts a process that runs functions by users, and nothing else. Its input and output are the caller's to say.
    pub functions: Arc<dyn Fn() -> Process + Send + Sync>,
    /// How it asks itself on other nodes.
    pub nodes: Arc<dyn Nodes>,
    /// Where its threads wait for feeds.
    pub alarms: Arc<Alarms>,
    /// It tells here which copies it is not ready for. A rebalance waits for those, for a while.
    pub readiness: Arc<Readiness>,
    /// The buckets whose clients it is to give way to.
    pub missed: Arc<Missed>,
    /// Where it may keep files.
    pub place: Place,
    /// Takes note of how many bytes the service holds in memory now, for the node's statistics.
    pub holds: Arc<dyn Fn(usize) + Send + Sync>,
    /// The clock that buckets are driven with.
    pub clock: Arc<dyn Fn() -> Now + Send + Sync>,
    /// Inflates values of documents.
    pub inflate: Inflate,
    /// Where its tasks run.
    pub runtime: Handle,
}
