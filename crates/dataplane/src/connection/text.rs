//! The memcached text protocol of a client.

use protocol::text::{Command, Parsed, parse};

use super::{
    look_ahead,
    requests::{Client, Requests},
    turn::{After, CHECKED_REQUESTS, Flow, TURN_REQUESTS, Turn},
};
use crate::{
    handlers::text::{Step, TextCall, TextState},
    request::stage::{Resumed, Stop},
};

/// A client that speaks the text protocol.
#[derive(Debug, Default)]
pub(super) struct Text {
    requests: Requests,
    state: TextState,
}

impl Client for Text {
    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn requests_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }

    fn execute_all(&mut self, input: &[u8], turn: &mut Turn<'_>) -> (usize, After) {
        let mut at = 0;
        let mut executed = 0;
        if turn.session.attached().is_none() {
            turn.out.bytes.extend_from_slice(b"SERVER_ERROR no bucket is served on this port\r\n");
            return (0, After::Close);
        }
        loop {
            if self.requests.blocked {
                return (at, After::Blocked);
            }
            if turn.out.is_full() || executed >= TURN_REQUESTS {
                return (at, After::Again);
            }
            let rest = input.get(at..).unwrap_or_default();
            match self.state.step(rest, turn.out) {
                Step::Need(need) => return (at, After::Need(need)),
                Step::Skip(length) => at += length,
                Step::Close => return (at, After::Close),
                Step::Command(command, length) => {
                    let packet = rest.get(..length).unwrap_or_default();
                    let flow = self.execute(packet, &command, None, turn);
                    if flow == Flow::Close {
                        return (at, After::Close);
                    }
                    at += length;
                    if flow == Flow::Parked {
                        let behind = input.get(at..).unwrap_or_default();
                        look_ahead::of_text(&self.requests, turn.session, behind, turn.context);
                    }
                    executed += 1;
                    turn.context.check_turn_time |= executed % CHECKED_REQUESTS == 0;
                }
            }
            if turn.context.is_turn_over() {
                return (at, After::Again);
            }
        }
    }

    fn resume(&mut self, packet: &[u8], resumed: Resumed, turn: &mut Turn<'_>) -> Flow {
        match parse(packet, base::limits::VALUE_BYTES_MAX) {
            Parsed::Command { command, .. } => self.execute(packet, &command, Some(resumed), turn),
            // Only whole commands are parked.
            _ => Flow::Close,
        }
    }
}

impl Text {
    fn execute(
        &mut self,
        packet: &[u8],
        command: &Command<'_>,
        resumed: Option<Resumed>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let ticket = self.requests.waiting.ticket_for(resumed.as_ref());
        let Turn { session, out, context } = turn;
        let mut call = TextCall { session, out, context, ticket, resumed, rest: None };
        let outcome = call.execute(command);
        let rest = call.rest.take();
        match outcome {
            Ok(()) => Flow::Next,
            Err(Stop::Park(stage, deadline)) => {
                let packet = rest.as_deref().unwrap_or(packet);
                self.requests.waiting.park(packet, stage, ticket, deadline, turn.context);
                self.requests.barrier = true;
                self.requests.blocked = true;
                Flow::Parked
            }
            Err(_) => Flow::Close,
        }
    }
}
