//! A connection with its socket, and what is between the two: input not yet consumed, output not yet written.
//!
//! An idle connection owns neither: partial frames and unwritten answers are the only buffers a connection has.

use std::io;

use crate::{
    connection::{After, Connection},
    figures::{phases::Owed, reading::Reading},
    loops::worker::READ_BYTES,
    net::{
        output::{Output, Pending},
        places::Place,
        transport::{ReadOutcome, Transport},
    },
    request::{context::Context, located::ConnectionId},
    state::shared::Snapshot,
};

/// A partial frame that needs more than the worker's buffer grows by at least this much per read.
const GROWTH_BYTES_MIN: usize = 256 * 1024;
/// Consumers of streams may let the socket fill up while they work (kv_engine, `dcp_idle_timeout`).
const DCP_STALL_MILLIS: u64 = 360_000;

/// A connection of this worker.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) id: ConnectionId,
    pub(crate) transport: Transport,
    pub(crate) connection: Connection,
    /// Its place, where a listener has accepted it.
    pub(crate) place: Option<Place>,
    /// When a stranger's connection ends (monotonic milliseconds), where its port asks for a login.
    pub(crate) login_by: Option<u64>,
    /// A request has come.
    has_spoken: bool,
    /// Bytes read and not consumed: `input[..filled]`; the rest is room of a frame being read.
    input: Vec<u8>,
    filled: usize,
    /// Bytes of the frame at the beginning of `input`, as far as known.
    need: usize,
    /// `input` may hold complete frames.
    again: bool,
    /// The socket may hold something to read.
    pub(crate) unread: bool,
    /// The peer has closed its side; the read that says so is still to come.
    pub(crate) peer_closed: bool,
    /// That read has come: close when everything is answered.
    finished: bool,
    /// Close as soon as the output is written.
    closing: bool,
    /// The last read failed: close.
    lost: Option<io::Error>,
    pending: Option<Box<Pending>>,
    /// The answers in `pending`, to be counted when they are written.
    owed: Option<Owed>,
    /// On the ready list since.
    pub(crate) scheduled: Option<Reading>,
    /// When the socket last took something, while output is pending (monotonic milliseconds).
    pub(crate) progress_at: u64,
    /// When it ends, since it holds a bucket that is gone and its client does not take what it was answered there (monotonic
    /// milliseconds).
    let_go_by: Option<u64>,
    /// What is counted in the worker's held bytes.
    pub(crate) held: ClientBytes,
    /// What it has done so far.
    pub(super) traffic: Traffic,
    /// The same at the last look at loads.
    pub(super) looked_at: Traffic,
    /// When something was read last (monotonic milliseconds).
    pub(super) read_at: u64,
}

/// Bytes held on behalf of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientBytes {
    pub(crate) bytes: usize,
    /// Of those, documents of a bucket, in whose account they are.
    pub(crate) lent: usize,
}

impl ClientBytes {
    pub(crate) fn add(&mut self, other: Self) {
        *self = Self { bytes: self.bytes + other.bytes, lent: self.lent + other.lent };
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        *self = Self { bytes: self.bytes - other.bytes, lent: self.lent - other.lent };
    }
}

/// Buffers of the worker that a turn uses.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Ciphertext on its way to TLS.
    pub(crate) scratch: Box<[u8]>,
    pub(crate) output: Output,
}

/// What has gone over a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) answered: u64,
    pub(super) read: u64,
    pub(super) written: u64,
}

/// How long clients may leave their answers where they are, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Those who take nothing at all.
    pub(crate) stall: u64,
    /// Those whose bucket is gone.
    pub(crate) gone: u64,
}

/// What to do with a connection whose client does not take its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stalled {
    /// Let it be.
    Wait,
    /// Close it, and drop what it was to be told.
    End,
}

/// What to do with a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Wait for the socket or a wake-up.
    Wait,
    /// There is more to do right now; let others go first.
    Again,
    /// Close it.
    Close,
}

impl Live {
    pub(crate) fn new(
        id: ConnectionId,
        transport: Transport,
        connection: Connection,
        place: Option<Place>,
    ) -> Self {
        // What came with a TLS handshake is decrypted already, and no event will tell of it.
        let unread = transport.is_tls();
        Self {
            id,
            transport,
            connection,
            place,
            login_by: None,
            has_spoken: false,
            input: Vec::new(),
            filled: 0,
            need: 0,
            again: false,
            unread,
            peer_closed: false,
            finished: false,
            closing: false,
            lost: None,
            pending: None,
            owed: None,
            scheduled: None,
            progress_at: 0,
            let_go_by: None,
            held: ClientBytes::default(),
            traffic: Traffic::default(),
            looked_at: Traffic::default(),
            read_at: 0,
        }
    }

    /// Whether it is a stranger's, and no longer: it has logged in or, where that is not asked for, sent a request.
    pub(crate) fn is_newly_known(&self) -> bool {
        self.place.as_ref().is_some_and(Place::is_strangers) && self.has_spoken && self.connection.is_known()
    }

    /// Whether answers wait for the socket.
    pub(crate) fn is_stalled(&self) -> bool {
        self.pending.is_some() || self.transport.wants_write()
    }

    /// What becomes of it while its client does not take its answers. Until they are taken it has no turn in which it could follow
    /// what has changed. So it keeps its bucket, and its answers keep documents and files of that one, also when the bucket is gone.
    pub(crate) fn stalled_verdict(&mut self, now: u64, patience: &Patience, snapshot: &Snapshot) -> Stalled {
        if !self.is_stalled() {
            return Stalled::Wait;
        }
        let stall =
            if self.connection.is_producer() { patience.stall.max(DCP_STALL_MILLIS) } else { patience.stall };
        if now.saturating_sub(self.progress_at) > stall {
            return Stalled::End;
        }
        if !self.connection.holds_gone_bucket(snapshot) {
            self.let_go_by = None;
            return Stalled::Wait;
        }
        // However much it takes of them until then: a byte now and then must not keep what is gone.
        let let_go_by = *self.let_go_by.get_or_insert(now.saturating_add(patience.gone));
        if now >= let_go_by { Stalled::End } else { Stalled::Wait }
    }

    /// Whether nothing is in flight for this client.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_stalled() && !self.connection.has_parked()
    }

    /// Bytes held on behalf of the client.
    pub(crate) fn held_now(&self) -> ClientBytes {
        let (pending, lent) =
            self.pending.as_ref().map_or((0, 0), |pending| (pending.len(), pending.lent_bytes()));
        let own = self.input.len() + self.transport.unsent_bytes() + self.connection.parked_bytes();
        ClientBytes { bytes: own + pending, lent }
    }

    /// Reads once into `read`, behind what was left over before; returns how many bytes are there to be consumed
    /// in this connection's turn. Nothing is read for a client that has to take its answers first, or whose
    /// requests have to wait.
    pub(crate) fn fill(
        &mut self,
        read: &mut [u8],
        scratch: &mut [u8],
        context: &mut Context,
        reading: bool,
    ) -> usize {
        let may_read = self.unread && reading && !self.finished && !self.again && !self.closing;
        if !may_read || self.is_stalled() || self.connection.is_blocked() || self.needs_own_buffer(read.len())
        {
            return 0;
        }
        let carried = std::mem::take(&mut self.filled);
        if let (Some(head), Some(kept)) = (read.get_mut(..carried), self.input.get(..carried)) {
            head.copy_from_slice(kept);
        }
        self.input = Vec::new();
        let outcome = self.transport.read(read.get_mut(carried..).unwrap_or_default(), scratch);
        let total = carried + self.note(outcome, context);
        if total == carried {
            self.keep(read.get(..carried).unwrap_or_default());
            return 0;
        }
        total
    }

    /// Half of the worker's buffer stays free for what is read, which under TLS needs room for a whole record.
    fn needs_own_buffer(&self, buffer_bytes: usize) -> bool {
        self.filled > 0 && self.need.max(self.filled * 2) > buffer_bytes
    }

    /// One turn: write what is left over, answer what was parked, execute `input` (what [`Self::fill`] has read),
    /// write once. `reading` is false while the worker is stopping.
    pub(crate) fn turn(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        context: &mut Context,
        reading: bool,
    ) -> Verdict {
        match self.try_turn(input, buffers, context, reading) {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::debug!(%error, connection = self.id, "connection lost");
                buffers.output.clear();
                Verdict::Close
            }
        }
    }

    fn try_turn(
        &mut self,
        input: &[u8],
        buffers: &mut Buffers,
        context: &mut Context,
        reading: bool,
    ) -> io::Result<Verdict> {
        if let Some(error) = self.lost.take() {
            return Err(error);
        }
        if self.is_stalled() && !self.write_pending(context)? {
            // Another connection goes on for a consumer that may never read again.
            return Ok(if self.connection.is_superseded() { Verdict::Close } else { Verdict::Wait });
        }
        self.let_go_by = None;
        if let Some(owed) = self.owed.take() {
            self.settle(owed, context);
        }
        if self.closing {
            return Ok(Verdict::Close);
        }
        context.connection = self.id;
        let mut after = self.connection.catch_up(&mut buffers.output, context);
        if after == After::Ready {
            after = if input.is_empty() {
                self.take_buffered(buffers, context, reading)?
            } else {
                self.consume(input, &mut buffers.output, context)
            };
        } else if !input.is_empty() {
            self.keep(input);
            self.again = true;
        }
        if reading && after != After::Close && !self.connection.pump(&mut buffers.output, context) {
            after = After::Close;
        }
        let owed = context.stopwatch.owed();
        self.write_out(&mut buffers.output, context)?;
        match owed {
            Some(_) if self.is_stalled() => self.owed = owed,
            Some(owed) => self.settle(owed, context),
            // What streams took is not the next connection's.
            None if self.connection.has_streams() => _ = context.stopwatch.lap(Reading::now()),
            None => {}
        }
        Ok(self.verdict(after, reading))
    }

    fn verdict(&mut self, after: After, reading: bool) -> Verdict {
        if after == After::Close {
            self.closing = true;
        }
        if self.is_stalled() {
            return Verdict::Wait;
        }
        let parked = self.connection.has_parked();
        if self.closing || (self.finished && !self.again && !parked) {
            return Verdict::Close;
        }
        let blocked = self.connection.is_blocked();
        if self.lost.is_some()
            || after == After::Again
            || self.connection.has_ready()
            || (reading && self.connection.has_streams_ready())
            || (!blocked && (self.again || (self.unread && reading && !self.finished)))
        {
            Verdict::Again
        } else {
            Verdict::Wait
        }
    }

    /// Consumes buffered frames if there may be any, or reads on towards a frame too large for the worker's buffer.
    fn take_buffered(
        &mut self,
        buffers: &mut Buffers,
        context: &mut Context,
        reading: bool,
    ) -> io::Result<After> {
        if self.again {
            let input = std::mem::take(&mut self.input);
            let filled = std::mem::take(&mut self.filled);
            let bytes = input.get(..filled).unwrap_or_default();
            return Ok(self.consume(bytes, &mut buffers.output, context));
        }
        let may_read = self.unread && reading && !self.finished && !self.connection.is_blocked();
        if may_read && self.needs_own_buffer(READ_BYTES) {
            return self.read_large(buffers, context);
        }
        Ok(After::Ready)
    }

    /// Reads into the connection's own buffer, grown towards the whole frame. Memory follows what has arrived, not
    /// what a header promises.
    fn read_large(&mut self, buffers: &mut Buffers, context: &mut Context) -> io::Result<After> {
        let want = self.need.max(self.filled + 1).min(self.filled * 2 + GROWTH_BYTES_MIN);
        // TLS needs room for a record beyond the frame.
        let want = if self.transport.is_tls() { want + buffers.scratch.len() } else { want };
        if self.input.len() < want {
            self.input.resize(want, 0);
        }
        let room = self.input.get_mut(self.filled..).unwrap_or_default();
        let outcome = self.transport.read(room, &mut buffers.scratch);
        let count = self.note(outcome, context);
        self.filled += count;
        if self.filled < self.need {
            if count > 0 {
                self.connection.hear_part(context);
            }
            return Ok(After::Ready);
        }
        context.look_at_lease();
        let input = std::mem::take(&mut self.input);
        let filled = std::mem::take(&mut self.filled);
        let bytes = input.get(..filled).unwrap_or_default();
        Ok(self.consume(bytes, &mut buffers.output, context))
    }

    /// Remembers what a read said about the socket; returns the bytes it brought.
    fn note(&mut self, outcome: io::Result<ReadOutcome>, context: &mut Context) -> usize {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.lost = Some(error);
                return 0;
            }
        };
        match outcome {
            ReadOutcome::Bytes { count, drained } => {
                self.unread = !drained || self.peer_closed;
                context.bytes_read += count as u64;
                self.traffic.read += count as u64;
                self.read_at = context.now.mono_millis;
                count
            }
            ReadOutcome::Empty => {
                self.unread = self.peer_closed;
                0
            }
            ReadOutcome::Closed => {
                self.unread = false;
                self.finished = true;
                0
            }
        }
    }

    fn consume(&mut self, bytes: &[u8], output: &mut Output, context: &mut Context) -> After {
        let (consumed, after) = self.connection.consume(bytes, output, context);
        self.has_spoken |= consumed > 0;
        self.keep(bytes.get(consumed..).unwrap_or_default());
        self.need = match after {
            After::Need(need) => need,
            _ => 0,
        };
        self.again = matches!(after, After::Again | After::Blocked) && self.filled > 0;
        after
    }

    fn keep(&mut self, rest: &[u8]) {
        self.input = rest.to_vec();
        self.filled = rest.len();
    }

    fn write_out(&mut self, output: &mut Output, context: &mut Context) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let length = output.len();
        let transport = &mut self.transport;
        let written = output.with_slices(|slices| transport.write(slices))?;
        context.bytes_written += written as u64;
        self.traffic.written += written as u64;
        if written < length {
            self.pending = Some(Box::new(output.take_rest(written)));
            self.progress_at = context.now.mono_millis;
        } else {
            output.clear();
            if self.transport.wants_write() {
                self.progress_at = context.now.mono_millis;
            }
        }
        Ok(())
    }

    /// Counts answers that the socket has taken.
    fn settle(&self, owed: Owed, context: &mut Context) {
        let now = Reading::now();
        context.stopwatch.lap(now);
        if let Some(meter) = self.connection.session.meter() {
            owed.settle(now, meter, context.worker);
        }
    }

    /// True when nothing is left to write.
    fn write_pending(&mut self, context: &mut Context) -> io::Result<bool> {
        if self.transport.flush()? > 0 {
            self.progress_at = context.now.mono_millis;
        }
        while let Some(pending) = &mut self.pending {
            let transport = &mut self.transport;
            let written = pending.with_slices(|slices| transport.write(slices))?;
            if written == 0 {
                return Ok(false);
            }
            context.bytes_written += written as u64;
            self.traffic.written += written as u64;
            self.progress_at = context.now.mono_millis;
            pending.advance(written);
            if pending.len() == 0 {
                self.pending = None;
            }
        }
        Ok(!self.transport.wants_write())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_stays_small() {
        // 30,000 of them must not matter. Names and addresses included, nothing else is allocated while idle.
        let size = size_of::<Live>();
        println!("{size} bytes, of which the state machine {}", size_of::<Connection>());
        assert!(size <= 768, "{size}");
    }
}
