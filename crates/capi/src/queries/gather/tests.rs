//! Three nodes that are made up: vBuckets 0 and 1 are on the first, 2 on the second, 3 on the third.

use std::{
    collections::HashSet,
    sync::{Mutex, atomic::AtomicUsize, atomic::Ordering::SeqCst},
};

use axum::body::to_bytes;
use base::{BucketUuid, Seqno, VbId, VbRole};
use cluster::{BucketParams, Command, DesignDocumentChange, NodeInfo, Ports, VbPlan, auth::Domain};
use http::AuditEvent;
use service::{Answer, Answers};
use tokio::{
    runtime::{Handle, Runtime},
    sync::Semaphore,
};
use views::{index::NoFunctions, reduce::Native, response::Response};

use super::{
    super::{
        Queries, Request,
        answers::ToNodes,
        fixture::{BUCKET, DESIGN, Home, OneBucket, question},
        plan,
        reducers::Reducers,
        shares::Shares,
    },
    *,
};
use crate::{answer::JsonType, streaming, wanted::Wanted};

/// The metadata that every node knows.
struct Known(Mutex<Arc<Metadata>>);

impl Gate for Known {
    fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&self.0.lock().unwrap())
    }

    fn this_node_uuid(&self) -> String {
        "0".to_owned()
    }

    fn audit(&self, _: AuditEvent) {}
}

/// Reaches the other nodes.
struct Others {
    runtime: Handle,
    answers: BTreeMap<NodeId, Arc<dyn Answers>>,
    down: Mutex<HashSet<NodeId>>,
    /// The service does not run there yet.
    starting: Mutex<HashSet<NodeId>>,
    asked: AtomicUsize,
}

impl Nodes for Others {
    fn ask(&self, node: NodeId, question: Bytes, _: Duration) -> Answer {
        self.asked.fetch_add(1, SeqCst);
        if self.down.lock().unwrap().contains(&node) {
            return Answer::failed(AskError::Unreachable("connection refused".to_owned()));
        }
        if self.starting.lock().unwrap().contains(&node) {
            return Answer::failed(AskError::Refused(NOT_RUNNING.to_owned()));
        }
        Answer::of(&self.runtime, &self.answers[&node], question, ())
    }
}

struct World {
    runtime: Runtime,
    homes: Vec<Arc<Home>>,
    known: Arc<Known>,
    others: Arc<Others>,
    revisions: watch::Sender<i64>,
    desk: Desk,
    unreachable: Duration,
}

fn plans(actives: [u16; 4]) -> Arc<Vec<VbPlan>> {
    let plan = |node| VbPlan::settled(vec![NodeId(node)], 1);
    Arc::new(actives.map(plan).to_vec())
}

fn metadata() -> Metadata {
    let node = |number: u16| {
        let ports = Ports { capi: 8092, ..Ports::default() };
        NodeInfo { id: NodeId(number), ..NodeInfo::first(number.to_string(), format!("n{number}"), ports) }
    };
    let params = BucketParams { ram_quota_mb: Some(100), replicas: Some(0), ..BucketParams::default() };
    let create = Command::CreateBucket { name: "app".into(), uuid: BucketUuid(BUCKET.into()), params };
    let meta = Metadata::new("c".repeat(32), 1024).apply(&Command::SetNode(node(0))).unwrap().0;
    let meta = meta.apply(&create).unwrap().0;
    let mut meta = designed(&meta, Some(DESIGN));
    meta.nodes.extend([node(1), node(2)]);
    let bucket = meta.buckets.get_mut("app").unwrap();
    (bucket.vbuckets, bucket.vbs) = (4, plans([0, 0, 1, 2]));
    bucket.legacy.passwordless = true;
    meta
}

/// The same with this text of the design document, or without it.
fn designed(meta: &Metadata, text: Option<&str>) -> Metadata {
    let (bucket, name, text) = ("app".into(), "d".into(), text.map(str::to_owned));
    let change = DesignDocumentChange { bucket, name, text, lot: 1, over: None };
    meta.apply(&Command::ChangeDesignDocument(change)).unwrap().0
}

impl World {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let homes: Vec<_> = [&[0, 1][..], &[2], &[3]].map(Home::serving).into();
        for (vb, node) in [(0, 0), (1, 0), (2, 1), (3, 2)] {
            homes[node].state().add(vb, &format!("d{vb}"), &[&vb.to_string()]);
        }
        let answers = |home: &Arc<Home>| {
            let desk = Desk::new(Arc::new(OneBucket(Arc::clone(home))));
            let reducers = Reducers::new(Arc::new(|| unreachable!("reductions are built in")));
            Arc::new(ToNodes { desk, reducers }) as Arc<dyn Answers>
        };
        let answers = (0..).map(NodeId).zip(homes.iter().map(answers)).collect();
        let others = Others {
            runtime: runtime.handle().clone(),
            answers,
            down: Mutex::default(),
            starting: Mutex::default(),
            asked: AtomicUsize::new(0),
        };
        Self {
            desk: Desk::new(Arc::new(OneBucket(Arc::clone(&homes[0])))),
            known: Arc::new(Known(Mutex::new(Arc::new(metadata())))),
            others: Arc::new(others),
            revisions: watch::Sender::new(0),
            unreachable: Duration::from_secs(60),
            homes,
            runtime,
        }
    }

    /// A vBucket goes to another node, which the metadata do not say yet.
    fn hand_over(&self, vb: u16, from: usize, to: usize) {
        let vb = VbId(vb);
        let seqno = {
            let mut from = self.homes[from].state();
            let (role, term, seqno) = from.copies.get_mut(&vb).unwrap();
            (*role, *term) = (VbRole::Replica, 2);
            *seqno
        };
        let mut to = self.homes[to].state();
        to.copies.insert(vb, (VbRole::Active, 2, Seqno(seqno.0 - 1)));
        to.add(vb.get(), &format!("d{}", vb.get()), &[&vb.get().to_string()]);
    }

    /// The metadata say where vBuckets are.
    fn plan(&self, actives: [u16; 4]) {
        let mut meta = metadata();
        meta.buckets.get_mut("app").unwrap().vbs = plans(actives);
        self.hear(meta);
    }

    fn reach(&self) -> Reach {
        Reach {
            gate: Arc::clone(&self.known) as Arc<dyn Gate>,
            revisions: self.revisions.subscribe(),
            nodes: Arc::clone(&self.others) as Arc<dyn Nodes>,
            unreachable: self.unreachable,
        }
    }

    /// What the node itself answers clients with.
    fn queries(&self) -> Queries {
        Queries {
            gate: Arc::clone(&self.known) as Arc<dyn Gate>,
            reach: self.reach(),
            desk: self.desk.clone(),
            reducers: Reducers::new(Arc::new(|| unreachable!("reductions are built in"))),
            shares: Shares::new(),
            definitions: Definitions::default(),
        }
    }

    /// What it answers somebody without a name with.
    async fn answered(&self, queries: &Queries, query: &str) -> Result<String, Refusal> {
        let uri = format!("/app/_design/d/_view/v?{query}");
        let (parts, ()) = axum::http::Request::get(uri).body(()).unwrap().into_parts();
        let meta = self.known.metadata();
        let request = Request {
            user: &Identity::anonymous(),
            local: ([127, 0, 0, 1], 8092).into(),
            kind: JsonType::JSON,
            bucket: "app",
            design: "d",
            view: "v",
            parts: &parts,
            body: Bytes::new(),
            may_redirect: false,
        };
        let reply = queries.answer(meta.buckets.get("app").unwrap(), request).await?;
        let bytes = to_bytes(reply.into_body(), usize::MAX).await.unwrap();
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Every node hears of other metadata.
    fn hear(&self, meta: Metadata) {
        *self.known.0.lock().unwrap() = Arc::new(meta);
        self.revisions.send_modify(|revision| *revision += 1);
    }

    /// What a client is told.
    fn told(&self, query: &str) -> Result<String, Refusal> {
        let reach = self.reach();
        let question = question(query, &[]);
        let query = Arc::clone(&question.query);
        let reducing = query.grouping.map(|_| Reducing::Native(Native::Count));
        let user = Identity::unproved("u", Domain::Local);
        let definitions = &Definitions::default();
        let (reach, desk, user) = (&reach, &self.desk, &user);
        let asking = Asking { reach, desk, definitions, user, bucket: "app", question, reducing };
        let all = plan::all(self.known.metadata().buckets.get("app").unwrap());
        self.runtime.block_on(async {
            let gathered = asking.gather(all).await?.expect("the design document is not replaced");
            let response = Response::new(&query, gathered.answers, None);
            let body =
                streaming::body(response, NoFunctions, Arc::new(Semaphore::new(1)), (Wanted::default(), ()));
            let bytes = to_bytes(body, usize::MAX).await.unwrap();
            Ok(String::from_utf8(bytes.to_vec()).unwrap())
        })
    }
}

/// An answer with a row of each of these vBuckets.
fn rows(vbs: &[u16]) -> String {
    let row = |vb: &u16| format!("{{\"id\":\"d{vb}\",\"key\":{vb},\"value\":7}}");
    let rows: Vec<_> = vbs.iter().map(row).collect();
    format!("{{\"total_rows\":{},\"rows\":[\r\n{}\r\n]", vbs.len(), rows.join(",\r\n"))
}

fn whole() -> String {
    rows(&[0, 1, 2, 3]) + "\r\n}\n"
}

#[test]
fn every_vbucket_is_asked_for_once_of_the_node_that_serves_it() {
    let world = World::new();
    for stale in ["false", "ok", "update_after"] {
        assert_eq!(world.told(&format!("reduce=false&stale={stale}")), Ok(whole()), "{stale}");
    }
    assert_eq!(world.others.asked.load(SeqCst), 6, "two other nodes, three times");
    let counted = "{\"rows\":[\r\n{\"key\":null,\"value\":4}\r\n]\r\n}\n";
    assert_eq!(world.told("stale=false"), Ok(counted.to_owned()));
}

#[test]
fn what_has_moved_is_asked_for_again_where_it_is() {
    for stale in ["false", "ok"] {
        let world = World::new();
        // Both have gone, one to a node that answers already, and the metadata here say so later.
        world.hand_over(2, 1, 2);
        world.hand_over(1, 0, 1);
        let told = std::thread::scope(|scope| {
            let query = format!("reduce=false&stale={stale}");
            let world = &world;
            let told = scope.spawn(move || world.told(&query));
            while world.others.asked.load(SeqCst) < 2 {
                std::thread::yield_now();
            }
            world.plan([0, 1, 2, 2]);
            told.join().unwrap()
        });
        assert_eq!(told, Ok(whole()), "{stale}");
    }
}

#[test]
fn a_node_that_cannot_be_reached_is_told_behind_the_rows_of_the_others() {
    let mut world = World::new();
    world.unreachable = Duration::from_millis(120);
    world.others.down.lock().unwrap().insert(NodeId(1));
    let told = "\"errors\":[\r\n{\"from\":\"n1:8092\",\"reason\":\"connection refused\"}\r\n]\r\n}\n";
    let expected = rows(&[0, 1, 3]) + ",\r\n" + told;
    assert_eq!(world.told("reduce=false&stale=false"), Ok(expected));
    // It is back in time.
    world.unreachable = Duration::from_secs(60);
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| world.told("reduce=false&stale=false"));
        let before = world.others.asked.load(SeqCst);
        while world.others.asked.load(SeqCst) < before + 2 {
            std::thread::yield_now();
        }
        world.others.down.lock().unwrap().clear();
        told.join().unwrap()
    });
    assert_eq!(told, Ok(whole()));
}

#[test]
fn a_node_whose_service_has_not_started_yet_is_asked_again() {
    let world = World::new();
    world.others.starting.lock().unwrap().insert(NodeId(2));
    let told = std::thread::scope(|scope| {
        let world = &world;
        let told = scope.spawn(move || world.told("reduce=false&stale=false"));
        while world.others.asked.load(SeqCst) < 4 {
            std::thread::yield_now();
        }
        world.others.starting.lock().unwrap().clear();
        told.join().unwrap()
    });
    assert_eq!(told, Ok(whole()));
}

#[test]
fn a_node_whose_service_does_not_run_is_asked_for_as_long_as_one_that_cannot_be_reached() {
    let mut world = World::new();
    world.unreachable = Duration::ZERO;
    world.others.starting.lock().unwrap().insert(NodeId(2));
    let told = format!("\"errors\":[\r\n{{\"from\":\"n2:8092\",\"reason\":\"{NOT_RUNNING}\"}}\r\n]\r\n}}\n");
    let expected = rows(&[0, 1, 2]) + ",\r\n" + &told;
    assert_eq!(world.told("reduce=false&stale=false"), Ok(expected));
    assert_eq!(world.others.asked.load(SeqCst), 2, "each of the other nodes was asked once");
}

#[test]
fn a_node_that_is_behind_is_told_and_where_nobody_answers_the_status_says_so() {
    let world = World::new();
    world.homes[2].state().store(3);
    let reason = "the index is not as far as it has to be: changes are still being indexed";
    let told = world.told("reduce=false&stale=false&connection_timeout=1");
    let expected = format!("\"errors\":[\r\n{{\"from\":\"n2:8092\",\"reason\":\"{reason}\"}}\r\n]\r\n}}\n");
    assert_eq!(told, Ok(rows(&[0, 1, 2]) + ",\r\n" + &expected));
    for (vb, node) in [(0, 0), (2, 1)] {
        world.homes[node].state().store(vb);
    }
    let refused = world.told("reduce=false&stale=false&connection_timeout=1");
    assert_eq!(refused, Err(Refusal { status: 500, error: "error", reason: reason.into() }));
}

#[test]
fn a_bucket_that_was_dropped_meanwhile_is_missing() {
    let world = World::new();
    world.hand_over(2, 1, 2);
    let refused = std::thread::scope(|scope| {
        let told = scope.spawn(|| world.told("reduce=false&stale=false"));
        while world.others.asked.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        let mut meta = metadata();
        meta.buckets.clear();
        *world.known.0.lock().unwrap() = Arc::new(meta);
        told.join().unwrap()
    });
    assert_eq!(refused, Err(answer::not_found("missing")));
}

/// A design document whose index no node has.
const ANOTHER: &str = r#"{"views":{"v":{"map":"y"}}}"#;

#[test]
fn a_query_whose_design_document_is_replaced_or_deleted_meanwhile_is_answered_by_what_it_is_then() {
    for (text, expected) in [
        (Some(DESIGN), Ok("{\"rows\":[\r\n{\"key\":null,\"value\":4}\r\n]\r\n}\n".to_owned())),
        (None, Err(answer::not_found("Design document _design/d deleted"))),
    ] {
        let world = World::new();
        world.hear(designed(&metadata(), Some(ANOTHER)));
        let begin = Instant::now();
        let told = std::thread::scope(|scope| {
            let told =
                scope.spawn(|| world.runtime.block_on(world.answered(&world.queries(), "stale=false")));
            while world.others.asked.load(SeqCst) < 2 {
                std::thread::yield_now();
            }
            world.hear(designed(&world.known.metadata(), text));
            told.join().unwrap()
        });
        assert_eq!(told, expected);
        assert!(begin.elapsed() < MOVING / 2, "it waits for no index that nothing defines");
    }
}

#[test]
fn a_design_document_that_is_replaced_again_and_again_gives_a_query_no_more_time() {
    let world = World::new();
    world.hear(designed(&metadata(), Some(ANOTHER)));
    let is_told = std::sync::atomic::AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            let query = "stale=false&connection_timeout=300";
            let told = world.runtime.block_on(world.answered(&world.queries(), query));
            is_told.store(true, SeqCst);
            told
        });
        let mut number = 0;
        while !is_told.load(SeqCst) && number < 500 {
            number += 1;
            world.hear(designed(&metadata(), Some(&ANOTHER.replace('y', &format!("y{number}")))));
            std::thread::park_timeout(Duration::from_millis(10));
        }
        told.join().unwrap()
    });
    let reason = "The design document was replaced while the query waited for an index.";
    assert_eq!(refused, Err(answer::failed(reason.to_owned())));
}

#[test]
fn a_query_that_waited_for_a_place_is_judged_again() {
    let world = World::new();
    let queries = world.queries();
    let user = Identity::anonymous();
    let soon = Duration::from_millis(50);
    let place = || async { timeout(soon, queries.shares.place(&user, 0)).await };
    let places: Vec<_> = std::iter::from_fn(|| world.runtime.block_on(place()).ok()).collect();
    let refused = world.runtime.block_on(async {
        let mut told = std::pin::pin!(world.answered(&queries, "stale=false"));
        assert!(timeout(soon, &mut told).await.is_err(), "it waits");
        let mut meta = metadata();
        meta.buckets.get_mut("app").unwrap().legacy.passwordless = false;
        world.hear(meta);
        drop(places);
        told.await
    });
    assert_eq!(refused, Err(answer::right_was_taken()));
}

#[test]
fn a_view_under_development_is_asked_over_one_vbucket_of_many_documents() {
    let meta = metadata();
    let info = meta.buckets.get("app").unwrap();
    let served = plan::served_by(info, NodeId(1));
    assert_eq!(served, [VbId(2)].into_iter().collect());
    assert_eq!(plan::of_development(info, &served, 80), plan::all(info));
    assert_eq!(plan::of_development(info, &served, 81), served);
    assert_eq!(plan::of_development(info, &VbSet::default(), 81), plan::all(info));
}
