//! The requests of a client in their order: which of them wait, and what may not overtake them.

use protocol::{binary::ServerDuration, hello::Feature};
use replication::producer::STREAM_TICKETS;

use super::{
    turn::{After, Flow, Protocol, Turn},
    waiting::{Parked, Waiting},
};
use crate::{
    figures::slow::Asker,
    handlers,
    net::output::Mark,
    request::{
        context::Recorded,
        session::{Session, SessionStatus},
        stage::{Resumed, Stage},
    },
};

/// What both protocols of clients keep about their requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) waiting: Waiting,
    /// Nothing may be executed for now.
    pub(super) blocked: bool,
    /// A parked request must not be overtaken.
    pub(super) barrier: bool,
    /// Operations that were answered.
    pub(super) answered: u64,
}

/// The beginning of what is executed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    /// Requests that were parked before.
    others: usize,
    /// For how many nanoseconds it waited for its turn, unless that was counted before.
    queued: Option<u64>,
    /// Where its answers begin.
    mark: Mark,
}

/// A protocol of requests and answers. Requests may be parked, and go on from the packet that was kept.
pub(super) trait Client {
    fn requests(&self) -> &Requests;

    fn requests_mut(&mut self) -> &mut Requests;

    /// Executes the complete requests at the beginning of `input`; returns how many bytes they took.
    fn execute_all(&mut self, input: &[u8], turn: &mut Turn<'_>) -> (usize, After);

    /// Executes a request again that was parked.
    fn resume(&mut self, packet: &[u8], resumed: Resumed, turn: &mut Turn<'_>) -> Flow;
}

impl<C: Client> Protocol for C {
    /// Follows the node's state, answers parked requests that can be, pushes a newer cluster map.
    fn catch_up(&mut self, turn: &mut Turn<'_>) -> After {
        match turn.session.refresh(&turn.context.snapshot) {
            SessionStatus::Good => {}
            // What waits for something of the bucket that was there would wait for ever.
            SessionStatus::BucketReplaced
                if !self.requests_mut().waiting.stages().any(|(_, stage)| stage.is_of_bucket()) =>
            {
                // It was looked up in the bucket before, whose vBuckets may be fewer.
                turn.context.previewed = None;
            }
            SessionStatus::BucketReplaced | SessionStatus::BucketGone | SessionStatus::LoginEnded => {
                return After::Close;
            }
        }
        if !turn.session.follow_dcp(turn.context) {
            return After::Close;
        }
        handlers::config::push(turn.session, turn.out, turn.context);
        while self.requests_mut().waiting.has_ready() {
            if turn.out.is_full() {
                return After::Again;
            }
            let Some(parked) = self.requests_mut().waiting.take_ready() else { break };
            if resume(self, parked, turn) == Flow::Close {
                return After::Close;
            }
            if turn.context.is_turn_over() {
                return After::Again;
            }
        }
        let queue = self.requests_mut();
        queue.barrier &= !queue.waiting.is_empty();
        queue.blocked &= queue.barrier || queue.waiting.is_crowded();
        After::Ready
    }

    fn consume(&mut self, input: &[u8], turn: &mut Turn<'_>) -> (usize, After) {
        let queued = turn.context.stopwatch.queued();
        let batch =
            Batch { others: self.requests().waiting.len(), queued: Some(queued), mark: turn.out.mark() };
        let result = self.execute_all(input, turn);
        self.requests_mut().record_batch(batch, turn);
        result
    }

    fn pump(&mut self, turn: &mut Turn<'_>) -> bool {
        let Turn { session, out, context } = turn;
        session.dcp.as_mut().is_none_or(|dcp| out.is_full() || dcp.pump(out, context))
    }

    fn wake(&mut self, ticket: u64, session: &mut Session) {
        match &mut session.dcp {
            Some(dcp) if ticket >= STREAM_TICKETS => dcp.wake(ticket),
            _ => self.requests_mut().waiting.wake(ticket),
        }
    }

    fn is_blocked(&self) -> bool {
        self.requests().blocked
    }

    fn has_streams_ready(&self, session: &Session) -> bool {
        session.dcp.as_ref().is_some_and(|dcp| dcp.producer.has_more())
    }

    fn client(&self) -> Option<&Requests> {
        Some(self.requests())
    }

    fn client_mut(&mut self) -> Option<&mut Requests> {
        Some(self.requests_mut())
    }
}

fn resume(client: &mut impl Client, parked: Parked, turn: &mut Turn<'_>) -> Flow {
    let Parked { ticket, packet, read_at, since, stage, completion, timed_out, .. } = parked;
    if let (Some(phase), Some(meter)) = (stage.phase(), turn.session.meter()) {
        let waited = turn.context.stopwatch.at().nanos_since(since);
        meter.record_phase(turn.context.worker, phase, 1, waited);
        turn.context.waited = Some((phase, waited));
    }
    let batch = Batch { others: client.requests_mut().waiting.len(), queued: None, mark: turn.out.mark() };
    let now_read_at = std::mem::replace(&mut turn.context.read_at, read_at);
    let flow = client.resume(&packet, Resumed { ticket, stage, completion, timed_out }, turn);
    client.requests_mut().record_batch(batch, turn);
    turn.context.read_at = now_read_at;
    flow
}

impl Requests {
    /// Whether everything waits for a document to come from disk.
    pub(super) fn wait_for_disk(&self) -> bool {
        self.blocked && self.waiting.stages().any(|(_, stage)| matches!(stage, Stage::Fetch { .. }))
    }

    /// Records what was executed since a batch began. Histograms, and clients that want to know it, are told the same time.
    pub(super) fn record_batch(&mut self, batch: Batch, turn: &mut Turn<'_>) {
        let Turn { session, out, context } = turn;
        let parked = self.waiting.len().saturating_sub(batch.others) as u64;
        let is_told = session.has(Feature::Tracing) && out.mark() != batch.mark;
        let Recorded { answered, micros, slow } =
            context.record_batch(session.meter(), parked, batch.queued, is_told);
        self.answered = self.answered.wrapping_add(answered);
        if is_told {
            out.tell(batch.mark, ServerDuration::from_micros(micros));
        }
        let Some(slow) = slow else { return };
        let bucket = session.attached();
        let asker = Asker {
            bucket: bucket.map(|bucket| bucket.name.to_string()).unwrap_or_default(),
            user: session.identity.name.clone(),
            peer: session.peer,
            agent: session.agent.as_deref().unwrap_or_default().to_owned(),
        };
        context.shared.slow.note(&slow, &asker);
    }
}
