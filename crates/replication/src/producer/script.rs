//! From what a feed tells to what a consumer is told: snapshots become markers, what is filtered out becomes silence or
//! "seqno advanced".
//!
//! A snapshot that is known as a whole (from memory) is cut to its last item for this consumer, as in kv_engine. It is
//! not mentioned at all if there is no such item. A snapshot that is not (from disk) is announced up to its end. A
//! consumer that understands is told at the end that there was no more for it. Consumers without collections do not
//! understand. Their snapshots end no later than the default collection's last change, as far as that is known. What
//! lies beyond it after all is a snapshot of its own.
//!
//! The first marker of a stream begins where the consumer's last snapshot did, since it may be the rest of that one.

use std::collections::VecDeque;

use base::Seqno;
use engine::{
    SystemEvent as Recorded,
    feed::{FeedBatch, FeedItem, FeedKind, FeedSnapshot},
};
use protocol::binary::dcp::{MarkerFlags, MarkerVersion, SnapshotMarker, StreamEndReason, SystemEvent};

use super::{
    controls::{Controls, Negotiated, OutOfOrder},
    events,
    filter::Filter,
};

/// One message to be sent.
#[derive(Debug)]
pub(super) enum Say {
    Marker(SnapshotMarker),
    Document(FeedItem),
    Event(Seqno, Recorded),
    Advanced(Seqno),
    OsoBegin,
    OsoEnd,
    End(StreamEndReason),
}

impl Say {
    /// The place of a document or event in the vBucket's order.
    const fn seqno(&self) -> Seqno {
        match self {
            Self::Document(item) => item.seqno,
            Self::Event(seqno, _) | Self::Advanced(seqno) => *seqno,
            _ => Seqno(0),
        }
    }
}

/// What a consumer negotiated: how it wants to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConsumerOptions {
    /// Understands "seqno advanced": it negotiated collections.
    pub(super) advances: bool,
    /// Wants to hear of modified collections.
    pub(super) modifications: bool,
    pub(super) marker_v22: bool,
    /// Is told of prepares, commits and aborts.
    pub(super) prepares: bool,
    /// Wants markers of V2.0 at least: it would acknowledge durable writes.
    pub(super) replicates: bool,
    pub(super) out_of_order: OutOfOrder,
    /// Is another node of ours: system events are told as they are stored.
    pub(super) is_node: bool,
}

impl ConsumerOptions {
    pub(super) const fn new(negotiated: &Negotiated, controls: &Controls) -> Self {
        Self {
            is_node: negotiated.replica.is_some(),
            advances: negotiated.collections,
            modifications: controls.flatbuffer_events,
            marker_v22: controls.marker_v22,
            prepares: controls.sync_writes,
            replicates: controls.sync_writes && controls.is_named,
            out_of_order: controls.out_of_order,
        }
    }
}

/// The snapshot that the consumer was in when it stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    pub(super) start: Seqno,
    pub(super) end: Seqno,
}

/// Where a stream is in its snapshots.
#[derive(Debug)]
pub(super) struct Script {
    /// Until the first marker is said.
    unfinished: Option<Unfinished>,
    /// A snapshot that comes in parts, announced or about to be.
    open: Option<Open>,
    /// Leave deletions out of the first snapshot if it is from disk: the consumer has nothing that they could delete.
    skip_deletions: bool,
    skipping: bool,
    /// Up to here everything has been looked at.
    read: Seqno,
}

/// An announced snapshot.
#[derive(Debug)]
struct Open {
    snapshot: FeedSnapshot,
    /// As announced.
    end: Seqno,
    /// The marker has been said.
    announced: bool,
    /// The highest seqno said.
    last: Seqno,
}

/// What of a batch is for this consumer.
#[derive(Debug, Default)]
struct Admitted {
    says: Vec<Say>,
    /// The highest seqno among them.
    last: Seqno,
    /// An event that is for it, but that it could not understand.
    hidden: Option<Seqno>,
}

impl Script {
    /// A stream from `start` on.
    pub(super) const fn new(start: Seqno, unfinished: Unfinished, skip_deletions: bool) -> Self {
        Self { unfinished: Some(unfinished), open: None, skip_deletions, skipping: false, read: start }
    }

    /// An empty snapshot at a seqno, mostly at the beginning of a history: there is nothing behind it yet.
    pub(super) const fn nothing_behind(seqno: Seqno) -> SnapshotMarker {
        let (start, end) = (seqno, seqno);
        SnapshotMarker { start, end, flags: MarkerFlags::MEMORY, version: MarkerVersion::V1 }
    }

    /// Up to where everything has been looked at.
    pub(super) const fn read(&self) -> Seqno {
        self.read
    }

    /// Whether a snapshot from disk is being told.
    pub(super) const fn is_in_backfill(&self) -> bool {
        matches!(&self.open, Some(open) if open.snapshot.from_disk)
    }

    /// Appends what a batch means for the consumer. `default_high` is asked for the default collection's last change.
    pub(super) fn follow(
        &mut self,
        batch: FeedBatch,
        filter: &mut Filter,
        options: ConsumerOptions,
        default_high: impl FnOnce() -> Seqno,
        out: &mut VecDeque<Say>,
    ) {
        let FeedBatch { snapshot, items, ends_snapshot } = batch;
        if let Some(snapshot) = snapshot {
            self.skipping = std::mem::take(&mut self.skip_deletions) && snapshot.from_disk;
            self.open = None;
            if ends_snapshot && !snapshot.from_disk {
                let admitted = self.admit(items, filter, options);
                self.tell_whole(&snapshot, admitted, options, out);
                self.read = snapshot.end;
                return;
            }
            // Tombstones that are purged left no trace in what is known of the default collection either.
            let last_change = || default_high().max(snapshot.purge_seqno);
            // What lies behind the last visible mutation is for those who are told of prepares.
            let end = if options.prepares { snapshot.end } else { snapshot.end.min(snapshot.max_visible) };
            let end = if options.advances { end } else { end.min(last_change()) };
            self.open = Some(Open { snapshot, end, announced: false, last: Seqno(0) });
        }
        let admitted = self.admit(items, filter, options);
        self.tell_part(admitted, ends_snapshot, options, out);
    }

    fn admit(&self, items: Vec<FeedItem>, filter: &mut Filter, options: ConsumerOptions) -> Admitted {
        let mut admitted = Admitted { says: Vec::with_capacity(items.len()), ..Admitted::default() };
        for item in items {
            let seqno = item.seqno;
            let say = match item.kind {
                FeedKind::System if !options.is_node => {
                    let Some(recorded) = Recorded::of(&item) else { continue };
                    let event = events::in_protocol(&recorded);
                    if !filter.admits_event(&event) {
                        continue;
                    }
                    if matches!(event, SystemEvent::CollectionModified { .. }) && !options.modifications {
                        admitted.hidden = Some(seqno);
                        continue;
                    }
                    Say::Event(seqno, recorded)
                }
                FeedKind::Deletion | FeedKind::Expiration if self.skipping => continue,
                _ if !filter.admits(item.key()) => continue,
                _ => Say::Document(item),
            };
            admitted.last = admitted.last.max(seqno);
            admitted.says.push(say);
        }
        admitted
    }

    /// A snapshot that is all there.
    fn tell_whole(
        &mut self,
        snapshot: &FeedSnapshot,
        admitted: Admitted,
        options: ConsumerOptions,
        out: &mut VecDeque<Say>,
    ) {
        let hidden = admitted.hidden.filter(|seqno| options.advances && *seqno > admitted.last);
        let filled = self.unfinished.is_some_and(|begun| self.read < begun.end && snapshot.end >= begun.end);
        let end = if options.is_node {
            // Without gaps, so that the follower can tell that it has everything.
            snapshot.end
        } else if !admitted.says.is_empty() {
            hidden.unwrap_or(admitted.last)
        } else if options.advances && filled {
            // It waits for the rest of a snapshot, of which nothing is for it.
            snapshot.end
        } else if let Some(hidden) = hidden {
            hidden
        } else {
            return;
        };
        let marker = self.marker(snapshot, end, options);
        out.push_back(Say::Marker(marker));
        out.extend(admitted.says);
        if end > admitted.last {
            out.push_back(Say::Advanced(end));
        }
    }

    /// Part of a snapshot that is announced.
    fn tell_part(
        &mut self,
        admitted: Admitted,
        ends: bool,
        options: ConsumerOptions,
        out: &mut VecDeque<Say>,
    ) {
        let Some(mut open) = self.open.take() else { return };
        // What ends where the consumer is already has nothing for it: of what lies behind that it is not told.
        let has_gap = ends && open.last.max(admitted.last) < open.end && self.read < open.end;
        if !open.announced && (!admitted.says.is_empty() || (has_gap && options.advances)) {
            out.push_back(if open.snapshot.unordered {
                self.unfinished = None;
                Say::OsoBegin
            } else {
                Say::Marker(self.marker(&open.snapshot, open.end, options))
            });
            open.announced = true;
        }
        open.last = open.last.max(admitted.last);
        let mut says = admitted.says;
        if open.last > open.end {
            let beyond = says.split_off(says.partition_point(|say| say.seqno() <= open.end));
            out.extend(says);
            let start = open.end.next();
            open.end = open.snapshot.end;
            out.push_back(Say::Marker(SnapshotMarker {
                start,
                ..self.marker(&open.snapshot, open.end, options)
            }));
            says = beyond;
        }
        out.extend(says);
        if !ends {
            // In order, what was told is told; out of order nothing is before the end.
            if !open.snapshot.unordered {
                self.read = self.read.max(open.last);
            }
            self.open = Some(open);
            return;
        }
        self.read = open.snapshot.end;
        let says_gap = !open.snapshot.unordered || options.out_of_order == OutOfOrder::WithSeqnoAdvanced;
        if has_gap && options.advances && says_gap {
            out.push_back(Say::Advanced(open.end));
        }
        if open.announced && open.snapshot.unordered {
            out.push_back(Say::OsoEnd);
        }
    }

    fn marker(&mut self, snapshot: &FeedSnapshot, end: Seqno, options: ConsumerOptions) -> SnapshotMarker {
        let start = match self.unfinished.take() {
            Some(unfinished) => unfinished.start.min(snapshot.start),
            None => snapshot.start.next(),
        };
        let flags = if snapshot.from_disk {
            MarkerFlags::DISK.with(MarkerFlags::CHECKPOINT)
        } else {
            MarkerFlags::MEMORY
        };
        let (max_visible, high_completed) = (snapshot.max_visible.min(end), snapshot.high_completed);
        let version = if snapshot.from_disk && options.marker_v22 {
            let (purge_seqno, high_prepared) = (snapshot.purge_seqno, snapshot.high_prepared);
            MarkerVersion::V22 { max_visible, high_completed, purge_seqno, high_prepared }
        } else if options.replicates {
            MarkerVersion::V2 { max_visible, high_completed }
        } else {
            MarkerVersion::V1
        };
        SnapshotMarker { start, end, flags, version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Manifest;
    use protocol::binary::dcp::StreamFilter;

    const ALL: ConsumerOptions = ConsumerOptions {
        advances: true,
        modifications: false,
        marker_v22: false,
        prepares: false,
        replicates: false,
        out_of_order: OutOfOrder::Yes,
        is_node: false,
    };
    const LEGACY: ConsumerOptions = ConsumerOptions { advances: false, ..ALL };

    fn script(start: u64, snap_start: u64, through: u64) -> Script {
        let unfinished = Unfinished { start: Seqno(snap_start), end: Seqno(through) };
        Script::new(Seqno(start), unfinished, false)
    }

    fn snapshot(start: u64, end: u64, from_disk: bool) -> FeedSnapshot {
        FeedSnapshot {
            start: Seqno(start),
            end: Seqno(end),
            from_disk,
            unordered: false,
            max_visible: Seqno(end),
            high_completed: Seqno(0),
            high_prepared: Seqno(0),
            purge_seqno: Seqno(3),
        }
    }

    /// What is said about batches of which nothing is for the consumer.
    fn told(
        script: &mut Script,
        options: ConsumerOptions,
        batches: &[(Option<FeedSnapshot>, bool)],
    ) -> Vec<String> {
        let mut filter = Filter::new(&StreamFilter::default(), true, &Manifest::default()).unwrap();
        let mut out = VecDeque::new();
        for (snapshot, ends_snapshot) in batches {
            let batch = FeedBatch { snapshot: *snapshot, items: Vec::new(), ends_snapshot: *ends_snapshot };
            script.follow(batch, &mut filter, options, || Seqno(u64::MAX), &mut out);
        }
        let tell = |say: Say| match say {
            Say::Marker(marker) => format!("{}..{} type {}", marker.start, marker.end, marker.flags.0),
            Say::Advanced(seqno) => format!("at {seqno}"),
            other => format!("{other:?}"),
        };
        out.into_iter().map(tell).collect()
    }

    #[test]
    fn nothing_is_said_of_memory_that_is_for_others() {
        let mut script = script(5, 5, 0);
        assert!(told(&mut script, ALL, &[(Some(snapshot(5, 9, false)), true)]).is_empty());
        assert_eq!(script.read(), Seqno(9));
        assert!(told(&mut script, LEGACY, &[(Some(snapshot(9, 12, true)), true)]).is_empty());
        assert_eq!(script.read(), Seqno(12));
    }

    #[test]
    fn an_unfinished_snapshot_is_filled_though_nothing_more_is_in_it() {
        let mut script = script(5, 3, 8);
        assert!(told(&mut script, ALL, &[(Some(snapshot(5, 7, false)), true)]).is_empty());
        assert_eq!(told(&mut script, ALL, &[(Some(snapshot(7, 9, false)), true)]), ["3..9 type 1", "at 9"]);
        assert!(told(&mut script, ALL, &[(Some(snapshot(9, 12, false)), true)]).is_empty());
    }

    #[test]
    fn a_snapshot_from_disk_is_announced_from_where_the_consumer_is_and_told_to_its_end() {
        let mut first = script(5, 3, 0);
        let batches = [(Some(snapshot(5, 20, true)), false), (None, false), (None, true)];
        assert_eq!(told(&mut first, ALL, &batches), ["3..20 type 6", "at 20"]);
        assert_eq!(
            told(&mut first, ALL, &[(Some(snapshot(20, 30, true)), true)]),
            ["21..30 type 6", "at 30"]
        );
        assert!(told(&mut script(5, 3, 0), LEGACY, &batches).is_empty());
    }

    /// Prepares lie behind what it has, and it is not told of those.
    #[test]
    fn a_snapshot_from_disk_without_anything_visible_behind_the_consumer_is_not_mentioned() {
        let hidden = |start, end| FeedSnapshot { max_visible: Seqno(5), ..snapshot(start, end, true) };
        let mut script = script(5, 3, 0);
        assert!(told(&mut script, ALL, &[(Some(hidden(5, 9)), false), (None, true)]).is_empty());
        assert!(told(&mut script, ALL, &[(Some(hidden(9, 12)), true)]).is_empty());
        assert_eq!(script.read(), Seqno(12));
        let visible = snapshot(12, 20, true);
        assert_eq!(told(&mut script, ALL, &[(Some(visible), true)]), ["3..20 type 6", "at 20"]);
    }

    #[test]
    fn markers_say_as_much_as_the_consumer_understands() {
        let disk = snapshot(0, 20, true);
        let version = |options: ConsumerOptions, snapshot: &FeedSnapshot| {
            script(0, 0, 0).marker(snapshot, snapshot.end, options).version
        };
        let (max_visible, high_completed) = (Seqno(20), Seqno(0));
        let v2 = MarkerVersion::V2 { max_visible, high_completed };
        let v22 = MarkerVersion::V22 {
            max_visible,
            high_completed,
            purge_seqno: Seqno(3),
            high_prepared: Seqno(0),
        };
        assert_eq!(version(ALL, &disk), MarkerVersion::V1);
        assert_eq!(version(ConsumerOptions { replicates: true, ..ALL }, &disk), v2);
        let newest = ConsumerOptions { marker_v22: true, replicates: true, ..ALL };
        assert_eq!(version(newest, &disk), v22);
        assert_eq!(version(newest, &snapshot(0, 20, false)), v2);
        assert_eq!(
            version(ConsumerOptions { replicates: false, ..newest }, &snapshot(0, 20, false)),
            MarkerVersion::V1
        );
    }

    #[test]
    fn a_snapshot_that_is_cut_short_goes_on_as_another() {
        let mut script = script(0, 0, 0);
        let batches =
            [(Some(snapshot(0, 20, true)), false), (Some(snapshot(7, 25, true)), false), (None, true)];
        assert_eq!(told(&mut script, ALL, &batches), ["0..25 type 6", "at 25"]);
        assert_eq!(script.read(), Seqno(25));
    }

    #[test]
    fn out_of_order_snapshots_have_no_marker() {
        let unordered = FeedSnapshot { unordered: true, ..snapshot(0, 20, true) };
        let with_end = ConsumerOptions { out_of_order: OutOfOrder::WithSeqnoAdvanced, ..ALL };
        let batches = [(Some(unordered), false), (None, true)];
        assert_eq!(told(&mut script(0, 0, 0), with_end, &batches), ["OsoBegin", "at 20", "OsoEnd"]);
        let mut script = script(0, 0, 0);
        assert_eq!(told(&mut script, ALL, &batches), ["OsoBegin", "OsoEnd"]);
        assert_eq!(
            told(&mut script, ALL, &[(Some(snapshot(20, 30, true)), true)]),
            ["21..30 type 6", "at 30"]
        );
    }
}
