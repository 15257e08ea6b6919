//! A connection by which a bucket on one node follows another node. It has bytes in both directions, in order, which wait while
//! the network is cut. It has an end on either side, which may be gone before the other notices.

use std::{collections::VecDeque, sync::Arc};

use base::{BucketUuid, NodeId, Now, Status, VbId};
use engine::{Bucket, Waiter};
use protocol::binary::{Decoded, decode_frame};
use replication::consumer::{Broken, Consumer, StreamWish, Taken, append_opening, stats::ConsumerStats};

use crate::host::Host;

/// Whom the engine wakes: a producer, a consumer, a request of a client, a stream to a client, a scan, a lane of indexes.
pub(crate) const PRODUCERS: u32 = 0;
pub(crate) const CONSUMERS: u32 = 1;
pub(crate) const REQUESTS: u32 = 2;
pub(crate) const SUBSCRIBERS: u32 = 3;
pub(crate) const SCANNERS: u32 = 4;
pub(crate) const INDEXES: u32 = 5;

/// Bytes on their way, in one direction, beyond which nothing more is sent.
const ON_THE_WAY_MAX: usize = 64 * 1024;
/// An opening that has not ended by then has failed.
const OPENING_MILLIS: u64 = 5_000;
/// How long a message waits before the replica is asked again whether there is room.
const ROOM_MILLIS: u64 = 10;

/// Bytes on their way, with when they arrive.
#[derive(Default)]
struct Wire(VecDeque<(u64, Vec<u8>)>);

impl Wire {
    fn send(&mut self, at: u64, bytes: Vec<u8>) {
        let at = self.0.back().map_or(at, |last| last.0.max(at));
        if !bytes.is_empty() {
            self.0.push_back((at, bytes));
        }
    }

    fn receive(&mut self, now: u64) -> Vec<u8> {
        let mut arrived = Vec::new();
        while let Some((_, bytes)) = self.0.pop_front_if(|(at, _)| *at <= now) {
            arrived.extend(bytes);
        }
        arrived
    }

    fn is_full(&self) -> bool {
        self.0.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() >= ON_THE_WAY_MAX
    }
}

/// The end of the node that follows.
struct Following {
    engine: Arc<Bucket>,
    /// Answers to the opening that are missing, and by when they have to be here (the follower's clock).
    opening: Option<(usize, u64)>,
    consumer: Consumer<Arc<Bucket>>,
    /// Arrived, and not a whole packet yet or not taken.
    arrived: Vec<u8>,
    /// The replica has no room, until then.
    blocked: Option<u64>,
}

/// See the module.
pub(crate) struct Connection {
    /// The bucket, and the node that is followed: its follower's name for it.
    pub(crate) key: Arc<(BucketUuid, NodeId)>,
    pub(crate) follower: NodeId,
    pub(crate) followed: NodeId,
    up: Wire,
    down: Wire,
    following: Option<Following>,
    host: Option<Host>,
    /// When the end that is left notices that it is alone.
    pub(crate) noticed_at: Option<u64>,
}

/// The surroundings of an end in a step.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// By the world's clock.
    pub(crate) at: u64,
    /// By the node's.
    pub(crate) now: Now,
    /// When what is sent now arrives.
    pub(crate) arrives: u64,
    /// Nothing arrives from the other end.
    pub(crate) is_cut: bool,
}

impl Connection {
    /// `follower` has reached `followed`, and opens a connection of that number for streams.
    pub(crate) fn open(
        (number, bucket, name): (u64, &BucketUuid, &str),
        (follower, replicas): (NodeId, &Arc<Bucket>),
        (followed, copies): (NodeId, &Arc<Bucket>),
        turn: Turn,
    ) -> Self {
        let mut opening = Vec::new();
        let answers = append_opening(followed, follower, name, &bucket.0, &mut opening);
        let waiter = |worker| Waiter { worker, connection: number, ticket: 0 };
        let consumer =
            Consumer::new(Arc::clone(replicas), waiter(CONSUMERS), turn.now, Arc::<ConsumerStats>::default());
        let mut up = Wire::default();
        up.send(turn.arrives, opening);
        let following = Following {
            engine: Arc::clone(replicas),
            opening: Some((answers, turn.now.mono_millis + OPENING_MILLIS)),
            consumer,
            arrived: Vec::new(),
            blocked: None,
        };
        Self {
            key: Arc::new((bucket.clone(), followed)),
            follower,
            followed,
            up,
            down: Wire::default(),
            following: Some(following),
            host: Some(Host::new(Arc::clone(copies), &bucket.0, waiter(PRODUCERS))),
            noticed_at: None,
        }
    }

    /// Whether it feeds these replicas.
    pub(crate) fn feeds(&self, replicas: &Arc<Bucket>) -> bool {
        self.following.as_ref().is_some_and(|end| Arc::ptr_eq(&end.engine, replicas))
    }

    pub(crate) fn has_following(&self) -> bool {
        self.following.is_some()
    }

    pub(crate) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// The end of that node is gone.
    pub(crate) fn lose_end_of(&mut self, node: NodeId) {
        if node == self.follower {
            self.following = None;
        }
        if node == self.followed {
            self.host = None;
        }
    }

    /// The end that follows takes what has arrived and does what is due; false when the connection is no good any more.
    pub(crate) fn follow(&mut self, wishes: &[StreamWish], is_news: bool, turn: Turn) -> bool {
        let Some(end) = &mut self.following else { return false };
        if !turn.is_cut {
            end.arrived.extend(self.down.receive(turn.at));
        }
        let was_opening = end.opening.is_some();
        if !end.open_up(turn.now) {
            return false;
        }
        let mut out = Vec::new();
        if end.opening.is_none() {
            if was_opening || is_news {
                end.consumer.want(wishes, turn.now, &mut out);
            }
            if !end.take(turn.now, &mut out) {
                return false;
            }
        }
        self.up.send(turn.arrives, out);
        true
    }

    /// The vBuckets that are followed otherwise than before, and at which terms if at all.
    pub(crate) fn changes(&mut self) -> Vec<(VbId, Option<u64>)> {
        let Some(end) = &mut self.following else { return Vec::new() };
        let changed = end.consumer.take_changed();
        changed.into_iter().map(|vb| (vb, end.consumer.following(vb))).collect()
    }

    /// The end that is followed takes what has arrived and says what it has; false when its follower is dead.
    pub(crate) fn be_followed(&mut self, turn: Turn) -> bool {
        let Some(host) = &mut self.host else { return false };
        if !turn.is_cut {
            host.receive(&self.up.receive(turn.at), turn.now);
        }
        if !self.down.is_full() && !host.pump(ON_THE_WAY_MAX, turn.now) {
            return false;
        }
        self.down.send(turn.arrives, host.take_output());
        true
    }

    /// Somebody here was woken.
    pub(crate) fn wake(&mut self, waiter: Waiter) {
        match (waiter.worker, &mut self.host, &mut self.following) {
            (PRODUCERS, Some(host), _) => host.wake(waiter.ticket),
            (CONSUMERS, _, Some(end)) => {
                end.consumer.wake(waiter.ticket);
                // Room may have come.
                end.blocked = None;
            }
            _ => {}
        }
    }
}

impl Following {
    /// Takes the answers to the opening; false when one of them is no, or does not come.
    fn open_up(&mut self, now: Now) -> bool {
        while let Some((missing, until)) = &mut self.opening {
            let Decoded::Frame(frame) = decode_frame(&self.arrived) else {
                return now.mono_millis < *until;
            };
            if frame.header.status() != Some(Status::Success) {
                return false;
            }
            let taken = frame.packet_len();
            *missing -= 1;
            if *missing == 0 {
                self.opening = None;
            }
            self.arrived.drain(..taken);
        }
        true
    }

    /// Takes what has arrived, as far as there is room; false when the connection cannot go on.
    fn take(&mut self, now: Now, out: &mut Vec<u8>) -> bool {
        if self.blocked.is_some_and(|until| now.mono_millis >= until) {
            self.blocked = None;
        }
        let mut at = 0;
        while self.blocked.is_none()
            && let Decoded::Frame(frame) = decode_frame(&self.arrived[at..])
        {
            match self.consumer.receive(&frame, now, out) {
                Ok(Taken::Done) => at += frame.packet_len(),
                Ok(Taken::NoRoom) => self.blocked = Some(now.mono_millis + ROOM_MILLIS),
                Err(broken) => panic!("a producer that says what none says: {broken}"),
            }
        }
        self.arrived.drain(..at);
        match self.consumer.tend(now, self.blocked.is_none(), out) {
            Ok(()) => true,
            Err(Broken::Silent) => false,
            Err(broken) => panic!("{broken}"),
        }
    }
}
