//! Operators who change design documents, and clients who query views. At `stale=false` an answer has everything that was
//! acknowledged before it was asked for.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use base::{BucketUuid, CollectionId, DocKey, NodeId, Seqno, VbId, VbRole};
use cluster::{BucketInfo, Command, DesignDocumentChange, Metadata};
use fastrand::Rng;
use indexer::{Ticket, Wants};
use views::{
    design::{DesignDocument, is_development},
    index::{Snapshot, VbSet},
};

use super::World;
use crate::{
    clients::vb_of,
    faults::NEVER,
    indexing::parsed,
    invariants::{
        copies::on_disk,
        indexes::{self, DESIGNS, Numbers},
    },
    open_bucket::OpenBucket,
    operation::decode_value,
};

/// Queries that wait at the same time.
const QUERIES: usize = 4;
/// A client that waits for nothing asks once in so many steps.
const ASKS: u32 = 10;
/// It waits no longer than this.
const PATIENCE_MILLIS: u64 = 20_000;
/// Somebody asks for a compaction, or finds an index damaged, once in so many steps.
const COMPACTIONS: u32 = 400;
const DAMAGES: u32 = 2_000;

/// A key with its document, as far as it can be read: seqno and number.
type Contents = BTreeMap<Vec<u8>, Option<(Seqno, u64)>>;

/// A query that waits.
struct Query {
    node: NodeId,
    /// Of which start of the node, and which of the bucket's indexers.
    of: (u64, u64),
    bucket: BucketUuid,
    name: String,
    design: DesignDocument,
    ticket: Ticket,
    terms: BTreeMap<VbId, u64>,
    wanted: Wants,
    before: Contents,
    until: u64,
}

/// See the module.
pub(super) struct Indexes {
    rng: Rng,
    queries: Vec<Query>,
    changes: u32,
    answered: u64,
    left: u64,
    late: u64,
    documents: u64,
}

impl Indexes {
    pub(super) fn new(seed: u64) -> Self {
        let rng = Rng::with_seed(seed.rotate_left(32) ^ 0x1d5);
        Self { rng, queries: Vec::new(), changes: 0, answered: 0, left: 0, late: 0, documents: 0 }
    }
}

/// What became of a query in a step.
enum Step {
    Waits,
    /// The node answers no more.
    Left,
    Late,
    Answered(u64),
}

impl World {
    fn has_views(&self) -> bool {
        self.setting.designs != NEVER
    }

    // ---- operators ------------------------------------------------------------------------------------------------

    /// Whether copies of a new bucket are indexed that follow others.
    pub(super) fn replica_index(&mut self) -> Option<bool> {
        self.has_views().then(|| self.indexes.rng.bool())
    }

    /// Every bucket gets a design document of each kind.
    pub(super) fn define_views(&mut self) {
        if !self.has_views() {
            return;
        }
        let newest = Arc::clone(self.newest());
        for (bucket, info) in &newest.buckets {
            for (name, text) in DESIGNS.iter().filter(|(name, _)| info.design_documents.get(name).is_none()) {
                self.put_design(bucket, name, Some(text));
            }
        }
    }

    /// A design document comes, or goes, or comes anew.
    pub(super) fn change_designs(&mut self, newest: &Metadata) {
        let Some((bucket, info)) = self.rng.choice(newest.buckets.iter().collect::<Vec<_>>()) else { return };
        let Some((name, text)) = self.rng.choice(DESIGNS) else { return };
        let goes = info.design_documents.get(name).is_some() && self.rng.bool();
        self.put_design(bucket, name, (!goes).then_some(text));
    }

    fn put_design(&mut self, bucket: &str, name: &str, text: Option<&str>) {
        self.indexes.changes += 1;
        self.propose(Command::ChangeDesignDocument(DesignDocumentChange {
            bucket: bucket.to_owned(),
            name: name.to_owned(),
            text: text.map(str::to_owned),
            lot: self.indexes.changes,
            over: None,
        }));
    }

    // ---- a step ---------------------------------------------------------------------------------------------------

    /// One step's.
    pub(super) fn index(&mut self) {
        if !self.has_views() {
            return;
        }
        let at = self.journal.now;
        let Self { machines, indexes, .. } = self;
        for machine in machines.values_mut().filter(|machine| machine.paused_until <= at) {
            let now = machine.clock.now(at);
            if let Some(process) = &mut machine.process {
                process.index(&mut machine.shelf, &mut indexes.rng, now);
            }
        }
        let queries = std::mem::take(&mut self.indexes.queries);
        for query in queries {
            match self.go_on_with(&query) {
                Step::Waits => self.indexes.queries.push(query),
                Step::Left => self.indexes.left += 1,
                Step::Late => self.indexes.late += 1,
                Step::Answered(documents) => {
                    (self.indexes.answered, self.indexes.documents) =
                        (self.indexes.answered + 1, self.indexes.documents + documents);
                }
            }
        }
        let asks = self.indexes.queries.len() < QUERIES && self.indexes.rng.u32(0..ASKS) == 0;
        if asks && let Some(query) = self.ask_for_view() {
            self.indexes.queries.push(query);
        }
    }

    /// Any index of a node that runs: the node, its bucket, and the name of a design document.
    fn any_index(&mut self) -> Option<(NodeId, BucketUuid, String, DesignDocument)> {
        let at = self.journal.now;
        let Self { machines, indexes, .. } = self;
        let machine = indexes.rng.choice(machines.values())?;
        let process = machine.process.as_ref().filter(|_| machine.paused_until <= at)?;
        let (uuid, open) = indexes.rng.choice(process.buckets.iter())?;
        open.indexing.running.as_ref()?;
        let (_, info) = process.metadata.bucket_by_uuid(uuid)?;
        let (name, document) = indexes.rng.choice(info.design_documents.iter().collect::<Vec<_>>())?;
        Some((machine.id(), uuid.clone(), name.to_owned(), parsed(&document.text)))
    }

    fn ask_for_view(&mut self) -> Option<Query> {
        let (node, bucket, name, design) = self.any_index()?;
        let (compacts, is_damaged) =
            (self.indexes.rng.u32(0..COMPACTIONS / ASKS) == 0, self.indexes.rng.u32(0..DAMAGES / ASKS) == 0);
        let (at, newest) = (self.journal.now, Arc::clone(self.newest()));
        let (_, info) = newest.bucket_by_uuid(&bucket)?;
        let machine = &self.machines[&node];
        let process =
            machine.process.as_ref().filter(|process| process.serves(machine.clock.lease_millis(at)))?;
        let open = process.buckets.get(&bucket)?;
        let running = open.indexing.running.as_ref()?;
        if compacts {
            running.indexer.compact(&name, true);
        }
        if is_damaged {
            running.indexer.report_damage(&design.signature());
        }
        let terms = terms(open);
        let wanted: Wants =
            terms.keys().filter_map(|vb| Some((*vb, open.engine.vb_newest(*vb).ok()?))).collect();
        if terms.is_empty() || wanted.len() < terms.len() {
            return None;
        }
        let before = self.contents(node, info, &terms)?;
        let ticket = running.indexer.begin_wait(&design.signature(), &wanted);
        let of = (process.boot, running.number);
        let until = at + PATIENCE_MILLIS;
        Some(Query { node, of, bucket, name, design, ticket, terms, wanted, before, until })
    }

    fn go_on_with(&self, query: &Query) -> Step {
        let at = self.journal.now;
        let Some(machine) = self.machines.get(&query.node) else { return Step::Left };
        let Some(process) = machine.process.as_ref() else { return Step::Left };
        if machine.paused_until > at {
            return Step::Waits;
        }
        let Some(open) = process.buckets.get(&query.bucket) else { return Step::Left };
        let Some(running) = open.indexing.running.as_ref() else { return Step::Left };
        if (process.boot, running.number) != query.of {
            return Step::Left;
        }
        let signature = query.design.signature();
        let waited = running.indexer.waited(&signature, &query.wanted);
        let is_elsewhere = !process.serves(machine.clock.lease_millis(at)) || {
            let now = terms(open);
            query.terms.iter().any(|(vb, term)| now.get(vb) != Some(term))
        };
        let step = match waited {
            _ if is_elsewhere => Step::Left,
            Err(_) => Step::Left,
            Ok(None) if at >= query.until => Step::Late,
            Ok(None) => return Step::Waits,
            Ok(Some(snapshot)) => match lacks(&snapshot, &query.wanted) {
                true => Step::Left,
                false => self.check_answer(query, &snapshot, open),
            },
        };
        running.indexer.end_wait(&signature, query.ticket);
        step
    }

    // ---- answers --------------------------------------------------------------------------------------------------

    /// What a node has under each key that may be in these vBuckets. Keys are left out that cannot be read now.
    fn contents(&self, node: NodeId, info: &BucketInfo, vbs: &BTreeMap<VbId, u64>) -> Option<Contents> {
        let open = self.open(node, &info.uuid)?;
        let now = self.machines.get(&node)?.clock.now(self.journal.now);
        let mut contents = Contents::new();
        for key in self.clients.keys(info) {
            let vb = vb_of(info, &key);
            let is_asked =
                vbs.contains_key(&vb) && DocKey::trusted(&key).collection() == CollectionId::DEFAULT;
            if let Some(found) = is_asked.then(|| open.read(vb, &key, now)).and_then(Result::ok) {
                let found = found.map(|document| (document.seqno, decode_value(&document.value)));
                contents.insert(key, found);
            }
        }
        Some(contents)
    }

    /// Documents that have not changed since the query began are in the index as they are. Of a vBucket where nothing has changed
    /// these are all.
    fn check_answer(&self, query: &Query, snapshot: &Snapshot, open: &OpenBucket) -> Step {
        let newest = self.newest();
        let Some((_, info)) = newest.bucket_by_uuid(&query.bucket) else { return Step::Left };
        let Some(after) = self.contents(query.node, info, &query.terms) else { return Step::Left };
        let vbs: VbSet = query.terms.keys().copied().collect();
        let on = format!("by {} on {} of {:?}", query.name, query.node, query.bucket);
        let Some(all) = self.read_all((query.node, open), &query.design, snapshot, &vbs) else {
            return Step::Left;
        };
        let mut documents = 0;
        for (key, before) in &query.before {
            let vb = vb_of(info, key);
            let is_same_vb = open.engine.vb_newest(vb).ok() == query.wanted.get(&vb).copied();
            let is_certain = before.is_some() || is_same_vb;
            if after.get(key) == Some(before) && is_certain {
                let id = String::from_utf8(DocKey::trusted(key).logical().to_vec()).expect("a client's key");
                indexes::check_document(&on, &query.design, &all, &id, before.map(|(_, n)| n));
                documents += 1;
            }
        }
        Step::Answered(documents)
    }

    /// The rows of all views. Where the index is damaged it is built anew, which has to have a reason.
    fn read_all(
        &self,
        (node, open): (NodeId, &OpenBucket),
        design: &DesignDocument,
        snapshot: &Snapshot,
        vbs: &VbSet,
    ) -> Option<Vec<Vec<(VbId, indexes::Row)>>> {
        let read: Result<Vec<_>, _> =
            design.views.iter().map(|view| indexes::rows(snapshot, &view.name, vbs)).collect();
        let may_be_damaged = self.machines.get(&node).is_some_and(|machine| machine.shelf.has_lost_syncs);
        match read {
            Ok(read) => Some(read),
            Err(error) => {
                assert!(may_be_damaged && error.needs_rebuild(), "on {node}, whose disk is good: {error}");
                let running = open.indexing.running.as_ref()?;
                running.indexer.report_damage(&design.signature());
                None
            }
        }
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    /// Every bucket has all views again, and every index has everything.
    pub(super) fn await_indexes(&mut self) {
        if !self.has_views() {
            return;
        }
        for _ in 0..20 {
            if self.newest().buckets.values().all(has_all_designs) {
                break;
            }
            self.define_views();
            let until = self.journal.now + 1_000;
            while self.journal.now < until {
                self.step();
            }
        }
        self.until("indexes that have everything", |world| world.indexes_behind().is_empty());
    }

    /// What indexes lack.
    fn indexes_behind(&self) -> String {
        let mut behind = String::new();
        for info in self.newest().buckets.values() {
            if !has_all_designs(info) {
                let _ = writeln!(behind, "{:?} lacks design documents", info.uuid);
            }
            for (node, open) in self.all_open(info) {
                let wanted = newest_of(open);
                for (name, document) in info.design_documents.iter() {
                    let design = parsed(&document.text);
                    let signature = design.signature();
                    let Some(running) = &open.indexing.running else {
                        let _ = writeln!(behind, "{node} has no indexes of {:?}", info.uuid);
                        continue;
                    };
                    if is_development(name) {
                        running.indexer.ask(&signature, &wanted);
                    }
                    let vbs: VbSet = wanted.keys().copied().collect();
                    let waited = running.indexer.waited(&signature, &wanted).ok().flatten();
                    let read =
                        waited.and_then(|snapshot| self.read_all((node, open), &design, &snapshot, &vbs));
                    if read.is_none() {
                        let status = running.indexer.status();
                        let status = status.indexes.iter().find(|one| one.signature == signature);
                        let _ = writeln!(behind, "{name} on {node}: {status:?} {wanted:?}");
                    }
                }
            }
        }
        behind
    }

    fn all_open<'a>(&'a self, info: &'a BucketInfo) -> impl Iterator<Item = (NodeId, &'a OpenBucket)> {
        let open = |id: NodeId| self.open(id, &info.uuid).map(|open| (id, open));
        self.machines.keys().copied().filter_map(open)
    }

    /// Each index is a map over what lies on its node's disk of the active copies, and of those that are indexed while they follow.
    pub(super) fn check_indexes_in_the_end(&mut self) {
        if !self.has_views() {
            return;
        }
        let metadata = Arc::clone(self.newest());
        let mut rows = 0;
        for info in metadata.buckets.values() {
            for (node, open) in self.all_open(info) {
                let wanted = newest_of(open);
                let vbs: VbSet = wanted.keys().copied().collect();
                let numbers = numbers_on_disk(open, info, &vbs);
                for (name, document) in info.design_documents.iter() {
                    let design = parsed(&document.text);
                    let running = open.indexing.running.as_ref().expect("indexes");
                    let snapshot = running.indexer.waited(&design.signature(), &wanted);
                    let snapshot = snapshot.unwrap().expect("an index that has everything");
                    let on = format!("by {name} on {node} of {:?}", info.uuid);
                    indexes::check(&on, &design, &snapshot, &vbs, &numbers);
                    rows += numbers.len();
                }
            }
        }
        assert!(rows > 0, "there are documents");
    }

    /// What happened to views, in numbers.
    pub(super) fn summary_of_indexes(&self) -> String {
        if !self.has_views() {
            return String::new();
        }
        let Indexes { answered, left, late, documents, changes, .. } = &self.indexes;
        format!(
            ", views: {answered} answers about {documents} documents, {left} left, {late} late, {changes} changes of design documents"
        )
    }
}

fn has_all_designs(info: &BucketInfo) -> bool {
    DESIGNS.iter().all(|(name, _)| info.design_documents.get(name).is_some())
}

/// The copies that are active, with their terms.
fn terms(open: &OpenBucket) -> BTreeMap<VbId, u64> {
    let term = |vb: VbId| match open.engine.vb_role(vb) {
        Ok((VbRole::Active, term)) => Some((vb, term)),
        _ => None,
    };
    (0..open.engine.vbuckets()).map(VbId).filter_map(term).collect()
}

/// What the copies have that are indexed: the active ones, and those that may have to take over.
fn newest_of(open: &OpenBucket) -> Wants {
    let followers = open.indexing.followers().filter(|vb| {
        let status = open.engine.vb_status(*vb);
        status.is_ok_and(|status| status.role == VbRole::Replica)
    });
    let indexed = terms(open).into_keys().chain(followers);
    indexed.filter_map(|vb| Some((vb, open.engine.vb_newest(vb).ok()?))).collect()
}

/// Whether an index has just lost a vBucket of which something is wanted.
fn lacks(snapshot: &Snapshot, wanted: &Wants) -> bool {
    wanted.iter().any(|(vb, (_, seqno))| *seqno > Seqno(0) && snapshot.state(*vb).is_none())
}

/// The number in each document of the default collection in these vBuckets.
fn numbers_on_disk(open: &OpenBucket, info: &BucketInfo, vbs: &VbSet) -> Numbers {
    let mut numbers = Numbers::new();
    for vb in vbs.iter() {
        for (key, (meta, value)) in on_disk(open, info, vb) {
            let key = DocKey::trusted(&key);
            if key.collection() == CollectionId::DEFAULT && !meta.kind.is_tombstone() {
                let id = String::from_utf8(key.logical().to_vec()).expect("a client's key");
                numbers.insert(id, decode_value(&value));
            }
        }
    }
    numbers
}
