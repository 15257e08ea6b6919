//! Writing to one segment file. Batches are encoded into a reusable buffer, and written in large pieces behind
//! preallocated space. A batch exists once its commit frame is written and the segment is told.
//!
//! Commits and compaction write the same way. Nothing here syncs.

use std::sync::Arc;

use base::VbId;

use crate::{
    api::{RecordMeta, VbState},
    error::StoreError,
    format::{
        DATA_START,
        batch::{self, CommitHead},
        footer, frame, padded,
    },
    index::{Entry, Staged},
    position::Position,
    segment::Segment,
};

/// Pieces written at once: large enough to amortise the call, and small enough to stay in the second-level cache. A
/// piece is less than the room of a buffer that has grown to `BUFFER_BYTES`. So the buffer does not double for a
/// piece's last record.
const WRITE_BYTES: usize = BUFFER_BYTES / 8 * 7;
/// What is kept of the buffer, and of the list of entries, from batch to batch.
const BUFFER_BYTES: usize = 512 << 10;
const ENTRIES_KEPT: usize = 4096;
/// Space is preallocated in pieces that double within these bounds.
const ALLOCATE_BYTES_MIN: u64 = 256 << 10;
const ALLOCATE_BYTES_MAX: u64 = 16 << 20;

/// Read and written at once when a segment is written again.
const WRITE_AGAIN_BYTES: u64 = 256 << 10;

/// The end of a segment that is being written.
pub(crate) struct Appender {
    pub(crate) segment: Arc<Segment>,
    /// The file has space up to here.
    allocated: u64,
    /// No use in preallocating beyond.
    expected_bytes: u64,
    /// Bytes beyond the segment's data end may have been written.
    touched: bool,
}

/// A batch under construction. Reused from batch to batch for its memory.
#[derive(Default)]
pub(crate) struct Batch {
    buffer: Vec<u8>,
    /// File offset of the buffer.
    buffer_start: u64,
    start: u64,
    chain: u32,
    staged: Staged,
    parts: Vec<u8>,
    part_count: u16,
    deaths: Vec<(u32, u32)>,
}

impl Appender {
    pub(crate) fn new(segment: Arc<Segment>, header: &[u8], expected_bytes: u64) -> Result<Self, StoreError> {
        let mut appender = Self { segment, allocated: 0, expected_bytes, touched: false };
        appender.write(header, 0)?;
        appender.touched = false;
        Ok(appender)
    }

    /// For the recovered end of a segment whose file is as long as it is.
    pub(crate) fn reopen(segment: Arc<Segment>) -> Self {
        Self { segment, allocated: 0, expected_bytes: 0, touched: true }
    }

    /// Writes behind preallocated space.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        let end = offset + bytes.len() as u64;
        if end > self.allocated {
            self.allocate(end)?;
        }
        self.touched = true;
        self.segment.file.write_at(bytes, offset).map_err(|source| self.segment.io("write", source))
    }

    /// Reads the segment's bytes from `from` on, and writes them once more. After a sync that failed they may come from
    /// the cache alone, and a later sync would pass over them. What the disk cannot read stays as it is.
    pub(crate) fn write_again(&mut self, from: u64) -> Result<(), StoreError> {
        let segment = self.segment.clone();
        let (mut at, end) = (from, segment.data_end());
        let mut window = vec![0; WRITE_AGAIN_BYTES.min(end.saturating_sub(from)) as usize];
        while at < end {
            let length = (window.len() as u64).min(end - at) as usize;
            let Some(window) = window.get_mut(..length) else { break };
            let (count, gaps) = segment.read_with_gaps(window, at)?;
            if count == 0 {
                break;
            }
            let mut done = at;
            for (bad, behind) in gaps.into_iter().chain([(at + count as u64, at + count as u64)]) {
                if let Some(bytes) = window.get((done - at) as usize..(bad - at) as usize)
                    && !bytes.is_empty()
                {
                    segment.file.write_at(bytes, done).map_err(|source| segment.io("write", source))?;
                }
                done = behind;
            }
            at += count as u64;
        }
        Ok(())
    }

    fn allocate(&mut self, end: u64) -> Result<(), StoreError> {
        use std::sync::atomic::Ordering::Relaxed;
        let piece = self.allocated.clamp(ALLOCATE_BYTES_MIN, ALLOCATE_BYTES_MAX);
        let file = &self.segment.file;
        let generous = end.max((self.allocated + piece).min(self.expected_bytes));
        let from = self.allocated;
        // On an almost full disk what is needed may fit where the generous piece does not.
        let reached = match file.allocate(from, generous - from) {
            Ok(()) => generous,
            Err(error) if crate::fs::is_no_space(&error) => {
                file.allocate(from, end - from).map_err(|source| self.segment.io("allocate", source))?;
                end
            }
            Err(source) => return Err(self.segment.io("allocate", source)),
        };
        self.allocated = reached;
        self.segment.file_bytes.store(reached, Relaxed);
        Ok(())
    }

    /// Forgets what was written beyond the segment's data, so that nothing of an abandoned batch is left to be
    /// mistaken for a later one.
    pub(crate) fn abandon(&mut self) -> Result<(), StoreError> {
        if !self.touched {
            return Ok(());
        }
        let end = self.segment.data_end();
        self.segment.file.truncate(end).map_err(|source| self.segment.io("truncate", source))?;
        self.allocated = end;
        self.segment.file_bytes.store(end, std::sync::atomic::Ordering::Relaxed);
        self.touched = false;
        Ok(())
    }

    /// Writes the footer and cuts the file to size; the index goes over to the footer. Returns its size.
    pub(crate) fn seal(&mut self, next_batch: u64) -> Result<u64, StoreError> {
        let Some(bytes) = self.segment.encode_footer(next_batch) else { return Ok(0) };
        let data_end = self.segment.data_end();
        let file_end = data_end + bytes.len() as u64;
        self.write(&bytes, data_end)?;
        self.segment.file.truncate(file_end).map_err(|source| self.segment.io("truncate", source))?;
        let trailer = bytes.last_chunk::<{ footer::TRAILER }>();
        match trailer.and_then(|bytes| footer::decode_trailer(bytes, self.segment.id, file_end)) {
            Some(trailer) => self.segment.set_sealed(trailer),
            None => return Err(StoreError::Invalid("a footer that cannot be read back")),
        }
        Ok(bytes.len() as u64)
    }
}

impl Batch {
    /// Starts a batch at the segment's end.
    pub(crate) fn begin(&mut self, segment: &Segment) {
        self.buffer.clear();
        self.start = segment.data_end();
        self.buffer_start = self.start;
        self.chain = segment.salt;
        self.staged.clear();
        self.parts.clear();
        self.part_count = 0;
        self.deaths.clear();
    }

    /// Nothing has been added since it began.
    pub(crate) fn is_empty(&self) -> bool {
        self.part_count == 0 && self.staged.entries.is_empty()
    }

    /// Bytes so far, the commit frame included.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffer_start - self.start
            + self.buffer.len() as u64
            + padded((frame::HEAD + self.parts.len() + self.deaths.len() * 8) as u64)
    }

    pub(crate) fn records(&self) -> usize {
        self.staged.entries.len()
    }

    /// Memory that it keeps for what is added.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.buffer.capacity() + self.staged.entries.capacity() * size_of::<Entry>()) as u64
    }

    pub(crate) fn parts(&self) -> u16 {
        self.part_count
    }

    /// Adds a record; returns its offset and length.
    #[inline]
    pub(crate) fn push(
        &mut self,
        to: &mut Appender,
        owner: (VbId, u32, u64),
        meta: &RecordMeta,
        (hash, key): (u64, &[u8]),
        value: &[u8],
    ) -> Result<(u64, u32), StoreError> {
        let offset = self.buffer_start + self.buffer.len() as u64;
        let crc = frame::encode_record(&mut self.buffer, to.segment.salt, owner, meta, key, value);
        self.chain = batch::chain(self.chain, crc);
        let length = frame::record_length(key, value) as u32;
        self.staged.push((owner.0, owner.1), meta, hash, offset, length);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out(to)?;
        }
        Ok((offset, length))
    }

    /// Notes that `units` in a segment have become obsolete.
    #[inline]
    pub(crate) fn count_dead(&mut self, segment: u32, units: u32) {
        // Summed up when the batch is finished: looking for the segment here would cost more with every segment.
        match self.deaths.last_mut() {
            Some(death) if death.0 == segment => death.1 = death.1.saturating_add(units),
            _ => self.deaths.push((segment, units)),
        }
    }

    fn sum_up_deaths(&mut self) {
        self.deaths.sort_unstable_by_key(|death| death.0);
        self.deaths.dedup_by(|next, death| {
            let same = next.0 == death.0;
            if same {
                death.1 = death.1.saturating_add(next.1);
            }
            same
        });
    }

    pub(crate) fn end_part(&mut self, vb: VbId, incarnation: u32, records: u32, state: &VbState) {
        batch::encode_part(&mut self.parts, vb, incarnation, records, state);
        self.part_count += 1;
    }

    /// Closes the batch: writes what is left with the commit frame and makes it part of the segment. Returns
    /// the bytes the batch took.
    pub(crate) fn finish(
        &mut self,
        to: &mut Appender,
        number: u64,
        synced: Position,
    ) -> Result<u64, StoreError> {
        self.sum_up_deaths();
        let commit = CommitHead {
            number,
            start: self.start,
            records: self.staged.entries.len() as u32,
            chain: self.chain,
            synced,
            parts: self.part_count,
            encoded_parts: &self.parts,
            deaths: &self.deaths,
        };
        batch::encode_commit(&mut self.buffer, to.segment.salt, &commit);
        self.write_out(to)?;
        to.segment.publish(&self.staged, self.buffer_start);
        to.touched = false;
        // One huge document, or many small ones, must not keep their memory for ever.
        self.staged.clear();
        self.staged.entries.shrink_to(ENTRIES_KEPT);
        self.buffer.shrink_to(BUFFER_BYTES);
        let bytes = self.buffer_start - self.start;
        debug_assert!(self.start >= DATA_START);
        Ok(bytes)
    }

    /// Units that the batch made obsolete, by segment.
    pub(crate) fn deaths(&self) -> &[(u32, u32)] {
        &self.deaths
    }

    fn write_out(&mut self, to: &mut Appender) -> Result<(), StoreError> {
        to.write(&self.buffer, self.buffer_start)?;
        self.buffer_start += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
