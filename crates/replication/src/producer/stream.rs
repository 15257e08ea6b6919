//! One stream: a feed of a vBucket on its way to the consumer.
//!
//! At most one batch of the feed is held, and the next is taken only when it is out. A stream that ends has one more
//! message to send and holds nothing of the vBucket any more.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use base::{CollectionId, Now, Seqno, VbId};
use engine::{
    Bucket,
    feed::{Feed, FeedEnd, FeedStep},
};
use protocol::binary::dcp::{DcpMessage, StreamEndReason, StreamHead};

use super::{
    events,
    filter::Filter,
    outbox::Outbox,
    required_role::RequiredRole,
    script::{ConsumerOptions, Say, Script},
    stats::{StreamPhase, StreamStats},
};

/// Bytes of keys and values taken from a feed at once.
const BATCH_BYTES: usize = 64 * 1024;

/// See the module header.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) head: StreamHead,
    pub(super) filter: Filter,
    /// Gone once the stream is over.
    feed: Option<Feed>,
    script: Script,
    /// Said when there is room.
    pending: VecDeque<Say>,
    end: Seqno,
    required_role: RequiredRole,
    /// It is among those that will be looked at.
    pub(super) is_queued: bool,
    pub(super) stats: Arc<StreamStats>,
}

/// How far a stream came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There may be more at once.
    More,
    /// Its waiter will be woken.
    Waiting,
    /// No room for the rest of its batch.
    Blocked,
    /// It has said its last.
    Ended,
}

impl Stream {
    pub(super) fn new(
        head: StreamHead,
        filter: Filter,
        feed: Feed,
        script: Script,
        (end, required_role): (Seqno, RequiredRole),
        stats: Arc<StreamStats>,
    ) -> Self {
        Self {
            head,
            filter,
            feed: Some(feed),
            script,
            pending: VecDeque::new(),
            end,
            required_role,
            is_queued: false,
            stats,
        }
    }

    /// A stream that has nothing to tell but its end.
    pub(super) fn ended(
        reason: StreamEndReason,
        head: StreamHead,
        filter: Filter,
        script: Script,
        required_role: RequiredRole,
        stats: Arc<StreamStats>,
    ) -> Self {
        let (feed, pending, end, is_queued) = (None, VecDeque::new(), Seqno(0), false);
        let mut stream = Self { head, filter, feed, script, pending, end, required_role, is_queued, stats };
        stream.finish(reason);
        stream
    }

    /// The vBucket has nothing behind what its follower has, which a node cannot tell from there being more to come.
    pub(super) fn tell_nothing_behind(&mut self, seqno: Seqno) {
        self.pending.push_back(Say::Marker(Script::nothing_behind(seqno)));
    }

    /// Whether it will tell more than its end.
    pub(super) const fn is_live(&self) -> bool {
        self.feed.is_some()
    }

    /// Whether what it tells is read from disk.
    pub(super) fn tells_history(&self) -> bool {
        self.stats.phase() == StreamPhase::Backfilling
    }

    /// The term that it is for, if it is a node's.
    pub(super) const fn term(&self) -> Option<u64> {
        match self.required_role {
            RequiredRole::AtTerm(term) => Some(term),
            RequiredRole::Served => None,
        }
    }

    /// Up to where its follower may have everything.
    pub(super) fn told(&self) -> Seqno {
        self.script.read().max(self.stats.start)
    }

    /// Ends it: what it has not said yet is not said any more.
    pub(super) fn finish(&mut self, reason: StreamEndReason) {
        self.feed = None;
        self.pending = VecDeque::from([Say::End(reason)]);
        self.stats.set_phase(StreamPhase::Dead);
    }

    /// Sends what is ready, up to one batch beyond what was left over.
    pub(super) fn pump(
        &mut self,
        bucket: &Bucket,
        options: ConsumerOptions,
        out: &mut Outbox<'_>,
        now: Now,
    ) -> Progress {
        let mut taken = false;
        let before = out.sent.items;
        let progress = loop {
            if let Some(progress) = self.say(out) {
                break progress;
            }
            if taken || !out.has_room() {
                break Progress::More;
            }
            let Some(feed) = &mut self.feed else { break Progress::Ended };
            let step = feed.next(BATCH_BYTES, now);
            if !self.required_role.holds(bucket, self.head.vb) {
                self.finish(StreamEndReason::StateChanged);
                continue;
            }
            match step {
                Ok(FeedStep::Wait) => break Progress::Waiting,
                Ok(FeedStep::Batch(batch)) => {
                    let vb = self.head.vb;
                    let default_high = || last_change_of_default(bucket, vb);
                    let ends = batch.ends_snapshot;
                    let from_disk = self.script.is_in_backfill()
                        || batch.snapshot.as_ref().is_some_and(|snapshot| snapshot.from_disk);
                    self.note_phase(from_disk);
                    self.script.follow(batch, &mut self.filter, options, default_high, &mut self.pending);
                    if ends {
                        self.end_if_done();
                    }
                    taken = true;
                }
                Err(end) => self.finish(reason_of(end)),
            }
        };
        self.count(out.sent.items - before);
        progress
    }

    /// Says what is pending; `None` when nothing is any more.
    fn say(&mut self, out: &mut Outbox<'_>) -> Option<Progress> {
        let mut last = 0;
        let outcome = loop {
            if self.pending.is_empty() {
                break None;
            }
            if !out.has_room() {
                break Some(Progress::Blocked);
            }
            let Some(say) = self.pending.pop_front() else { break None };
            match say {
                Say::Marker(marker) => out.send(&self.head, &DcpMessage::SnapshotMarker(marker)),
                Say::Document(item) => {
                    last = item.seqno.get();
                    // Known only where the consumer is told of prepares.
                    match item.prepared {
                        Seqno(0) => out.send_document(&self.head, &item),
                        _ => out.send_completion(&self.head, &item),
                    }
                }
                Say::Event(seqno, recorded) => {
                    last = seqno.get();
                    out.send_event(&self.head, seqno, &events::in_protocol(&recorded));
                }
                Say::Advanced(seqno) => {
                    last = seqno.get();
                    out.send(&self.head, &DcpMessage::SeqnoAdvanced(seqno));
                }
                Say::OsoBegin => out.send(&self.head, &DcpMessage::OsoBegin),
                Say::OsoEnd => out.send(&self.head, &DcpMessage::OsoEnd),
                Say::End(reason) => {
                    out.send(&self.head, &DcpMessage::StreamEnd(reason));
                    break Some(Progress::Ended);
                }
            }
        };
        if last > 0 {
            self.stats.last_sent.store(last, Ordering::Relaxed);
        }
        if self.pending.is_empty() {
            // 1024 streams that wait for something to happen keep no buffers.
            self.pending = VecDeque::new();
        }
        outcome
    }

    /// After a snapshot: whether it was the last.
    fn end_if_done(&mut self) {
        let reason = if self.script.read() >= self.end {
            StreamEndReason::Ok
        } else if self.filter.is_empty() {
            StreamEndReason::FilterEmpty
        } else {
            return;
        };
        self.feed = None;
        self.pending.push_back(Say::End(reason));
        self.stats.set_phase(StreamPhase::Dead);
    }

    fn note_phase(&self, from_disk: bool) {
        self.stats.set_phase(if from_disk { StreamPhase::Backfilling } else { StreamPhase::InMemory });
    }

    fn count(&self, items: u64) {
        let counter = match self.stats.phase() {
            StreamPhase::Backfilling => &self.stats.from_disk,
            _ => &self.stats.from_memory,
        };
        counter.fetch_add(items, Ordering::Relaxed);
        self.stats.last_read.store(self.script.read().get(), Ordering::Relaxed);
    }
}

/// No later than that does the default collection change; beyond everything while that is not known.
fn last_change_of_default(bucket: &Bucket, vb: VbId) -> Seqno {
    let known = bucket.is_warm().then(|| bucket.collection_seqno(vb, CollectionId::DEFAULT));
    known.and_then(Result::ok).unwrap_or(Seqno(u64::MAX))
}

const fn reason_of(end: FeedEnd) -> StreamEndReason {
    match end {
        FeedEnd::Reset => StreamEndReason::StateChanged,
        FeedEnd::TooSlow => StreamEndReason::TooSlow,
        FeedEnd::BackfillFailed => StreamEndReason::BackfillFailed,
    }
}
