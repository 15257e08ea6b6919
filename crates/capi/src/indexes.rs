//! The indexes of this node's buckets: which buckets have an indexer, and what each is told.
//!
//! One thread compares the design documents in the metadata with the indexers that run, and does the difference. It looks whenever
//! the metadata or the open buckets have changed, and once a second.
//!
//! Invariants:
//! - A bucket without views costs neither threads nor files: its indexer runs while the bucket is open and a design document defines
//!   views.
//! - An indexer hears of copies in the order of the node's events. One that starts later is first told what the copies are by then.
//! - Copies that follow another node's are indexed where they are to take over, or may have to (`cluster::indexed`). The metadata say
//!   which, and go on to say so until the copy serves: an index of it is not forgotten in between.
//! - Files of a bucket's indexes are removed once nobody can write them, and only by metadata that are no older than this node's start.
//! - The thread that tells the node's events waits for neither a disk nor the end of an indexer.

mod figures;
mod info;
mod setup;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use base::{BucketUuid, NodeId};
use cluster::{BucketInfo, DesignDocuments, Metadata};
use engine::Bucket;
use http::Gate;
use indexer::{
    Indexer, Places,
    copies::{Became, Copies},
    pause::Pause,
};
use parking_lot::{Condvar, Mutex};
use service::{Context, Event, Hearer};
use tokio::sync::watch;
use views::{design::DesignDocument, index::Memory};

/// Between two looks where nothing has changed: something may be due again that failed.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks at indexes of copies that are to take over, while some of them lag.
const READINESS_LOOK: Duration = Duration::from_millis(50);

/// The indexes of one bucket.
pub(crate) struct BucketIndexes {
    bucket: Arc<Bucket>,
    gate: Arc<dyn Gate>,
    indexer: Indexer,
    /// Answers that were begun here.
    queries: AtomicU64,
}

impl BucketIndexes {
    /// What keeps them up to date, and has them.
    pub(crate) fn indexer(&self) -> &Indexer {
        &self.indexer
    }

    /// Counts an answer that is begun here.
    pub(crate) fn note_query(&self) {
        self.queries.fetch_add(1, Ordering::Relaxed);
    }

    /// The node that has them.
    pub(crate) fn gate(&self) -> &dyn Gate {
        &*self.gate
    }

    /// The bucket that they are of.
    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }
}

/// See the module. A clone is another hold on the same.
#[derive(Clone)]
pub(crate) struct Indexes(Arc<Inner>);

struct Inner {
    context: Context,
    /// What the indexes of all buckets hold in memory.
    memory: Arc<Memory>,
    /// What their processes have places in.
    places: Arc<Places>,
    state: Mutex<State>,
    changed: Condvar,
    /// The revision of the metadata whose design documents indexers have been told.
    followed: watch::Sender<i64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<BucketUuid, Open>,
    /// Indexers that end. Their folders are theirs until then.
    ending: BTreeMap<BucketUuid, JoinHandle<()>>,
    is_woken: bool,
    stops: bool,
}

/// An open bucket.
struct Open {
    bucket: Arc<Bucket>,
    copies: Copies,
    /// The metadata have been asked which copies are indexed that follow another node's. An indexer that starts before would be told
    /// that none is, and forget what it has of them.
    knows_followers: bool,
    running: Option<Arc<BucketIndexes>>,
    /// The design documents by which it runs, or does not.
    followed: Option<Arc<DesignDocuments>>,
    /// When an indexer is started again that did not start.
    retry: Option<Instant>,
    pause: Pause,
}

/// What has become of a copy, as indexers know it.
fn became(change: service::Change) -> Became {
    match change {
        service::Change::Active => Became::Active,
        service::Change::Sealed => Became::Sealed,
        service::Change::Replica => Became::Replica,
        service::Change::Reset => Became::Reset,
        service::Change::Gone => Became::Gone,
    }
}

impl Indexes {
    /// Follows the metadata from now on. Buckets are heard of by [`Indexes::hearer`].
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn start(context: Context) -> io::Result<Self> {
        let metadata = context.gate.metadata();
        let memory = Memory::new(setup::memory_max(&metadata));
        let processes = setup::processes_max(&metadata);
        drop(metadata);
        let (mut revisions, runtime) = (context.revisions.clone(), context.runtime.clone());
        let inner = Arc::new(Inner {
            context,
            memory,
            places: Places::new(processes),
            state: Mutex::default(),
            changed: Condvar::new(),
            followed: watch::Sender::new(i64::MIN),
            thread: Mutex::default(),
        });
        let me = Arc::clone(&inner);
        let thread = thread::Builder::new().name("indexes".to_owned()).spawn(move || me.run())?;
        *inner.thread.lock() = Some(thread);
        let me = Arc::downgrade(&inner);
        runtime.spawn(async move {
            while revisions.changed().await.is_ok() {
                let Some(inner) = Weak::upgrade(&me) else { return };
                inner.ring();
            }
        });
        Ok(Self(inner))
    }

    /// The indexes of an open bucket, where a design document defines views.
    pub(crate) fn of(&self, uuid: &BucketUuid) -> Option<Arc<BucketIndexes>> {
        self.0.state.lock().open.get(uuid)?.running.clone()
    }

    /// Waits until indexers have been told of the design documents of these metadata. That takes milliseconds, but for ever where the
    /// node stops: the caller bounds it.
    pub(crate) async fn caught_up(&self, metadata: &Metadata) {
        let mut followed = self.0.followed.subscribe();
        if *followed.borrow_and_update() < metadata.rev {
            self.0.ring();
            // An error would mean that nobody follows any more.
            let _ = followed.wait_for(|revision| *revision >= metadata.rev).await;
        }
    }

    /// What tells the node of the indexes. It holds none of them.
    pub(crate) fn figures(&self) -> Arc<dyn service::Figures> {
        Arc::new(figures::OfNode(Arc::downgrade(&self.0)))
    }

    /// What hears of buckets and copies.
    pub(crate) fn hearer(&self) -> Box<dyn Hearer> {
        Box::new(Ears(Arc::clone(&self.0)))
    }

    /// Ends all indexers. When this returns none of them has a thread left.
    pub(crate) fn stop(&self) {
        {
            let mut state = self.0.state.lock();
            state.stops = true;
            state.is_woken = true;
        }
        self.0.changed.notify_all();
        if let Some(thread) = self.0.thread.lock().take() {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
        let open = std::mem::take(&mut self.0.state.lock().open);
        for (uuid, open) in open {
            self.0.end(uuid, open.running);
        }
        let ending = std::mem::take(&mut self.0.state.lock().ending);
        for thread in ending.into_values() {
            let _ = thread.join();
        }
    }
}

/// Hears of buckets and copies.
struct Ears(Arc<Inner>);

impl Hearer for Ears {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::BucketOpened { uuid, bucket } => {
                let open = Open {
                    bucket: Arc::clone(bucket),
                    copies: Copies::default(),
                    knows_followers: false,
                    running: None,
                    followed: None,
                    retry: None,
                    pause: Pause::default(),
                };
                self.0.state.lock().open.insert(uuid.clone(), open);
                self.0.ring();
            }
            Event::Vb { bucket, vb, change, .. } => {
                // An indexer that starts meanwhile is told under this lock as well.
                let mut state = self.0.state.lock();
                if let Some(open) = state.open.get_mut(bucket)
                    && let Some(told) = open.copies.hear(*vb, became(*change))
                    && let Some(running) = &open.running
                {
                    running.indexer.hear(*vb, told);
                }
            }
            Event::BucketClosed(uuid) => {
                let closed = self.0.state.lock().open.remove(uuid);
                self.0.end(uuid.clone(), closed.and_then(|open| open.running));
                self.0.ring();
            }
        }
    }
}

impl Inner {
    fn ring(&self) {
        self.state.lock().is_woken = true;
        self.changed.notify_all();
    }

    fn run(self: Arc<Self>) {
        let mut sweeper = Sweeper::default();
        let mut is_lacking = false;
        let mut look_at = Instant::now();
        loop {
            {
                let mut state = self.state.lock();
                let soon = Instant::now() + READINESS_LOOK;
                let until = if is_lacking { look_at.min(soon) } else { look_at };
                while !state.is_woken && !self.changed.wait_until(&mut state, until).timed_out() {}
                if state.stops {
                    return;
                }
                if !std::mem::take(&mut state.is_woken) && Instant::now() < look_at {
                    drop(state);
                    is_lacking = self.tell_readiness();
                    continue;
                }
            }
            look_at = Instant::now() + LOOK;
            let metadata = self.context.gate.metadata();
            self.memory.set_limit(setup::memory_max(&metadata));
            self.places.set_most(setup::processes_max(&metadata));
            (self.context.holds)(self.memory.used());
            self.reap();
            let this = metadata.node(&self.context.gate.this_node_uuid()).map(|node| node.id);
            for (uuid, info) in metadata.buckets.values().map(|info| (&info.uuid, info)) {
                self.index_followers(uuid, info, this);
                self.follow(uuid, info);
            }
            is_lacking = self.tell_readiness();
            self.sweep(&metadata, &mut sweeper);
            self.followed.send_replace(metadata.rev);
        }
    }

    /// Has the copies indexed that are to be while they follow another node's.
    fn index_followers(&self, uuid: &BucketUuid, info: &BucketInfo, this: Option<NodeId>) {
        if info.design_documents.iter().next().is_none() {
            return;
        }
        let followers = this.map(|this| info.indexed_followers(this).collect()).unwrap_or_default();
        // An indexer that starts meanwhile is told under this lock as well.
        let mut state = self.state.lock();
        let Some(open) = state.open.get_mut(uuid) else { return };
        open.knows_followers = true;
        let told = open.copies.index_followers(followers);
        if let Some(running) = &open.running {
            told.into_iter().for_each(|(vb, change)| running.indexer.hear(vb, change));
        }
    }

    /// Tells the node which copies are to take over whose indexes lag. Says whether any do.
    fn tell_readiness(&self) -> bool {
        let open: Vec<_> = {
            let state = self.state.lock();
            let of = |(uuid, open): (&BucketUuid, &Open)| {
                (uuid.clone(), open.running.clone(), open.copies.followers().clone())
            };
            state.open.iter().map(of).collect()
        };
        let lacking = |(uuid, running, followers): (_, Option<Arc<BucketIndexes>>, _)| {
            let lacking = running?.indexer.lacking(&followers);
            (!lacking.is_empty()).then_some((uuid, lacking))
        };
        let lacking: BTreeMap<_, _> = open.into_iter().filter_map(lacking).collect();
        let is_lacking = !lacking.is_empty();
        self.context.readiness.lacks(lacking);
        is_lacking
    }

    /// Has the indexer of a bucket be what its design documents say.
    fn follow(self: &Arc<Self>, uuid: &BucketUuid, info: &BucketInfo) {
        let documents = &info.design_documents;
        let bucket = {
            let state = self.state.lock();
            let Some(open) = state.open.get(uuid) else { return };
            let is_followed = |known: &Arc<_>| Arc::ptr_eq(known, documents) || known == documents;
            // A bucket that was opened a moment ago has rung: the next look comes at once.
            let is_late = !open.knows_followers || open.retry.is_some_and(|at| Instant::now() < at);
            if open.followed.as_ref().is_some_and(is_followed) || is_late || state.ending.contains_key(uuid) {
                return;
            }
            Arc::clone(&open.bucket)
        };
        let defined = if info.may_have_views() { defined(bucket.name(), documents) } else { Vec::new() };
        let running = self.of(uuid, &bucket);
        let carried_out = match running {
            Some(running) if !defined.is_empty() => {
                running.indexer.set_design_documents(&defined);
                Ok(())
            }
            Some(_) => {
                let gone = self.state.lock().open.get_mut(uuid).and_then(|open| open.running.take());
                self.end(uuid.clone(), gone);
                Ok(())
            }
            None if defined.is_empty() => Ok(()),
            None => self.begin(uuid, &bucket, &defined),
        };
        let mut state = self.state.lock();
        let Some(open) = state.open.get_mut(uuid).filter(|open| Arc::ptr_eq(&open.bucket, &bucket)) else {
            return;
        };
        match carried_out {
            Ok(()) => {
                open.followed = Some(Arc::clone(documents));
                (open.retry, open.pause) = (None, Pause::default());
            }
            Err(error) => {
                open.retry = Some(Instant::now() + open.pause.failed());
                drop(state);
                tracing::warn!(bucket = bucket.name(), %error, "the indexes of a bucket cannot be kept up to date");
            }
        }
    }

    fn of(&self, uuid: &BucketUuid, bucket: &Arc<Bucket>) -> Option<Arc<BucketIndexes>> {
        let state = self.state.lock();
        let running = state.open.get(uuid)?.running.clone();
        running.filter(|running| Arc::ptr_eq(running.bucket(), bucket))
    }

    /// Starts the indexer of a bucket.
    fn begin(
        &self,
        uuid: &BucketUuid,
        bucket: &Arc<Bucket>,
        defined: &[(String, DesignDocument)],
    ) -> io::Result<()> {
        let indexer =
            Indexer::start(setup::setup(&self.context, (&self.memory, &self.places), uuid, bucket))?;
        indexer.set_design_documents(defined);
        let begun = Arc::new(BucketIndexes {
            bucket: Arc::clone(bucket),
            gate: Arc::clone(&self.context.gate),
            indexer,
            queries: AtomicU64::new(0),
        });
        let mut state = self.state.lock();
        match state.open.get_mut(uuid).filter(|open| Arc::ptr_eq(&open.bucket, bucket)) {
            Some(open) => {
                open.copies.all().for_each(|(vb, change)| begun.indexer.hear(vb, change));
                open.running = Some(begun);
            }
            None => {
                // It was closed meanwhile. Nothing has been written.
                drop(state);
                begun.indexer.stop();
            }
        }
        Ok(())
    }

    /// Ends an indexer on a thread of its own: it makes durable what it has first.
    fn end(self: &Arc<Self>, uuid: BucketUuid, gone: Option<Arc<BucketIndexes>>) {
        let Some(gone) = gone else { return };
        let (me, ends) = (Arc::downgrade(self), Arc::clone(&gone));
        let spawned = thread::Builder::new().name("indexes-end".to_owned()).spawn(move || {
            ends.indexer.stop();
            drop(ends);
            if let Some(me) = me.upgrade() {
                me.ring();
            }
        });
        match spawned {
            Ok(thread) => drop(self.state.lock().ending.insert(uuid, thread)),
            // Without a thread somebody has to wait.
            Err(_) => gone.indexer.stop(),
        }
    }

    /// Forgets indexers that have ended. What could not be followed because of them is.
    fn reap(&self) {
        self.state.lock().ending.retain(|_, thread| !thread.is_finished());
    }

    /// Removes the indexes of buckets that the metadata do not know, or know without views.
    fn sweep(&self, metadata: &Metadata, sweeper: &mut Sweeper) {
        if !(self.context.is_current)() {
            return;
        }
        let mut kept: BTreeSet<String> = {
            let state = self.state.lock();
            let running = state.open.iter().filter(|(_, open)| open.running.is_some());
            running.map(|(uuid, _)| uuid).chain(state.ending.keys()).map(|uuid| uuid.0.clone()).collect()
        };
        kept.extend(sweeper.with_views(metadata).map(|uuid| uuid.0.clone()));
        sweeper.sweep(&self.context.place, kept);
    }
}

/// Removes folders.
#[derive(Default)]
struct Sweeper {
    /// What was kept when everything else was gone.
    done: Option<BTreeSet<String>>,
    retry: Option<Instant>,
    pause: Pause,
    /// Design documents of buckets, and whether they define views: their texts are read once.
    known: BTreeMap<BucketUuid, (Arc<DesignDocuments>, bool)>,
}

impl Sweeper {
    /// The buckets of which a design document defines views, or cannot be read here: another version may need its index.
    fn with_views(&mut self, metadata: &Metadata) -> impl Iterator<Item = &BucketUuid> {
        let mut before = std::mem::take(&mut self.known);
        for BucketInfo { uuid, design_documents, .. } in metadata.buckets.values() {
            let known = before.remove(uuid).filter(|(known, _)| Arc::ptr_eq(known, design_documents));
            let known = known.unwrap_or_else(|| {
                let has_views = design_documents.iter().any(|(_, document)| {
                    let parsed = DesignDocument::parse_unchecked(document.text.as_bytes());
                    parsed.map_or(true, |parsed| !parsed.views.is_empty())
                });
                (Arc::clone(design_documents), has_views)
            });
            self.known.insert(uuid.clone(), known);
        }
        self.known.iter().filter_map(|(uuid, (_, has_views))| has_views.then_some(uuid))
    }

    fn sweep(&mut self, place: &service::Place, kept: BTreeSet<String>) {
        let is_late = self.retry.is_some_and(|at| Instant::now() < at);
        if self.done.as_ref() == Some(&kept) || is_late {
            return;
        }
        match setup::remove_others(place, &kept) {
            Ok(()) => (self.done, self.retry, self.pause) = (Some(kept), None, Pause::default()),
            Err(error) => {
                self.retry = Some(Instant::now() + self.pause.failed());
                tracing::warn!(%error, "indexes of views that nothing needs any more cannot be removed");
            }
        }
    }
}

/// The design documents of a bucket that define views.
fn defined(bucket: &str, documents: &DesignDocuments) -> Vec<(String, DesignDocument)> {
    let mut defined = Vec::new();
    for (name, document) in documents.iter() {
        match DesignDocument::parse_unchecked(document.text.as_bytes()) {
            Ok(parsed) if parsed.views.is_empty() => {}
            Ok(parsed) => defined.push((name.to_owned(), parsed)),
            // It was checked when it was stored, so another version has stored it.
            Err(refused) => tracing::warn!(
                bucket,
                document = name,
                error = %refused.reason,
                "a design document cannot be read: its views have no index"
            ),
        }
    }
    defined
}
