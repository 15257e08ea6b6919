//! Documents for REST: what this node does with the copies that are active on it. It is for people who look at a document, not for
//! clients. Such requests are few at a time. Each runs on a blocking thread, which waits for the disk as a parked request does.
//!
//! A write is as durable as the bucket asks at least. It does not wait for a turn where clients' writes are paced: the engine refuses what
//! does not fit. A list is made of range scans, one vBucket after another. Each scan ends where no key can get into the list any more.

use std::{
    collections::BTreeSet,
    ops::Bound,
    sync::Arc,
    time::{Duration, Instant},
};

use admin::documents::{
    Document, DocumentAct, DocumentAnswer, DocumentQuestion, DocumentRefusal, KeyRange, Octets, Version,
};
use base::{
    Cas, CollectionId, Datatype, HashedKey, Now, Status, VbId, bucket::DurabilityLevel, hash::vbucket_of, key,
};
use cluster::ClusterError;
use dataplane::{lease, value};
use engine::{
    Bucket, Delete, Durable, Expiry, Fetching, Mutated, Refusal, ScanId, ScanLimits, ScanOptions,
    ScanSelection, ScanStep, Store, StoreMode, Wait,
};
use service::Alarm;
use tokio::sync::Semaphore;

use super::Control;

/// Documents that are read or written at the same time, and lists that are made.
static ACTS: Semaphore = Semaphore::const_new(16);
static LISTS: Semaphore = Semaphore::const_new(1);
/// How long one act may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks where nobody has woken the thread.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Does what a question asks, once it is its turn.
pub(crate) async fn answer(
    control: &Control,
    question: DocumentQuestion,
) -> Result<DocumentAnswer, ClusterError> {
    let turn = match question.act {
        DocumentAct::List(_) => LISTS.acquire().await,
        _ => ACTS.acquire().await,
    };
    let turn = turn.map_err(|_| ClusterError::Failed("the node is stopping".into()))?;
    let done = control.blocking(move |me| {
        // The work has the turn: it goes on when nobody waits for the answer any more.
        let _turn = turn;
        let Some(desk) = Desk::of(me, &question) else {
            return Ok(DocumentAnswer::Refused(DocumentRefusal::NotHere));
        };
        Ok(desk.act(question.act).unwrap_or_else(DocumentAnswer::Refused))
    });
    done.await
}

/// A collection of an open bucket, and a thread that may wait.
struct Desk<'a> {
    control: &'a Control,
    engine: Arc<Bucket>,
    collection: CollectionId,
    alarm: Alarm,
    until: Instant,
}

impl<'a> Desk<'a> {
    fn of(control: &'a Control, question: &DocumentQuestion) -> Option<Self> {
        let metadata = control.metadata.load();
        metadata.buckets.get(&question.bucket).filter(|info| info.uuid == question.uuid)?;
        let (buckets, collection) = (&control.buckets, CollectionId(question.collection));
        // By its uuid: while a bucket is made anew, the one before is open under the name for a moment.
        let engine = buckets.engine_of(&question.uuid)?;
        let alarm = buckets.alarms().alarm();
        Some(Self { control, engine, collection, alarm, until: Instant::now() + PATIENCE })
    }

    fn now(&self) -> Now {
        self.control.shared.now()
    }

    /// Refuses what needs an active copy while this node may not serve: others may have taken over, and have newer documents.
    fn require_lease(&self) -> Result<(), DocumentRefusal> {
        if self.control.shared.lease.has_run_out(lease::clock_millis) {
            let text = "The node has lost touch with its cluster and serves nothing until it is back. Ask another node.";
            return Err(DocumentRefusal::Busy(text.into()));
        }
        Ok(())
    }

    fn act(&self, act: DocumentAct) -> Result<DocumentAnswer, DocumentRefusal> {
        match act {
            DocumentAct::Read(key) => self.with_key(&key, |vb, key| self.read(vb, key)),
            DocumentAct::Write { key, value, flags, expiry, over } => self.with_key(&key, |vb, key| {
                let (mode, cas) = match over {
                    None => (StoreMode::Set, Cas::NONE),
                    Some(Version::None) => (StoreMode::Add, Cas::NONE),
                    Some(Version::Cas(cas)) => (StoreMode::Replace, Cas(cas)),
                };
                let store = Store {
                    mode,
                    value: &value.0,
                    datatype: value::detect(&value.0),
                    flags,
                    expiry: expiry.map_or(Expiry::Preserve(0), Expiry::Wire),
                    cas,
                    durability: DurabilityLevel::None,
                };
                self.change(vb, key, || self.engine.store(vb, key, &store, self.now()))
            }),
            DocumentAct::Remove { key, cas } => self.with_key(&key, |vb, key| {
                let delete = Delete { cas: Cas(cas), durability: DurabilityLevel::None };
                self.change(vb, key, || self.engine.delete(vb, key, &delete, self.now()))
            }),
            DocumentAct::List(range) => self.list(&range).map(DocumentAnswer::Keys),
        }
    }

    fn with_key(
        &self,
        logical: &Octets,
        act: impl FnOnce(VbId, HashedKey<'_>) -> Result<DocumentAnswer, DocumentRefusal>,
    ) -> Result<DocumentAnswer, DocumentRefusal> {
        let mut encoded = Vec::new();
        let key = key::encode_key(self.collection, &logical.0, &mut encoded)
            .map_err(|error| DocumentRefusal::Refused(format!("{error}")))?;
        act(vbucket_of(&logical.0, self.engine.vbuckets()), HashedKey::new(key))
    }

    fn read(&self, vb: VbId, key: HashedKey<'_>) -> Result<DocumentAnswer, DocumentRefusal> {
        let (value, mut datatype, document) = self.once_fetched(vb, key, || {
            self.engine.get(vb, key, self.now(), |doc| {
                let document = Document {
                    value: Octets::default(),
                    is_json: doc.datatype.contains(Datatype::JSON),
                    cas: doc.cas.0,
                    rev: doc.rev,
                    flags: doc.flags,
                    expiry: doc.expiry,
                };
                (doc.share(), doc.datatype, document)
            })
        })?;
        self.require_lease()?;
        let mut scratch = Vec::new();
        let body = value::plain_body(&value, &mut datatype, Datatype::JSON, &mut scratch);
        let body =
            body.ok_or_else(|| DocumentRefusal::Refused("The stored value cannot be inflated".into()))?;
        Ok(DocumentAnswer::Document(Document { value: Octets(body.to_vec()), ..document }))
    }

    /// Makes a change, and waits until it is as durable as the bucket asks.
    fn change(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        change: impl FnMut() -> Result<Mutated, Refusal>,
    ) -> Result<DocumentAnswer, DocumentRefusal> {
        let mutated = self.once_fetched(vb, key, change)?;
        if !mutated.wait {
            return Ok(DocumentAnswer::Done(mutated.cas.0));
        }
        let deadline = self.now().mono_millis + PATIENCE.as_secs() * 1000;
        loop {
            let now = self.now();
            // A change that is late is told so, and must not happen any more.
            let limit = if now.mono_millis >= deadline { 0 } else { deadline };
            match self.engine.complete_durable(vb, key, &mutated, self.alarm.waiter(0), limit, now) {
                Ok(Durable::Committed(mutated)) => return Ok(DocumentAnswer::Done(mutated.cas.0)),
                Ok(Durable::Parked) if limit == 0 => return Err(refusal(Status::SyncWriteAmbiguous)),
                Ok(Durable::Parked) => drop(self.alarm.wait(LOOK_AGAIN)),
                Err(status) => return Err(refusal(status)),
            }
        }
    }

    /// Tries until the document is in memory, as long as there is time.
    fn once_fetched<T>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        mut attempt: impl FnMut() -> Result<T, Refusal>,
    ) -> Result<T, DocumentRefusal> {
        loop {
            self.require_lease()?;
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Refusal::Status(status)) => return Err(refusal(status)),
                Err(Refusal::Fetch) if Instant::now() >= self.until => {
                    return Err(refusal(Status::TemporaryFailure));
                }
                Err(Refusal::Fetch) => {
                    let fetching = self.engine.fetch(vb, key, self.alarm.waiter(0)).map_err(refusal)?;
                    let patience = if fetching == Fetching::Crowded { LOOK_AGAIN / 5 } else { LOOK_AGAIN };
                    self.alarm.wait(patience);
                }
            }
        }
    }

    /// The first keys of a range, over the vBuckets that were asked for.
    fn list(&self, range: &KeyRange) -> Result<Vec<Octets>, DocumentRefusal> {
        let mut found: BTreeSet<Octets> = BTreeSet::new();
        for &vb in &range.vbs {
            let to = match found.last() {
                // A key behind the last of a full list is not wanted any more.
                Some(last) if found.len() >= range.limit => Bound::Excluded(last.0.as_slice().into()),
                _ => end_of(range),
            };
            self.scan(VbId(vb), range, to, &mut found)?;
            self.require_lease()?;
            if Instant::now() >= self.until {
                let text = "There are too many keys for a list. Ask for a longer prefix.";
                return Err(DocumentRefusal::Busy(text.into()));
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Adds the keys of a vBucket, and drops those that are too many.
    fn scan(
        &self,
        vb: VbId,
        range: &KeyRange,
        to: Bound<Box<[u8]>>,
        found: &mut BTreeSet<Octets>,
    ) -> Result<(), DocumentRefusal> {
        let mut number = [0; 16];
        getrandom::fill(&mut number).map_err(|_| refusal(Status::Internal))?;
        let options = ScanOptions {
            collection: self.collection,
            selection: ScanSelection::Range(Bound::Included(range.from.0.as_slice().into()), to),
            keys_only: true,
            include_xattrs: false,
            uuid: None,
            must_exist: None,
            name: Some("console".into()),
        };
        let (id, waiter) = (ScanId(u128::from_le_bytes(number)), self.alarm.waiter(0));
        let hold = self.engine.create_scan(vb, id, options, waiter, self.now()).map_err(refusal)?;
        loop {
            match self.engine.scan_created(&hold) {
                Ok(Wait::Ready) => break,
                Err(Status::KeyNotFound) => return Ok(()),
                Err(status) => return Err(refusal(status)),
                Ok(Wait::Parked) if Instant::now() >= self.until => {
                    return Err(refusal(Status::TemporaryFailure));
                }
                Ok(Wait::Parked) => drop(self.alarm.wait(LOOK_AGAIN)),
            }
        }
        let hold = self.engine.continue_scan(vb, id, self.alarm.waiter(0)).map_err(refusal)?;
        let limits = ScanLimits { items_max: range.limit as u64, bytes_max: u64::MAX };
        let step = self.engine.read_scan(&hold, limits, &mut |key, _| {
            found.insert(Octets(key.to_vec()));
            if found.len() > range.limit {
                found.pop_last();
            }
        });
        // Dropped without being released, the scan ends.
        drop(hold);
        match step {
            Ok(ScanStep::Complete | ScanStep::More | ScanStep::Wait) | Err(Status::RangeScanComplete) => {
                Ok(())
            }
            Err(status) => Err(refusal(status)),
        }
    }
}

fn end_of(range: &KeyRange) -> Bound<Box<[u8]>> {
    match &range.to {
        None => Bound::Unbounded,
        Some((end, true)) => Bound::Included(end.0.as_slice().into()),
        Some((end, false)) => Bound::Excluded(end.0.as_slice().into()),
    }
}

/// A status in REST's words.
fn refusal(status: Status) -> DocumentRefusal {
    match status {
        Status::NotMyVbucket => DocumentRefusal::NotHere,
        Status::KeyNotFound => DocumentRefusal::Missing,
        Status::KeyExists => DocumentRefusal::OtherVersion,
        Status::NotSupported => DocumentRefusal::NotSupported,
        Status::TemporaryFailure
        | Status::Busy
        | Status::Locked
        | Status::SyncWriteInProgress
        | Status::SyncWriteReCommitInProgress => {
            DocumentRefusal::Busy(format!("{}. Try again.", status.text()))
        }
        Status::SyncWriteAmbiguous => {
            let text = "It is not known whether the document was changed: too few nodes have answered in time. Read it.";
            DocumentRefusal::Ambiguous(text.into())
        }
        other => DocumentRefusal::Refused(other.text().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_may_have_happened_is_not_called_refused() {
        assert!(matches!(refusal(Status::SyncWriteAmbiguous), DocumentRefusal::Ambiguous(_)));
        assert!(matches!(refusal(Status::SyncWriteInProgress), DocumentRefusal::Busy(_)));
        assert!(matches!(refusal(Status::TooBig), DocumentRefusal::Refused(_)));
    }
}
