//! The second pass: copies what is kept into new segments, then tells memory where it went.

use std::sync::Arc;

use super::{Kept, effort::Effort, memory_of};
use crate::{
    api::Liveness,
    appender::{Appender, Batch},
    error::StoreError,
    format::{
        DATA_START, UNIT,
        frame::{self, StoredRecord},
        header::{self, Header, Origin},
        padded,
    },
    frames::{Frames, Step},
    position::Position,
    segment::Segment,
    state::Core,
    window::Window,
};

/// Records per batch of an output: bounds what a reader must hold to check one.
const BATCH_RECORDS_MAX: usize = 4096;
/// Written between two syncs of an output: one sync of all of it would keep everybody else's waiting.
const SYNC_BYTES: u64 = 4 << 20;
/// Read around a kept record in the hope that its neighbours follow.
const WINDOW_BYTES: u64 = 64 << 10;

/// Copies `kept`, which is sorted, into sealed and synced segments that are not part of the set yet. When it
/// fails nothing is left.
#[expect(clippy::indexing_slicing, reason = "`index` counts the same list")]
pub(super) fn write(
    core: &Core,
    inputs: &[Arc<Segment>],
    kept: &Vec<Kept>,
    effort: &mut Effort<'_>,
) -> Result<Vec<Arc<Segment>>, StoreError> {
    let mut outputs =
        Outputs { core, done: Vec::new(), open: None, batch: Batch::default(), number: 0, synced: 0 };
    let memory = memory_of(kept) + inputs.len() as u64 * WINDOW_BYTES;
    let mut windows: Vec<Window> = inputs.iter().map(|_| Window::default()).collect();
    let result = kept
        .iter()
        .enumerate()
        .try_for_each(|(index, record)| {
            let victim = record.victim as usize;
            let (Some(window), Some(input)) = (windows.get_mut(victim), inputs.get(victim)) else {
                return Err(StoreError::Invalid("a record of no victim"));
            };
            let following =
                kept[index + 1..].iter().take_while(|next| next.victim == record.victim).map(Kept::extent);
            window.hold(input, record.extent(), following, WINDOW_BYTES)?;
            let stored = frame::decode_record(window.from(record.offset), input.salt).map_err(|_| {
                input.quarantine();
                input.corrupt(record.offset, "checksum does not match")
            })?;
            outputs.push(record, &stored)?;
            effort.spend(2 * u64::from(record.length), || memory + outputs.memory_bytes())
        })
        .and_then(|()| outputs.close());
    match result {
        Ok(()) => Ok(outputs.done),
        Err(cause) => {
            let open = outputs.open.take().map(|appender| appender.segment);
            outputs.done.iter().chain(&open).for_each(|segment| core.remove_file(&segment.name));
            if matches!(cause, StoreError::Io { action: "write" | "allocate" | "truncate", .. }) {
                core.counters.poison(&cause);
            }
            Err(cause)
        }
    }
}

struct Outputs<'a> {
    core: &'a Core,
    done: Vec<Arc<Segment>>,
    open: Option<Appender>,
    batch: Batch,
    number: u64,
    /// The open output is synced up to here.
    synced: u64,
}

impl Outputs<'_> {
    /// Memory of the open output's index, and of the batch that goes there.
    fn memory_bytes(&self) -> u64 {
        let index = self.open.as_ref().map_or(0, |open| open.segment.footer_to_be_bytes());
        index + self.batch.memory_bytes()
    }

    fn push(&mut self, kept: &Kept, record: &StoredRecord<'_>) -> Result<(), StoreError> {
        let bytes = padded(u64::from(record.length));
        let is_full = self.open.as_ref().is_some_and(|open| {
            let used = open.segment.data_end() + self.batch.bytes();
            used + bytes > self.core.options.segment_bytes && used > DATA_START + frame::HEAD as u64
        });
        if is_full {
            self.close()?;
        }
        if self.open.is_none() {
            self.start()?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let owner = (kept.vb, record.incarnation, record.branch);
        self.batch.push(open, owner, &record.meta, (kept.hash, record.key), record.value)?;
        if self.batch.records() >= BATCH_RECORDS_MAX || self.batch.bytes() >= SYNC_BYTES {
            self.end_batch()?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), StoreError> {
        let id = {
            let mut writer = self.core.writer.lock();
            writer.next_segment += 1;
            writer.next_segment - 1
        };
        let segment = Arc::new(self.core.create_segment(id, Origin::Compacted)?);
        let header = Header {
            shard: self.core.options.shard,
            segment: id,
            origin: Origin::Compacted,
            salt: segment.salt,
            previous: Position::default(),
            synced: Position::default(),
            first_batch: 1,
        };
        (self.number, self.synced) = (1, 0);
        match Appender::new(segment.clone(), &header::encode(&header), 0) {
            Ok(open) => {
                self.batch.begin(&segment);
                self.open = Some(open);
                Ok(())
            }
            Err(cause) => {
                self.core.remove_file(&segment.name);
                Err(cause)
            }
        }
    }

    fn end_batch(&mut self) -> Result<(), StoreError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if !self.batch.is_empty() {
            self.batch.finish(open, self.number, Position::default())?;
            self.number += 1;
        }
        self.batch.begin(&open.segment);
        let end = open.segment.data_end();
        if end >= self.synced + SYNC_BYTES {
            let segment = &open.segment;
            segment.file.sync_data().map_err(|source| self.core.failed_sync(&segment.name, source))?;
            self.synced = end;
        }
        Ok(())
    }

    /// Seals and syncs the open output.
    fn close(&mut self) -> Result<(), StoreError> {
        self.end_batch()?;
        let Some(open) = &mut self.open else { return Ok(()) };
        open.seal(self.number)?;
        let segment = open.segment.clone();
        segment.file.sync_data().map_err(|source| self.core.failed_sync(&segment.name, source))?;
        self.core.sync_dir()?;
        self.open = None;
        self.done.push(segment);
        Ok(())
    }
}

/// Streams the outputs in the order in which they were written and moves memory's locators, by compare-and-set. Memory that is
/// being loaded takes in what it does not have: then nobody needs the inputs any more to load it.
pub(super) fn relocate(
    inputs: &[Arc<Segment>],
    outputs: &[Arc<Segment>],
    kept: &Vec<Kept>,
    effort: &mut Effort<'_>,
) -> Result<(), StoreError> {
    let memory = memory_of(kept);
    let mut expected = kept.iter();
    let takes_in = effort.liveness.takes_in();
    for output in outputs {
        let mut frames = Frames::new(output, DATA_START, output.data_end(), takes_in);
        loop {
            match frames.step()? {
                Step::Record(offset, record) => {
                    let Some(kept) = expected.next() else { return Ok(()) };
                    let is_known = kept.live || takes_in && !record.meta.kind.is_prepared();
                    let moved = move_locator(inputs, output, kept, offset, &record, effort.liveness);
                    if is_known && !moved {
                        // Overwritten since the first pass.
                        output.count_dead(padded(u64::from(record.length)) / UNIT);
                    }
                    effort.spend_unstoppably(u64::from(record.length), || memory);
                }
                // Left where it is: memory still knows the input, which then must not go.
                // The manifest remembers it, and no later step takes it for a victim.
                Step::Unreadable(offset, _, detail) | Step::Damaged(offset, detail) => {
                    output.quarantine();
                    return Err(output.corrupt(offset, detail));
                }
                Step::Commit(..) => {}
                Step::End => break,
            }
        }
    }
    Ok(())
}

/// Whether memory points to the output now.
fn move_locator(
    inputs: &[Arc<Segment>],
    output: &Segment,
    kept: &Kept,
    offset: u64,
    record: &StoredRecord<'_>,
    liveness: &dyn Liveness,
) -> bool {
    let Some(input) = inputs.get(kept.victim as usize) else { return false };
    let from = input.locate(kept.offset, kept.length);
    let to = output.locate(offset, record.length);
    liveness.relocate(kept.vb, &record.to_record(), from, to)
}
