//! Operators who change design documents, and clients who query views. At `stale=false` an answer has everything that was
//! acknowledged before it was asked for. At `stale=ok` it is what some index was. Copies that follow others are asked as active ones are.

use std::{collections::BTreeMap, fmt::Write as _, rc::Rc, sync::Arc};

use base::{BucketUuid, CollectionId, DocKey, NodeId, Seqno, VbId, VbRole, hash::vbucket_of};
use cluster::{BucketInfo, Command, DesignDocumentChange, Metadata};
use fastrand::Rng;
use indexer::{IndexStatus, Ticket, Wants};
use views::{
    design::{Signature, is_development},
    index::{Snapshot, VbSet},
};

use super::World;
use crate::{
    clients::vb_of,
    faults::NEVER,
    indexing::{Design, Running, design_of},
    invariants::{
        copies::on_disk,
        indexes::{self, Checked, DESIGNS, Numbers},
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
const DAMAGES: u32 = 800;
/// A node does nothing about its indexes for a while, once in so many steps. It sees then what became of its copies meanwhile, and not
/// how.
const STALLS: u32 = 200;
const STALL_MILLIS: u64 = 5_000;
/// Between two looks whether a node still serves what a query waits for.
const LOOKS_MILLIS: u64 = 50;

/// A key with its document, as far as it can be read: seqno and number.
type Contents = BTreeMap<Vec<u8>, Option<(Seqno, u64)>>;

/// An index of an indexer of a node, and one of its design documents.
struct Asked {
    node: NodeId,
    /// Of which start of the node, and which of the bucket's indexers.
    of: (u64, u64),
    bucket: BucketUuid,
    name: String,
    design: Rc<Design>,
}

/// A query that waits.
struct Query {
    asked: Asked,
    /// Of copies that follow others. Clients of a server cannot ask for these.
    of_followers: bool,
    ticket: Ticket,
    terms: BTreeMap<VbId, u64>,
    wanted: Wants,
    before: Contents,
    /// Everything could be read.
    is_complete: bool,
    until: u64,
}

/// Somebody found an index damaged that had been begun so often.
struct Damage {
    asked: Asked,
    begun: u64,
}

/// See the module.
pub(super) struct Indexes {
    rng: Rng,
    queries: Vec<Query>,
    damages: Vec<Damage>,
    /// Nodes do nothing about their indexes until then.
    stalled: BTreeMap<NodeId, u64>,
    changes: u32,
    left: u64,
    late: u64,
    checked: Checked,
}

impl Indexes {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed.rotate_left(32) ^ 0x1d5),
            queries: Vec::new(),
            damages: Vec::new(),
            stalled: BTreeMap::new(),
            changes: 0,
            left: 0,
            late: 0,
            checked: Checked::default(),
        }
    }
}

/// What became of a query in a step.
enum Step {
    Waits,
    /// The node answers no more.
    Left,
    Late,
    Answered(Checked),
}

impl World {
    fn has_views(&self) -> bool {
        self.setting.designs != NEVER
    }

    // ---- operators ------------------------------------------------------------------------------------------------

    /// Whether copies of a new bucket are indexed that follow others.
    pub(super) fn replica_index(&mut self) -> Option<bool> {
        let of_four = self.setting.replica_indexes;
        self.has_views().then(|| self.indexes.rng.u8(0..4) < of_four)
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
        self.stall_indexes();
        let at = self.journal.now;
        let Self { machines, indexes, .. } = self;
        for machine in machines.values_mut().filter(|machine| machine.paused_until <= at) {
            if indexes.stalled.contains_key(&machine.id()) {
                continue;
            }
            let now = machine.clock.now(at);
            if let Some(process) = &mut machine.process {
                indexes.checked.set_back += process.index(&mut machine.shelf, &mut indexes.rng, now);
            }
        }
        self.follow_damages();
        let queries = std::mem::take(&mut self.indexes.queries);
        for query in queries {
            match self.go_on_with(&query) {
                Step::Waits => self.indexes.queries.push(query),
                Step::Left => self.indexes.left += 1,
                Step::Late => self.indexes.late += 1,
                Step::Answered(checked) => self.indexes.checked.add(checked),
            }
        }
        if self.indexes.rng.u32(0..ASKS) == 0
            && let Some(asked) = self.any_index()
        {
            self.ask_for_view(asked);
        }
    }

    /// Nodes do nothing about their indexes for a while, as long as clients want something.
    fn stall_indexes(&mut self) {
        let (at, is_calm) = (self.journal.now, self.clients.rest);
        let Self { machines, indexes, .. } = self;
        indexes.stalled.retain(|_, until| *until > at && !is_calm);
        if !is_calm
            && indexes.rng.u32(0..STALLS) == 0
            && let Some(node) = indexes.rng.choice(machines.keys())
        {
            indexes.stalled.insert(*node, at + indexes.rng.u64(0..STALL_MILLIS));
        }
    }

    /// Any index of a node that runs.
    fn any_index(&mut self) -> Option<Asked> {
        let (at, cycle) = (self.journal.now, self.setting.cycle);
        let Self { machines, indexes, .. } = self;
        let machine = indexes.rng.choice(machines.values())?;
        let process = machine.process.as_ref().filter(|_| machine.paused_until <= at)?;
        let (uuid, open) = indexes.rng.choice(process.buckets.iter())?;
        let of = (process.boot, open.indexing.running.as_ref()?.number);
        let (_, info) = process.metadata.bucket_by_uuid(uuid)?;
        let (name, document) = indexes.rng.choice(info.design_documents.iter().collect::<Vec<_>>())?;
        let is_asked_for = !is_development(name) || cycle.asks_developers(at);
        let (node, bucket, name) = (machine.id(), uuid.clone(), name.to_owned());
        is_asked_for.then(|| Asked { node, of, bucket, name, design: design_of(&document.text) })
    }

    /// The indexer that was asked, while it runs.
    fn running(&self, asked: &Asked) -> Option<(&OpenBucket, &Running)> {
        let process = self.machines.get(&asked.node)?.process.as_ref()?;
        let open = process.buckets.get(&asked.bucket)?;
        let running = open.indexing.running.as_ref()?;
        ((process.boot, running.number) == asked.of).then_some((open, running))
    }

    /// Whether a node may answer for its active copies.
    fn serves(&self, node: NodeId) -> bool {
        let at = self.journal.now;
        self.machines.get(&node).is_some_and(|machine| {
            let process = machine.process.as_ref();
            process.is_some_and(|process| process.serves(machine.clock.lease_millis(at)))
        })
    }

    fn ask_for_view(&mut self, asked: Asked) {
        let rng = &mut self.indexes.rng;
        let [compacts, is_damaged] = [COMPACTIONS, DAMAGES].map(|one_in| rng.u32(0..one_in / ASKS) == 0);
        let of_followers = rng.u8(0..3) == 0;
        if compacts && let Some((_, running)) = self.running(&asked) {
            running.indexer.compact(&asked.name, true);
        }
        self.indexes.checked.as_it_is += u64::from(self.look_as_it_is(&asked));
        if is_damaged {
            self.find_damaged(asked);
        } else if self.indexes.queries.len() < QUERIES
            && let Some(query) = self.begin_query(asked, of_followers)
        {
            self.indexes.queries.push(query);
        }
    }

    fn begin_query(&self, asked: Asked, of_followers: bool) -> Option<Query> {
        let (_, info) = self.newest().bucket_by_uuid(&asked.bucket)?;
        let (open, running) = self.running(&asked).filter(|_| of_followers || self.serves(asked.node))?;
        let mut terms = terms(open, of_followers);
        let whole = |vb: &VbId| {
            let history = open.engine.vb_history(*vb).ok()?;
            // A copy that follows another one may be in the middle of a snapshot.
            (history.told_to == history.high_seqno).then_some((*vb, (history.uuid, history.high_seqno)))
        };
        let wanted: Wants = terms.keys().filter_map(whole).collect();
        terms.retain(|vb, _| wanted.contains_key(vb));
        if terms.is_empty() {
            return None;
        }
        let (before, is_complete) = self.contents(asked.node, info, &terms)?;
        let ticket = running.indexer.begin_wait(&asked.design.signature, &wanted);
        let until = self.journal.now + PATIENCE_MILLIS;
        Some(Query { asked, of_followers, ticket, terms, wanted, before, is_complete, until })
    }

    fn go_on_with(&self, query: &Query) -> Step {
        let (at, asked) = (self.journal.now, &query.asked);
        if self.machines.get(&asked.node).is_some_and(|machine| machine.paused_until > at) {
            return Step::Waits;
        }
        let Some((open, running)) = self.running(asked) else { return Step::Left };
        let signature = asked.design.signature;
        let waited = running.indexer.waited(&signature, &query.wanted);
        if matches!(waited, Ok(None)) && at < query.until && !at.is_multiple_of(LOOKS_MILLIS) {
            return Step::Waits;
        }
        let is_elsewhere = !(query.of_followers || self.serves(asked.node)) || {
            let now = terms(open, query.of_followers);
            query.terms.iter().any(|(vb, term)| now.get(vb) != Some(term))
        };
        let step = match waited {
            _ if is_elsewhere => Step::Left,
            Err(_) => Step::Left,
            Ok(None) if at >= query.until => Step::Late,
            Ok(None) => return Step::Waits,
            Ok(Some(snapshot)) => match lacks(&snapshot, &query.wanted) {
                true => Step::Left,
                false => self.check_answer(query, &snapshot, open).map_or(Step::Left, Step::Answered),
            },
        };
        running.indexer.end_wait(&signature, query.ticket);
        step
    }

    // ---- damage ---------------------------------------------------------------------------------------------------

    /// Somebody finds an index damaged.
    fn find_damaged(&mut self, asked: Asked) {
        let Some((open, running)) = self.running(&asked) else { return };
        let has_some = newest_of(open).values().any(|(_, seqno)| *seqno > Seqno(0));
        let status = status_of(running, asked.design.signature);
        let Some(snapshot) = running.indexer.snapshot(&asked.design.signature) else { return };
        running.indexer.report_damage(&asked.design.signature, snapshot.opening());
        if let Some(status) = status.filter(|_| has_some) {
            self.indexes.damages.push(Damage { asked, begun: status.begun });
        }
    }

    /// Indexes that were found damaged are begun once more, unless they are gone by then.
    fn follow_damages(&mut self) {
        let damages = std::mem::take(&mut self.indexes.damages);
        for damage in damages {
            let running = self.running(&damage.asked);
            let status = running.and_then(|(_, running)| status_of(running, damage.asked.design.signature));
            match status {
                Some(status) if status.begun == damage.begun => self.indexes.damages.push(damage),
                Some(_) => self.indexes.checked.rebuilt += 1,
                None => {}
            }
        }
    }

    // ---- answers --------------------------------------------------------------------------------------------------

    /// What a node has under each key that may be in these vBuckets, and whether that is all. Keys are left out that cannot be read now.
    fn contents(
        &self,
        node: NodeId,
        info: &BucketInfo,
        vbs: &BTreeMap<VbId, u64>,
    ) -> Option<(Contents, bool)> {
        let open = self.open(node, &info.uuid)?;
        let now = self.machines.get(&node)?.clock.now(self.journal.now);
        let (mut contents, mut is_complete) = (Contents::new(), true);
        for key in self.clients.keys(info) {
            let vb = vb_of(info, &key);
            if !vbs.contains_key(&vb) || DocKey::trusted(&key).collection() != CollectionId::DEFAULT {
                continue;
            }
            let Ok(found) = open.read(vb, &key, now) else {
                is_complete = false;
                continue;
            };
            contents.insert(key, found.map(|document| (document.seqno, decode_value(&document.value))));
        }
        Some((contents, is_complete))
    }

    /// Documents that have not changed since the query began are in the index as they are. Of a vBucket where nothing has changed
    /// these are all. Where nothing at all has changed the index is a map over them.
    fn check_answer(&self, query: &Query, snapshot: &Snapshot, open: &OpenBucket) -> Option<Checked> {
        let Query { asked, of_followers, terms, wanted, .. } = query;
        let (_, info) = self.newest().bucket_by_uuid(&asked.bucket)?;
        let (after, is_complete) = self.contents(asked.node, info, terms)?;
        let vbs: VbSet = terms.keys().copied().collect();
        let on = on(asked, *of_followers);
        let all = self.read_all(asked, snapshot, &vbs)?;
        let mut checked = Checked { answers: 1, ..Checked::default() };
        let design = &asked.design.document;
        let is_same_vb = |vb: &VbId| open.engine.vb_newest(*vb).ok() == wanted.get(vb).copied();
        if is_complete && query.is_complete && after == query.before && terms.keys().all(is_same_vb) {
            let numbers = after.iter().filter_map(|(key, found)| Some((id_of(key), found.as_ref()?.1)));
            indexes::check(&on, design, snapshot, &vbs, &numbers.collect());
            (checked.whole, checked.of_followers) = (1, u64::from(*of_followers));
        }
        for (key, before) in &query.before {
            let is_certain = before.is_some() || is_same_vb(&vb_of(info, key));
            if after.get(key) == Some(before) && is_certain {
                indexes::check_document(&on, design, &all, &id_of(key), before.map(|(_, n)| n));
                checked.documents += 1;
            }
        }
        Some(checked)
    }

    /// Looks at an index as it is, as a query at `stale=ok` does. Whether it has rows.
    fn look_as_it_is(&self, asked: &Asked) -> bool {
        let Some((open, running)) = self.running(asked) else { return false };
        let vbs: VbSet = terms(open, false).into_keys().collect();
        let looked = running.indexer.look(&asked.design.signature, &vbs);
        let Some((Some(snapshot), _)) = looked else { return false };
        let Some(all) = self.read_all(asked, &snapshot, &vbs) else { return false };
        let vb_of = |id: &str| vbucket_of(id.as_bytes(), open.engine.vbuckets());
        let design = &asked.design.document;
        indexes::check_as_it_is(&on(asked, false), design, &snapshot, &vbs, &all, vb_of);
        all.iter().any(|rows| !rows.is_empty())
    }

    /// The rows of all views. Where the index is damaged it is built anew, which has to have a reason.
    fn read_all(&self, asked: &Asked, snapshot: &Snapshot, vbs: &VbSet) -> Option<Vec<indexes::Found>> {
        let views = &asked.design.document.views;
        let read: Result<Vec<_>, _> =
            views.iter().map(|view| indexes::rows(snapshot, &view.name, vbs)).collect();
        let machine = self.machines.get(&asked.node);
        let may_be_damaged = machine.is_some_and(|machine| machine.shelf.has_lost_syncs);
        match read {
            Ok(read) => Some(read),
            Err(error) => {
                let on = on(asked, false);
                assert!(may_be_damaged && error.needs_rebuild(), "{on}, whose disk is good: {error}");
                let (_, running) = self.running(asked)?;
                running.indexer.report_damage(&asked.design.signature, snapshot.opening());
                None
            }
        }
    }

    // ---- the end --------------------------------------------------------------------------------------------------

    /// Looks at indexes as soon as everybody is in: what clients write next would hide what is wrong with them.
    pub(super) fn check_indexes_before_writes(&mut self) {
        if !self.has_views() {
            return;
        }
        self.clients.rest = true;
        self.until("idle clients", |world| world.clients.are_idle());
        self.until("copies that have everything", Self::is_at_rest);
        self.await_indexes();
        self.check_indexes_in_the_end();
        self.clients.rest = false;
    }

    /// Every bucket has all views again, and every index has everything, and nothing else.
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
        self.until("indexes that have everything", |world| {
            world.journal.now.is_multiple_of(LOOKS_MILLIS) && world.indexes_behind().is_empty()
        });
    }

    /// What indexes lack, or have beside, or are to be built anew for.
    pub(super) fn indexes_behind(&self) -> String {
        let mut behind = String::new();
        if !self.has_views() {
            return behind;
        }
        for Damage { asked, begun } in &self.indexes.damages {
            let _ = writeln!(
                behind,
                "damaged after it was begun {begun} times, and not begun since: {}",
                on(asked, false)
            );
        }
        for info in self.newest().buckets.values() {
            if !has_all_designs(info) {
                let _ = writeln!(behind, "{:?} lacks design documents", info.uuid);
            }
            for (node, open) in self.all_open(info) {
                let wanted = newest_of(open);
                let vbs: VbSet = wanted.keys().copied().collect();
                for asked in self.all_asked(node, info) {
                    let (name, signature) = (&asked.name, asked.design.signature);
                    let Some((_, running)) = self.running(&asked) else {
                        let _ = writeln!(behind, "{node} has no indexes of {:?}", info.uuid);
                        continue;
                    };
                    if is_development(name) {
                        running.indexer.ask(&signature, &wanted);
                    }
                    let waited = running.indexer.waited(&signature, &wanted).ok().flatten();
                    let waited = waited.filter(|snapshot| self.read_all(&asked, snapshot, &vbs).is_some());
                    let beside = waited.as_ref().map(|snapshot| snapshot.vbuckets().without(&vbs));
                    if beside.is_none_or(|beside| !beside.is_empty()) {
                        let status = status_of(running, signature);
                        let _ =
                            writeln!(behind, "{name} on {node} has {beside:?} beside: {status:?} {wanted:?}");
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

    /// All indexes of a bucket on a node, as far as design documents say.
    fn all_asked(&self, node: NodeId, info: &BucketInfo) -> Vec<Asked> {
        let process = self.machines.get(&node).and_then(|machine| machine.process.as_ref());
        let open = self.open(node, &info.uuid);
        let number = open.and_then(|open| Some(open.indexing.running.as_ref()?.number));
        let of = (process.map_or(0, |process| process.boot), number.unwrap_or(u64::MAX));
        let documents = info.design_documents.iter();
        let asked = documents.map(|(name, document)| Asked {
            node,
            of,
            bucket: info.uuid.clone(),
            name: name.to_owned(),
            design: design_of(&document.text),
        });
        asked.collect()
    }

    /// Each index is a map over what lies on its node's disk of the active copies, and of those that are indexed while they follow.
    pub(super) fn check_indexes_in_the_end(&mut self) {
        if !self.has_views() {
            return;
        }
        let metadata = Arc::clone(self.newest());
        for info in metadata.buckets.values() {
            for (node, open) in self.all_open(info) {
                let wanted = newest_of(open);
                let (vbs, served): (VbSet, VbSet) =
                    (wanted.keys().copied().collect(), terms(open, false).into_keys().collect());
                let numbers = numbers_on_disk(open, info, &vbs);
                for asked in self.all_asked(node, info) {
                    let (_, running) = self.running(&asked).expect("indexes");
                    let Design { document, signature } = &*asked.design;
                    let snapshot = running.indexer.waited(signature, &wanted);
                    let snapshot = snapshot.unwrap().expect("an index that has everything");
                    indexes::check(&on(&asked, false), document, &snapshot, &vbs, &numbers);
                    check_status(&asked, running, (&snapshot, &served), &wanted);
                }
            }
        }
    }

    /// What was held against documents.
    pub(crate) fn checked_of_indexes(&self) -> Checked {
        self.indexes.checked
    }

    /// What happened to views, in numbers.
    pub(super) fn summary_of_indexes(&self) -> String {
        if !self.has_views() {
            return String::new();
        }
        let Indexes { checked, left, late, changes, .. } = &self.indexes;
        format!(", views: {checked:?}, {left} left, {late} late, {changes} changes of design documents")
    }
}

/// Where an index is, for messages.
fn on(asked: &Asked, of_followers: bool) -> String {
    let copies = if of_followers { " (copies that follow)" } else { "" };
    format!("by {} on {} of {:?}{copies}", asked.name, asked.node, asked.bucket)
}

fn id_of(key: &[u8]) -> String {
    String::from_utf8(DocKey::trusted(key).logical().to_vec()).expect("a client's key")
}

fn has_all_designs(info: &BucketInfo) -> bool {
    DESIGNS.iter().all(|(name, _)| info.design_documents.get(name).is_some())
}

fn status_of(running: &Running, signature: Signature) -> Option<IndexStatus> {
    running.indexer.status().indexes.into_iter().find(|one| one.signature == signature)
}

/// What is told of an index that has everything. Nothing is left to do. Each row of what is served is counted once, and so is each copy
/// that follows another. A query that takes it as it is lacks no vBucket.
fn check_status(asked: &Asked, running: &Running, (snapshot, served): (&Snapshot, &VbSet), wanted: &Wants) {
    let (on, signature) = (on(asked, false), asked.design.signature);
    let status = status_of(running, signature).expect("an index");
    for view in &asked.design.document.views {
        let map = snapshot.definition().view(&view.name).expect("a view of the index").map;
        let rows = indexes::rows(snapshot, &view.name, served).unwrap().len();
        assert_eq!(status.rows[map], rows as u64, "rows of {} {on}: {status:?}", view.name);
    }
    let has_some = |vb: &VbId| wanted.get(vb).is_some_and(|(_, seqno)| *seqno > Seqno(0));
    let follow = wanted.keys().filter(|vb| !served.contains(**vb) && has_some(vb)).count();
    assert_eq!((status.left, status.followers), (0, follow as u64), "{on}: {status:?}");
    let (_, missing) = running.indexer.look(&signature, served).expect("an index");
    assert!(!missing.iter().any(|vb| has_some(&vb)), "{on} lacks {missing:?}");
}

/// The copies that are active, or those that are indexed while they follow, with their terms.
fn terms(open: &OpenBucket, of_followers: bool) -> BTreeMap<VbId, u64> {
    let role = if of_followers { VbRole::Replica } else { VbRole::Active };
    let term = |vb: VbId| match open.engine.vb_role(vb) {
        Ok((found, term)) if found == role => Some((vb, term)),
        _ => None,
    };
    if of_followers {
        return open.indexing.followers().filter_map(term).collect();
    }
    (0..open.engine.vbuckets()).map(VbId).filter_map(term).collect()
}

/// What the copies have that are indexed: the active ones, and those that may have to take over.
fn newest_of(open: &OpenBucket) -> Wants {
    let indexed = [false, true].into_iter().flat_map(|of_followers| terms(open, of_followers).into_keys());
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
            let collection = DocKey::trusted(&key).collection();
            if collection == CollectionId::DEFAULT && !meta.kind.is_tombstone() {
                numbers.insert(id_of(&key), decode_value(&value));
            }
        }
    }
    numbers
}
