//! The agent against copies that remember what was asked of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use base::{BucketUuid, NodeId, Now, Seqno, Status, VbId, VbRole, VbUuid, bucket::BucketKind};
use cluster::{
    Command, Membership, Metadata, NodeInfo, Ports, Rebalance, RebalanceKind, Recovery, TERMS_LEAP, VbPhase,
    VbPlan, orchestrator::DRAIN_PATIENCE_MS, report::VbReport,
};
use engine::Activation;
use replication::consumer::StreamWish;
use settee_node::{Agent, Buckets, Copies, Copy, Step, Wish};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const VBS: u16 = 16;
/// A copy that nothing has been asked of yet.
const WHOLE: Copy = Copy {
    role: VbRole::Dead,
    term: 0,
    unconfirmed: false,
    has_contents: false,
    blank: true,
    complete: true,
    vb_uuid: VbUuid(0),
    high_seqno: Seqno(0),
    held: Seqno(0),
    may_lack: false,
    persisted: Seqno(0),
    synced: Seqno(0),
};

/// One bucket's copies, and what was done to them since it was last looked.
#[derive(Default)]
struct Fake {
    copies: RefCell<BTreeMap<VbId, Copy>>,
    calls: RefCell<Vec<String>>,
    is_broken: Cell<bool>,
    /// This one refuses whatever is asked.
    refuses: Cell<Option<VbId>>,
    /// What is to be dropped is so some time later.
    drops_later: Cell<bool>,
    /// Durable writes are in progress, and have been waited for so long.
    drains_for: Cell<Option<u64>>,
    /// What a copy is once it was asked for its stream.
    next: Cell<Option<(VbId, Copy)>>,
}

impl Fake {
    fn change(&self, what: &str, vb: VbId, role: VbRole, term: u64) -> Result<(), Status> {
        self.calls.borrow_mut().push(format!("{what} {vb}@{term}"));
        if self.is_broken.get() || self.refuses.get() == Some(vb) {
            return Err(Status::TemporaryFailure);
        }
        let mut copies = self.copies.borrow_mut();
        let copy = copies.entry(vb).or_insert(WHOLE);
        (copy.role, copy.term) = (role, term);
        copy.unconfirmed &= role == VbRole::Dead;
        Ok(())
    }

    fn set(&self, vb: u16, copy: Copy) {
        self.copies.borrow_mut().insert(VbId(vb), copy);
    }

    fn took(&self) -> Vec<String> {
        self.calls.take()
    }
}

impl Copies for Fake {
    fn copy(&self, vb: VbId) -> Copy {
        self.copies.borrow().get(&vb).copied().unwrap_or(WHOLE)
    }

    fn activate(&self, copies: &[Activation], _: Now) -> Vec<(VbId, Result<(), Status>)> {
        let activate =
            |copy: &Activation| (copy.vb, self.change("activate", copy.vb, VbRole::Active, copy.term));
        copies.iter().map(activate).collect()
    }

    fn set_topology(&self, copy: &Activation, _: Now) -> Result<(), Status> {
        self.change(&format!("chain {:?}", copy.topology.chains.len()), copy.vb, VbRole::Active, copy.term)
    }

    fn drain(&self, _: VbId, _: u64, _: Now) -> Result<Option<u64>, Status> {
        Ok(self.drains_for.get())
    }

    fn seal(&self, vb: VbId, term: u64) -> Result<(), Status> {
        self.change("seal", vb, VbRole::Sealed, term)
    }

    fn make_replica(&self, vb: VbId, term: u64) -> Result<(), Status> {
        self.change("replica", vb, VbRole::Replica, term)
    }

    fn note_loss(&self, vb: VbId) -> Result<(), Status> {
        self.copies.borrow_mut().entry(vb).or_insert(WHOLE).may_lack = true;
        Ok(())
    }

    fn forget_role(&self, vb: VbId) -> Result<(), Status> {
        self.change("forget", vb, VbRole::Dead, 0)?;
        self.note_loss(vb)
    }

    fn make_dead(&self, vb: VbId, term: u64) -> Result<(), Status> {
        self.change("dead", vb, VbRole::Dead, term)
    }

    fn drop_contents(&self, vb: VbId, _: Now) -> Result<(), Status> {
        self.calls.borrow_mut().push(format!("drop {vb}"));
        if !self.drops_later.get() {
            self.copies.borrow_mut().remove(&vb);
        }
        Ok(())
    }
}

/// The one bucket of a node.
struct OneBucket<'a> {
    fake: &'a Rc<Fake>,
    is_open: bool,
    streams: &'a BTreeMap<VbId, u64>,
    lagging: Option<VbId>,
}

/// A node with one bucket, in a cluster of three.
struct Node {
    agent: Agent,
    metadata: Metadata,
    fake: Rc<Fake>,
    is_open: bool,
    /// Terms of open streams.
    streams: BTreeMap<VbId, u64>,
    /// A copy whose index lags.
    lagging: Option<VbId>,
}

impl Buckets for OneBucket<'_> {
    type Bucket = Rc<Fake>;

    fn copies(&self, _: &BucketUuid) -> Option<Rc<Fake>> {
        self.is_open.then(|| Rc::clone(self.fake))
    }

    fn following(&self, _: &BucketUuid, vb: VbId) -> Option<u64> {
        if let Some((_, copy)) = self.fake.next.take().filter(|(of, _)| *of == vb) {
            self.fake.set(vb.get(), copy);
        }
        self.streams.get(&vb).copied()
    }

    fn is_indexing(&self, _: &BucketUuid, vb: VbId) -> bool {
        self.lagging == Some(vb)
    }
}

impl Node {
    /// The node that is `this`, running when the bucket was created; every vBucket has `chain`.
    fn new(this: NodeId, kind: BucketKind, chain: &[NodeId]) -> Self {
        let mut node = Self::restarted(this, kind, chain);
        let bucket = node.metadata.buckets.remove("b").unwrap();
        assert!(node.settle().is_empty());
        node.metadata.buckets.insert("b".into(), bucket);
        node
    }

    /// The same, with the bucket there from before its last stop.
    fn restarted(this: NodeId, kind: BucketKind, chain: &[NodeId]) -> Self {
        let mut metadata = Metadata::new("c".into(), 1024);
        for id in [A, B, C] {
            let node = NodeInfo::first(format!("n{id}"), "127.0.0.1".into(), Ports::default());
            metadata.nodes.push(NodeInfo { id, ..node });
        }
        let params = cluster::BucketParams {
            ram_quota_mb: Some(100),
            kind: Some(kind),
            replicas: Some(1),
            vbuckets: Some(VBS),
            ..Default::default()
        };
        let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let (metadata, _) = metadata.apply(&create).unwrap();
        let agent = Agent::new(format!("n{this}"));
        let (fake, streams) = (Rc::default(), BTreeMap::new());
        let mut node = Self { agent, metadata, fake, is_open: true, streams, lagging: None };
        node.plan_all(|plan| *plan = VbPlan::settled(chain.to_vec(), 1));
        node
    }

    fn plan_all(&mut self, change: impl Fn(&mut VbPlan)) {
        let bucket = self.metadata.buckets.get_mut("b").unwrap();
        Arc::make_mut(&mut bucket.vbs).iter_mut().for_each(change);
    }

    fn plan(&mut self, vb: u16, plan: VbPlan) {
        let bucket = self.metadata.buckets.get_mut("b").unwrap();
        Arc::make_mut(&mut bucket.vbs)[usize::from(vb)] = plan;
    }

    fn step(&mut self) -> Step {
        let buckets = OneBucket {
            fake: &self.fake,
            is_open: self.is_open,
            streams: &self.streams,
            lagging: self.lagging,
        };
        self.agent.step(&self.metadata, &buckets, Now::default())
    }

    /// Steps until nothing is left to do; what was asked of the copies.
    fn settle(&mut self) -> Vec<String> {
        while self.step().more {}
        self.fake.took()
    }

    fn report(&self) -> Vec<VbReport> {
        let buckets = self.buckets();
        self.agent.report(&buckets).remove(0).vbs
    }

    fn buckets(&self) -> OneBucket<'_> {
        let (is_open, lagging) = (self.is_open, self.lagging);
        OneBucket { fake: &self.fake, is_open, streams: &self.streams, lagging }
    }
}

fn handover(chain: &[NodeId], after: &[NodeId], term: u64) -> VbPlan {
    let phase = VbPhase::Handover { to: after[0], after: after.to_vec() };
    VbPlan { phase, ..VbPlan::settled(chain.to_vec(), term) }
}

fn electing(among: &[NodeId], term: u64) -> VbPlan {
    let phase = VbPhase::Electing { among: among.to_vec() };
    VbPlan { phase, ..VbPlan::settled(among.to_vec(), term) }
}

#[test]
fn a_new_bucket_comes_into_service_at_once_and_then_costs_nothing() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    let calls = node.settle();
    assert_eq!(calls.len(), usize::from(VBS));
    assert!(calls.iter().all(|call| call.starts_with("activate")), "{calls:?}");
    assert!(node.settle().is_empty());
    // Another version of the metadata with the same plans.
    node.metadata.version += 1;
    assert!(node.settle().is_empty());
    assert!(!node.agent.is_busy());
    assert_eq!(node.report(), []);
}

#[test]
fn copies_that_are_to_do_without_a_node_are_reported_though_nothing_moves() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[C, B]);
    node.plan(3, VbPlan::settled(vec![C, B, A], 2));
    node.settle();
    assert_eq!(node.report(), []);
    node.metadata.rebalance = Some(Rebalance {
        id: "r".into(),
        kind: RebalanceKind::GracefulFailover,
        keep: vec![B, C],
        eject: vec![A],
        started_ms: 0,
        copies: 0,
    });
    assert!(node.settle().is_empty());
    let reported = node.report();
    assert_eq!(reported.iter().map(|copy| copy.vb).collect::<Vec<_>>(), [VbId(3)]);
    node.metadata.rebalance = None;
    node.settle();
    assert_eq!(node.report(), []);
}

#[test]
fn a_copy_that_already_serves_is_told_its_term_and_chain_only() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A]);
    for vb in 0..VBS {
        node.fake.set(vb, Copy { role: VbRole::Active, ..Copy::default() });
    }
    let calls = node.settle();
    assert!(calls.iter().all(|call| call.starts_with("chain 1") && call.ends_with("@1")), "{calls:?}");
}

#[test]
fn replicas_are_wished_for_from_the_active_node_at_the_term_of_the_plan() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    node.plan(3, VbPlan::settled(vec![C, B], 7));
    let step = node.step();
    assert!(step.wishes_changed);
    let wishes = node.agent.wishes();
    assert_eq!(wishes.iter().map(|wish| wish.peer).collect::<Vec<_>>(), [A, C]);
    assert_eq!(wishes[1].streams, [StreamWish { vb: VbId(3), term: 7 }]);
    assert_eq!(wishes[0].streams.len(), usize::from(VBS) - 1);
    assert!(!node.step().wishes_changed);
}

#[test]
fn nothing_is_done_before_the_bucket_is_open_and_all_of_it_then() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A]);
    node.is_open = false;
    assert!(node.settle().is_empty());
    assert!(node.agent.is_busy());
    node.is_open = true;
    assert_eq!(node.settle().len(), usize::from(VBS));
}

#[test]
fn what_was_refused_is_tried_again_and_does_not_spin() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    node.fake.is_broken.set(true);
    let step = node.step();
    assert_eq!((step.failed, step.more), (Some(Status::TemporaryFailure), false));
    assert!(node.agent.wishes().is_empty());
    node.fake.is_broken.set(false);
    node.fake.took();
    assert_eq!(node.settle().len(), usize::from(VBS));
    assert_eq!(node.agent.wishes().len(), 1);
}

#[test]
fn an_unconfirmed_copy_is_not_served_but_by_election() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    let unclean = Copy { unconfirmed: true, high_seqno: Seqno(9), ..Copy::default() };
    node.fake.set(5, unclean);
    assert!(!node.settle().contains(&"activate 5@1".into()));
    let reported = node.report();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].unconfirmed && reported[0].vb == VbId(5) && reported[0].role == VbRole::Dead);
    // Again, and when others of its plans change.
    node.plan(6, VbPlan::settled(vec![A, B], 2));
    assert_eq!(node.settle(), ["chain 1 6@2"]);

    node.plan(5, electing(&[A, B], 2));
    assert_eq!(node.settle(), ["replica 5@2"]);
    let reported = node.report();
    assert_eq!((reported[0].role, reported[0].term, reported[0].unconfirmed), (VbRole::Replica, 2, false));
    node.plan(5, VbPlan::settled(vec![A, B], 3));
    assert_eq!(node.settle(), ["activate 5@3"]);
    assert_eq!(node.report(), []);
}

#[test]
fn a_copy_that_has_just_taken_over_alone_does_not_confirm_itself() {
    let mut node = Node::restarted(A, BucketKind::Couchbase, &[A]);
    node.fake.set(3, Copy { has_contents: true, unconfirmed: true, ..WHOLE });
    // The one before has on disk what this one was told and had not written when it was killed.
    node.plan(3, VbPlan { joint: Some(vec![B]), ..VbPlan::settled(vec![A], 2) });
    assert!(!node.settle().contains(&"activate 3@2".into()));
    assert!(node.report().iter().any(|report| report.vb == VbId(3) && report.unconfirmed));
    node.plan(3, VbPlan::settled(vec![A], 2));
    assert_eq!(node.settle(), ["activate 3@2"]);
}

#[test]
fn a_copy_alone_confirms_itself() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A]);
    node.fake.set(5, Copy { unconfirmed: true, ..Copy::default() });
    assert!(node.settle().contains(&"activate 5@1".into()));
}

#[test]
fn what_memory_has_lost_over_a_restart_is_for_an_election_too() {
    let mut node = Node::restarted(A, BucketKind::Ephemeral, &[A, B]);
    node.fake.set(0, Copy { has_contents: true, ..Copy::default() });
    assert!(node.settle().is_empty());
    assert_eq!(node.report().len(), usize::from(VBS));
    node.plan_all(|plan| *plan = electing(&[A, B], 2));
    node.settle();
    assert!(
        node.report().iter().all(|copy| copy.term == 2 && copy.may_lack),
        "it may be chosen, and does not count"
    );
    node.plan_all(|plan| *plan = VbPlan::settled(vec![B, A], 3));
    node.settle();
    assert_eq!(node.agent.wishes()[0].peer, B);

    // A bucket that appears while the node runs is new, and needs nobody's word.
    let mut node = Node::new(A, BucketKind::Ephemeral, &[A, B]);
    assert_eq!(node.settle().len(), usize::from(VBS));
}

#[test]
fn a_copy_that_is_empty_after_a_restart_may_have_lost_everything() {
    let mut node = Node::restarted(A, BucketKind::Couchbase, &[A, B]);
    node.fake.set(3, Copy { has_contents: true, ..Copy::default() });
    assert_eq!(node.settle(), ["activate 3@1"]);
    let reported = node.report();
    assert_eq!(reported.len(), usize::from(VBS) - 1);
    assert!(reported.iter().all(|report| report.unconfirmed));

    // Unless there is nobody else who could have it.
    let mut node = Node::restarted(A, BucketKind::Couchbase, &[A]);
    assert_eq!(node.settle().len(), usize::from(VBS));
}

#[test]
fn the_old_active_seals_follows_its_successor_and_says_so() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.settle();
    node.plan(2, handover(&[A, B], &[B, A], 1));
    assert_eq!(node.settle(), ["seal 2@1"]);
    assert_eq!(node.report()[0].role, VbRole::Sealed);
    node.plan(2, VbPlan::settled(vec![B, A], 2));
    assert_eq!(node.settle(), ["replica 2@2"]);
    let streams = vec![StreamWish { vb: VbId(2), term: 2 }];
    assert_eq!(node.agent.wishes(), [Wish { bucket: BucketUuid("u".into()), peer: B, streams }]);
    assert_eq!(node.report(), []);
}

#[test]
fn a_copy_is_sealed_once_its_durable_writes_have_ended_or_have_been_waited_for() {
    for over in [None, Some(DRAIN_PATIENCE_MS)] {
        let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
        node.settle();
        node.fake.drains_for.set(Some(DRAIN_PATIENCE_MS - 1));
        node.metadata.version += 1;
        node.plan(2, handover(&[A, B], &[B], 1));
        assert!(node.settle().is_empty());
        assert_eq!(node.report()[0].role, VbRole::Active);
        assert!(node.agent.is_busy(), "somebody looks again soon");
        assert_eq!(node.agent.applied(), node.metadata.version, "nobody else has it yet");
        node.fake.drains_for.set(over);
        assert_eq!(node.settle(), ["seal 2@1"]);
    }
}

#[test]
fn an_unconfirmed_copy_has_nothing_to_hand_over() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.fake.set(2, Copy { unconfirmed: true, ..Copy::default() });
    node.plan(2, handover(&[A, B], &[B], 1));
    assert!(!node.settle().contains(&"seal 2@1".into()));
    assert!(node.report().iter().any(|report| report.vb == VbId(2) && report.unconfirmed));
}

#[test]
fn a_copy_that_was_restarted_in_a_handover_waits_to_be_let_serve() {
    let mut node = Node::restarted(A, BucketKind::Couchbase, &[A, B]);
    for vb in 0..VBS {
        node.fake.set(vb, Copy { has_contents: true, blank: false, ..WHOLE });
    }
    node.plan(2, handover(&[A, B], &[B, A], 1));
    assert!(!node.settle().contains(&"seal 2@1".into()));
    assert!(node.report().iter().any(|report| report.vb == VbId(2) && report.role == VbRole::Dead));
    assert_eq!(node.step().failed, None);
    node.plan(2, VbPlan::settled(vec![A, B], 2));
    assert_eq!(node.settle(), ["activate 2@2"]);
}

#[test]
fn a_copy_that_counts_and_is_begun_anew_is_told_of() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    node.settle();
    assert_eq!(node.report(), []);
    let anew = Copy { role: VbRole::Replica, term: 1, complete: false, ..WHOLE };
    node.fake.set(5, anew);
    (0..VBS).for_each(|_| drop(node.settle()));
    assert!(matches!(node.report().as_slice(), [report] if report.vb == VbId(5) && !report.complete));
    node.fake.set(5, Copy { complete: true, ..anew });
    (0..VBS).for_each(|_| drop(node.settle()));
    assert_eq!(node.report(), []);
}

#[test]
fn a_node_that_builds_reports_how_far_it_is() {
    let mut node = Node::new(C, BucketKind::Couchbase, &[A, B]);
    node.plan(1, VbPlan { building: vec![C], ..VbPlan::settled(vec![A, B], 1) });
    node.settle();
    node.fake.set(
        1,
        Copy { role: VbRole::Replica, term: 1, complete: true, high_seqno: Seqno(4), ..Copy::default() },
    );
    assert!(!node.report()[0].following);
    node.streams.insert(VbId(1), 1);
    let report = node.report()[0];
    assert!(report.following && report.complete && report.high_seqno == Seqno(4));
    // The stream of another term does not count.
    node.streams.insert(VbId(1), 0);
    assert!(!node.report()[0].following);
}

/// A stream that has just been opened has a copy go back, or begin anew.
#[test]
fn a_copy_is_told_as_it_is_since_its_stream_was_opened() {
    let mut node = Node::new(C, BucketKind::Couchbase, &[A, B]);
    node.plan(1, VbPlan { building: vec![C], ..VbPlan::settled(vec![A, B], 1) });
    node.settle();
    let before = Copy { role: VbRole::Replica, term: 1, high_seqno: Seqno(9), blank: false, ..WHOLE };
    node.fake.set(1, before);
    node.streams.insert(VbId(1), 1);
    node.fake.next.set(Some((VbId(1), Copy { complete: false, high_seqno: Seqno(4), ..before })));
    let report = node.report()[0];
    assert!(report.following && !report.complete && report.high_seqno == Seqno(4));
}

#[test]
fn a_node_that_builds_reports_that_an_index_lags() {
    let mut node = Node::new(C, BucketKind::Couchbase, &[A, B]);
    node.plan(1, VbPlan { building: vec![C], ..VbPlan::settled(vec![A, B], 1) });
    node.settle();
    let copy = |role| Copy { role, term: 1, complete: true, high_seqno: Seqno(4), ..Copy::default() };
    node.fake.set(1, copy(VbRole::Replica));
    assert!(!node.report()[0].indexing);
    node.lagging = Some(VbId(1));
    assert!(node.report()[0].indexing);
    node.fake.set(1, copy(VbRole::Active));
    assert!(node.report().iter().all(|report| !report.indexing), "it serves");
}

#[test]
fn a_plan_counts_as_applied_once_nothing_is_served_that_others_have() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.metadata.version = 7;
    node.settle();
    assert_eq!(node.agent.applied(), 7);
    node.metadata.version = 8;
    node.plan(4, VbPlan::settled(vec![B], 2));
    node.fake.set(4, Copy { role: VbRole::Active, term: 1, ..Copy::default() });
    node.fake.is_broken.set(true);
    assert!(node.step().failed.is_some());
    assert_eq!(node.agent.applied(), 7);
    node.fake.is_broken.set(false);
    node.settle();
    assert_eq!(node.agent.applied(), 8);
}

/// It was cut off, failed over and removed, and hears of it all at once.
#[test]
fn a_node_that_is_none_of_the_clusters_any_more_serves_nothing() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.metadata.version = 7;
    node.settle();
    node.fake.set(5, Copy { role: VbRole::Replica, term: 1, ..WHOLE });
    node.fake.set(6, Copy { role: VbRole::Sealed, term: 9, ..WHOLE });
    node.metadata.version = 8;
    node.metadata.nodes.remove(0);
    node.plan_all(|plan| *plan = VbPlan::settled(vec![B, C], 3));
    node.fake.is_broken.set(true);
    assert!(node.step().failed.is_some());
    node.fake.took();
    node.fake.is_broken.set(false);
    let calls = node.settle();
    assert_eq!(calls.len(), usize::from(VBS) - 1, "{calls:?}");
    assert!(calls.contains(&"dead 4@3".into()) && calls.contains(&"dead 6@9".into()), "{calls:?}");
    assert!(node.settle().is_empty());
    assert_eq!(node.agent.applied(), 7);
}

/// The leader hears of it before all of it is carried out, and may be about to do without the other copies.
#[test]
fn a_copy_that_has_lost_everything_says_so_from_the_first_report_on() {
    const MANY: usize = 256;
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut node = Node::restarted(B, kind, &[]);
        let chains = [[A, B], [B, A]].map(|chain| VbPlan::settled(chain.to_vec(), 1));
        let plans = chains.iter().cycle().take(MANY).cloned().collect();
        node.metadata.buckets.get_mut("b").unwrap().vbs = Arc::new(plans);
        assert!(node.step().more, "not all of it is carried out yet");
        let has_lost = |copy: &VbReport| copy.may_lack || copy.unconfirmed;
        loop {
            let reported = node.report();
            assert_eq!(reported.iter().filter(|copy| has_lost(copy)).count(), MANY, "{kind:?}");
            if !node.step().more {
                break;
            }
        }
    }
    // What was found on disk after a clean stop is whole, whether or not that has been carried out.
    let mut node = Node::restarted(B, BucketKind::Couchbase, &[A, B]);
    (0..VBS).for_each(|vb| node.fake.set(vb, Copy { has_contents: true, blank: false, ..WHOLE }));
    node.fake.is_broken.set(true);
    assert!(node.step().failed.is_some());
    assert!(node.report().iter().all(|copy| !copy.may_lack && !copy.unconfirmed));
}

/// A node that was failed over is asked what it held, though it has no place any more.
#[test]
fn what_is_kept_may_have_been_lost_over_a_restart() {
    let mut node = Node::restarted(A, BucketKind::Couchbase, &[B]);
    node.metadata.nodes[0].membership = Membership::InactiveFailed;
    node.fake.set(3, Copy { blank: false, ..WHOLE });
    let calls = node.settle();
    assert!(calls.contains(&"dead 2@1".into()) && calls.contains(&"dead 3@1".into()), "{calls:?}");
    assert!(node.fake.copy(VbId(2)).may_lack && !node.fake.copy(VbId(3)).may_lack);
}

#[test]
fn what_moved_away_is_dropped_once() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.settle();
    node.fake.set(4, Copy { role: VbRole::Active, term: 1, has_contents: true, ..Copy::default() });
    node.plan(4, VbPlan::settled(vec![C, B], 2));
    assert_eq!(node.settle(), ["dead 4@2", "drop 4"]);
    node.plan(4, VbPlan::settled(vec![B, C], 3));
    assert!(node.settle().is_empty());
}

#[test]
fn nothing_waits_for_what_is_dropped_later() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.settle();
    for vb in [4, 5] {
        node.fake.set(vb, Copy { role: VbRole::Active, term: 1, has_contents: true, ..WHOLE });
    }
    node.fake.drops_later.set(true);
    node.metadata.version = 8;
    node.plan(4, VbPlan::settled(vec![C, B], 2));
    node.plan(5, VbPlan::settled(vec![C, B], 2));
    assert_eq!(node.settle(), ["dead 4@2", "dead 5@2", "drop 4", "drop 5"]);
    assert_eq!((node.agent.applied(), node.agent.is_busy()), (8, false), "it serves nothing any more");
    // It is asked for until it has happened, and before that nothing is built.
    node.metadata.version = 9;
    node.plan(5, VbPlan { building: vec![A], ..VbPlan::settled(vec![C, B], 2) });
    assert_eq!(node.settle(), ["drop 4", "drop 5"]);
    assert_eq!(node.agent.applied(), 9);
    node.fake.drops_later.set(false);
    assert_eq!(node.settle(), ["drop 4", "drop 5"]);
    assert_eq!(node.settle(), ["replica 5@2"]);
    // What is needed after all stays.
    node.fake.drops_later.set(true);
    node.fake.set(6, Copy { role: VbRole::Active, term: 1, has_contents: true, ..WHOLE });
    node.plan(6, VbPlan::settled(vec![C, B], 2));
    assert_eq!(node.settle(), ["dead 6@2", "drop 6"]);
    node.plan(6, VbPlan::settled(vec![], 3));
    assert_eq!(node.settle(), ["dead 6@3"]);
}

#[test]
fn what_has_stopped_is_reported_before_anything_is_brought_into_service() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.settle();
    node.plan(1, handover(&[A, B], &[B, A], 1));
    node.plan(2, VbPlan::settled(vec![A, B], 2));
    node.fake.set(2, Copy { role: VbRole::Replica, term: 1, ..WHOLE });
    assert!(node.step().more);
    assert_eq!(node.fake.took(), ["seal 1@1"]);
    assert!(!node.step().more);
    assert_eq!(node.fake.took(), ["activate 2@2"]);
    // What cannot be stopped holds up nothing else.
    node.plan(3, handover(&[A, B], &[B, A], 1));
    node.plan(4, VbPlan::settled(vec![A, B], 2));
    node.fake.set(4, Copy { role: VbRole::Replica, term: 1, ..WHOLE });
    node.fake.is_broken.set(true);
    assert!(!node.step().more);
    assert_eq!(node.fake.took(), ["seal 3@1", "activate 4@2"]);
}

#[test]
fn what_a_failed_node_has_stays_until_it_comes_back_from_nothing() {
    let mut node = Node::new(A, BucketKind::Couchbase, &[A, B]);
    node.settle();
    for vb in 0..VBS {
        node.fake.set(vb, Copy { role: VbRole::Active, term: 1, has_contents: true, ..Copy::default() });
    }
    node.metadata.nodes[0].membership = Membership::InactiveFailed;
    node.plan_all(|plan| *plan = VbPlan::settled(vec![B], 3));
    let calls = node.settle();
    assert!(
        calls.len() == usize::from(VBS) && calls.iter().all(|call| call.starts_with("dead")),
        "{calls:?}"
    );

    // It comes back with what it has: one vBucket is built upon, the others stay until all is done.
    node.metadata.nodes[0].membership = Membership::Active;
    node.metadata.nodes[0].recovery = Some(Recovery::Delta);
    node.plan(0, VbPlan { building: vec![A], ..VbPlan::settled(vec![B], 3) });
    assert_eq!(node.settle(), ["replica 0@3"]);
    node.metadata.nodes[0].recovery = None;
    let calls = node.settle();
    assert_eq!(calls.iter().filter(|call| call.starts_with("drop")).count(), usize::from(VBS) - 1);

    // From nothing: what it has goes before anything is built.
    let mut node = Node::new(A, BucketKind::Couchbase, &[B]);
    node.fake.set(0, Copy { has_contents: true, ..Copy::default() });
    node.metadata.nodes[0].membership = Membership::InactiveFailed;
    node.settle();
    assert!(node.fake.copies.borrow().contains_key(&VbId(0)));
    node.metadata.nodes[0].recovery = Some(Recovery::Full);
    assert_eq!(node.settle(), ["drop 0"]);
}

#[test]
fn more_changes_than_one_call_makes_are_made_in_several() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    let bucket = node.metadata.buckets.get_mut("b").unwrap();
    bucket.vbs = Arc::new(vec![VbPlan::settled(vec![A, B], 1); 1024]);
    assert!(node.step().more);
    assert!(node.fake.took().len() < 1024);
    node.settle();
    assert_eq!(node.agent.wishes()[0].streams.len(), 1024);
}

#[test]
fn a_bucket_that_is_gone_is_not_wished_for() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    node.settle();
    node.metadata.buckets.clear();
    assert!(node.step().wishes_changed);
    assert!(node.agent.wishes().is_empty());
}

/// Two groups that were formed anew of the same one have plans of the same terms, or of earlier ones than the node has obeyed.
#[test]
fn terms_of_another_life_of_the_group_are_forgotten() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    node.plan(3, VbPlan::settled(vec![B, A], 7));
    node.plan(4, VbPlan::settled(vec![A, B], 7));
    node.plan(5, VbPlan::settled(vec![B, A], 7));
    node.plan(7, VbPlan::settled(vec![B, A], 7));
    node.settle();
    assert_eq!(node.agent.wishes()[0].streams.len(), usize::from(VBS) - 3);
    // In the group that it is in now an earlier term holds for one, the same for another, a later one for the third. Those of the life
    // before both are earlier by a leap.
    node.plan_all(|plan| plan.term = TERMS_LEAP + 1);
    node.plan(3, VbPlan::settled(vec![A, B], 5));
    node.plan(4, VbPlan::settled(vec![A, B], 7));
    node.plan(5, VbPlan::settled(vec![A, B], TERMS_LEAP + 6));
    node.plan(7, VbPlan::settled(vec![B, A], TERMS_LEAP + 7));
    node.agent.begin_again();
    let calls = node.settle();
    let of = |vb: &str| -> Vec<&str> {
        calls.iter().filter(|call| call.contains(vb)).map(String::as_str).collect()
    };
    assert_eq!(of(" 3@"), ["forget 3@0", "replica 3@5"]);
    assert_eq!(of(" 4@"), ["forget 4@0", "replica 4@7"], "though it is what was done already");
    assert_eq!(of(" 5@"), ["forget 5@0", "replica 5@1030"], "it is no term of the life before both");
    assert_eq!(of(" 6@"), ["replica 6@1025"]);
    assert_eq!(of(" 7@"), ["chain 1 7@1031"], "it goes on");
    assert!(node.settle().is_empty());
}

/// By the next call it may be the active copy in the life that counts.
#[test]
fn a_copy_that_has_forgotten_the_terms_of_another_life_does_so_once() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    for vb in [3, 4] {
        node.plan(vb, VbPlan::settled(vec![B, A], 7));
    }
    node.settle();
    node.agent.begin_again();
    node.fake.refuses.set(Some(VbId(3)));
    node.plan_all(|plan| plan.term = 7);
    node.settle();
    node.fake.refuses.set(None);
    let calls = node.settle();
    assert!(calls.contains(&"forget 3@0".to_owned()), "{calls:?}");
    assert!(!calls.iter().any(|call| call.contains(" 4@")), "it has its role already: {calls:?}");
}

#[test]
fn a_branch_of_another_life_of_the_group_does_not_pass_for_the_later_one() {
    let mut node = Node::new(B, BucketKind::Couchbase, &[A, B]);
    node.plan(3, electing(&[A, B], 7));
    node.settle();
    let branch = VbUuid(5).of_generation(900);
    node.fake.set(3, Copy { role: VbRole::Replica, term: 7, vb_uuid: branch, blank: false, ..WHOLE });
    let told = |node: &Node| node.report().into_iter().find(|copy| copy.vb == VbId(3)).unwrap();
    assert_eq!(told(&node).vb_uuid, branch);
    node.agent.begin_again();
    node.plan(3, electing(&[A, B], 9));
    node.settle();
    let copy = told(&node);
    assert_eq!((copy.vb_uuid.generation(), copy.may_lack, copy.term), (0, true, 9));
    // What it is told by an active copy of this life belongs to this life.
    node.plan(3, VbPlan { joint: Some(vec![A]), ..VbPlan::settled(vec![A, B], 10) });
    node.settle();
    let caught_up = Copy { may_lack: false, ..node.fake.copy(VbId(3)) };
    node.fake.set(3, caught_up);
    node.settle();
    node.fake.set(3, Copy { may_lack: true, ..caught_up });
    assert_eq!(told(&node).vb_uuid, branch);
}
