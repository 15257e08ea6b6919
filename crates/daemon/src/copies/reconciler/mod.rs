//! The thread that makes this node be what the cluster wants of it. It drives [`node::Reconciler`], hands its wishes to the
//! links between nodes, and keeps its report ready for the leader ([`crate::copies::reporting`]).
//!
//! It is woken when metadata were applied and when a link or a bucket has changed. Between wake-ups it looks now and then;
//! while nothing is on its way such a look costs next to nothing, however many vBuckets there are.

mod figures;
mod latencies;
mod outages;

use std::{io, sync::Arc, time::Duration};

use admin::NodeControl;
use base::{BucketUuid, Status, VbId};
use cluster::{EncryptionLevel, Metadata, NodeInfo};
use dataplane::{
    Shared, lease,
    links::{LinkWish, Links, PeerAddress},
};
use engine::Bucket;
use node::{Buckets, Start};
use tokio::sync::watch;

use self::figures::Figures;
use crate::{
    buckets::open::OpenBuckets,
    control::Control,
    copies::reporting::Newest,
    threads::node_thread::{Duty, NodeThread},
};

/// What the reconciler works with.
pub(crate) struct Parts {
    pub(crate) control: Arc<Control>,
    pub(crate) buckets: Arc<OpenBuckets>,
    pub(crate) links: Arc<Links>,
    pub(crate) shared: Arc<Shared>,
    /// Where the newest report is put.
    pub(crate) reports: watch::Sender<Newest>,
    pub(crate) start: Start,
}

/// Starts the thread.
pub(crate) fn start(parts: Parts) -> io::Result<NodeThread> {
    let wake_flag = Arc::clone(&parts.buckets.wake_flags().reconciler);
    NodeThread::start("reconciler", wake_flag, move |duty| Reconciler::new(parts).attend(duty))
}

struct Reconciler {
    parts: Parts,
    reconciler: node::Reconciler,
    /// The life of the group that the last look was in.
    life: u64,
    figures: Figures,
    /// Nodes as they were when the links were last told where they are, and what of what is said to them was encrypted.
    nodes: Vec<NodeInfo>,
    level: EncryptionLevel,
    /// Buckets that were open then.
    open: u64,
    /// What was refused at the last look.
    failed: Option<Status>,
}

impl Reconciler {
    fn new(parts: Parts) -> Self {
        Self {
            reconciler: node::Reconciler::new(parts.start),
            parts,
            life: 0,
            figures: Figures::default(),
            nodes: Vec::new(),
            level: EncryptionLevel::Control,
            open: 0,
            failed: None,
        }
    }

    fn attend(mut self, duty: &Duty) {
        while !duty.is_over() {
            if let Some(millis) = self.look() {
                duty.rest(Duration::from_millis(millis));
            }
        }
    }

    /// Does some of what the metadata ask for; after how many milliseconds to look again, if not at once.
    fn look(&mut self) -> Option<u64> {
        let Parts { control, buckets, links, shared, .. } = &self.parts;
        let read = || {
            // What the buckets that are open are by.
            (Arc::clone(&shared.snapshot().metadata), control.this_node())
        };
        let ((metadata, uuid), life, caught_up) = control.at_one_moment(read);
        let (lease, lease_now) = (&shared.lease, lease::clock_millis());
        let view = View { buckets, links };
        let step = self.reconciler.look(
            (&uuid, life, caught_up),
            &metadata,
            (lease, lease_now),
            &view,
            shared.now(),
        );
        let pause = self.reconciler.pause_millis(step);
        let is_another_life = std::mem::replace(&mut self.life, life) != life;
        if !caught_up {
            if is_another_life {
                // What this node did in its earlier life is not for the leader of this one.
                self.parts.reports.send_if_modified(|report| report.take().is_some());
            }
            return pause;
        }
        if let Some(status) = step.failed
            && self.failed != step.failed
        {
            tracing::warn!(?status, "a copy cannot be made what it shall be; it is tried again and again");
        }
        self.failed = step.failed;
        let (level, open) = (metadata.encryption_level(), self.parts.buckets.generation());
        let is_told = self.nodes == metadata.nodes && self.level == level && self.open == open;
        if step.wishes_changed || !is_told {
            self.wish(&uuid, &metadata);
            (self.nodes, self.level, self.open) = (metadata.nodes.clone(), level, open);
        }
        self.report(&metadata);
        pause
    }

    /// Tells the links what is wanted from whom, and where they are.
    fn wish(&self, uuid: &str, metadata: &Metadata) {
        let Some(this) = metadata.node(uuid) else {
            return self.parts.links.want(Default::default(), Vec::new());
        };
        let wishes = self.reconciler.agent().wishes().into_iter().filter_map(|wish| {
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
        let view = View { buckets: &self.parts.buckets, links: &self.parts.links };
        let stands_still = self.parts.control.stands_still();
        let Some(mut report) = self.reconciler.report(metadata, &view, stands_still) else {
            self.parts.reports.send_if_modified(|report| report.take().is_some());
            return;
        };
        let Parts { control, buckets, links, .. } = &self.parts;
        self.figures.refresh((buckets, links), metadata, || control.missed_objectives());
        self.figures.fill_in(&mut report, *self.parts.shared.disk.lock());
        let is_news = self.parts.reports.send_if_modified(|last| {
            let newest = Some((self.life, report));
            let is_news = *last != newest;
            if is_news {
                *last = newest;
            }
            is_news
        });
        if is_news {
            self.parts.buckets.wake_flags().services.wake();
        }
    }
}

/// The open buckets and the open streams of this node.
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
        self.links.list().following(bucket, vb)
    }

    fn is_indexing(&self, bucket: &BucketUuid, vb: VbId) -> bool {
        self.buckets.readiness().is_lacking(bucket, vb)
    }
}
