//! The parked requests of a connection: their packets, where each stopped, and what it is to be woken by.

use crate::{
    figures::reading::Reading,
    request::{
        context::Context,
        stage::{Resumed, Stage},
    },
    state::completion::Completion,
};

/// Requests of one connection that may be parked, with unordered execution.
const PARKED_MAX: usize = 128;
/// Bytes of parked packets of one connection.
const PARKED_BYTES_MAX: usize = 32 << 20;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) ticket: u64,
    pub(super) packet: Box<[u8]>,
    pub(super) read_at: Reading,
    /// When the batch began in which it was parked.
    pub(super) since: Reading,
    pub(super) stage: Stage,
    pub(super) completion: Option<Completion>,
    /// When it is executed again whatever happens (monotonic milliseconds).
    deadline: Option<u64>,
    pub(super) timed_out: bool,
    /// To be executed again.
    ready: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    parked: Vec<Parked>,
    bytes: usize,
    next_ticket: u64,
    /// When the worker will call [`Waiting::expire`]: no later than the first deadline. One for all of them, since most
    /// are done long before, and there may be many.
    timer: Option<u64>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Bytes of packets, and of what became of slow work for them. A client that takes nothing keeps that from its turn.
    pub(super) fn bytes(&self) -> usize {
        let completions = self.parked.iter().filter_map(|parked| parked.completion.as_ref());
        self.bytes + completions.map(Completion::bytes).sum::<usize>()
    }

    /// Whether no more may come.
    pub(super) fn is_crowded(&self) -> bool {
        self.parked.len() >= PARKED_MAX
            || self.bytes >= PARKED_BYTES_MAX
            || self.parked.iter().any(|parked| parked.stage.is_alone())
    }

    /// Where each stopped, by ticket.
    pub(super) fn stages(&self) -> impl Iterator<Item = (u64, &Stage)> {
        self.parked.iter().map(|parked| (parked.ticket, &parked.stage))
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.parked.iter().map(|parked| &*parked.packet)
    }

    /// Whether one can be executed.
    pub(super) fn has_ready(&self) -> bool {
        self.parked.iter().any(|parked| parked.ready)
    }

    /// Takes out one that can be executed.
    pub(super) fn take_ready(&mut self) -> Option<Parked> {
        let index = self.parked.iter().position(|parked| parked.ready)?;
        let parked = self.parked.swap_remove(index);
        self.bytes -= parked.packet.len();
        Some(parked)
    }

    /// Marks a request for execution. Unknown tickets were answered already.
    pub(super) fn wake(&mut self, ticket: u64) {
        if let Some(parked) = self.parked.iter_mut().find(|parked| parked.ticket == ticket) {
            parked.ready = true;
        }
    }

    /// As [`Waiting::wake`]; the place for what became of slow work done for it. None where the request waits for something else by
    /// now: a late answer is not that of what was asked for next.
    pub(super) fn wake_with(
        &mut self,
        ticket: u64,
        completion: &Completion,
    ) -> Option<&mut Option<Completion>> {
        let parked = self.parked.iter_mut().find(|parked| parked.ticket == ticket)?;
        if !parked.stage.awaits(completion) {
            return None;
        }
        parked.ready = true;
        Some(&mut parked.completion)
    }

    /// Marks the requests whose deadline has passed; returns when to call again.
    pub(super) fn expire(&mut self, now_millis: u64) -> Option<u64> {
        if self.timer.is_some_and(|timer| timer > now_millis) {
            // An earlier deadline was set after the one that brought us here; that call has been made or will be.
            return None;
        }
        for parked in &mut self.parked {
            if parked.deadline.is_some_and(|deadline| deadline <= now_millis) {
                (parked.timed_out, parked.ready) = (true, true);
            }
        }
        let waiting = self.parked.iter().filter(|parked| !parked.ready);
        self.timer = waiting.filter_map(|parked| parked.deadline).min();
        self.timer
    }

    /// What a request is parked under: what it was parked under before, or a new ticket.
    pub(super) fn ticket_for(&mut self, resumed: Option<&Resumed>) -> u64 {
        let ticket = resumed.map_or(self.next_ticket, |resumed| resumed.ticket);
        self.next_ticket = self.next_ticket.max(ticket + 1);
        ticket
    }

    pub(super) fn park(
        &mut self,
        packet: &[u8],
        stage: Stage,
        ticket: u64,
        deadline: Option<u64>,
        context: &mut Context,
    ) {
        if let Some(millis) = deadline
            && self.timer.is_none_or(|timer| millis < timer)
        {
            self.timer = Some(millis);
            context.wake_at(millis);
        }
        self.bytes += packet.len();
        let ready = stage.is_ready();
        self.parked.push(Parked {
            ticket,
            packet: packet.into(),
            read_at: context.read_at,
            since: context.stopwatch.at(),
            stage,
            completion: None,
            deadline,
            timed_out: false,
            ready,
        });
    }
}
