//! A link's connection in a data-plane loop: bytes in, replica fed, answers out.
//!
//! It is driven as any connection is: [`Link::consume`] takes the complete packets of what was read, [`Link::pump`] runs
//! once per turn. While the replica has no room, nothing is executed, and so nothing is read. The node that
//! is followed notices by its window. There is no message for it.

use std::{fmt, mem, sync::Arc};

use base::limits::FRAME_BODY_BYTES_MAX;
use engine::{Bucket, Waiter};
use protocol::binary::{Decoded, decode_frame_within};
use replication::consumer::{Broken, Consumer, Taken};

use super::turn::{After, Protocol, Turn};
use crate::{
    request::{context::Context, session::Session},
    state::{
        link::{LinkOrder, LinkWish, WISHES},
        shared::Snapshot,
    },
};

/// How long a message waits before the replica is asked again whether there is room.
const ROOM_MILLIS: u64 = 10;

/// See the module header.
pub(super) struct Link {
    order: LinkOrder,
    consumer: Consumer<Arc<Bucket>>,
    /// What the consumer was told to follow.
    wish: Arc<LinkWish>,
    /// There may be other wishes.
    look: bool,
    /// The replica has no room; until then (monotonic milliseconds).
    blocked: Option<u64>,
    /// When the worker will look after the connection (monotonic milliseconds).
    timer: Option<u64>,
    /// The consumer has something to do that needs no input.
    has_more: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("link", &self.order.link).finish_non_exhaustive()
    }
}

impl Protocol for Link {
    fn wake(&mut self, ticket: u64, _: &mut Session) {
        if ticket == WISHES {
            self.look = true;
        } else {
            self.consumer.wake(ticket);
            self.has_more = true;
            // Room may have come.
            self.blocked = None;
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    fn has_streams_ready(&self, _: &Session) -> bool {
        self.has_more
    }

    fn holds_gone_bucket(&self, _: &Session, _: &Snapshot) -> bool {
        let link = &self.order.link;
        link.is_over() || !link.wish().is_of_same_connection(&self.wish)
    }

    fn catch_up(&mut self, Turn { out, context, .. }: &mut Turn<'_>) -> After {
        if self.order.link.is_over() {
            return After::Close;
        }
        if mem::take(&mut self.look) {
            let wish = self.order.link.wish();
            if !wish.is_of_same_connection(&self.wish) {
                return After::Close;
            }
            self.consumer.want(&wish.streams, context.now, &mut out.bytes);
            self.wish = wish;
            self.has_more = true;
        }
        if self.blocked.is_some_and(|until| context.now.mono_millis < until) {
            return After::Blocked;
        }
        self.blocked = None;
        After::Ready
    }

    fn consume(&mut self, input: &[u8], Turn { out, context, .. }: &mut Turn<'_>) -> (usize, After) {
        let mut at = 0;
        loop {
            if out.is_full() {
                return (at, After::Again);
            }
            let frame = match decode_frame_within(input.get(at..).unwrap_or_default(), FRAME_BODY_BYTES_MAX) {
                Decoded::Frame(frame) => frame,
                Decoded::Incomplete { need } => {
                    self.hear_part(context);
                    return (at, After::Need(need));
                }
                Decoded::Invalid(header) => {
                    self.log(&format_args!(
                        "a packet (opcode {:#04x}) whose parts are longer than it",
                        header.opcode
                    ));
                    return (at, After::Close);
                }
                Decoded::Fatal(fatal) => {
                    self.log(&fatal);
                    return (at, After::Close);
                }
            };
            match self.consumer.receive(&frame, context.now, &mut out.bytes) {
                Ok(Taken::Done) => at += frame.packet_len(),
                Ok(Taken::NoRoom) => {
                    self.blocked = Some(context.now.mono_millis + ROOM_MILLIS);
                    return (at, After::Blocked);
                }
                Err(broken) => {
                    self.log(&broken);
                    return (at, After::Close);
                }
            }
        }
    }

    fn hear_part(&mut self, context: &Context) {
        self.consumer.hear_part(context.now);
    }

    fn pump(&mut self, Turn { out, context, .. }: &mut Turn<'_>) -> bool {
        let tended: Result<(), Broken> =
            self.consumer.tend(context.now, self.blocked.is_none(), &mut out.bytes);
        self.publish();
        if let Err(broken) = tended {
            self.log(&broken);
            return false;
        }
        self.has_more = self.consumer.has_more(context.now);
        self.set_timer(context);
        true
    }
}

impl Link {
    /// Takes a connection over. `waiter` names it.
    pub(super) fn new(order: LinkOrder, waiter: Waiter, context: &Context) -> Self {
        let wish = Arc::clone(&order.wish);
        let stats = Arc::clone(&order.link.stats);
        let consumer = Consumer::new(Arc::clone(&wish.engine), waiter, context.now, stats);
        *order.link.seat.lock() = Some(waiter);
        // What has been wished for since is looked up in the first turn.
        Self { order, consumer, wish, look: true, blocked: None, timer: None, has_more: true }
    }

    fn set_timer(&mut self, context: &mut Context) {
        let due = self.blocked.unwrap_or(u64::MAX).min(self.consumer.due_at());
        let now = context.now.mono_millis;
        if self.timer.is_none_or(|timer| timer <= now || due < timer) {
            self.timer = Some(due);
            context.wake_at(due);
        }
    }

    /// Tells what is being followed, where that has changed.
    fn publish(&mut self) {
        let changed = self.consumer.take_changed();
        for vb in &changed {
            self.order.link.set_following(*vb, self.consumer.following(*vb));
        }
        if !changed.is_empty() {
            (self.order.link.on_change)();
        }
    }

    fn log(&self, reason: &dyn fmt::Display) {
        tracing::warn!(bucket = self.wish.name, node = %self.wish.peer, %reason, "leaving a node that is followed");
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        *self.order.link.seat.lock() = None;
        for vb in 0..self.wish.engine.vbuckets() {
            self.order.link.set_following(base::VbId(vb), None);
        }
        (self.order.link.on_change)();
    }
}
