//! DCP connections in the data plane: the producer of a connection, what it was last told about rights, and the node's
//! list of producers by name.
//!
//! A name has one connection per bucket: a second one closes the first, which its worker is told through the waiter that
//! the first left in the list. The list also serves statistics, which are asked for on other workers.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use base::{Now, Seqno, Status, VbId, VbRole};
use cluster::auth::{Privilege, Privileges};
use engine::{Bucket, SharedValue, Waiter};
use parking_lot::Mutex;
use protocol::binary::{Header, Opcode};
use replication::producer::{
    Producer, Sink,
    filter::Part,
    stats::{ProducerStats, StreamStats},
};

use crate::{
    net::output::{BY_REFERENCE_BYTES, Output},
    request::context::Context,
    state::mailbox::Wakes,
    statistics::dcp::Totals,
};

/// Tells a connection that another one has taken its name. No stream has this ticket.
const SUPERSEDED: u64 = u64::MAX;

/// What a turn may add to the output. Less than for answers: streams always have more, and others wait meanwhile.
const TURN_BYTES: usize = 64 * 1024;

type Key = (String, String);

/// The node's producers, by bucket (its uuid) and name.
#[derive(Debug, Default)]
pub(crate) struct DcpConnections {
    list: Mutex<BTreeMap<Key, Entry>>,
    /// What connections that have ended had counted, by bucket: sums over connections must not fall with them.
    ended: Mutex<BTreeMap<String, Totals>>,
    wakes: OnceLock<Wakes>,
}

#[derive(Debug)]
struct Entry {
    waiter: Waiter,
    stats: Arc<ProducerStats>,
}

impl DcpConnections {
    /// From now on the workers can be reached.
    pub(crate) fn reach(&self, wakes: Wakes) {
        // Set once, before the first connection.
        let _ = self.wakes.set(wakes);
    }

    /// What the producers of a bucket show of themselves, by name.
    pub(crate) fn of_bucket(&self, uuid: &str) -> Vec<Arc<ProducerStats>> {
        self.of_bucket_and_ended(uuid).0
    }

    /// The same, and what those that have ended had counted, at one moment.
    pub(crate) fn of_bucket_and_ended(&self, uuid: &str) -> (Vec<Arc<ProducerStats>>, Totals) {
        let list = self.list.lock();
        let entries = list.iter().filter(|((bucket, _), _)| bucket == uuid);
        let open = entries.map(|(_, entry)| Arc::clone(&entry.stats)).collect();
        (open, self.ended(uuid))
    }

    fn ended(&self, uuid: &str) -> Totals {
        self.ended.lock().get(uuid).copied().unwrap_or_default()
    }

    /// A connection of a bucket has ended, and had counted that.
    pub(crate) fn note_end(&self, uuid: &str, add: impl FnOnce(&mut Totals)) {
        add(self.ended.lock().entry(uuid.to_owned()).or_default());
    }

    /// Forgets what was counted for buckets that are gone.
    pub(crate) fn keep_ended(&self, is_open: impl Fn(&str) -> bool) {
        self.ended.lock().retain(|uuid, _| is_open(uuid));
    }

    fn register(&self, key: Key, entry: Entry) {
        let uuid = key.0.clone();
        let mut list = self.list.lock();
        let old = list.insert(key, entry);
        if let Some(old) = &old {
            self.note_end(&uuid, |totals| totals.add_ended_producer(&old.stats));
        }
        drop(list);
        if let (Some(old), Some(wakes)) = (old, self.wakes.get()) {
            wakes.wake(Waiter { ticket: SUPERSEDED, ..old.waiter });
        }
    }

    fn unregister(&self, key: &Key, stats: &Arc<ProducerStats>) {
        let mut list = self.list.lock();
        if list.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.stats, stats)) {
            list.remove(key);
            // Under the lock of the list: nobody sees neither, or both.
            self.note_end(&key.0, |totals| totals.add_ended_producer(stats));
        }
    }
}

/// How far the history goes of each vBucket that streams are fed from here, by vBucket: on a node of many not all are there.
pub(crate) struct Highs(Vec<(VbId, Seqno)>);

impl Highs {
    pub(crate) fn of(bucket: &Bucket) -> Self {
        Self(bucket.seqnos(None, &[VbRole::Active, VbRole::Sealed]))
    }

    /// How many vBuckets there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Seqnos that a stream has not looked at yet: no fewer than the items it has still to send.
    pub(crate) fn remaining(&self, stream: &StreamStats) -> u64 {
        let Ok(at) = self.0.binary_search_by_key(&stream.vb, |&(vb, _)| vb) else { return 0 };
        self.0[at].1.min(stream.end).get().saturating_sub(stream.last_read.load(Ordering::Relaxed))
    }
}

/// The producer of a connection. Dropping it ends all its streams and leaves the list.
#[derive(Debug)]
pub(crate) struct DcpLink {
    pub(crate) producer: Producer,
    key: Key,
    connections: Arc<DcpConnections>,
    superseded: bool,
    /// When the worker will look after the connection (monotonic milliseconds).
    timer: Option<u64>,
    /// The snapshot that rights were last looked up in, and what they were.
    generation: u64,
    access: Privileges,
}

impl Drop for DcpLink {
    fn drop(&mut self) {
        self.connections.unregister(&self.key, self.producer.stats());
    }
}

impl DcpLink {
    /// Lists a producer under its name.
    pub(crate) fn new(
        producer: Producer,
        bucket_uuid: &str,
        access: &Privileges,
        waiter: Waiter,
        context: &Context,
    ) -> Self {
        let connections = Arc::clone(&context.shared.dcp);
        let stats = Arc::clone(producer.stats());
        let key = (bucket_uuid.to_owned(), stats.name.to_string());
        connections.register(key.clone(), Entry { waiter, stats });
        let generation = context.snapshot.generation();
        Self {
            producer,
            key,
            connections,
            superseded: false,
            timer: None,
            generation,
            access: access.clone(),
        }
    }

    /// The engine, or a namesake, has woken this connection.
    pub(crate) fn wake(&mut self, ticket: u64) {
        if ticket == SUPERSEDED {
            self.superseded = true;
        } else {
            self.producer.wake(ticket);
        }
    }

    /// Whether another connection has the name now.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Ends the streams whose rights are gone, if there may be any; false if the connection itself has none left.
    pub(crate) fn follow_rights(&mut self, access: &Privileges, bucket: &Bucket, context: &Context) -> bool {
        if self.generation == context.snapshot.generation() {
            return true;
        }
        self.generation = context.snapshot.generation();
        // Streams may be many, each of many collections, and most changes of the node are about something else.
        if self.access == *access {
            return true;
        }
        self.access.clone_from(access);
        self.producer.revoke(&|part| may_stream(access, bucket, part));
        access.has_somewhere(Privilege::DcpProducer)
    }

    /// An answer of the consumer; false if the connection cannot go on. kv_engine goes on where only one stream can be
    /// affected.
    pub(crate) fn answered(&mut self, header: &Header) -> bool {
        let status = header.status();
        if status == Some(Status::Success) {
            return Opcode::from_wire(header.opcode) != Some(Opcode::DcpNoop)
                || self.producer.noop_answered(header.opaque);
        }
        matches!(
            status,
            Some(
                Status::KeyNotFound
                    | Status::KeyExists
                    | Status::NotMyVbucket
                    | Status::DcpStreamNotFound
                    | Status::OpaqueNoMatch
            )
        )
    }

    /// Sends what is ready; false if the consumer is dead.
    pub(crate) fn pump(&mut self, out: &mut Output, context: &mut Context) -> bool {
        let limit = out.len() + TURN_BYTES;
        if !self.producer.pump(&mut Turn { out, limit }, context.now) {
            return false;
        }
        self.set_timer(context);
        true
    }

    fn set_timer(&mut self, context: &mut Context) {
        let Now { mono_millis: now, .. } = context.now;
        let Some(due) = self.producer.due_at() else { return };
        if self.timer.is_none_or(|timer| timer <= now || due < timer) {
            self.timer = Some(due);
            context.wake_at(due);
        }
    }
}

/// Whether a part of the bucket may be streamed. What one may not know of must look as if it did not exist.
pub(crate) fn may_stream(access: &Privileges, bucket: &Bucket, part: Part) -> Result<(), Status> {
    let granted = match part {
        Part::Bucket => access.has(Privilege::DcpProducer),
        Part::Scope(scope) => access.has_in_scope(scope, Privilege::DcpProducer),
        Part::Collection(id) => {
            let manifest = bucket.manifest();
            let Some((scope, _)) = manifest.collection(id) else {
                // Dropped meanwhile; its stream finds that out in its own order.
                return Ok(());
            };
            if !access.has_in(scope.id, id, Privilege::DcpProducer) && !access.sees(scope.id, id) {
                return Err(Status::UnknownCollection);
            }
            access.has_in(scope.id, id, Privilege::DcpProducer)
        }
    };
    if granted { Ok(()) } else { Err(Status::NoAccess) }
}

/// The worker's output for one turn of a producer.
struct Turn<'a> {
    out: &'a mut Output,
    limit: usize,
}

impl Sink for Turn<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out.bytes
    }

    fn attach(&mut self, value: SharedValue) {
        self.out.attach(value);
    }

    fn prefers_reference(&self, bytes: usize) -> bool {
        bytes >= BY_REFERENCE_BYTES
    }

    fn is_full(&self) -> bool {
        self.out.is_full() || self.out.len() >= self.limit
    }
}
