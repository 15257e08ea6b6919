//! A connection to a peer's document port, with a thread of its own. The thread sends what has gathered in its queue in
//! one write, and waits for the answers before the next write. So requests of many clients share a round trip.
//!
//! The peer executes a batch in any order. What it holds back, it holds back all at once, and answers the rest meanwhile. A
//! client has one request under way at a time, so that its own keep their order. What may be held back long has links of its own
//! ([`Lane`]).
//!
//! Every packet's answer is delivered exactly once. A batch fits into the sockets' buffers while neither side reads, or it
//! is a single packet. So neither side can wait for the other to read first.
//!
//! A change may wait in a queue when its client is told that it failed. It is not made after that: each job is looked at before it is
//! sent ([`Job::may_be_sent`]).
//!
//! A bucket may be dropped and made anew under its name, and one of the two nodes may not have heard of it. A write to the old bucket
//! would be acknowledged and then be gone. So a link goes to a bucket of one uuid, and asks nothing of a node that has another one.

use std::{
    io::{self, BufReader, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use base::{BucketUuid, Status};
use cluster::{
    Metadata,
    auth::{INTERNAL_USER, LoginPort},
};
use protocol::{
    binary::{Decoded, HEADER_BYTES, Header, Opaque, Opcode, Request as Packet, decode_frame},
    hello::{Feature, FeatureSet},
    sasl,
};
use rustls::{ClientConnection, StreamOwned};
use serde::Deserialize;

use crate::{
    net::{node_tls::NodeTls, peer::PeerAddress},
    state::{
        account::{Accounted, NodeAccount, NodePool},
        completion::{Answer, Completion, Unanswered},
        errand::Asked,
        gathering::Gathering,
        mailbox::Wakes,
    },
};

/// Requests that may wait for a link.
const QUEUED_MAX: usize = 1024;
/// Bytes of requests that may wait for all of a node's links together. One that is alone may be larger. A client can leave large
/// requests behind for a peer that takes its time, and go.
const WAITING_BYTES_MAX: u64 = 128 << 20;
/// Bytes sent before answers are read.
const BATCH_BYTES: usize = 32 * 1024;
/// Requests sent before answers are read.
const BATCH_JOBS: usize = 128;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// By then a link has said what became of a request. Its asker goes without then, and what was not sent is not sent any more.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);
/// How long a peer may be silent over a request. It may have to wait for its disk, or be paced.
const SILENCE: Duration = Duration::from_secs(5);

/// Where a link leads, and for which bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) address: PeerAddress,
    pub(crate) bucket: String,
    pub(crate) bucket_uuid: BucketUuid,
    /// The node's uuid.
    pub(crate) uuid: String,
    /// Password of the internal user, for as long as some node has no key. Empty: it is not accepted.
    pub(crate) secret: String,
}

impl Peer {
    /// Whether `other` is what this one was.
    pub(crate) fn is_replaced_by(&self, other: &Self) -> bool {
        self != other && (self.address.node, &self.bucket) == (other.address.node, &other.bucket)
    }

    /// Whether these metadata have its node and its bucket.
    pub(crate) fn is_of(&self, metadata: &Metadata) -> bool {
        let node = metadata.node_by_id(self.address.node);
        let bucket = metadata.buckets.get(&self.bucket);
        node.is_some_and(|node| node.uuid == self.uuid)
            && bucket.is_some_and(|bucket| bucket.uuid == self.bucket_uuid)
    }
}

/// Which links a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// For changes that a peer may hold back for seconds: it is paced, or other copies have to have them. No read is to wait behind
    /// them. They do wait for one another.
    Waiting,
    /// For everything else.
    Other,
}

/// Packets to be answered, in one go.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lane: Lane,
    bytes: Vec<u8>,
    reader: Reader,
    /// Nothing is sent later.
    send_by: Instant,
    /// Of the packets.
    held: Accounted,
}

/// What wants the answers.
#[derive(Debug)]
enum Reader {
    /// A request for one thing.
    One(Asked),
    /// A request for more; by packet, its place among that.
    Many(Arc<Gathering>, Vec<usize>),
}

impl Job {
    /// One packet.
    pub(crate) fn one(asked: Asked, lane: Lane, packet: Vec<u8>, account: &Arc<NodeAccount>) -> Self {
        Self::new(lane, packet, Reader::One(asked), account)
    }

    /// Those of a gathering's retrievals that go to one peer, with their places. Together they must fit a batch, but for a
    /// single one.
    pub(crate) fn part(
        gathering: &Arc<Gathering>,
        packets: Vec<(usize, Vec<u8>)>,
        account: &Arc<NodeAccount>,
    ) -> Self {
        let (places, packets): (Vec<_>, Vec<_>) = packets.into_iter().unzip();
        Self::new(Lane::Other, packets.concat(), Reader::Many(Arc::clone(gathering), places), account)
    }

    fn new(lane: Lane, bytes: Vec<u8>, reader: Reader, account: &Arc<NodeAccount>) -> Self {
        let held = Accounted::new(account, NodePool::Forwarding, bytes.len());
        Self { lane, bytes, reader, send_by: Instant::now() + ANSWER, held }
    }

    /// Whether its asker waits for it still. From then on the asker cannot take it back.
    fn may_be_sent(&self) -> bool {
        let set_out = || match &self.reader {
            Reader::One(asked) => asked.set_out(),
            Reader::Many(gathering, _) => gathering.set_out(),
        };
        Instant::now() < self.send_by && set_out()
    }

    fn packets(&self) -> usize {
        match &self.reader {
            Reader::One(_) => 1,
            Reader::Many(_, places) => places.len(),
        }
    }

    /// The answer to one of the packets, by its number.
    fn answer(&self, number: usize, answer: Answer, wakes: &Wakes) {
        let told = match &self.reader {
            Reader::One(asked) => {
                Some((asked.waiter, Completion::Forwarded { asked: asked.clone(), answer }))
            }
            Reader::Many(gathering, places) => {
                places.get(number).and_then(|place| gathering.put(*place, answer))
            }
        };
        if let Some((waiter, completion)) = told {
            wakes.complete(waiter, completion);
        }
    }
}

/// The sending end of a link; its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    queue: SyncSender<Job>,
}

impl Link {
    /// # Errors
    /// `TemporaryFailure` when there is no thread to be had.
    pub(crate) fn start(peer: Peer, wakes: Wakes, node_tls: Arc<NodeTls>) -> Result<Self, Status> {
        let (queue, jobs) = sync_channel(QUEUED_MAX);
        let run = move || run(&peer, &jobs, &wakes, &node_tls);
        match thread::Builder::new().name("settee-forward".into()).spawn(run) {
            Ok(_) => Ok(Self { queue }),
            Err(error) => {
                tracing::error!(%error, "no thread to forward requests with");
                Err(Status::TemporaryFailure)
            }
        }
    }

    /// # Errors
    /// `TemporaryFailure` when too many wait already, or too much.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Status> {
        let waiting = job.held.with_others();
        if waiting > WAITING_BYTES_MAX && waiting > job.bytes.len() as u64 {
            return Err(Status::TemporaryFailure);
        }
        self.queue.try_send(job).map_err(|_| Status::TemporaryFailure)
    }
}

fn run(peer: &Peer, jobs: &Receiver<Job>, wakes: &Wakes, node_tls: &NodeTls) {
    let mut connection = None;
    let mut kept_for_later = None;
    while let Some(batch) = gather(jobs, &mut kept_for_later) {
        let open = match connection.take().filter(is_open) {
            Some(open) => Ok(open),
            None => connect(peer, node_tls),
        };
        match open {
            Ok(mut open) => match exchange(&mut open, &still_wanted(batch, wakes), wakes) {
                Ok(()) => connection = Some(open),
                Err(error) => tracing::debug!(%error, "a link to another node broke"),
            },
            Err(error) => {
                tracing::debug!(%error, node = %peer.address, "cannot forward to a node");
                Unfinished::of(&batch).give_up(Unanswered::Unsent, wakes);
            }
        }
    }
}

/// The jobs of a batch that may be sent. The others are told, if somebody is left to be told, that they were not.
fn still_wanted(batch: Vec<Job>, wakes: &Wakes) -> Vec<Job> {
    let (wanted, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(Job::may_be_sent);
    Unfinished::of(&late).give_up(Unanswered::Unsent, wakes);
    wanted
}

/// Whether a connection that has rested is still there. A peer that was restarted meanwhile has closed it, and a request that is
/// sent on it now would be lost without need.
fn is_open(connection: &Connection) -> bool {
    let stream = connection.get_ref().socket();
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let nothing_yet = matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    nothing_yet && stream.set_nonblocking(false).is_ok()
}

/// Waits for a job, and takes what else there is; `None` at the end.
fn gather(jobs: &Receiver<Job>, kept_for_later: &mut Option<Job>) -> Option<Vec<Job>> {
    let first = match kept_for_later.take() {
        Some(job) => job,
        None => jobs.recv().ok()?,
    };
    let mut bytes = first.bytes.len();
    let mut batch = vec![first];
    while batch.len() < BATCH_JOBS && bytes < BATCH_BYTES {
        match jobs.try_recv() {
            Ok(job) if bytes + job.bytes.len() > BATCH_BYTES => {
                *kept_for_later = Some(job);
                break;
            }
            Ok(job) => {
                bytes += job.bytes.len();
                batch.push(job);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
    Some(batch)
}

/// The packets of a batch that have no answer yet. A packet's opaque is its place in here.
struct Unfinished<'a> {
    /// By packet, its job and its number in there.
    packets: Vec<Option<(&'a Job, usize)>>,
    left: usize,
}

impl<'a> Unfinished<'a> {
    fn of(batch: &'a [Job]) -> Self {
        let of_job = |job: &'a Job| (0..job.packets()).map(move |number| Some((job, number)));
        let packets: Vec<_> = batch.iter().flat_map(of_job).collect();
        Self { left: packets.len(), packets }
    }

    /// Delivers an answer; false for one of a packet that has its answer, or was not sent.
    fn answer(&mut self, opaque: Opaque, answer: Answer, wakes: &Wakes) -> bool {
        let place = self.packets.get_mut(u32::from(opaque) as usize);
        let Some((job, number)) = place.and_then(Option::take) else { return false };
        self.left -= 1;
        job.answer(number, answer, wakes);
        true
    }

    /// The others get no answer.
    fn give_up(self, how: Unanswered, wakes: &Wakes) {
        self.packets.into_iter().flatten().for_each(|(job, number)| job.answer(number, Err(how), wakes));
    }
}

/// Sends a batch and delivers its answers. Of every packet something is told.
///
/// # Errors
/// When the connection is of no use any more.
fn exchange(connection: &mut Connection, batch: &[Job], wakes: &Wakes) -> io::Result<()> {
    let mut unfinished = Unfinished::of(batch);
    let result = try_exchange(connection, batch, &mut unfinished, wakes);
    if result.is_err() {
        unfinished.give_up(Unanswered::Lost, wakes);
    }
    result
}

fn try_exchange(
    connection: &mut Connection,
    batch: &[Job],
    unfinished: &mut Unfinished<'_>,
    wakes: &Wakes,
) -> io::Result<()> {
    connection.get_mut().send(&numbered(batch))?;
    while unfinished.left > 0 {
        let packet = read_packet(connection)?;
        let header = packet.first_chunk().and_then(Header::decode);
        let opaque = header.map(|header| header.opaque).unwrap_or_default();
        if !unfinished.answer(opaque, Ok(packet), wakes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a node answered what nobody has asked"));
        }
    }
    Ok(())
}

/// The packets of a batch, each with its place as its opaque.
fn numbered(batch: &[Job]) -> Vec<u8> {
    let mut bytes: Vec<u8> = batch.iter().flat_map(|job| job.bytes.iter().copied()).collect();
    let mut rest = bytes.as_mut_slice();
    let mut number = 0_u32;
    while let Decoded::Frame(frame) = decode_frame(rest) {
        let header = Header { opaque: number.into(), ..frame.header };
        let Some((packet, behind)) = rest.split_at_mut_checked(header.packet_len()) else { break };
        if let Some(start) = packet.first_chunk_mut() {
            *start = header.encode();
        }
        rest = behind;
        number += 1;
    }
    bytes
}

/// What an answer says.
pub(crate) fn status_of(packet: &[u8]) -> Status {
    match decode_frame(packet) {
        Decoded::Frame(frame) => frame.header.status().unwrap_or(Status::Internal),
        _ => Status::Internal,
    }
}

fn read_packet(from: &mut impl Read) -> io::Result<Box<[u8]>> {
    let mut packet = vec![0; HEADER_BYTES];
    from.read_exact(&mut packet)?;
    while let Decoded::Incomplete { need } = decode_frame(&packet) {
        let have = packet.len();
        packet.resize(need, 0);
        from.read_exact(packet.get_mut(have..).unwrap_or_default())?;
    }
    match decode_frame(&packet) {
        Decoded::Frame(_) => Ok(packet.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a node sent what is no packet")),
    }
}

/// What is between the two ends.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// All of it, now.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

type Connection = BufReader<Stream>;

/// A connection of the internal user, attached to the bucket.
fn connect(peer: &Peer, node_tls: &NodeTls) -> io::Result<Connection> {
    let PeerAddress { node, host, kv_port, tls } = &peer.address;
    let address = (host.as_str(), *kv_port).to_socket_addrs()?.next();
    let socket = TcpStream::connect_timeout(&address.ok_or(io::ErrorKind::NotFound)?, CONNECT)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))?;
    let stream = if *tls {
        let (config, name) = node_tls.to_member(*node)?;
        let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Stream::Tls(Box::new(StreamOwned::new(tls, socket)))
    } else {
        Stream::Plain(socket)
    };
    let mut connection = BufReader::new(stream);
    // Statuses as they are, no cluster map with each "not mine", and nobody waits behind what the peer holds back.
    let wanted =
        [Feature::Xerror, Feature::SelectBucket, Feature::DedupeNotMyVbucketMap, Feature::UnorderedExecution];
    let mut features = Vec::new();
    wanted.into_iter().fold(FeatureSet::EMPTY, FeatureSet::with).encode(&mut features);
    let hello = Packet { key: b"settee forward", value: &features, ..Packet::new(Opcode::Hello) };
    converse(&mut connection, &hello)?;
    log_in(&mut connection, peer, node_tls)?;
    let bucket = Packet { key: peer.bucket.as_bytes(), ..Packet::new(Opcode::SelectBucket) };
    converse(&mut connection, &bucket)?;
    check_bucket(&mut connection, &peer.bucket_uuid)?;
    Ok(connection)
}

/// Whether the bucket is the one that is meant. A connection ends with the bucket that it has selected, so one look is enough.
fn check_bucket(connection: &mut Connection, meant: &BucketUuid) -> io::Result<()> {
    let answer = exchange_one(connection, &Packet::new(Opcode::GetClusterConfig))?;
    let Decoded::Frame(frame) = decode_frame(&answer) else { return Err(io::ErrorKind::InvalidData.into()) };
    let selected: Selected = serde_json::from_slice(frame.value)?;
    if selected.uuid == meant.0 {
        return Ok(());
    }
    Err(io::Error::other("the node has another bucket of that name"))
}

/// What a bucket's configuration says of the bucket.
#[derive(Deserialize)]
struct Selected {
    uuid: String,
}

/// Logs in by this node's key, or by the secret where the cluster does not know it yet.
fn log_in(connection: &mut Connection, peer: &Peer, node_tls: &NodeTls) -> io::Result<()> {
    let Some(signer) = node_tls.signer(&peer.uuid) else {
        if peer.secret.is_empty() {
            return Err(io::Error::other("the cluster knows no key of this node"));
        }
        let login = [b"\0", INTERNAL_USER.as_bytes(), b"\0", peer.secret.as_bytes()].concat();
        let login = Packet { key: b"PLAIN", value: &login, ..Packet::new(Opcode::SaslAuth) };
        return converse(connection, &login).map(drop);
    };
    let (key, value) = (sasl::NODE.as_bytes(), signer.me.as_bytes());
    let challenge = converse(connection, &Packet { key, value, ..Packet::new(Opcode::SaslAuth) })?;
    let signature = signer.sign(LoginPort::Kv, &challenge);
    converse(connection, &Packet { key, value: &signature, ..Packet::new(Opcode::SaslStep) }).map(drop)
}

/// Has a request answered.
fn exchange_one(connection: &mut Connection, packet: &Packet<'_>) -> io::Result<Box<[u8]>> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).map_err(io::Error::other)?;
    connection.get_mut().send(&bytes)?;
    read_packet(connection)
}

/// Has a request answered; what the answer says. A challenge is an answer to a login only.
fn converse(connection: &mut Connection, packet: &Packet<'_>) -> io::Result<Vec<u8>> {
    let answer = exchange_one(connection, packet)?;
    match status_of(&answer) {
        Status::Success => Ok(Vec::new()),
        Status::AuthContinue if packet.opcode == Opcode::SaslAuth => match decode_frame(&answer) {
            Decoded::Frame(frame) => Ok(frame.value.to_vec()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        },
        status => Err(io::Error::other(format!("{:?} was refused: {status:?}", packet.opcode))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::state::errand::Errand;

    #[test]
    fn what_has_waited_for_too_long_is_not_sent() {
        let (account, errand) = (Arc::default(), Errand::new());
        let waiter = engine::Waiter { worker: 0, connection: 1, ticket: 2 };
        let job = || Job::one(errand.asked_by(waiter), Lane::Waiting, Vec::new(), &account);
        assert!(job().may_be_sent());
        // Its client may have been told so while all of the process stood still.
        assert!(!Job { send_by: Instant::now(), ..job() }.may_be_sent());
    }

    #[test]
    fn a_connection_that_was_closed_meanwhile_is_not_used() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other_end, _) = listener.accept().unwrap();
        let connection = BufReader::new(Stream::Plain(stream));
        assert!(is_open(&connection));
        drop(other_end);
        // The end is on its way through the kernel.
        let gone = (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(5));
            !is_open(&connection)
        });
        assert!(gone);
    }
}
