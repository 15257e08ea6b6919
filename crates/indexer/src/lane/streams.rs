//! The feeds of a lane: which are open, from where, and which have something to tell.
//!
//! Few feeds catch up at a time. The others of a bucket wait in memory until the engine wakes them, which costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use base::{CollectionId, Seqno, Status, VbId, VbUuid};
use engine::{
    Bucket, Feed, FeedBatch, FeedFilter, FeedKind, FeedOptions, FeedStep, SystemEvent,
    system_events::Happening,
};

use views::{design::Signature, index::VbSet};

use super::Member;
use crate::{
    alarm::Alarm,
    course::{Course, Reached, newest},
    desk::Copy,
    documents::{Document, Inflate, Version},
    pause::Pause,
    shared::Setup,
};

/// Feeds that catch up at a time.
const CATCHING_UP_MAX: usize = 16;
/// So many of them at most when one of a copy that follows another node's is opened: the rest is for copies that are served.
const FOLLOWERS_MAX: usize = CATCHING_UP_MAX / 2;
/// A feed that failed is opened again after this time at the latest: queries may wait for it, and to try costs little.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Some changes of a vBucket.
pub(super) struct Part {
    pub(super) vb: VbId,
    /// The failover log that the feed was opened by.
    pub(super) log: Arc<[(VbUuid, Seqno)]>,
    pub(super) reached: Reached,
    /// The default collection was dropped: what was before is gone.
    pub(super) forgets: bool,
    pub(super) documents: Vec<Document>,
    /// Ids of documents that are none.
    pub(super) unreadable: Vec<String>,
}

struct Stream {
    feed: Feed,
    log: Arc<[(VbUuid, Seqno)]>,
    turn: u64,
    /// It tells the values of documents.
    has_values: bool,
    course: Course,
    /// The engine wakes it.
    waits: bool,
    /// It had told everything when it began to wait.
    at_end: bool,
    /// It was found to be wanted as it is. Nothing has been read of it since, and nobody said that it is to be looked at again.
    is_settled: bool,
}

#[derive(Default)]
pub(super) struct Streams {
    open: BTreeMap<VbId, Stream>,
    ready: VecDeque<VbId>,
    /// Not to be opened before, in this turn of its copy.
    later: BTreeMap<VbId, (Duration, u64)>,
    pauses: BTreeMap<VbId, Pause>,
}

impl Streams {
    /// A feed is opened again when it is wanted.
    pub(super) fn close(&mut self, vb: VbId) {
        self.open.remove(&vb);
    }

    /// The indexes of the lane, or what they want, have changed: all feeds are looked at again.
    pub(super) fn look_again(&mut self) {
        self.open.values_mut().for_each(|stream| stream.is_settled = false);
    }

    /// Closes feeds whose vBuckets have begun another branch since. A copy that is none for a moment does not end its feed.
    pub(super) fn close_where_begun_anew(&mut self, branches: &BTreeMap<VbId, (VbUuid, Seqno)>) {
        self.open
            .retain(|vb, stream| branches.get(vb).is_none_or(|(branch, _)| *branch == newest(&stream.log)));
    }

    /// Feeds have something to tell, says the engine.
    pub(super) fn wake(&mut self, tickets: &BTreeSet<u64>) {
        for ticket in tickets {
            let vb = u16::try_from(*ticket).map(VbId);
            if let Ok(vb) = vb
                && let Some(stream) = self.open.get_mut(&vb)
                && std::mem::take(&mut stream.waits)
            {
                self.ready.push_back(vb);
            }
        }
    }

    /// When a feed is to be opened that could not be.
    pub(super) fn next(&self) -> Option<Duration> {
        self.later.values().map(|(at, _)| *at).min()
    }

    /// Opens what is wanted and closes what is not. Says whether a feed was opened.
    pub(super) fn arrange(
        &mut self,
        copies: &BTreeMap<VbId, Copy>,
        members: &mut BTreeMap<Signature, Member>,
        (setup, alarm): (&Setup, &dyn Alarm),
        now: Duration,
    ) -> bool {
        let mut opened = false;
        self.forget_due(copies, now);
        // Counted once: with hundreds of feeds, to count them for each vBucket takes longer than to index what they tell. To look at each
        // of them for every batch would as well.
        let (mut catching_up, mut settled) = (0, VbSet::default());
        for (vb, stream) in &self.open {
            catching_up += usize::from(!stream.at_end);
            if stream.is_settled {
                settled.insert(*vb);
            }
        }
        // Queries may wait for what is served here, and for nothing else.
        let (served, others) =
            [true, false].map(|served| copies.iter().filter(move |(_, copy)| copy.served == served)).into();
        for (vb, copy) in served.chain(others) {
            if settled.contains(*vb) {
                debug_assert!(self.open.get(vb).is_some_and(|stream| stream.fits(*vb, copy, members)));
                continue;
            }
            let most = if copy.served { CATCHING_UP_MAX } else { FOLLOWERS_MAX };
            let has_no_turn = self.later.contains_key(vb) || catching_up >= most;
            if has_no_turn && !self.open.contains_key(vb) {
                continue;
            }
            if let Some(stream) = self.open.get_mut(vb)
                && stream.fits(*vb, copy, members)
            {
                stream.is_settled = true;
                continue;
            }
            catching_up -= self.remove(*vb);
            let mut wanting: Vec<&mut Member> =
                members.values_mut().filter(|member| member.wants_more(*vb)).collect();
            let is_wanted = copy.is_fed() && !wanting.is_empty();
            if !is_wanted || self.later.contains_key(vb) || catching_up >= most {
                continue;
            }
            match open(*vb, *copy, &mut wanting, setup, alarm) {
                Ok(stream) => {
                    catching_up += usize::from(!stream.at_end);
                    self.open.insert(*vb, stream);
                    self.ready.push_back(*vb);
                    opened = true;
                }
                Err(_) => self.put_off(*vb, copy.turn, now),
            }
        }
        opened
    }

    /// Closes a feed. Says how many feeds fewer catch up.
    fn remove(&mut self, vb: VbId) -> usize {
        self.open.remove(&vb).map_or(0, |stream| usize::from(!stream.at_end))
    }

    /// What is due again is no reason to look again: it is opened now, or nothing wants it, or enough others catch up.
    fn forget_due(&mut self, copies: &BTreeMap<VbId, Copy>, now: Duration) {
        // What kept it from being opened need not be true of what the copy has become since.
        let is_same =
            |vb: &VbId, turn: u64| copies.get(vb).is_some_and(|copy| copy.is_fed() && copy.turn == turn);
        self.later.retain(|vb, (at, turn)| now < *at && is_same(vb, *turn));
    }

    fn put_off(&mut self, vb: VbId, turn: u64, now: Duration) {
        let pause = self.pauses.entry(vb).or_default().failed().min(PAUSE_MAX);
        self.later.insert(vb, (now + pause, turn));
    }

    /// Reads what feeds have, up to a batch. Nothing where all of them wait. Says as well whether a feed has come to its end, so that
    /// another one can be opened. `looks`: a function looks at bodies.
    pub(super) fn read(&mut self, setup: &Setup, now: Duration, looks: bool) -> (Vec<Part>, bool) {
        let (mut parts, mut documents, mut bytes, mut ended) = (Vec::new(), 0, 0, false);
        while documents < setup.batches.documents && bytes < setup.batches.bytes {
            let Some(vb) = self.ready.pop_front() else { break };
            let Some(stream) = self.open.get_mut(&vb).filter(|stream| !stream.waits) else { continue };
            stream.is_settled = false;
            match stream.feed.next(setup.batches.feed_bytes, (setup.clock)()) {
                Ok(FeedStep::Batch(batch)) => {
                    let part = stream.part(vb, &batch, setup.inflate, looks);
                    documents += part.documents.len();
                    bytes += part.documents.iter().map(Document::bytes).sum::<usize>();
                    parts.push(part);
                    self.ready.push_back(vb);
                    self.pauses.remove(&vb);
                }
                Ok(FeedStep::Wait) => {
                    stream.waits = true;
                    let was_at_end = stream.at_end;
                    stream.at_end = is_at_end(&setup.bucket, vb, stream.course.seqno());
                    ended |= stream.at_end && !was_at_end;
                }
                Err(_) => {
                    let turn = stream.turn;
                    self.open.remove(&vb);
                    self.put_off(vb, turn, now);
                }
            }
        }
        (parts, ended)
    }
}

fn is_at_end(bucket: &Bucket, vb: VbId, seqno: Seqno) -> bool {
    bucket.vb_history(vb).is_ok_and(|history| history.told_to <= seqno)
}

/// Opens a feed for indexes, from where the one that is least far goes on.
fn open(
    vb: VbId,
    copy: Copy,
    members: &mut [&mut Member],
    setup: &Setup,
    alarm: &dyn Alarm,
) -> Result<Stream, Status> {
    let bucket: &Arc<Bucket> = &setup.bucket;
    let before = bucket.vb_history(vb)?;
    let positions: Vec<_> =
        members.iter_mut().map(|member| member.resume(vb, &before, copy.follows)).collect();
    let from = positions.iter().map(|position| position.seqno).min().unwrap_or_default();
    // A snapshot that an index is inside of ended no further than the vBucket goes now.
    let is_inside = positions.iter().any(|position| position.is_inside());
    let has_values = members.iter().any(|member| member.needs_values);
    let options = FeedOptions {
        from,
        through: if is_inside { before.told_to } else { Seqno(0) },
        filter: FeedFilter::Collections([CollectionId::DEFAULT.get()].into()),
        followers: copy.follows,
        keys_only: !has_values,
        ..FeedOptions::default()
    };
    let feed = bucket.feed(vb, options, alarm.waiter(u64::from(vb.get())))?;
    // What the feed tells gets no worse than this without ending it.
    let after = bucket.vb_history(vb)?;
    if after.log != before.log || after.purge_seqno != before.purge_seqno {
        return Err(Status::TemporaryFailure);
    }
    let at_end = after.told_to <= from;
    Ok(Stream {
        feed,
        log: after.log.into(),
        turn: copy.turn,
        has_values,
        course: Course::from(from),
        waits: false,
        at_end,
        is_settled: false,
    })
}

impl Stream {
    /// Whether it is wanted as it is. An index goes on with a feed where it is known to be on the feed's branch, no less far than that.
    fn fits(&self, vb: VbId, copy: &Copy, members: &BTreeMap<Signature, Member>) -> bool {
        let follows = |member: &Member| {
            let known = member.positions.get(&vb);
            known.is_some_and(|(branch, position)| {
                *branch == newest(&self.log) && self.course.seqno() <= position.seqno
            })
        };
        let mut wanting = members.values().filter(|member| member.wants_more(vb)).peekable();
        let is_wanted = copy.is_fed() && self.turn == copy.turn && wanting.peek().is_some();
        is_wanted && wanting.all(|member| (self.has_values || !member.needs_values) && follows(member))
    }

    fn part(&mut self, vb: VbId, batch: &FeedBatch, inflate: Inflate, looks: bool) -> Part {
        let end = batch.snapshot.map(|snapshot| snapshot.end);
        let last = batch.items.last().map(|item| item.seqno);
        let reached = self.course.take(end, last, batch.ends_snapshot);
        let (documents, unreadable) = (Vec::with_capacity(batch.items.len()), Vec::new());
        let mut part =
            Part { vb, log: Arc::clone(&self.log), reached, forgets: false, documents, unreadable };
        for item in &batch.items {
            match item.kind {
                FeedKind::System => {
                    let event = SystemEvent::of(item).map(|event| event.what);
                    if let Some(Happening::CollectionEnd { collection: CollectionId::DEFAULT, .. }) = event {
                        part.forgets = true;
                        part.documents.clear();
                    }
                }
                FeedKind::Prepare | FeedKind::Abort => {}
                FeedKind::Mutation | FeedKind::Deletion | FeedKind::Expiration => {
                    match Document::read(&Version::of(vb, item), inflate, looks) {
                        Ok(document) => part.documents.push(document),
                        Err(id) => part.unreadable.push(id),
                    }
                }
            }
        }
        part
    }
}

impl Part {
    /// Takes the first documents off: they lead to the last one of them, and what is left leads to where all of it did.
    pub(super) fn cut(&mut self, count: usize) -> Self {
        let rest = self.documents.split_off(count.min(self.documents.len()));
        let documents = std::mem::replace(&mut self.documents, rest);
        let seqno = documents.last().map_or(Seqno(0), |last| last.seqno);
        Self {
            vb: self.vb,
            log: Arc::clone(&self.log),
            reached: Reached { seqno, whole: false },
            forgets: std::mem::take(&mut self.forgets),
            documents,
            unreadable: std::mem::take(&mut self.unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_that_failed_often_is_opened_again_soon() {
        let mut streams = Streams::default();
        let (now, vb) = (Duration::from_secs(10), VbId(3));
        for _ in 0..40 {
            streams.put_off(vb, 1, now);
            let due = streams.next().expect("it is tried again");
            assert!(due > now && due <= now + PAUSE_MAX, "after {:?}", due - now);
        }
    }

    #[test]
    fn a_feed_that_is_due_and_that_nothing_opens_wakes_nobody() {
        let mut streams = Streams::default();
        let (now, vb) = (Duration::from_secs(10), VbId(3));
        streams.put_off(vb, 1, now);
        let due = streams.next().expect("it is tried again");
        assert!(due > now);
        let copies = BTreeMap::from([(vb, Copy { served: true, turn: 1, ..Copy::default() })]);
        streams.forget_due(&copies, now);
        assert_eq!(streams.next(), Some(due));
        streams.forget_due(&copies, due);
        assert_eq!(streams.next(), None, "the lane would look again every millisecond");
        streams.put_off(vb, 0, now);
        streams.forget_due(&copies, now);
        assert_eq!(streams.next(), None, "it has become something else, and is opened at once");
    }
}
