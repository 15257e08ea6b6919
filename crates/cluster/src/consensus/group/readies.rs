//! What Raft wants written, sent and applied, and what of it waits for the disk. The log is cut here as well.
//!
//! Invariant: what is pending is let go in order, each behind the batches that it relies on.

use raft::eraftpb::{Entry, EntryType, Message, Snapshot};

use super::{CatchingUp, Consensus, KEEP_ENTRIES, formats::state_bytes};
use crate::consensus::{Batch, Record, codec};

/// Applied entries, and their bytes, after which the log is cut.
const COMPACT_ENTRIES: u64 = 512;
const COMPACT_BYTES: usize = 4 * 1024 * 1024;

/// A ready that waits for batches to be written.
pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) needs_write: bool,
    /// Whether nothing may be said before it is written, by a leader either.
    pub(super) holds_back: bool,
    pub(super) messages: Vec<Message>,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) entries: Vec<Entry>,
}

impl Consensus {
    /// Collects what Raft wants written, sent and applied.
    pub(super) fn take_ready(&mut self) {
        let mut ready = self.raw.ready();
        let number = ready.number();
        let before = &self.raw.store().hard_state;
        let begins_term =
            ready.hs().is_some_and(|state| (state.term, state.vote) != (before.term, before.vote));
        if let Some(state) = ready.hs() {
            self.raw.mut_store().hard_state = state.clone();
        }
        for read in ready.take_read_states() {
            let question = std::str::from_utf8(&read.request_ctx).ok();
            let question = question.and_then(|text| text.strip_prefix(&self.question_prefix())?.parse().ok());
            let Some(question) = question else { continue };
            self.reads.answer(question, read.index);
            self.note_confirmed(question);
            if self.catching_up == CatchingUp::Asking {
                self.catching_up = CatchingUp::To(read.index);
            }
        }
        let committed = ready.take_committed_entries();
        let snapshot = Some(ready.snapshot().clone()).filter(|snapshot| !snapshot.is_empty());
        let changes_group = committed.iter().any(|entry| entry.get_entry_type() != EntryType::EntryNormal);
        // See the module above about changes of the group; an ordinary commit index need not survive.
        let needs_write = ready.must_sync() || changes_group;
        // A member that is told that it was removed is gone at once. Had this member forgotten by then, after a crash, it would go on
        // waiting for the vote of somebody who is not there.
        //
        // A member that votes alone leads as soon as it asks, and the library has it speak at once. A crash would have it lead in the same
        // term again, with other entries. Members that learn could not tell these from the first ones.
        let holds_back = changes_group || begins_term;
        let is_held = holds_back || self.pending.iter().any(|pending| pending.holds_back);
        let (mut messages, at_once) = match is_held {
            true => (ready.take_messages(), Vec::new()),
            false => (Vec::new(), ready.take_messages()),
        };
        at_once.iter().for_each(|message| self.send(message));
        if needs_write {
            let batch = self.batch(snapshot.as_ref(), ready.entries());
            self.out.batches.push(batch);
            self.out.number = number;
        }
        if let Some(snapshot) = &snapshot {
            self.raw.mut_store().install(snapshot.clone());
        }
        let entries = ready.take_entries();
        self.raw.mut_store().append(&entries);
        messages.extend(ready.take_persisted_messages());
        self.raw.advance_append_async(ready);
        self.draw_timeout();
        let entries = committed;
        self.pending.push_back(Pending { number, needs_write, holds_back, messages, snapshot, entries });
    }

    fn batch(&self, snapshot: Option<&Snapshot>, entries: &[Entry]) -> Batch {
        let mut batch = Batch::default();
        batch.records.push((Record::HardState, codec::encode_hard_state(&self.raw.store().hard_state)));
        if let Some(snapshot) = snapshot {
            let place = (snapshot.get_metadata().index, snapshot.get_metadata().term);
            batch.records.push((Record::Snapshot, codec::encode_snapshot(snapshot)));
            batch.records.push((Record::Start, codec::encode_place(place)));
            batch.drop_from = Some(0);
        }
        if let Some(first) = entries.first() {
            batch.drop_from = Some(if snapshot.is_some() { 0 } else { first.index });
            batch.entries = entries.iter().map(|entry| (entry.index, codec::encode_entry(entry))).collect();
        }
        batch
    }

    /// Lets go what waited for batches that are written by now.
    pub(super) fn settle(&mut self) {
        while let Some(first) =
            self.pending.pop_front_if(|first| !first.needs_write || first.number <= self.written)
        {
            if !first.needs_write {
                self.with_raft(|raw| raw.on_persist_ready(first.number));
            }
            for message in &first.messages {
                self.send(message);
            }
            if let Some(snapshot) = &first.snapshot {
                self.install(snapshot);
            }
            for entry in &first.entries {
                if self.broken.is_none() {
                    self.apply(entry);
                }
            }
        }
        self.compact();
        if let CatchingUp::To(index) = self.catching_up
            && self.applied >= index
        {
            self.catching_up = CatchingUp::Done;
        }
        if self.leads() && self.raw.raft.apply_to_current_term() {
            self.catching_up = CatchingUp::Done;
            if self.votes_alone() {
                // There is nobody to ask, and nothing to be heard of.
                let (asked, committed) = (self.reads.asked(), self.raw.raft.raft_log.committed);
                self.reads.answer(asked, committed);
                self.note_confirmed(asked);
            }
        }
        let read = self.reads.settle(self.applied);
        self.out.read = read.or(self.out.read);
    }

    /// Cuts the log once enough of it has been applied, or a member needs a newer snapshot than there is.
    fn compact(&mut self) {
        let (entries, bytes) = self.raw.store().weight(self.applied);
        let is_large = entries > COMPACT_ENTRIES || bytes > COMPACT_BYTES && entries > KEEP_ENTRIES;
        let is_due = is_large || self.raw.store().newer_snapshot_wanted.get();
        // A snapshot that is pending replaces the log, and the group is as it says already. Entries that are pending are behind what is
        // applied: where there is always one, they are not waited for.
        let is_replaced = self.pending.iter().any(|pending| pending.snapshot.is_some());
        if !is_due || is_replaced || self.broken.is_some() {
            return;
        }
        let Some(term) = self.raw.store().term_at(self.applied) else { return };
        let Ok(data) = state_bytes(&self.state) else { return };
        let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
        snapshot.mut_metadata().index = self.applied;
        snapshot.mut_metadata().term = term;
        snapshot.mut_metadata().set_conf_state(self.raw.raft.prs().conf().to_conf_state());
        let encoded = codec::encode_snapshot(&snapshot);
        let start = self.raw.mut_store().compact(snapshot, KEEP_ENTRIES);
        let hard_state = codec::encode_hard_state(&self.raw.store().hard_state);
        self.out.batches.push(Batch {
            drop_below: Some(start.0 + 1),
            records: vec![
                // The commit index must cover the snapshot.
                (Record::HardState, hard_state),
                (Record::Snapshot, encoded),
                (Record::Start, codec::encode_place(start)),
            ],
            ..Batch::default()
        });
    }
}
