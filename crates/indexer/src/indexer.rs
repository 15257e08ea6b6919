//! The indexer of a bucket, as a service uses it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::{Builder, JoinHandle},
    time::Instant,
};

use base::{Seqno, VbId, VbRole, bucket::BucketKind};
use parking_lot::Mutex;
use views::{
    design::{DesignDocument, Signature},
    index::{Definition, DiskBytes, Snapshot, VbSet},
};

use crate::{
    desk::{BEHIND_FEW, Change, Entry, Lane, Wants},
    lane::Runner,
    lanes::Lanes,
    mistakes::ViewMistakes,
    shared::{Outlet, Setup, Shared, State, covers},
};

/// What lanes add to the niceness of the process: they give way to threads that serve requests.
const NICENESS: i32 = 10;

/// Keeps the indexes of one bucket up to date, in threads of its own.
pub struct Indexer {
    shared: Arc<Shared>,
    setup: Arc<Setup>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What a query waits for has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Why an index is not to be had as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// No design document has it.
    #[error("no design document has this index")]
    Unknown,
    /// It did not get there in time.
    #[error("the index is not as far as it has to be: {0}")]
    Late(String),
    /// The indexer stops.
    #[error("the node stops")]
    Stopped,
}

/// How an index is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexStatus {
    /// Its identity.
    pub signature: Signature,
    /// The design documents that it serves, without `_design/`.
    pub names: Vec<String>,
    /// Which lane has it.
    pub lane: Lane,
    /// It is open: what is told of rows and bytes is so.
    pub is_open: bool,
    /// It is fed: it has everything already, or is to have it.
    pub is_fed: bool,
    /// Why it rests, or rested a moment ago.
    pub failure: Option<String>,
    /// Changes that queries see, of all vBuckets that are served here.
    pub done: u64,
    /// Changes that they do not see yet.
    pub left: u64,
    /// How often it was fed with a vBucket from its beginning that had something by then.
    pub begun: u64,
    /// Copies that follow another node's of which it has all that is whole.
    pub followers: u64,
    /// Rows of the vBuckets that are served here, by map function.
    pub rows: Vec<u64>,
    /// Bytes on the disk, superseded ones included.
    pub disk_bytes: u64,
    /// Of those the ones in use.
    pub live_bytes: u64,
    /// What its views leave out, by map function.
    pub mistakes: Vec<ViewMistakes>,
    /// By view, how many rows `_sum` or `_stats` leaves out. Rows of copies that are not served here count too.
    pub left_out: BTreeMap<String, u64>,
}

/// How far an index is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexCourse {
    /// The design documents that it serves, without `_design/`.
    pub names: Vec<String>,
    /// Changes that queries see, of all vBuckets that are served here.
    pub done: u64,
    /// Changes that they do not see yet.
    pub left: u64,
}

/// How the indexes of a bucket are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// All of them.
    pub indexes: Vec<IndexStatus>,
    /// Bytes in memory.
    pub memory_bytes: usize,
    /// The disk has too little room for what is to be indexed.
    pub is_without_room: bool,
}

impl Indexer {
    /// Starts the threads. They do nothing before design documents and copies are told.
    ///
    /// # Errors
    /// The folder of indexes cannot be made, or no thread started.
    pub fn start(setup: Setup) -> io::Result<Self> {
        setup.fs.create_dir_all(&setup.dir)?;
        let (shared, setup) = (Shared::new(setup.alarms.clone()), Arc::new(setup));
        let indexer = Self { shared, setup, threads: Mutex::default() };
        for lane in Lane::ALL {
            let runner = Runner::new(lane, indexer.shared.clone(), indexer.setup.clone());
            let name = format!("index-{lane:?}").to_lowercase();
            // Where this fails, dropping the indexer stops the other lanes.
            let run = move || {
                give_way();
                runner.run();
            };
            let thread = Builder::new().name(name).spawn(run)?;
            indexer.threads.lock().push(thread);
        }
        Ok(indexer)
    }

    /// These are all design documents of the bucket, by name without `_design/`. Indexes of others are removed.
    pub fn set_design_documents(&self, documents: &[(String, DesignDocument)]) {
        self.shared.state.lock().desk.set_documents(documents);
        self.shared.call(&Lane::ALL);
        self.shared.shown.notify_all();
    }

    /// Something has become of a copy of a vBucket.
    pub fn hear(&self, vb: VbId, change: Change) {
        self.shared.state.lock().desk.hear(vb, change);
        self.shared.call(&Lane::ALL);
    }

    /// Has an index of development documents fed as far as this, for a query that does not wait. Those of other documents are fed
    /// anyway. Says whether the index is known.
    pub fn ask(&self, signature: &Signature, wanted: &Wants) -> bool {
        let is_known = self.shared.state.lock().desk.ask(signature, wanted);
        self.shared.call(&Lane::ALL);
        is_known
    }

    /// The same without threads: the lanes are given their turns by the caller, who says what the time is.
    ///
    /// # Errors
    /// The folder of indexes cannot be made.
    pub fn start_in_turns(setup: Setup) -> io::Result<(Self, Lanes)> {
        setup.fs.create_dir_all(&setup.dir)?;
        let (shared, setup) = (Shared::without_clock(setup.alarms.clone()), Arc::new(setup));
        let lanes = Lanes::new(&shared, &setup);
        Ok((Self { shared, setup, threads: Mutex::default() }, lanes))
    }

    /// An index that has everything up to these seqnos, on these branches. What was written later may be in it.
    ///
    /// # Errors
    /// It is not there in time, with the reason.
    pub fn wait_for(
        &self,
        signature: &Signature,
        wanted: &Wants,
        deadline: Instant,
    ) -> Result<Snapshot, WaitError> {
        let mut ticket = None;
        let mut state = self.shared.state.lock();
        let result = loop {
            match self.found(&state, signature, wanted) {
                Ok(Some(snapshot)) => break Ok(snapshot),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if Instant::now() >= deadline {
                break Err(WaitError::Late(why_late(&state, signature, wanted)));
            }
            if ticket.is_none() {
                drop(state);
                ticket = Some(self.begin_wait(signature, wanted));
                state = self.shared.state.lock();
                continue;
            }
            self.shared.shown.wait_until(&mut state, deadline);
        };
        drop(state);
        if let Some(ticket) = ticket {
            self.end_wait(signature, ticket);
        }
        result
    }

    /// Lanes know from now on that a query waits for an index as of these seqnos, until [`Indexer::end_wait`].
    pub fn begin_wait(&self, signature: &Signature, wanted: &Wants) -> Ticket {
        let ticket = {
            let mut state = self.shared.state.lock();
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            if state.desk.ask(signature, wanted) {
                state.outlets.entry(*signature).or_default().awaited.insert(ticket, wanted.clone());
            }
            ticket
        };
        self.shared.call(&Lane::ALL);
        Ticket(ticket)
    }

    /// What [`Indexer::wait_for`] would tell without waiting; `None` where it would wait.
    ///
    /// # Errors
    /// No design document has the index, or the indexer stops.
    pub fn waited(&self, signature: &Signature, wanted: &Wants) -> Result<Option<Snapshot>, WaitError> {
        self.found(&self.shared.state.lock(), signature, wanted)
    }

    /// The query waits no longer.
    pub fn end_wait(&self, signature: &Signature, ticket: Ticket) {
        if let Some(outlet) = self.shared.state.lock().outlets.get_mut(signature) {
            outlet.awaited.remove(&ticket.0);
        }
    }

    fn found(
        &self,
        state: &State,
        signature: &Signature,
        wanted: &Wants,
    ) -> Result<Option<Snapshot>, WaitError> {
        if state.desk.entries().get(signature).is_none_or(Entry::is_removed) {
            return Err(WaitError::Unknown);
        }
        if self.shared.is_stopping() {
            return Err(WaitError::Stopped);
        }
        let outlet = state.outlets.get(signature).filter(|outlet| covers(&outlet.whole, wanted));
        Ok(outlet.and_then(|outlet| outlet.snapshot.clone()))
    }

    /// An index as it is; `None` where no design document has it, or it could not be opened yet.
    #[must_use]
    pub fn snapshot(&self, signature: &Signature) -> Option<Snapshot> {
        self.shared.state.lock().outlets.get(signature)?.snapshot.clone()
    }

    /// An index as it is, if it could be opened, with those of some vBuckets of which it has never been a state. `None` where no design
    /// document has it.
    #[must_use]
    pub fn look(&self, signature: &Signature, vbs: &VbSet) -> Option<(Option<Snapshot>, VbSet)> {
        let state = self.shared.state.lock();
        state.desk.entries().get(signature).filter(|entry| !entry.is_removed())?;
        let Some(outlet) = state.outlets.get(signature) else { return Some((None, *vbs)) };
        Some((outlet.snapshot.clone(), vbs.without(&outlet.begun_whole)))
    }

    /// What a design document's index is of.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        let state = self.shared.state.lock();
        let mut entries = state.desk.entries().values();
        entries.find(|entry| entry.names.contains(name)).map(|entry| entry.definition.clone())
    }

    /// A query found that what an index has on the disk is damaged: it is built anew. Of the index that the query read this is
    /// [`Snapshot::opening`]. The report counts only while that index is there: the files of a former one are removed while queries still
    /// read them.
    pub fn report_damage(&self, signature: &Signature, opening: u64) {
        let mut state = self.shared.state.lock();
        let present = state.outlets.get(signature).and_then(|outlet| outlet.snapshot.as_ref());
        if present.map(Snapshot::opening) == Some(opening) {
            state.desk.found_damaged(signature);
            drop(state);
            self.shared.call(&Lane::ALL);
        }
    }

    /// What all indexes take on the disk.
    #[must_use]
    pub fn disk(&self) -> DiskBytes {
        let state = self.shared.state.lock();
        let disks = state.outlets.values().map(|outlet| outlet.disk);
        disks.fold(DiskBytes::default(), |sum, disk| DiskBytes {
            all: sum.all + disk.all,
            live: sum.live + disk.live,
        })
    }

    /// How far the indexes are that are fed. Figures ask often, so nothing is read of an index but the seqnos of its vBuckets.
    #[must_use]
    pub fn courses(&self) -> Vec<IndexCourse> {
        let high = self.served();
        let state = self.shared.state.lock();
        let fed = state.desk.entries().iter().filter(|(signature, entry)| is_fed(&state, signature, entry));
        let course = |(signature, entry): (&Signature, &Entry)| {
            let snapshot = state.outlets.get(signature).and_then(|outlet| outlet.snapshot.as_ref());
            let (done, left) = done_and_left(snapshot, &high);
            IndexCourse { names: entry.names.iter().cloned().collect(), done, left }
        };
        fed.map(course).collect()
    }

    /// The index of a design document is to be compacted now, or to go no further with that. Nothing, where no design document of that name
    /// has one. A compaction that runs already goes on.
    pub fn compact(&self, name: &str, compacts: bool) {
        self.shared.state.lock().desk.compact(name, compacts);
        self.shared.call(&Lane::ALL);
    }

    /// How far the compactions are that were asked for and run, in bytes.
    #[must_use]
    pub fn compactions(&self) -> Vec<IndexCourse> {
        let state = self.shared.state.lock();
        let asked = state.desk.entries().iter().filter(|(_, entry)| entry.compacts && !entry.is_removed());
        let course = |(signature, entry): (&Signature, &Entry)| {
            let outlet = state.outlets.get(signature);
            let begun = outlet.and_then(|outlet| outlet.compaction);
            let (done, all) = begun.unwrap_or((0, outlet.map_or(0, |outlet| outlet.disk.all)));
            let names = entry.names.iter().cloned().collect();
            IndexCourse { names, done, left: all.saturating_sub(done) }
        };
        asked.map(course).collect()
    }

    /// The vBuckets that are served here, with their newest seqnos.
    fn served(&self) -> BTreeMap<VbId, Seqno> {
        let served: Vec<VbId> = {
            let state = self.shared.state.lock();
            state.desk.copies().iter().filter(|(_, copy)| copy.served).map(|(vb, _)| *vb).collect()
        };
        let seqno = |vb: &VbId| self.setup.bucket.vb_newest(*vb).map_or(Seqno(0), |(_, seqno)| seqno);
        served.iter().map(|vb| (*vb, seqno(vb))).collect()
    }

    /// How the indexes are.
    #[must_use]
    pub fn status(&self) -> Status {
        let high = self.served();
        let follows: Vec<VbId> = {
            let state = self.shared.state.lock();
            state.desk.copies().iter().filter(|(_, copy)| copy.follows).map(|(vb, _)| *vb).collect()
        };
        let whole = |vb: &VbId| self.setup.bucket.vb_history(*vb).map_or(Seqno(0), |history| history.told_to);
        let follows: BTreeMap<VbId, Seqno> = follows.iter().map(|vb| (*vb, whole(vb))).collect();
        let state = self.shared.state.lock();
        let status = |signature| status_of(&state, signature, &high, &follows);
        let known = state.desk.entries().keys().filter_map(status);
        Status {
            indexes: known.collect(),
            memory_bytes: self.setup.memory.used(),
            is_without_room: !state.without_room.is_empty(),
        }
    }

    /// Of these vBuckets, whose copies here are to take over, those that an index is not close behind yet. Three kinds of indexes do not
    /// count: those of development documents, those that fail, and those whose functions run out of time. Nothing is worth
    /// waiting for while the disk has too little room.
    #[must_use]
    pub fn lacking(&self, vbs: &BTreeSet<VbId>) -> BTreeSet<VbId> {
        let (bucket, mut lacking) = (&self.setup.bucket, BTreeSet::new());
        let copies = vbs.iter().filter_map(|vb| Some((*vb, bucket.vb_status(*vb).ok()?)));
        let is_served = |role| matches!(role, VbRole::Active | VbRole::Sealed);
        let copies: Vec<_> = copies.filter(|(_, status)| !is_served(status.role)).collect();
        let is_fed = bucket.kind() == BucketKind::Couchbase;
        let state = self.shared.state.lock();
        if !state.without_room.is_empty() || !is_fed {
            return lacking;
        }
        let is_awaited = |entry: &Entry| {
            !entry.is_removed()
                && entry.is_production()
                && entry.failure.is_none()
                && entry.lane != Lane::Slow
        };
        for (signature, _) in state.desk.entries().iter().filter(|(_, entry)| is_awaited(entry)) {
            let applied = state.outlets.get(signature).map(|outlet| &outlet.applied);
            for (vb, status) in &copies {
                let has = applied.and_then(|applied| applied.get(vb)).map_or(0, |seqno| seqno.get());
                let all = status.history.told_to.get();
                let is_close = all == 0 || has > 0 && has.saturating_add(BEHIND_FEW) >= all;
                // One that is nothing yet is about to follow.
                let is_whole = status.role == VbRole::Replica && status.complete && !status.blank;
                if !(is_whole && is_close) {
                    lacking.insert(*vb);
                }
            }
        }
        lacking
    }

    /// Stops the threads, after they made durable what they had. Where it was stopped before, that may still go on.
    pub fn stop(&self) {
        self.shared.stopping.store(true, SeqCst);
        self.shared.call(&Lane::ALL);
        {
            // Nobody who has just found that it does not stop yet may wait for longer.
            let _state = self.shared.state.lock();
            self.shared.shown.notify_all();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A thread that panicked has nothing more to do either.
            let _ = thread.join();
        }
        // An index on its way from one lane to another belongs to none. Reductions that are lacking are made by queries.
        let parked = std::mem::take(&mut self.shared.state.lock().parked);
        for mut member in parked.into_values() {
            // What cannot be made durable is fed again after the next start.
            let _ = member.commit_without_functions();
        }
    }
}

impl Drop for Indexer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The calling thread works in the background.
fn give_way() {
    // SAFETY: plain system calls; 0 names the calling thread. Should they fail, the thread is as important as others.
    unsafe {
        let before = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, before + NICENESS);
    }
}

fn why_late(state: &State, signature: &Signature, wanted: &Wants) -> String {
    let Some(entry) = state.desk.entries().get(signature) else { return String::new() };
    if let Some(failure) = &entry.failure {
        return failure.clone();
    }
    if !state.without_room.is_empty() {
        return "the disk has too little room".to_owned();
    }
    let is_elsewhere = |vb: &&VbId| state.desk.copies().get(vb).is_none_or(|copy| !copy.served);
    match wanted.keys().find(is_elsewhere) {
        Some(vb) => format!("vBucket {} is not served here", vb.get()),
        None => "changes are still being indexed".to_owned(),
    }
}

/// Whether an index has everything already, or is to have it.
fn is_fed(state: &State, signature: &Signature, entry: &Entry) -> bool {
    let has_what_was_asked = |outlet: &Outlet| covers(&outlet.whole, &entry.wants);
    entry.is_production() || !state.outlets.get(signature).is_some_and(has_what_was_asked)
}

/// Changes of these vBuckets that queries see, and those that they do not see yet.
fn done_and_left(snapshot: Option<&Snapshot>, high: &BTreeMap<VbId, Seqno>) -> (u64, u64) {
    let (mut done, mut left) = (0, 0);
    for (vb, high) in high {
        let seen = snapshot.and_then(|snapshot| snapshot.state(*vb)).map_or(0, |state| state.seqno.get());
        done += seen.min(high.get());
        left += high.get().saturating_sub(seen);
    }
    (done, left)
}

fn status_of(
    state: &State,
    signature: &Signature,
    high: &BTreeMap<VbId, Seqno>,
    follows: &BTreeMap<VbId, Seqno>,
) -> Option<IndexStatus> {
    let entry = state.desk.entries().get(signature)?;
    let outlet = state.outlets.get(signature);
    let snapshot = outlet.and_then(|outlet| outlet.snapshot.as_ref());
    let (done, left) = done_and_left(snapshot, high);
    // In the middle of a snapshot it would begin anew.
    let seen =
        |vb: &VbId| outlet.and_then(|outlet| outlet.whole.get(vb)).map_or(Seqno(0), |(_, seqno)| *seqno);
    let has_all = |(vb, whole): &(&VbId, &Seqno)| **whole > Seqno(0) && seen(vb) >= **whole;
    let served: VbSet = high.keys().copied().collect();
    let maps = 0..entry.definition.sources().maps.len();
    let rows = |map| snapshot.map_or(0, |snapshot| snapshot.total_rows(map, &served));
    let disk = outlet.map(|outlet| outlet.disk).unwrap_or_default();
    let left_out = |place| snapshot.map_or(0, |snapshot| snapshot.left_out(place));
    let views = entry.definition.views();
    Some(IndexStatus {
        signature: *signature,
        names: entry.names.iter().cloned().collect(),
        lane: entry.lane,
        is_open: snapshot.is_some(),
        is_fed: is_fed(state, signature, entry),
        failure: entry.failure.clone(),
        done,
        left,
        begun: outlet.map_or(0, |outlet| outlet.begun),
        followers: follows.iter().filter(has_all).count() as u64,
        rows: maps.clone().map(rows).collect(),
        disk_bytes: disk.all,
        live_bytes: disk.live,
        mistakes: maps.map(|map| outlet.map(|outlet| outlet.mistakes.of(map)).unwrap_or_default()).collect(),
        left_out: views.map(|(view, place)| (view.to_owned(), left_out(place))).collect(),
    })
}
