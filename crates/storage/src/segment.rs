//! One segment file: its records by place, its index, and how much of it is still alive.
//!
//! Bytes below `data_end` never change and belong to committed batches; only the log's writer moves `data_end`.
//! A thread that holds an `Arc` to a segment can read it, also after compaction has removed its name. Nobody reads the disk under the
//! lock of a segment's index: commits take it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use base::{VbId, hash::disk_hash};
use parking_lot::{Mutex, RwLock};

use crate::{
    api::{Locator, OwnedRecord, RecordMeta},
    counters::{Counters, count},
    error::StoreError,
    format::{
        DATA_START,
        footer::{self, Fences, Trailer},
        frame::{self, FrameError, StoredRecord},
        header::Origin,
    },
    frames::{Frames, Step},
    fs::{FsFile, is_unreadable},
    index::{Entry, MemoryIndex, SealedIndex, Staged, Tombstones, memory::Summary, sealed::FooterError},
    locator::Place,
};

/// What the disk reads, or cannot read, at once.
const BLOCK: u64 = 4096;
/// Stands for a byte that cannot be read: no frame or footer made of it is intact, and it is not preallocated space either.
const UNREADABLE: u8 = 0xff;

/// See the module.
pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) salt: u32,
    /// The shard's seed of [`disk_hash`].
    seed: u64,
    pub(crate) file: Box<dyn FsFile>,
    counters: Arc<Counters>,
    index: RwLock<Index>,
    /// Held by the one who makes the index anew.
    rebuilding: Mutex<()>,
    data_end: AtomicU64,
    /// Length of the file, preallocation and footer included.
    pub(crate) file_bytes: AtomicU64,
    /// Units of records in the segment, and of those still alive as far as is known.
    units: AtomicU64,
    live_units: AtomicU64,
    sealed: AtomicBool,
    /// Holds damaged records: never compacted away, since nobody knows what they were.
    quarantined: AtomicBool,
    incomplete: AtomicBool,
    /// How many segments had been removed when compaction last failed to purge all old tombstones in here.
    pub(crate) purge_tried: AtomicU64,
}

enum Index {
    Memory(MemoryIndex),
    /// Shared, so that it can be asked, which reads the disk, without the lock.
    Sealed(Arc<SealedIndex>),
}

impl Segment {
    /// A segment without records.
    pub(crate) fn new(
        id: u32,
        origin: Origin,
        (salt, seed): (u32, u64),
        file: Box<dyn FsFile>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            id,
            name: file_name(id),
            origin,
            salt,
            seed,
            file,
            counters,
            index: RwLock::new(Index::Memory(MemoryIndex::default())),
            rebuilding: Mutex::default(),
            data_end: AtomicU64::new(DATA_START),
            file_bytes: AtomicU64::new(0),
            units: AtomicU64::new(0),
            live_units: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            quarantined: AtomicBool::new(false),
            incomplete: AtomicBool::new(false),
            purge_tried: AtomicU64::new(u64::MAX),
        }
    }

    /// The hash by which the shard's indexes find a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        disk_hash(key, self.seed)
    }

    pub(crate) fn data_end(&self) -> u64 {
        // Pairs with `publish`: a reader that sees the end sees the bytes, written before.
        self.data_end.load(Ordering::Acquire)
    }

    /// Makes a batch part of the segment.
    pub(crate) fn publish(&self, staged: &Staged, data_end: u64) {
        // Order matters: a reader that finds an entry must find its bytes below the data's end.
        self.data_end.store(data_end, Ordering::Release);
        if let Index::Memory(index) = &mut *self.index.write() {
            index.add(staged);
        }
        self.units.fetch_add(staged.units, Ordering::Relaxed);
        self.live_units.fetch_add(staged.units, Ordering::Relaxed);
    }

    /// The index goes over to the footer that was just written.
    pub(crate) fn set_sealed(&self, trailer: Trailer) {
        *self.index.write() = Index::Sealed(Arc::new(SealedIndex::new(trailer)));
        self.data_end.store(trailer.data_end, Ordering::Release);
        self.file_bytes.store(trailer.file_end(), Ordering::Relaxed);
        self.sealed.store(true, Ordering::Release);
    }

    /// No more appends, though there is no footer (damaged, or no space for one): the index stays in memory.
    pub(crate) fn set_sealed_in_memory(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    pub(crate) fn has_footer(&self) -> bool {
        matches!(&*self.index.read(), Index::Sealed(_))
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// The footer for what the index holds in memory; `None` when it is on disk already.
    pub(crate) fn encode_footer(&self, next_batch: u64) -> Option<Vec<u8>> {
        match &*self.index.read() {
            Index::Memory(index) => Some(footer::encode(self.id, self.data_end(), next_batch, index)),
            Index::Sealed(_) => None,
        }
    }

    /// Damage was seen: the next manifest says so.
    pub(crate) fn quarantine(&self) {
        if !self.quarantined.swap(true, Ordering::Relaxed) {
            self.counters.note_damage();
        }
    }

    pub(crate) fn is_quarantined(&self) -> bool {
        self.quarantined.load(Ordering::Relaxed)
    }

    pub(crate) fn units(&self) -> u64 {
        self.units.load(Ordering::Relaxed)
    }

    pub(crate) fn live_units(&self) -> u64 {
        self.live_units.load(Ordering::Relaxed)
    }

    pub(crate) fn set_units(&self, units: u64, live: u64) {
        self.units.store(units, Ordering::Relaxed);
        self.live_units.store(live.min(units), Ordering::Relaxed);
    }

    /// Accounts for records that became obsolete.
    pub(crate) fn count_dead(&self, units: u64) {
        // Only statistics: a lost race between two decrements cannot happen with an atomic update.
        let _ = self
            .live_units
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| Some(live.saturating_sub(units)));
    }

    pub(crate) fn tombstones(&self) -> Tombstones {
        match &*self.index.read() {
            Index::Memory(index) => index.tombstones(),
            Index::Sealed(index) => index.trailer.tombstones,
        }
    }

    /// Reads what is there, up to the file's end. What the disk cannot read becomes bytes that no checksum matches.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        self.read_with_gaps(buffer, offset).map(|read| read.0)
    }

    /// As [`Segment::read`]; tells as well which blocks could not be read: their places and ends.
    pub(crate) fn read_with_gaps(
        &self,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(usize, Vec<(u64, u64)>), StoreError> {
        match self.file.read_at(buffer, offset) {
            Ok(count) => Ok((count, Vec::new())),
            Err(error) if is_unreadable(&error) => self.read_by_blocks(buffer, offset),
            Err(source) => Err(self.io("read", source)),
        }
    }

    /// One bad block must not cost what lies around it.
    #[expect(clippy::indexing_slicing, reason = "`within` is at most what is left of the buffer")]
    fn read_by_blocks(&self, buffer: &mut [u8], offset: u64) -> Result<(usize, Vec<(u64, u64)>), StoreError> {
        // Asked first: a block that cannot be read does not say whether the file ends in it.
        let length = self.length()?.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (mut done, mut gaps) = (0, Vec::new());
        while let Some(rest) = buffer.get_mut(done..length).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            let within = (BLOCK - at % BLOCK).min(rest.len() as u64) as usize;
            let block = &mut rest[..within];
            match self.file.read_at(block, at) {
                Ok(count) if count == within => {}
                Ok(_) => return Ok((done, gaps)),
                Err(error) if is_unreadable(&error) => {
                    block.fill(UNREADABLE);
                    gaps.push((at, at + within as u64));
                    let _ = self.corrupt(at, "the disk cannot read it");
                    if at < self.data_end() {
                        self.quarantine();
                    }
                }
                Err(source) => return Err(self.io("read", source)),
            }
            done += within;
        }
        Ok((done, gaps))
    }

    pub(crate) fn length(&self) -> Result<u64, StoreError> {
        self.file.length().map_err(|source| self.io("read", source))
    }

    /// The trailer at the file's end, if there is an intact one.
    #[expect(clippy::indexing_slicing, reason = "a read gives no more bytes than its buffer has")]
    pub(crate) fn read_trailer(&self) -> Result<Option<Trailer>, StoreError> {
        let length = self.length()?;
        let mut bytes = [0; footer::TRAILER];
        let count = self.read(&mut bytes, length.saturating_sub(footer::TRAILER as u64))?;
        Ok(footer::decode_trailer(&bytes[..count], self.id, length))
    }

    pub(crate) fn io(&self, action: &'static str, source: std::io::Error) -> StoreError {
        if crate::fs::is_no_space(&source) {
            return StoreError::NoSpace;
        }
        StoreError::Io { action, file: self.name.clone(), source }
    }

    /// Notes damage at a place of this segment and makes the error for it.
    pub(crate) fn corrupt(&self, offset: u64, detail: &'static str) -> StoreError {
        self.counters.corrupt(&self.name, offset, detail)
    }

    /// Reads and checks the record at `offset`, of which at least `length` bytes are worth reading at once.
    #[expect(clippy::indexing_slicing, reason = "a read gives no more bytes than its buffer has")]
    pub(crate) fn record_at<R>(
        &self,
        offset: u64,
        length: u64,
        read: impl FnOnce(StoredRecord<'_>) -> R,
    ) -> Result<R, StoreError> {
        let data_end = self.data_end();
        if offset < DATA_START || offset >= data_end {
            return Err(StoreError::Stale);
        }
        count(&self.counters.records_read, 1);
        let mut buffer = vec![0; length.min(data_end - offset) as usize];
        let mut have = self.read(&mut buffer, offset)?;
        if let Err(FrameError::Short(need)) = frame::decode_record(&buffer[..have], self.salt)
            && need as u64 <= data_end - offset
        {
            buffer.resize(need, 0);
            have = self.read(&mut buffer, offset)?;
        }
        match frame::decode_record(&buffer[..have], self.salt) {
            Ok(record) => Ok(read(record)),
            Err(FrameError::Short(_)) => Err(self.damaged(offset, "cut short")),
            Err(FrameError::Damaged(detail)) => Err(self.damaged(offset, detail)),
        }
    }

    /// As [`Segment::corrupt`], of data: the next manifest says so.
    fn damaged(&self, offset: u64, detail: &'static str) -> StoreError {
        self.quarantine();
        self.corrupt(offset, detail)
    }

    /// As the trait returns records.
    pub(crate) fn own(&self, offset: u64, record: &StoredRecord<'_>) -> OwnedRecord {
        OwnedRecord {
            meta: record.meta,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
            locator: self.locate(offset, record.length),
        }
    }

    pub(crate) fn locate(&self, offset: u64, length: u32) -> Locator {
        Place::new(self.id, offset, length).pack()
    }

    /// Every entry that may be a version of a key with that fingerprint.
    pub(crate) fn find(&self, fingerprint: u32) -> Result<Vec<Entry>, StoreError> {
        self.ask(
            |memory| {
                let mut entries = Vec::new();
                memory.find(fingerprint, &mut |entry| entries.push(entry));
                entries
            },
            |sealed, file| {
                let mut entries = Vec::new();
                sealed.find(file, fingerprint, &mut |entry| entries.push(entry)).map(|()| entries)
            },
        )
    }

    /// How many records it has, dead ones included.
    pub(crate) fn records(&self) -> u64 {
        match &*self.index.read() {
            Index::Sealed(index) => u64::from(index.trailer.entries),
            Index::Memory(index) => index.entries().len() as u64,
        }
    }

    /// How many entries its footer has, if it has one.
    pub(crate) fn footer_entries(&self) -> Option<u64> {
        match &*self.index.read() {
            Index::Sealed(index) => Some(u64::from(index.trailer.entries)),
            Index::Memory(_) => None,
        }
    }

    /// The fences of its footer, if it has one.
    pub(crate) fn footer_fences(&self) -> Result<Option<Fences>, StoreError> {
        let Some(index) = self.sealed_index() else { return Ok(None) };
        index.fences(&*self.file).map(Some).map_err(|error| self.footer_error(error))
    }

    fn sealed_index(&self) -> Option<Arc<SealedIndex>> {
        match &*self.index.read() {
            Index::Sealed(index) => Some(index.clone()),
            Index::Memory(_) => None,
        }
    }

    /// The entries under one fence, with its checksum.
    pub(crate) fn footer_block(&self, number: usize, crc: u32) -> Result<Vec<Entry>, StoreError> {
        let block = match self.sealed_index() {
            Some(index) => index.block(&*self.file, number, crc),
            None => Err(FooterError::Damaged),
        };
        block.map_err(|error| self.footer_error(error))
    }

    fn footer_error(&self, error: FooterError) -> StoreError {
        match error {
            FooterError::Io(source) => self.io("read footer of", source),
            FooterError::Damaged => StoreError::Corrupt {
                file: self.name.clone(),
                offset: self.data_end(),
                detail: "footer damaged",
            },
        }
    }

    /// Memory that its footer's look-up part takes.
    pub(crate) fn lookup_bytes(&self) -> u64 {
        match &*self.index.read() {
            Index::Sealed(index) => index.lookup_bytes(),
            Index::Memory(_) => 0,
        }
    }

    /// Memory that stands in for its footer while it has none.
    pub(crate) fn footer_to_be_bytes(&self) -> u64 {
        match &*self.index.read() {
            Index::Sealed(_) => 0,
            Index::Memory(index) => index.lookup_bytes(),
        }
    }

    /// Somebody else answers for it: gives that memory back.
    pub(crate) fn forget_lookup(&self) {
        if let Index::Sealed(index) = &mut *self.index.write() {
            *index = Arc::new(SealedIndex::new(index.trailer));
        }
    }

    /// The ranges of bytes where a vBucket's records lie, in order.
    pub(crate) fn runs(&self, vb: VbId) -> Result<Vec<(u64, u64)>, StoreError> {
        self.ask(
            |memory| {
                let of_vb = memory.spans().iter().filter(|span| span.vb == vb);
                of_vb.map(|span| (span.start, span.end)).collect()
            },
            |sealed, file| sealed.runs(file, vb),
        )
    }

    /// What the segment holds per vBucket and incarnation.
    pub(crate) fn summaries(&self) -> Result<Vec<Summary>, StoreError> {
        self.ask(|memory| memory.summaries().copied().collect(), |sealed, file| sealed.summaries(file))
    }

    fn ask<R>(
        &self,
        memory: impl Fn(&MemoryIndex) -> R,
        sealed: impl Fn(&SealedIndex, &dyn FsFile) -> Result<R, FooterError>,
    ) -> Result<R, StoreError> {
        loop {
            let index = match &*self.index.read() {
                Index::Memory(index) => return Ok(memory(index)),
                Index::Sealed(index) => index.clone(),
            };
            match sealed(&index, &*self.file) {
                Ok(answer) => return Ok(answer),
                Err(FooterError::Io(source)) => return Err(self.io("read footer of", source)),
                Err(FooterError::Damaged) => self.rebuild()?,
            }
        }
    }

    /// Makes the index anew from the data, since the footer is damaged. Afterwards it is in memory.
    fn rebuild(&self) -> Result<(), StoreError> {
        let _turn = self.rebuilding.lock();
        if !self.has_footer() {
            // Somebody else has meanwhile.
            return Ok(());
        }
        let data_end = self.data_end();
        // The error is not returned: it is noted, and everything is still readable.
        let _ = self.corrupt(data_end, "footer damaged, index rebuilt from the data");
        let mut staged = Staged::default();
        self.collect(&mut Frames::new(self, DATA_START, data_end, true), &mut staged, &mut |_, _| {})?;
        let mut rebuilt = MemoryIndex::default();
        rebuilt.add(&staged);
        *self.index.write() = Index::Memory(rebuilt);
        Ok(())
    }

    /// For a segment whose footer is missing, by intention or not: reads the data to index it.
    pub(crate) fn read_index(&self, data_end: u64, intended: bool) -> Result<(), StoreError> {
        let mut staged = Staged::default();
        self.collect(&mut Frames::new(self, DATA_START, data_end, true), &mut staged, &mut |_, _| {})?;
        if !intended {
            let _ = self.corrupt(data_end, "footer damaged, index rebuilt from the data");
        }
        self.publish(&staged, data_end);
        self.set_sealed_in_memory();
        Ok(())
    }

    /// Gathers every record of a range whose key can be read, and notes the damage around. `visit` sees whose it is and what it
    /// says.
    pub(crate) fn collect(
        &self,
        frames: &mut Frames<'_>,
        staged: &mut Staged,
        visit: &mut dyn FnMut((VbId, u32), &RecordMeta),
    ) -> Result<(), StoreError> {
        loop {
            let (offset, record) = match frames.step()? {
                Step::Record(offset, record) => (offset, record),
                Step::Unreadable(offset, record, detail) => {
                    let _ = self.corrupt(offset, detail);
                    self.quarantine();
                    (offset, record)
                }
                Step::Damaged(offset, detail) => {
                    self.note_damage(offset, detail);
                    continue;
                }
                Step::Commit(..) => continue,
                Step::End => return Ok(()),
            };
            let (owner, hash) = ((record.vb, record.incarnation), self.hash(record.key));
            staged.push(owner, &record.meta, hash, offset, record.length);
            visit(owner, &record.meta);
        }
    }

    /// Records have been lost at `offset`, and nobody knows whose.
    pub(crate) fn note_damage(&self, offset: u64, detail: &'static str) {
        let _ = self.corrupt(offset, detail);
        self.quarantine();
        self.set_incomplete(true);
    }

    /// Whether records were lost in it, and nobody knows whose.
    pub(crate) fn set_incomplete(&self, incomplete: bool) {
        if self.incomplete.swap(incomplete, Ordering::Relaxed) != incomplete {
            self.counters.note_damage();
        }
    }

    /// Whether the index lacks records that were damaged beyond recognition.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }
}

/// A segment's file name.
pub(crate) fn file_name(id: u32) -> String {
    format!("{id:08}.seg")
}

/// The segment a file name means.
pub(crate) fn parse_name(name: &str) -> Option<u32> {
    name.strip_suffix(".seg").filter(|digits| digits.len() >= 8)?.parse().ok()
}
