//! The thread that makes this node be what the cluster wants of it: drives [`node::Agent`], hands its wishes to the links
//! between nodes, and keeps its report ready for the leader ([`reporting`]).
//!
//! It is rung when metadata were applied and when a link or a bucket has changed. Between rings it looks now and then;
//! while nothing is on its way such a look costs next to nothing, however many vBuckets there are.

mod figures;
mod latencies;
mod outages;
pub(super) mod reporting;

use std::{io, mem, sync::Arc, time::Duration};

use admin::NodeControl;
use base::{BucketUuid, Status, VbId};
use cluster::{EncryptionLevel, Metadata, NodeInfo, NodeReport};
use engine::Bucket;
use node::{Agent, Buckets};
use tokio::sync::watch;

use self::figures::Figures;
use super::{
    attendant::{Attendant, Duty},
    buckets::OpenBuckets,
    control::Control,
};
use crate::{
    Shared, lease,
    links::{LinkWish, Links, PeerAddress},
};

/// Between two looks while copies are on their way somewhere: each of their steps waits for a report.
const BUSY: Duration = Duration::from_millis(20);
/// Between two looks while nothing is.
const IDLE: Duration = Duration::from_millis(100);

/// What the steward works with.
pub(super) struct Parts {
    pub(super) control: Arc<Control>,
    pub(super) buckets: Arc<OpenBuckets>,
    pub(super) links: Arc<Links>,
    pub(super) shared: Arc<Shared>,
    /// Where the newest report is put.
    pub(super) reports: watch::Sender<Option<NodeReport>>,
    /// Differs from every other start of this node.
    pub(super) boot: u64,
    /// When the process was started, Unix nanoseconds.
    pub(super) started: u64,
}

/// Starts the thread.
pub(super) fn start(parts: Parts) -> io::Result<Attendant> {
    let bell = Arc::clone(&parts.buckets.bells().steward);
    Attendant::start("steward", bell, move |duty| Steward::new(parts).attend(duty))
}

struct Steward {
    parts: Parts,
    /// The identity by which this node is in its cluster, and who acts for it.
    uuid: String,
    agent: Agent,
    figures: Figures,
    /// Nodes as they were when the links were last told where they are, and what of what is said to them was encrypted.
    nodes: Vec<NodeInfo>,
    level: EncryptionLevel,
    /// Buckets that were open then.
    open: u64,
    has_looked: bool,
    /// What was refused at the last look.
    failed: Option<Status>,
}

impl Steward {
    fn new(parts: Parts) -> Self {
        Self {
            parts,
            uuid: String::new(),
            agent: Agent::default(),
            figures: Figures::default(),
            nodes: Vec::new(),
            level: EncryptionLevel::Control,
            open: 0,
            has_looked: false,
            failed: None,
        }
    }

    fn attend(mut self, duty: &Duty) {
        while !duty.is_over() {
            let more = self.look();
            if !more {
                duty.rest(if self.agent.is_busy() { BUSY } else { IDLE });
            }
        }
    }

    /// Does some of what there is to do; whether there is more.
    fn look(&mut self) -> bool {
        if !self.parts.control.caught_up() {
            return false;
        }
        // What the buckets that are open are by.
        let metadata = Arc::clone(&self.parts.shared.snapshot().metadata);
        self.become_who_we_are();
        let is_first = !mem::replace(&mut self.has_looked, true);
        self.parts.shared.lease.follow(&metadata, is_first, lease::clock_millis());
        let view = View { buckets: &self.parts.buckets, links: &self.parts.links };
        let step = self.agent.step(&metadata, &view, self.parts.shared.now());
        self.parts.shared.lease.end_need(&metadata, self.agent.applied());
        if let Some(status) = step.failed
            && self.failed != step.failed
        {
            tracing::warn!(?status, "a copy cannot be made what it shall be; it is tried again and again");
        }
        self.failed = step.failed;
        let (level, open) = (metadata.encryption_level(), self.parts.buckets.generation());
        let is_told = self.nodes == metadata.nodes && self.level == level && self.open == open;
        if step.wishes_changed || !is_told {
            self.wish(&metadata);
            (self.nodes, self.level, self.open) = (metadata.nodes.clone(), level, open);
        }
        self.report(&metadata);
        step.more
    }

    /// A node that joins a cluster, or leaves it, is another one from then on.
    fn become_who_we_are(&mut self) {
        let uuid = self.parts.control.this_node();
        if uuid != self.uuid {
            self.agent = Agent::new(uuid.clone());
            self.uuid = uuid;
            self.nodes.clear();
        }
    }

    /// Tells the links what is wanted from whom, and where they are.
    fn wish(&self, metadata: &Metadata) {
        let Some(this) = metadata.node(&self.uuid) else {
            return self.parts.links.want(Default::default(), Vec::new());
        };
        let wishes = self.agent.wishes().into_iter().filter_map(|wish| {
            let (name, _) = metadata.bucket_by_uuid(&wish.bucket)?;
            let peer = metadata.node_by_id(wish.peer)?;
            Some(LinkWish {
                name: name.to_owned(),
                engine: self.parts.buckets.engine_of(&wish.bucket)?,
                peer: PeerAddress::of(peer, metadata),
                streams: wish.streams,
                bucket: wish.bucket,
            })
        });
        self.parts.links.want(this.id, wishes.collect());
    }

    /// Puts a report out if it says something that the last one did not.
    fn report(&mut self, metadata: &Metadata) {
        let Some(this) = metadata.node(&self.uuid) else {
            self.parts.reports.send_if_modified(|report| report.take().is_some());
            return;
        };
        let view = View { buckets: &self.parts.buckets, links: &self.parts.links };
        self.figures.refresh(&self.parts.buckets, &self.parts.links, metadata);
        let mut report = NodeReport {
            node: this.id,
            uuid: self.uuid.clone(),
            boot: self.parts.boot,
            started: self.parts.started,
            number: 0,
            applied: self.agent.applied(),
            level: cluster::level::LEVEL,
            stands_still: self.parts.control.stands_still(),
            diverged: None,
            state: None,
            data_quota: metadata.quotas.data_mb << 20,
            data_used: 0,
            disk_total: 0,
            disk_free: 0,
            buckets: self.agent.report(&view),
        };
        self.figures.fill_in(&mut report, *self.parts.shared.disk.lock());
        let is_news = self.parts.reports.send_if_modified(|last| {
            let is_news = last.as_ref() != Some(&report);
            if is_news {
                *last = Some(report);
            }
            is_news
        });
        if is_news {
            self.parts.buckets.bells().services.ring();
        }
    }
}

/// The buckets that are open, and the streams that are.
struct View<'a> {
    buckets: &'a OpenBuckets,
    links: &'a Links,
}

impl Buckets for View<'_> {
    type Bucket = Arc<Bucket>;

    fn copies(&self, bucket: &BucketUuid) -> Option<Arc<Bucket>> {
        self.buckets.engine_of(bucket)
    }

    fn following(&self, bucket: &BucketUuid, vb: VbId) -> Option<u64> {
        self.links.following(bucket, vb)
    }
}
