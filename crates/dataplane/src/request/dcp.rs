//! The DCP producer of a connection, and what it was last told about rights. Producers are listed by name
//! ([`crate::state::producers`]).

use std::sync::Arc;

use base::{Now, Status};
use cluster::auth::{Privilege, Privileges};
use engine::{Bucket, SharedValue, Waiter};
use protocol::binary::{Header, Opcode};
use replication::producer::{Producer, Sink, filter::Part};

use crate::{
    net::output::{BY_REFERENCE_BYTES, Output},
    request::context::Context,
    state::producers::{DcpConnections, Entry, Key, SUPERSEDED},
};

/// What a turn may add to the output. Less than for answers: streams always have more, and others wait meanwhile.
const TURN_BYTES: usize = 64 * 1024;

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
