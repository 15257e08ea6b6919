//! A connection that speaks the memcached text protocol.

use protocol::text::Command;

use super::{After, CHECKED_REQUESTS, Connection, Flow, Protocol, TURN_REQUESTS};
use crate::{
    handlers::text::{Step, TextCall},
    net::output::Output,
    request::{
        context::Context,
        stage::{Resumed, Stop},
    },
};

impl Connection {
    pub(super) fn consume_text(
        &mut self,
        input: &[u8],
        out: &mut Output,
        context: &mut Context,
    ) -> (usize, After) {
        let mut at = 0;
        let mut executed = 0;
        if self.session.attached().is_none() {
            out.bytes.extend_from_slice(b"SERVER_ERROR no bucket is served on this port\r\n");
            return (0, After::Close);
        }
        loop {
            if self.blocked {
                return (at, After::Blocked);
            }
            if out.is_full() || executed >= TURN_REQUESTS {
                return (at, After::Again);
            }
            let rest = input.get(at..).unwrap_or_default();
            let Protocol::Text(state) = &mut self.protocol else { return (at, After::Close) };
            match state.step(rest, out) {
                Step::Need(need) => return (at, After::Need(need)),
                Step::Skip(length) => at += length,
                Step::Close => return (at, After::Close),
                Step::Command(command, length) => {
                    let packet = rest.get(..length).unwrap_or_default();
                    let flow = self.execute_text(packet, &command, None, out, context);
                    if flow == Flow::Close {
                        return (at, After::Close);
                    }
                    at += length;
                    if flow == Flow::Parked {
                        self.look_ahead_text(input.get(at..).unwrap_or_default(), context);
                    }
                    executed += 1;
                    context.check_turn_time |= executed % CHECKED_REQUESTS == 0;
                }
            }
            if context.is_turn_over() {
                return (at, After::Again);
            }
        }
    }

    pub(super) fn execute_text(
        &mut self,
        packet: &[u8],
        command: &Command<'_>,
        resumed: Option<Resumed>,
        out: &mut Output,
        context: &mut Context,
    ) -> Flow {
        let ticket = self.waiting.ticket_for(resumed.as_ref());
        let session = &mut self.session;
        let mut call = TextCall { session, out, context, ticket, resumed, rest: None };
        let outcome = call.execute(command);
        let rest = call.rest.take();
        match outcome {
            Ok(()) => Flow::Next,
            Err(Stop::Park(stage, deadline)) => {
                let packet = rest.as_deref().unwrap_or(packet);
                self.waiting.park(packet, stage, ticket, deadline, context);
                self.barrier = true;
                self.blocked = true;
                Flow::Parked
            }
            Err(_) => Flow::Close,
        }
    }
}
