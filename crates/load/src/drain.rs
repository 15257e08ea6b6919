//! Reads a whole bucket over DCP and counts: how fast can a consumer be fed?
//!
//! One thread per connection, blocking. Each has its share of the vBuckets as streams from the beginning to what is the
//! newest mutation when the stream opens. Messages are decoded and thrown away. Flow control is on, as every real
//! consumer has it.

use crate::target::{LoadError, Target};
use base::{Seqno, VbId, VbUuid};
use client::{ClientError, KvConnection};
use protocol::binary::dcp::request::OpenExtras;
use protocol::binary::dcp::{DcpMessage, OpenFlags, StreamEndReason, StreamFlags, StreamRequest};
use protocol::binary::extras::NumberExtras;
use protocol::binary::{Magic, Opcode, Request};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// The window of flow control, and how much of it is taken in before that is acknowledged.
const WINDOW_BYTES: usize = 20 * 1024 * 1024;
const ACKNOWLEDGE_BYTES: usize = WINDOW_BYTES / 5;

/// How a bucket is drained.
#[derive(Clone, Copy, Debug)]
pub struct DrainOptions {
    /// How many connections share the vBuckets.
    pub connections: usize,
    /// Only what is on disk.
    pub disk_only: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drained {
    /// Documents that exist.
    pub documents: u64,
    /// Deletions and expirations.
    pub deletions: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Bytes of all packets.
    pub bytes: u64,
    /// From the first stream request to the last stream's end.
    pub elapsed: Duration,
}

impl Drained {
    /// Documents and deletions per second.
    #[must_use]
    pub fn per_sec(&self) -> f64 {
        (self.documents + self.deletions) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Million bytes per second.
    #[must_use]
    pub fn megabytes_per_sec(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Drains every vBucket once.
///
/// # Errors
/// No access to DCP, a stream that is refused or ends before its time.
pub fn drain(target: &Arc<Target>, options: DrainOptions) -> Result<Drained, LoadError> {
    let shares = shares(target, options.connections);
    let mut consumers = Vec::new();
    for (number, (node, vbuckets)) in shares.into_iter().enumerate() {
        consumers.push(Consumer::open(target, node, number, vbuckets, options.disk_only)?);
    }
    let ready = Barrier::new(consumers.len() + 1);
    let results: Vec<Result<Drained, LoadError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = consumers
            .into_iter()
            .map(|consumer| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    consumer.run()
                })
            })
            .collect();
        ready.wait();
        let begun = Instant::now();
        let results = threads.into_iter().map(|thread| {
            let drained = thread.join().unwrap_or(Err(LoadError::Thread))?;
            Ok(Drained { elapsed: begun.elapsed(), ..drained })
        });
        results.collect()
    });
    let mut total = Drained::default();
    for result in results {
        let one = result?;
        total.documents += one.documents;
        total.deletions += one.deletions;
        total.snapshots += one.snapshots;
        total.bytes += one.bytes;
        total.elapsed = total.elapsed.max(one.elapsed);
    }
    Ok(total)
}

/// Which connection, to which node, has which vBuckets.
fn shares(target: &Target, connections: usize) -> Vec<(usize, Vec<VbId>)> {
    let nodes = target.nodes();
    let connections = connections.max(nodes);
    let mut shares: Vec<_> = (0..connections).map(|number| (number % nodes, Vec::new())).collect();
    let mut next = vec![0; nodes];
    for vb in (0..target.vbuckets()).map(VbId) {
        let node = target.node_of(vb);
        let own = (connections - node).div_ceil(nodes);
        shares[node + nodes * (next[node] % own)].1.push(vb);
        next[node] += 1;
    }
    shares
}

struct Consumer {
    connection: KvConnection,
    vbuckets: Vec<VbId>,
    flags: StreamFlags,
    unacknowledged: usize,
    drained: Drained,
}

impl Consumer {
    fn open(
        target: &Target,
        node: usize,
        number: usize,
        vbuckets: Vec<VbId>,
        disk_only: bool,
    ) -> Result<Consumer, LoadError> {
        let mut connection = target.open(node)?;
        let name = format!("settee-load:{}:{number}", std::process::id());
        let extras = OpenExtras { seqno: 0, flags: OpenFlags::PRODUCER.0 }.encode();
        let open = Request { key: name.as_bytes(), extras: &extras, ..Request::new(Opcode::DcpOpen) };
        connection.call(&open)?.success("DCP_OPEN")?;
        let window = WINDOW_BYTES.to_string();
        // Without "are you there?" there are no collections.
        for (key, value) in [("enable_noop", "true"), ("connection_buffer_size", window.as_str())] {
            let (key, value) = (key.as_bytes(), value.as_bytes());
            let control = Request { key, value, ..Request::new(Opcode::DcpControl) };
            connection.call(&control)?.success("DCP_CONTROL")?;
        }
        let flags = if disk_only { StreamFlags::DISK_ONLY } else { StreamFlags::TO_LATEST };
        Ok(Consumer { connection, vbuckets, flags, unacknowledged: 0, drained: Drained::default() })
    }

    fn run(mut self) -> Result<Drained, LoadError> {
        let zero = Seqno(0);
        let extras = StreamRequest {
            flags: self.flags.0,
            reserved: 0,
            start: zero,
            end: Seqno(u64::MAX),
            vb_uuid: VbUuid(0),
            snap_start: zero,
            snap_end: zero,
        }
        .encode();
        for &vbucket in &self.vbuckets {
            self.connection.queue(&Request {
                vbucket,
                extras: &extras,
                ..Request::new(Opcode::DcpStreamReq)
            })?;
        }
        self.connection.send()?;
        let mut open = self.vbuckets.len();
        while open > 0 {
            if self.take()? {
                open -= 1;
            }
            if self.unacknowledged >= ACKNOWLEDGE_BYTES {
                let extras = NumberExtras { number: self.unacknowledged as u32 }.encode();
                let done = Request { extras: &extras, ..Request::new(Opcode::DcpBufferAcknowledgement) };
                self.connection.queue(&done)?;
                self.connection.send()?;
                self.unacknowledged = 0;
            }
        }
        Ok(self.drained)
    }

    /// Takes one packet; says whether a stream has ended with it.
    fn take(&mut self) -> Result<bool, LoadError> {
        let broken = |what: &str| LoadError::Client(ClientError::Protocol(what.to_owned()));
        let frame = self.connection.receive()?;
        let length = frame.packet_len();
        if frame.header.magic == Magic::ClientResponse {
            let status = frame.header.status();
            if status == Some(base::Status::Success) {
                return Ok(false);
            }
            let name = status.map_or("an unknown status", base::Status::text);
            return Err(LoadError::Plan(format!("a stream was refused: {name}")));
        }
        let (_, message) = DcpMessage::decode(&frame).ok_or_else(|| broken("no DCP message"))?;
        let (asked, drained) = (frame.header, &mut self.drained);
        drained.bytes += length as u64;
        let mut ended = false;
        match message {
            DcpMessage::Mutation { .. } => drained.documents += 1,
            DcpMessage::Deletion { .. } | DcpMessage::Expiration { .. } => drained.deletions += 1,
            DcpMessage::SnapshotMarker(_) => drained.snapshots += 1,
            DcpMessage::StreamEnd(StreamEndReason::Ok) => ended = true,
            DcpMessage::StreamEnd(reason) => {
                return Err(LoadError::Plan(format!("a stream ended before its time: {reason:?}")));
            }
            DcpMessage::Noop => {
                self.connection.queue_success(&asked);
                self.connection.send()?;
                return Ok(false);
            }
            DcpMessage::Prepare { .. }
            | DcpMessage::Commit { .. }
            | DcpMessage::Abort { .. }
            | DcpMessage::SystemEvent { .. }
            | DcpMessage::SeqnoAdvanced(_)
            | DcpMessage::OsoBegin
            | DcpMessage::OsoEnd => {}
        }
        self.unacknowledged += length;
        Ok(ended)
    }
}
