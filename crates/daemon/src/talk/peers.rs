//! The other nodes of the cluster: HTTP/1.1 kept alive to their management ports, under TLS to those that want it.
//! This node logs in to them as itself.
//!
//! Messages take one of three ways:
//! - Raft's messages go through one bounded queue and one connection per node. When it is full the oldest are dropped,
//!   because Raft sends again what matters.
//! - Questions with an answer ([`Peers::post`], [`Peers::report`]) have connections of their own, so that nothing long
//!   stands before a heartbeat.
//! - Answers of services, which come part by part ([`answers`]), have theirs too.
//!
//! A node that is slow, silent or gone costs its own queue and nothing else.
//!
//! A connection that was cut does not come back soon after the network has: TCP waits the longer the longer it lasted. So what
//! shows that a node is there gives its connection up after a second, and tries another one.

mod answers;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base::NodeId;
use cluster::{
    Metadata,
    auth::Judgement,
    consensus::{Epoch, epoch_of},
};
use dataplane::{
    account::{Accounted, NodeAccount, NodePool},
    node_tls::NodeTls,
};
use hyper::{Method, body::Bytes};
use node::Verdict;
use parking_lot::{Mutex, RwLock};
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
    time::timeout,
};

pub(crate) use self::answers::OPEN_ANSWERS;
use crate::talk::http::{Address, Ask, Connection};

/// Messages that wait for one node.
const QUEUE: usize = 128;
/// Most messages in one request that are read: more than any node has waiting. Each takes more memory than an empty one has bytes.
const MESSAGES_MAX: usize = 8 * QUEUE;
/// Bytes of messages in one request, but for a single message that is longer.
const REQUEST_BYTES: usize = 1024 * 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a request with messages may take, and how many bytes of it take a second more.
const DELIVERY: Duration = Duration::from_secs(1);
const DELIVERY_BYTES: usize = 1024 * 1024;
/// Questions to one node at the same time, and those that wait until it has got somewhere.
const QUESTIONS: usize = 16;
const WAITS: usize = 16;
/// Connections kept for questions to one node.
const IDLE: usize = 2;
/// First and longest wait before a node that could not be reached is tried again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// What a [`cluster_mark`] begins with, and no message.
const CLUSTER_MARK: u8 = 0xc1;
/// The answer to a login that is not taken.
const UNAUTHORIZED: u16 = 401;
/// Where Raft's messages go.
pub(crate) const MESSAGES: &str = "consensus";

/// Why another node has not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("node {0} is not known")]
    Unknown(NodeId),
    #[error("too many questions to node {0}")]
    Busy(NodeId),
    #[error("node {node}: {source}")]
    Io { node: NodeId, source: io::Error },
    #[error("node {node} answered {status}: {text}")]
    Refused { node: NodeId, status: u16, text: String },
}

/// See the module.
pub(crate) struct Peers {
    runtime: Handle,
    /// This node's number; questions and messages say whose they are.
    me: Mutex<NodeId>,
    known: RwLock<BTreeMap<NodeId, Arc<Peer>>>,
    account: Arc<NodeAccount>,
    node_tls: Arc<NodeTls>,
    /// Called when another node says that this one, of that number, is none of its cluster's.
    judged: Arc<OnVerdict>,
}

/// Called when another node says that of this one.
pub(crate) type OnVerdict = dyn Fn(&Judged<'_>, Verdict) + Send + Sync;

/// As what this node was judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged<'a> {
    /// By that number.
    pub(crate) node: NodeId,
    /// In the cluster of that uuid.
    pub(crate) cluster: &'a str,
    /// In that life of the group.
    pub(crate) epoch: Epoch,
}

/// One other node.
struct Peer {
    node: NodeId,
    uuid: String,
    /// The uuid of the cluster that it is a member of.
    cluster: String,
    address: Address,
    node_tls: Arc<NodeTls>,
    queue: Mutex<Queue>,
    queued: Notify,
    gone: AtomicBool,
    idle: Mutex<Vec<Connection>>,
    questions: Semaphore,
    waits: Semaphore,
    /// Of services, with answers that come part by part.
    open_answers: Semaphore,
    kept: Mutex<Vec<Connection>>,
    /// It has not heard of this node's key.
    by_secret: AtomicBool,
}

/// Messages that wait, oldest first.
struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// Of the messages.
    held: Accounted,
}

impl Queue {
    /// Something was added or taken.
    fn account(&mut self) {
        self.held.set(self.messages.iter().map(Vec::capacity).sum());
    }
}

impl Peers {
    pub(crate) fn new(
        runtime: Handle,
        account: Arc<NodeAccount>,
        node_tls: Arc<NodeTls>,
        judged: impl Fn(&Judged<'_>, Verdict) + Send + Sync + 'static,
    ) -> Self {
        Self {
            runtime,
            me: Mutex::default(),
            known: RwLock::default(),
            account,
            node_tls,
            judged: Arc::new(judged),
        }
    }

    /// The identity of this node and the addresses of the others, from now on. A node that the metadata knows no longer stays known while
    /// it is one of `members`: it has yet to hear of that.
    pub(crate) fn know(&self, me: NodeId, metadata: &Metadata, members: &BTreeSet<NodeId>) {
        let former = std::mem::replace(&mut *self.me.lock(), me);
        self.node_tls.know(me, metadata);
        let mut known = self.known.write();
        let others = || metadata.nodes.iter().filter(|node| node.id != me);
        known.retain(|id, peer| {
            let stays = match others().find(|node| node.id == *id) {
                Some(node) => {
                    let is_same = peer.uuid == node.uuid && peer.cluster == metadata.cluster_uuid;
                    is_same && peer.address == Address::of(node)
                }
                None => *id != me && members.contains(id),
            };
            // What is on its way says whose it is. A group that was formed anew may have another number for this node.
            let stays = stays && me == former;
            if !stays {
                peer.gone.store(true, Ordering::Release);
                peer.queued.notify_one();
            }
            stays
        });
        for node in others() {
            known.entry(node.id).or_insert_with(|| {
                let (address, node_tls) = (Address::of(node), Arc::clone(&self.node_tls));
                let who = (node.id, node.uuid.clone(), metadata.cluster_uuid.clone());
                let peer = Arc::new(Peer::new(who, address, node_tls, &self.account));
                let (own, judged) = (Arc::clone(&peer), Arc::clone(&self.judged));
                self.runtime.spawn(async move { own.deliver(me, judged.as_ref()).await });
                peer
            });
        }
    }

    /// Has a message delivered, or not.
    pub(crate) fn send(&self, to: NodeId, message: Vec<u8>) {
        if let Some(peer) = self.known.read().get(&to) {
            let mut queue = peer.queue.lock();
            if queue.messages.len() == QUEUE {
                queue.messages.pop_front();
            }
            queue.messages.push_back(message);
            queue.account();
            drop(queue);
            peer.queued.notify_one();
        }
    }

    /// Asks another node: `POST /_settee/<name>`. What was sent over a connection that then failed may have been heard.
    pub(crate) async fn post(&self, to: NodeId, name: &str, body: Vec<u8>) -> Result<Vec<u8>, PeerError> {
        let peer = self.peer(to)?;
        let _place = peer.questions.try_acquire().map_err(|_| PeerError::Busy(to))?;
        self.ask(&peer, name, body, PATIENCE).await
    }

    /// The same for a question that the other node answers once it has got somewhere. Such questions have places of their own, for which
    /// more of them wait: they take none from others, whatever number there is.
    pub(crate) async fn wait_for(&self, to: NodeId, name: &str, body: Vec<u8>) -> Result<Vec<u8>, PeerError> {
        let peer = self.peer(to)?;
        let Ok(Ok(_place)) = timeout(PATIENCE, peer.waits.acquire()).await else {
            return Err(PeerError::Busy(to));
        };
        self.ask(&peer, name, body, PATIENCE).await
    }

    /// The same for what this node says again and again, one after the other: questions that wait for their answers take no
    /// place from it.
    pub(crate) async fn report(
        &self,
        to: NodeId,
        name: &str,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Vec<u8>, PeerError> {
        let peer = self.peer(to)?;
        self.ask(&peer, name, body, patience).await
    }

    fn peer(&self, node: NodeId) -> Result<Arc<Peer>, PeerError> {
        self.known.read().get(&node).cloned().ok_or(PeerError::Unknown(node))
    }

    async fn ask(
        &self,
        peer: &Peer,
        name: &str,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Vec<u8>, PeerError> {
        let to = peer.node;
        let ask = peer.ask(name, body, patience).await;
        let (status, body) = ask.map_err(|source| PeerError::Io { node: to, source })?;
        if status == 200 {
            return Ok(body);
        }
        Err(PeerError::Refused { node: to, status, text: String::from_utf8_lossy(&body).into_owned() })
    }
}

impl Peer {
    fn new(
        (node, uuid, cluster): (NodeId, String, String),
        address: Address,
        node_tls: Arc<NodeTls>,
        account: &Arc<NodeAccount>,
    ) -> Self {
        let held = Accounted::new(account, NodePool::Consensus, 0);
        Self {
            node,
            uuid,
            cluster,
            address,
            node_tls,
            queue: Mutex::new(Queue { messages: VecDeque::new(), held }),
            queued: Notify::new(),
            gone: AtomicBool::new(false),
            idle: Mutex::default(),
            questions: Semaphore::new(QUESTIONS),
            waits: Semaphore::new(WAITS),
            open_answers: Semaphore::new(OPEN_ANSWERS),
            kept: Mutex::default(),
            by_secret: AtomicBool::new(false),
        }
    }

    /// What the log calls it.
    fn name(&self) -> String {
        format!("{}:{} ({})", self.address.host, self.address.port, self.node.get())
    }

    async fn ask(&self, name: &str, body: Vec<u8>, patience: Duration) -> io::Result<(u16, Vec<u8>)> {
        let answer = within(patience, self.ask_once(name, body, patience)).await;
        if answer.is_err() {
            // What befell this connection befell the others that were kept: to find out would take as long again.
            self.idle.lock().clear();
        }
        answer
    }

    async fn ask_once(&self, name: &str, body: Vec<u8>, patience: Duration) -> io::Result<(u16, Vec<u8>)> {
        let kept = self.idle.lock().pop().filter(Connection::is_open);
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let answer = connection.exchange(question(&format!("/_settee/{name}"), body), patience).await?;
        if self.has_refused(answer.0) {
            return Ok(answer);
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE && connection.is_open() {
            idle.push(connection);
        }
        Ok(answer)
    }

    async fn open(&self) -> io::Result<Connection> {
        let by_secret = self.by_secret.load(Ordering::Relaxed);
        Connection::open_as_node(&self.address, &self.node_tls, &self.uuid, by_secret).await
    }

    /// Whether the other node takes the login of a connection no more, or not yet. While some nodes have no key there are two ways to
    /// log in, and a node may have heard of one only. So the next connection tries the other.
    fn has_refused(&self, status: u16) -> bool {
        let is_refused = status == UNAUTHORIZED;
        if is_refused {
            self.by_secret.fetch_xor(true, Ordering::Relaxed);
        }
        is_refused
    }

    /// Delivers messages until the node is gone.
    async fn deliver(&self, me: NodeId, judged: &OnVerdict) {
        let path = format!("/_settee/{MESSAGES}");
        let mut connection: Option<Connection> = None;
        let mut pause = BACK_OFF.0;
        while !self.gone.load(Ordering::Acquire) {
            let mut messages = self.take();
            if messages.is_empty() {
                self.queued.notified().await;
                continue;
            }
            let epoch = messages.first().and_then(|message| epoch_of(message)).unwrap_or_default();
            messages.push(cluster_mark(&self.cluster));
            let body = encode_messages(me, &messages);
            let patience = DELIVERY * u32::try_from(1 + body.len() / DELIVERY_BYTES).unwrap_or(u32::MAX);
            let outcome = async {
                let open = match connection.take().filter(Connection::is_open) {
                    Some(open) => open,
                    None => self.open().await?,
                };
                let answer = connection.insert(open).exchange(question(&path, body), patience).await?;
                Ok::<_, io::Error>(answer)
            };
            match within(patience, outcome).await {
                Ok((200, answer)) => {
                    pause = BACK_OFF.0;
                    // Nobody signs these. A node whose key is known is told when its login is refused.
                    if let Some(verdict) = Verdict::of(&answer)
                        && self.node_tls.believes_unsigned()
                    {
                        judged(&Judged { node: me, cluster: &self.cluster, epoch }, verdict);
                    }
                    continue;
                }
                Ok((status, _)) => {
                    tracing::debug!(node = self.name(), status, "messages were refused");
                    if self.has_refused(status)
                        && let Some(mut refused) = connection.take()
                        && let Ok(Some((text, signature))) =
                            refused.verdict_on(me, &self.cluster, epoch).await
                        && let Some(verdict) = Verdict::of(text.as_bytes())
                    {
                        self.hear(verdict, (me, epoch), &signature, judged);
                    }
                }
                Err(error) => {
                    tracing::debug!(node = self.name(), %error, "messages could not be delivered");
                    connection = None;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACK_OFF.1);
        }
    }

    /// The process at the other node's address says that of this node. A process in its place could say anything: what counts is
    /// signed by a member.
    fn hear(&self, verdict: Verdict, (me, epoch): (NodeId, Epoch), signature: &[u8], judged: &OnVerdict) {
        let said = Judgement { verdict: verdict.text(), cluster: &self.cluster, node: me, epoch };
        if self.node_tls.believes(&said, signature, verdict == Verdict::Removed) {
            judged(&Judged { node: me, cluster: &self.cluster, epoch }, verdict);
        } else {
            tracing::debug!(node = self.name(), ?verdict, "a verdict that no member has signed");
        }
    }

    /// The next messages for one request.
    fn take(&self) -> Vec<Vec<u8>> {
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let mut taken = Vec::new();
        while let Some(message) =
            queue.messages.pop_front_if(|next| taken.is_empty() || bytes + next.len() <= REQUEST_BYTES)
        {
            bytes += message.len();
            taken.push(message);
        }
        queue.account();
        taken
    }
}

/// What `work` comes to, if it does in time.
async fn within<T>(patience: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(patience, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn question(path: &str, body: impl Into<Bytes>) -> Ask<'_> {
    let body = body.into();
    Ask { method: Method::POST, path, authorization: None, content_type: "application/octet-stream", body }
}

/// Messages with their sender: its number, then each with its length.
pub(crate) fn encode_messages(from: NodeId, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut body = from.get().to_le_bytes().to_vec();
    for message in messages {
        body.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_le_bytes());
        body.extend(message);
    }
    body
}

/// What follows the messages to one node: the cluster that they belong to. A node that does not know of it refuses it as one message
/// that it cannot read.
pub(crate) fn cluster_mark(cluster: &str) -> Vec<u8> {
    [&[CLUSTER_MARK], cluster.as_bytes()].concat()
}

/// The cluster that a [`cluster_mark`] names, if it is one.
pub(crate) fn marked_cluster(message: &[u8]) -> Option<&[u8]> {
    message.split_first().filter(|(first, _)| **first == CLUSTER_MARK).map(|(_, cluster)| cluster)
}

/// Reads what [`encode_messages`] wrote.
pub(crate) fn decode_messages(body: &[u8]) -> Option<(NodeId, Vec<&[u8]>)> {
    let (from, mut rest) = body.split_first_chunk()?;
    let mut messages = Vec::new();
    while !rest.is_empty() {
        if messages.len() == MESSAGES_MAX {
            return None;
        }
        let (length, behind) = rest.split_first_chunk()?;
        let (message, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        messages.push(message);
        rest = behind;
    }
    Some((NodeId(u16::from_le_bytes(*from)), messages))
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use cluster::{Metadata, NodeInfo, Ports, auth::NodeKey};
    use dataplane::node_keys::KeyRing;
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
        net::TcpListener,
    };

    use super::*;
    use crate::talk::http::Security;

    #[test]
    fn a_mark_names_a_cluster_and_is_no_message() {
        let mark = cluster_mark("c0ffee");
        assert_eq!(marked_cluster(&mark), Some(b"c0ffee".as_slice()));
        assert_eq!(epoch_of(&mark), None, "nodes of earlier versions refuse it");
        assert!(marked_cluster(&[2, 7]).is_none() && marked_cluster(&[]).is_none());
    }

    #[test]
    fn messages_arrive_with_their_sender() {
        let messages = vec![b"one".to_vec(), Vec::new(), vec![7; 1000]];
        let body = encode_messages(NodeId(3), &messages);
        let (from, decoded) = decode_messages(&body).unwrap();
        assert_eq!(from, NodeId(3));
        assert_eq!(decoded, messages);
        let many = |count| encode_messages(NodeId(3), &vec![Vec::new(); count]);
        assert!(decode_messages(&many(MESSAGES_MAX)).is_some());
        assert!(
            decode_messages(&many(MESSAGES_MAX + 1)).is_none(),
            "they would take four times the memory of the body"
        );
        for cut in [0, 1, 4, body.len() - 1] {
            assert!(decode_messages(&body[..cut]).is_none());
        }
    }

    fn peers_of(address: Address, runtime: &Handle) -> Peers {
        let peer = Peer::new((NodeId(1), "1".into(), "c".into()), address, Arc::default(), &Arc::default());
        Peers {
            runtime: runtime.clone(),
            me: Mutex::default(),
            known: RwLock::new(BTreeMap::from([(NodeId(1), Arc::new(peer))])),
            account: Arc::default(),
            node_tls: Arc::default(),
            judged: Arc::new(|_, _| {}),
        }
    }

    /// A process at a member's address, which refuses every login. It says to the node that asks why that the node was removed, with
    /// that signature. `said` is told each time.
    async fn impostor(listener: TcpListener, signature: Vec<u8>, said: Arc<Notify>) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut head = Vec::new();
            while let Ok(1..) = stream.read_until(b'\n', &mut head).await {
                if !head.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let text = String::from_utf8(std::mem::take(&mut head)).unwrap().to_ascii_lowercase();
                let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                stream.read_exact(&mut body).await.unwrap();
                let is_asked = text.starts_with("get /_settee/challenge?node=");
                let mut answer = serde_json::json!({ "challenge": STANDARD.encode([7; 32]) });
                if is_asked {
                    answer["verdict"] = "removed".into();
                    answer["signature"] = STANDARD.encode(&signature).into();
                }
                let (status, answer) = if text.starts_with("get") {
                    ("200 OK", answer.to_string())
                } else {
                    ("401 No", String::new())
                };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
                if is_asked {
                    said.notify_one();
                }
            }
        }
    }

    /// The first of two nodes of a cluster that knows both by their keys.
    fn of_first() -> Arc<NodeTls> {
        let key = |seed: u8| NodeKey::from_seed(&[seed; 32]).unwrap().public().to_owned();
        let node = |id: u16| NodeInfo {
            id: NodeId(id),
            key: Some(key(if id == 0 { 1 } else { 2 })),
            ..NodeInfo::first(id.to_string(), "h".into(), Ports::default())
        };
        let metadata = Metadata { nodes: vec![node(0), node(1)], ..Metadata::new("c".into(), 256) };
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("0.key"), STANDARD.encode([1; 32])).unwrap();
        let keys = KeyRing::new(dir.path().to_path_buf());
        keys.of("0").unwrap();
        let tls = Arc::new(NodeTls::default());
        tls.use_keys(Arc::new(keys));
        tls.know(NodeId(0), &metadata);
        tls
    }

    /// What a node makes of a verdict that the holder of a key has signed.
    fn judged_by(signs: u8) -> Vec<Verdict> {
        let runtime = runtime();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = plain(listener.local_addr().unwrap().port());
            let judgement =
                Judgement { verdict: "removed", cluster: "c", node: NodeId(0), epoch: Epoch::default() };
            let signature = judgement.sign(&NodeKey::from_seed(&[signs; 32]).unwrap());
            let said = Arc::<Notify>::default();
            tokio::spawn(impostor(listener, signature, Arc::clone(&said)));
            let node_tls = of_first();
            let peer =
                Arc::new(Peer::new((NodeId(1), "1".into(), "c".into()), address, node_tls, &Arc::default()));
            let heard = Arc::<Mutex<Vec<Verdict>>>::default();
            let (own, judged) = (Arc::clone(&peer), Arc::clone(&heard));
            tokio::spawn(async move {
                own.deliver(NodeId(0), &move |_, verdict| judged.lock().push(verdict)).await;
            });
            // What was said first has been judged once it is said again.
            for _ in 0..2 {
                // A machine that is busy loses a message.
                while {
                    peer.queue.lock().messages.push_back(b"message".to_vec());
                    peer.queued.notify_one();
                    timeout(PATIENCE, said.notified()).await.is_err()
                } {}
            }
            heard.lock().clone()
        })
    }

    #[test]
    fn what_a_process_at_a_members_address_says_of_a_node_counts_if_the_member_has_signed_it() {
        assert_eq!(judged_by(3), []);
        assert_eq!(judged_by(2).first(), Some(&Verdict::Removed));
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn plain(port: u16) -> Address {
        Address { host: "127.0.0.1".into(), port, security: Security::Plain }
    }

    #[test]
    fn what_a_node_says_under_a_new_number_does_not_go_out_under_the_former_one() {
        let runtime = runtime();
        let peers = Peers::new(runtime.handle().clone(), Arc::default(), Arc::default(), |_, _| {});
        let other =
            NodeInfo { id: NodeId(1), ..NodeInfo::first("1".into(), "127.0.0.1".into(), Ports::default()) };
        let metadata = Metadata { nodes: vec![other], ..Metadata::new("c".into(), 256) };
        let known_as = |me| {
            peers.know(NodeId(me), &metadata, &BTreeSet::new());
            peers.peer(NodeId(1)).unwrap()
        };
        let first = known_as(2);
        assert!(Arc::ptr_eq(&first, &known_as(2)), "nothing has changed");
        let second = known_as(3);
        assert!(!Arc::ptr_eq(&first, &second) && first.gone.load(Ordering::Acquire));
        assert!(!second.gone.load(Ordering::Acquire));
    }

    /// Where nobody listens.
    fn nowhere() -> Address {
        plain(1)
    }

    #[test]
    fn the_newest_messages_win() {
        let peers = peers_of(nowhere(), runtime().handle());
        (0..=QUEUE as u64).for_each(|number| peers.send(NodeId(1), number.to_le_bytes().to_vec()));
        let taken = peers.known.read()[&NodeId(1)].take();
        assert_eq!(taken.len(), QUEUE);
        assert_eq!(taken[0], 1u64.to_le_bytes());
    }

    #[test]
    fn questions_that_wait_take_no_place_from_reports() {
        let runtime = runtime();
        let peers = peers_of(nowhere(), runtime.handle());
        let peer = peers.peer(NodeId(1)).unwrap();
        let _waiting = peer.questions.try_acquire_many(QUESTIONS as u32).unwrap();
        runtime.block_on(async {
            let asked = peers.post(NodeId(1), "name", Vec::new()).await;
            assert!(matches!(asked, Err(PeerError::Busy(_))), "{asked:?}");
            let reported = peers.report(NodeId(1), "name", Vec::new(), PATIENCE).await;
            assert!(matches!(reported, Err(PeerError::Io { .. })), "{reported:?}");
        });
    }

    #[test]
    fn questions_that_wait_for_another_node_take_no_place_from_others_and_wait_for_their_own() {
        let runtime = runtime();
        let peers = peers_of(nowhere(), runtime.handle());
        let peer = peers.peer(NodeId(1)).unwrap();
        runtime.block_on(async {
            let all = peer.waits.acquire_many(WAITS as u32).await.unwrap();
            let mut waiting = std::pin::pin!(peers.wait_for(NodeId(1), "name", Vec::new()));
            assert!(polled(waiting.as_mut()).is_none(), "it waits for a place");
            // The others get as far as the connection.
            let asked = peers.post(NodeId(1), "name", Vec::new()).await;
            assert!(matches!(asked, Err(PeerError::Io { .. })), "{asked:?}");
            drop(all);
            let asked = waiting.await;
            assert!(matches!(asked, Err(PeerError::Io { .. })), "{asked:?}");
        });
    }

    fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn one_connection_that_is_cut_stands_for_all() {
        let runtime = runtime();
        runtime.block_on(async {
            // It takes connections, and never says a word.
            let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = plain(silent.local_addr().unwrap().port());
            let peers = peers_of(address.clone(), runtime.handle());
            let peer = peers.peer(NodeId(1)).unwrap();
            for _ in 0..IDLE {
                let kept = Connection::open(&address, &peers.node_tls).await.unwrap();
                peer.idle.lock().push(kept);
            }
            let reported = peers.report(NodeId(1), "name", Vec::new(), Duration::from_millis(20)).await;
            assert!(matches!(reported, Err(PeerError::Io { .. })), "{reported:?}");
            assert!(peer.idle.lock().is_empty());
        });
    }
}
