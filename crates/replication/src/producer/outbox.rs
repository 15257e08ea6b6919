//! The way out: messages are appended to the connection's output, counted, and their values prepared.

use base::Datatype;
use engine::{
    SharedValue,
    feed::{FeedItem, FeedKind},
};
use protocol::{
    binary::dcp::{DcpMessage, Document, OpenFlags, PACKED, StreamHead, SystemEvent, SystemEventFormat},
    snappy,
};

use super::{
    controls::{Controls, Negotiated},
    flow_control::FlowControl,
    packing::{self, Packer},
    value::{Prepared, ValueMode},
};

/// Where packets go.
pub trait Sink {
    /// Packets are appended to it.
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// A value follows what has been appended so far, without being copied.
    fn attach(&mut self, value: SharedValue);
    /// Whether a value of so many bytes is better attached than copied.
    fn prefers_reference(&self, bytes: usize) -> bool;
    /// Whether there is enough for now.
    fn is_full(&self) -> bool;
}

/// What went out in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) items: u64,
    pub(super) bytes: u64,
    /// What that would have been without compression.
    pub(super) inflated_bytes: u64,
}

/// See the module header. Made for one turn.
pub(super) struct Outbox<'a> {
    pub(super) sink: &'a mut dyn Sink,
    pub(super) flow: &'a mut FlowControl,
    pub(super) negotiated: &'a Negotiated,
    pub(super) controls: &'a Controls,
    pub(super) mode: ValueMode,
    /// Where values are compressed for the way to another node.
    pub(super) packer: Option<&'a mut Packer>,
    pub(super) scratch: &'a mut Vec<u8>,
    /// Bytes of values that the packer has looked at.
    pub(super) packed: usize,
    pub(super) sent: Sent,
}

impl Outbox<'_> {
    /// Whether another message may go out.
    pub(super) fn has_room(&self) -> bool {
        self.flow.has_room() && !self.sink.is_full() && self.packed < packing::TURN_BYTES
    }

    /// Sends a message of a stream.
    pub(super) fn send(&mut self, head: &StreamHead, message: &DcpMessage<'_>) {
        let bytes = message.append(head, self.sink.buffer());
        self.flow.sent(bytes);
        self.sent.bytes += bytes as u64;
        self.sent.inflated_bytes += bytes as u64;
    }

    /// Sends a system event.
    pub(super) fn send_event(&mut self, head: &StreamHead, seqno: base::Seqno, event: &SystemEvent<'_>) {
        let format = if self.controls.flatbuffer_events {
            SystemEventFormat::FlatBuffer
        } else {
            SystemEventFormat::Plain
        };
        let mut value = std::mem::take(self.scratch);
        value.clear();
        event.append_value(format, &mut value);
        let message = DcpMessage::SystemEvent {
            seqno,
            event: event.number(),
            version: event.version(format),
            key: event.key(),
            value: &value,
        };
        self.send(head, &message);
        self.sent.items += 1;
        *self.scratch = value;
    }

    /// Sends what became of a durable write that the consumer was told of.
    pub(super) fn send_completion(&mut self, head: &StreamHead, item: &FeedItem) {
        let key = item.key();
        let key = if self.negotiated.collections { key.encoded() } else { key.logical() };
        let (prepared, seqno) = (item.prepared, item.seqno);
        let message = match item.kind {
            FeedKind::Abort => DcpMessage::Abort { key, prepared, seqno },
            _ => DcpMessage::Commit { key, prepared, seqno },
        };
        self.send(head, &message);
        self.sent.items += 1;
    }

    /// Sends a document, in the form that this consumer wants.
    pub(super) fn send_document(&mut self, head: &StreamHead, item: &FeedItem) {
        let mut scratch = std::mem::take(self.scratch);
        let stored = item.value();
        let mut prepared = self.mode.prepare(stored, item.datatype, item.deleted, &mut scratch);
        if prepared == Prepared::AsStored
            && let Some(packer) = &mut self.packer
        {
            self.packed += stored.len();
            if let Some(packed) = packer.pack(stored, item.datatype, &mut scratch) {
                prepared = Prepared::Made(packed);
            }
        }
        let shared = prepared == Prepared::AsStored && self.sink.prefers_reference(stored.len());
        let (value, datatype): (&[u8], Datatype) = match prepared {
            Prepared::AsStored if shared => (&[], item.datatype),
            Prepared::AsStored if stored.is_empty() => (&[], Datatype::RAW),
            Prepared::AsStored => (stored, item.datatype),
            Prepared::Made(datatype) => (&scratch, datatype),
        };
        let key = item.key();
        let document = Document {
            key: if self.negotiated.collections { key.encoded() } else { key.logical() },
            value,
            // Values are far smaller than what 32 bits can say.
            by_reference: if shared { stored.len() as u32 } else { 0 },
            datatype,
            cas: item.cas,
            seqno: item.seqno,
            rev: item.rev,
        };
        let message = self.message_of(item, document);
        self.send(head, &message);
        if datatype.contains(PACKED) || datatype.contains(Datatype::SNAPPY) {
            let sent = if shared { stored } else { value };
            self.sent.inflated_bytes += snappy::inflated_len(sent).saturating_sub(sent.len()) as u64;
        }
        if shared {
            self.sink.attach(item.share());
        }
        self.sent.items += 1;
        *self.scratch = scratch;
    }

    fn message_of<'m>(&self, item: &FeedItem, document: Document<'m>) -> DcpMessage<'m> {
        let with_times = self.negotiated.flags.has(OpenFlags::INCLUDE_DELETE_TIMES);
        match item.kind {
            FeedKind::Prepare => DcpMessage::Prepare {
                document,
                flags: item.flags,
                expiry: item.expiry,
                deleted: item.deleted,
                level: item.level,
            },
            FeedKind::Expiration if self.controls.expiry_opcode => {
                DcpMessage::Expiration { document, delete_time: item.expiry }
            }
            FeedKind::Deletion | FeedKind::Expiration => {
                DcpMessage::Deletion { document, delete_time: with_times.then_some(item.expiry) }
            }
            // To a node of ours: the end of a scope or collection.
            FeedKind::System if item.deleted => {
                DcpMessage::Deletion { document, delete_time: Some(item.expiry) }
            }
            // Aborts do not come this way, nor system events to others.
            FeedKind::Mutation | FeedKind::System | FeedKind::Abort => {
                DcpMessage::Mutation { document, flags: item.flags, expiry: item.expiry }
            }
        }
    }
}
