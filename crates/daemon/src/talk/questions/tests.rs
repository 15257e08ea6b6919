//! Two nodes of one cluster in this process, with a service that answers as it is asked.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::auth::Domain;
use http::{Surface, reply};
use service::{Parts, Port, Running, Service};
use tempfile::TempDir;

use super::*;
use crate::{InitBucket, Node, start, tests::support};

const PATIENCE: Duration = Duration::from_secs(60);
const PART_BYTES: usize = 64 << 10;
/// Of an answer what was given and not taken: in queues, buffers of HTTP, and those of the system at both ends.
const ON_THE_WAY_MAX: usize = 24 << 20;
const LOGIN: &str = "Administrator:password";

/// What the service is, and what it notes.
#[derive(Clone, Default)]
struct Talker {
    context: Arc<Mutex<Option<service::Context>>>,
    /// Bytes that it has given to the asker of [`STREAM`].
    given: Arc<AtomicUsize>,
    /// Answers to [`HANG`] that have not ended.
    hanging: Arc<AtomicUsize>,
}

/// So many parts.
fn stream(parts: u32) -> Bytes {
    Bytes::from(parts.to_string())
}

/// One part, and then nothing more.
const HANG: &[u8] = b"hang";
/// A refusal.
const REFUSE: &[u8] = b"refuse";

struct Hanging(Arc<AtomicUsize>);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Answers for Talker {
    fn answer(&self, question: Bytes, parts: Parts) -> http::BoxFuture<'static, Result<(), String>> {
        let me = self.clone();
        Box::pin(async move {
            if question == REFUSE {
                return Err("as it was asked".to_owned());
            }
            let part = Bytes::from(vec![7; PART_BYTES]);
            let gone = |gone: service::Gone| gone.to_string();
            if question == HANG {
                me.hanging.fetch_add(1, Ordering::SeqCst);
                let _hanging = Hanging(me.hanging);
                parts.send(part).await.map_err(gone)?;
                std::future::pending::<()>().await;
                return Ok(());
            }
            let count = std::str::from_utf8(&question).ok().and_then(|text| text.parse::<u32>().ok());
            for _ in 0..count.ok_or("no number")? {
                me.given.fetch_add(part.len(), Ordering::SeqCst);
                parts.send(part.clone()).await.map_err(gone)?;
            }
            Ok(())
        })
    }
}

impl Service for Talker {
    fn name(&self) -> &'static str {
        "talker"
    }

    fn ports(&self) -> &'static [Port] {
        &[]
    }

    fn start(self: Box<Self>, context: service::Context) -> std::io::Result<Box<dyn Running>> {
        *self.context.lock() = Some(context);
        Ok(self)
    }
}

impl Running for Talker {
    fn surface(&self) -> Arc<dyn Surface> {
        Arc::new(NoSurface)
    }

    fn answers(&self) -> Option<Arc<dyn Answers>> {
        Some(Arc::new(self.clone()))
    }

    fn stop(self: Box<Self>) {
        *self.context.lock() = None;
    }
}

struct NoSurface;

impl Surface for NoSurface {
    fn answer(
        self: Arc<Self>,
        _: hyper::http::request::Parts,
        _: hyper::body::Incoming,
        _: http::Connection,
    ) -> http::BoxFuture<'static, reply::Reply> {
        Box::pin(std::future::ready(reply::not_found()))
    }
}

/// A node with its service.
struct Member {
    node: Node,
    talker: Talker,
    _dir: TempDir,
}

impl Member {
    fn start(is_first: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bucket = InitBucket { name: "b".into(), quota_mb: 100, legacy_access: false };
        let mut options = support::options(dir.path(), bucket);
        let init = options.init.take().filter(|_| is_first);
        options.init = init.map(|init| crate::InitOptions { bucket: None, ..init });
        // The ports of views are bound, and need their service.
        let talker = Talker::default();
        let services: Vec<Box<dyn Service>> = vec![Box::new(talker.clone())];
        Self { node: start::start(&options, services).unwrap(), talker, _dir: dir }
    }

    fn context(&self) -> service::Context {
        self.talker.context.lock().clone().expect("the service runs")
    }

    fn id(&self) -> NodeId {
        let gate = self.context().gate;
        gate.metadata().node(&gate.this_node_uuid()).expect("it knows itself").id
    }

    fn ask(&self, to: NodeId, question: impl Into<Bytes>) -> Answer {
        self.context().nodes.ask(to, question.into(), PATIENCE)
    }

    /// The status and body of a request to its REST interface.
    fn post(&self, path: &str, form: &str) -> (u16, String) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.node.ports().mgmt)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (login, length) = (STANDARD.encode(LOGIN), form.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\
             Content-Length: {length}\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n{form}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, answer)
    }
}

/// Two nodes of one cluster, and what REST calls the second.
fn pair() -> (Member, Member, String) {
    let (first, second) = (Member::start(true), Member::start(false));
    let mgmt = second.node.ports().mgmt;
    let form =
        format!("hostname=http%3A%2F%2F127.0.0.1%3A{mgmt}&user=Administrator&password=password&services=kv");
    let (status, answer) = first.post("/controller/addNode", &form);
    assert_eq!(status, 200, "{answer}");
    // Each has to hear of the other.
    for (asker, other) in [(&first, &second), (&second, &first)] {
        until(|| block_on(whole(&mut asker.ask(other.id(), stream(0)))) == Ok(0));
    }
    let name = answer.split('"').find(|part| part.contains('@')).expect("a name").to_owned();
    (first, second, name)
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it did not come about");
        std::thread::yield_now();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// How many bytes an answer has, or how it ends.
async fn whole(answer: &mut Answer) -> Result<usize, AskError> {
    let mut bytes = 0;
    while let Some(part) = answer.next().await? {
        bytes += part.len();
    }
    Ok(bytes)
}

/// One after the other in two nodes, whose start is what takes time.
#[test]
fn nodes_ask_one_another_and_nothing_that_one_does_harms_the_other() {
    let (first, second, _) = pair();
    an_answer_of_many_megabytes_has_little_on_the_way(&first, &second);
    an_asker_that_leaves_ends_the_answer(&first, &second);
    slow_askers_hold_up_no_other(&first, &second);
    what_is_not_answered_is_a_value(&first, &second);
    a_user_leaves_room_for_others(&first, &second);
    a_connection_is_used_again(&first, &second);
    an_answerer_that_ends_is_an_error(first, second);
}

fn an_answer_of_many_megabytes_has_little_on_the_way(first: &Member, second: &Member) {
    const PARTS: u32 = 64 << 20 >> 16;
    // Of this node, without a connection, as well.
    for to in [second, first] {
        to.talker.given.store(0, Ordering::SeqCst);
        let mut answer = first.ask(to.id(), stream(PARTS));
        let mut taken = 0;
        block_on(async {
            while let Some(part) = answer.next().await.unwrap() {
                taken += part.len();
                let on_the_way = to.talker.given.load(Ordering::SeqCst).saturating_sub(taken);
                assert!(on_the_way < ON_THE_WAY_MAX, "{on_the_way} bytes on the way after {taken}");
            }
        });
        assert_eq!(taken, PARTS as usize * PART_BYTES);
    }
}

fn an_asker_that_leaves_ends_the_answer(first: &Member, second: &Member) {
    for to in [second, first] {
        let mut answer = first.ask(to.id(), HANG);
        assert_eq!(block_on(answer.next()).unwrap().map(|part| !part.is_empty()), Some(true));
        assert_eq!(to.talker.hanging.load(Ordering::SeqCst), 1);
        drop(answer);
        until(|| to.talker.hanging.load(Ordering::SeqCst) == 0);
    }
}

fn slow_askers_hold_up_no_other(first: &Member, second: &Member) {
    let mut slow: Vec<Answer> = (0..8).map(|_| first.ask(second.id(), stream(4096))).collect();
    for answer in &mut slow {
        assert!(block_on(answer.next()).unwrap().is_some());
    }
    assert_eq!(block_on(whole(&mut first.ask(second.id(), stream(100)))), Ok(100 * PART_BYTES));
    assert_eq!(block_on(whole(&mut second.ask(first.id(), stream(100)))), Ok(100 * PART_BYTES));
}

fn what_is_not_answered_is_a_value(first: &Member, second: &Member) {
    let ends = |to: NodeId, question: Bytes| block_on(whole(&mut first.ask(to, question)));
    let refused = |reason: &str| Err(AskError::Refused(reason.to_owned()));
    for to in [first.id(), second.id()] {
        assert_eq!(ends(to, REFUSE.into()), refused("as it was asked"));
        assert_eq!(ends(to, vec![b'0'; QUESTION_BYTES_MAX + 1].into()), refused(TOO_LONG));
    }
    assert!(matches!(ends(NodeId(77), stream(0)), Err(AskError::Unreachable(_))));
    // Over a connection that is there already: to open one may take longer than that.
    assert_eq!(ends(second.id(), stream(0)), Ok(0));
    let mut silent = first.context().nodes.ask(second.id(), HANG.into(), Duration::from_secs(1));
    assert!(matches!(block_on(whole(&mut silent)), Err(AskError::TimedOut)));
    until(|| second.talker.hanging.load(Ordering::SeqCst) == 0);
    let mut open: Vec<Answer> = (0..OPEN_ANSWERS).map(|_| first.ask(second.id(), HANG)).collect();
    for answer in &mut open {
        assert!(block_on(answer.next()).unwrap().is_some());
    }
    assert!(matches!(ends(second.id(), stream(0)), Err(AskError::Refused(_))), "there is no place");
    drop(open);
    until(|| ends(second.id(), stream(0)).is_ok());
}

fn a_user_leaves_room_for_others(first: &Member, second: &Member) {
    let [ann, bob] = ["ann", "bob"].map(|name| Identity::unproved(name, Domain::Local));
    for to in [second, first] {
        let nodes = first.context().nodes;
        let ask = |user: &Identity, question: Bytes| nodes.ask_for(user, to.id(), question, PATIENCE);
        let mut open: Vec<Answer> = (0..OPEN_FOR_USER).map(|_| ask(&ann, HANG.into())).collect();
        for answer in &mut open {
            assert!(block_on(answer.next()).unwrap().is_some());
        }
        let one_more = |user: &Identity| block_on(whole(&mut ask(user, stream(0))));
        assert_eq!(one_more(&ann), Err(AskError::Refused(TOO_MANY_OF_USER.to_owned())));
        assert_eq!(one_more(&bob), Ok(0), "another user has a share too");
        assert_eq!(block_on(whole(&mut first.ask(to.id(), stream(0)))), Ok(0), "and so has the service");
        drop(open);
        until(|| one_more(&ann).is_ok());
    }
}

fn a_connection_is_used_again(first: &Member, second: &Member) {
    let services = first.node.running.services.as_ref().expect("services run");
    let peers = &services.questions.as_ref().expect("they can be asked").peers;
    let kept = peers.kept(second.id());
    assert!((1..8).contains(&kept), "{kept}");
    for _ in 0..20 {
        assert_eq!(block_on(whole(&mut first.ask(second.id(), stream(1)))), Ok(PART_BYTES));
    }
    assert_eq!(peers.kept(second.id()), kept);
}

fn an_answerer_that_ends_is_an_error(first: Member, second: Member) {
    let to = second.id();
    let mut answer = first.ask(to, HANG);
    assert!(block_on(answer.next()).unwrap().is_some());
    let node = second.node;
    let stopping = std::thread::spawn(move || drop(node.stop()));
    let ended = block_on(whole(&mut answer));
    assert!(matches!(ended, Err(AskError::BrokenOff(_))), "{ended:?}");
    stopping.join().unwrap();
    until(|| matches!(block_on(whole(&mut first.ask(to, stream(0)))), Err(AskError::Unreachable(_))));
    let _ = first.node.stop();
}

#[test]
fn a_node_that_was_removed_gets_no_answers_nor_the_rest_of_one() {
    let (first, second, name) = pair();
    let mut answer = second.ask(first.id(), HANG);
    assert!(block_on(answer.next()).unwrap().is_some());
    let (status, said) = first.post("/controller/ejectNode", &format!("otpNode={name}"));
    assert_eq!(status, 200, "{said}");
    let ended = block_on(whole(&mut answer));
    assert!(matches!(ended, Err(AskError::BrokenOff(_))), "{ended:?}");
    until(|| first.talker.hanging.load(Ordering::SeqCst) == 0);
    let refused = block_on(whole(&mut second.ask(first.id(), stream(0))));
    // By then it may have a cluster of its own, in which it has the number that it asks for.
    let is_alone = second.context().gate.metadata().node(&first.context().gate.this_node_uuid()).is_none();
    let is_refused = matches!(refused, Err(AskError::Refused(_) | AskError::Unreachable(_)));
    assert!(is_refused || is_alone, "{refused:?}");
    for member in [second, first] {
        let _ = member.node.stop();
    }
}
