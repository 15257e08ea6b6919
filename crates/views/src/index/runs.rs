//! Sorts more changes than memory has room for.
//!
//! Changes are collected in memory. When they take their part of the account they are written to a file of their own, in the
//! order of their keys: a run. In the end all runs are read side by side. Of several changes of a key the last one counts.
//!
//! A value that is longer than a block lies in a block of its own, behind that of its key. It is read when its change is the next one, so
//! of all runs one such value is in memory.
//!
//! A run is removed when nobody reads it any more. No commit tells of one, so after a crash its changes are fed again.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap},
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use storage::{Fs, FsFile};

use super::{
    bytes::{Input, put_sized},
    leaf::{put_key, read_key},
    memory::{Charge, Memory},
    packed::{Packer, unpack},
};

/// What is collected takes at most this part of the account.
const MEMORY_PART: usize = 8;
const MEMORY_MIN: usize = 1 << 10;
const MEMORY_MAX: usize = 256 << 20;
/// So many runs are made one.
const RUNS_MAX: usize = 64;
/// Runs are read in blocks of about so many bytes, of which each run has one in memory. Longer values are beside them.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCK_PART: usize = 16;
const CHECKSUM_BYTES: usize = 4;
/// Behind the key of a change: it has no value, its value follows, or its value is the next block.
const GONE: u8 = 0;
const FOLLOWS: u8 = 1;
const NEXT_BLOCK: u8 = 2;
const SUFFIX: &str = ".run";

/// Whether a file of this name is a run. When an index is opened, nobody reads it any more.
pub(super) fn is_run(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// Where runs are written.
pub(super) struct Scratch {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    memory: Arc<Memory>,
    next: AtomicU32,
}

impl Scratch {
    pub(super) fn new(fs: Arc<dyn Fs>, dir: PathBuf, memory: Arc<Memory>) -> Arc<Self> {
        Arc::new(Self { fs, dir, memory, next: AtomicU32::new(0) })
    }

    /// How many bytes a sorter may collect.
    fn memory_max(&self) -> usize {
        self.memory.share(MEMORY_PART).clamp(MEMORY_MIN, MEMORY_MAX)
    }

    fn block_bytes(&self) -> usize {
        (self.memory_max() / BLOCK_PART).min(BLOCK_BYTES)
    }

    fn create(self: &Arc<Self>) -> io::Result<Writer> {
        let number = self.next.fetch_add(1, Relaxed);
        let path = self.dir.join(format!("{number:08x}{SUFFIX}"));
        let file = self.fs.create(&path)?;
        let run = Run { scratch: self.clone(), path, file, blocks: Vec::new(), length: 0, number };
        let block_bytes = self.block_bytes();
        let (block, before, packed) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Writer { run, block_bytes, block, before, packer: Packer::new(), packed })
    }
}

/// Changes in the order of their keys, in a file.
struct Run {
    scratch: Arc<Scratch>,
    path: PathBuf,
    file: Box<dyn FsFile>,
    /// The length of each block.
    blocks: Vec<u32>,
    length: u64,
    /// Later runs have greater ones.
    number: u32,
}

impl Drop for Run {
    fn drop(&mut self) {
        // One that stays is removed when the index is opened.
        let _ = self.scratch.fs.remove(&self.path);
    }
}

struct Writer {
    run: Run,
    block_bytes: usize,
    block: Vec<u8>,
    before: Vec<u8>,
    packer: Packer,
    packed: Vec<u8>,
}

impl Writer {
    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        put_key(&self.before, key, &mut self.block);
        self.before.clear();
        self.before.extend_from_slice(key);
        match value {
            None => self.block.push(GONE),
            Some(value) if value.len() > self.block_bytes => {
                self.block.push(NEXT_BLOCK);
                self.end_block()?;
                return self.write(value);
            }
            Some(value) => {
                self.block.push(FOLLOWS);
                put_sized(value, &mut self.block);
            }
        }
        if self.block.len() >= self.block_bytes { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        let mut block = std::mem::take(&mut self.block);
        self.write(&block)?;
        block.clear();
        self.block = block;
        self.before.clear();
        Ok(())
    }

    /// Writes a block.
    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.packed.clear();
        self.packed.extend_from_slice(&[0; CHECKSUM_BYTES]);
        self.packer.pack(block, &mut self.packed)?;
        let (head, payload) = self.packed.split_at_mut(CHECKSUM_BYTES);
        head.copy_from_slice(&crc32c::crc32c(payload).to_be_bytes());
        self.run.file.write_at(&self.packed, self.run.length)?;
        self.run.length += self.packed.len() as u64;
        self.run.blocks.push(u32::try_from(self.packed.len()).map_err(io::Error::other)?);
        Ok(())
    }

    fn end(mut self) -> io::Result<Run> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        Ok(self.run)
    }
}

/// A change that is in memory.
#[derive(Clone, Copy)]
struct Entry {
    /// The first bytes of its key. They tell most keys apart, without a look at where keys are.
    first: u128,
    start: u32,
    value: u32,
    end: u32,
    has_value: bool,
}

/// The first bytes of a key as a number that is ordered as they are. Behind the end of a key there are zeroes, so equal ones say nothing.
fn first_bytes(key: &[u8]) -> u128 {
    if let Some(whole) = key.first_chunk() {
        return u128::from_be_bytes(*whole);
    }
    let mut first = [0; size_of::<u128>()];
    for (place, byte) in first.iter_mut().zip(key) {
        *place = *byte;
    }
    u128::from_be_bytes(first)
}

/// Collects changes. See the module.
pub(super) struct Sorter {
    scratch: Arc<Scratch>,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    charge: Charge,
    runs: Vec<Run>,
    void: Void,
}

/// Which changes of earlier runs do not count: those whose keys begin with these bytes, in runs before this one.
type Void = BTreeMap<[u8; 2], u32>;

impl Sorter {
    pub(super) fn new(scratch: &Arc<Scratch>) -> Self {
        let charge = Charge::new(&scratch.memory, 0);
        let (bytes, entries, runs) = (Vec::new(), Vec::new(), Vec::new());
        Self { scratch: scratch.clone(), bytes, entries, charge, runs, void: Void::new() }
    }

    /// Takes a change: the value of a key from now on, or that it has none.
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let length = |bytes: &Vec<u8>| u32::try_from(bytes.len()).map_err(io::Error::other);
        let start = length(&self.bytes)?;
        self.bytes.extend_from_slice(key);
        let middle = length(&self.bytes)?;
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let (first, end) = (first_bytes(key), length(&self.bytes)?);
        self.entries.push(Entry { first, start, value: middle, end, has_value: value.is_some() });
        let capacity = self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>();
        if capacity != self.charge.bytes() {
            self.charge.set(capacity);
        }
        let held = self.bytes.len() + self.entries.len() * size_of::<Entry>();
        if held > self.scratch.memory_max() { self.spill() } else { Ok(()) }
    }

    /// Forgets the changes so far of keys that begin with these bytes.
    pub(super) fn forget(&mut self, prefix: [u8; 2]) {
        let bytes = &self.bytes;
        self.entries.retain(|entry| !key_of(bytes, entry).starts_with(&prefix));
        self.void.insert(prefix, self.scratch.next.load(Relaxed));
    }

    /// Bytes in files.
    pub(super) fn spilled(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum()
    }

    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let mut writer = self.scratch.create()?;
        for entry in &self.entries {
            writer.push(key_of(&self.bytes, entry), value_of(&self.bytes, entry))?;
        }
        self.runs.push(writer.end()?);
        // Others may need the memory more.
        (self.entries, self.bytes) = (Vec::new(), Vec::new());
        self.charge.set(0);
        if self.runs.len() >= RUNS_MAX { self.make_one() } else { Ok(()) }
    }

    fn make_one(&mut self) -> io::Result<()> {
        let mut writer = self.scratch.create()?;
        let mut all = Sorted::new(std::mem::take(&mut self.runs), None, &self.void, &self.scratch.memory)?;
        while let Some(key) = all.key() {
            writer.push(key, all.value())?;
            all.advance()?;
        }
        self.void.clear();
        self.runs.push(writer.end()?);
        Ok(())
    }

    /// Puts what is in memory in order; of changes of one key the last one stays.
    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|left, right| {
            let by_key = || key_of(bytes, left).cmp(key_of(bytes, right));
            left.first.cmp(&right.first).then_with(by_key).then(left.start.cmp(&right.start))
        });
        self.entries.reverse();
        self.entries
            .dedup_by(|next, kept| next.first == kept.first && key_of(bytes, next) == key_of(bytes, kept));
        self.entries.reverse();
    }

    /// All changes, in the order of their keys.
    pub(super) fn sorted(mut self) -> io::Result<Sorted> {
        self.sort();
        let memory = MemoryRun { bytes: self.bytes, entries: self.entries, next: 0, _charge: self.charge };
        Sorted::new(self.runs, Some(memory), &self.void, &self.scratch.memory)
    }
}

fn key_of<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    bytes.get(entry.start as usize..entry.value as usize).unwrap_or_default()
}

fn value_of<'a>(bytes: &'a [u8], entry: &Entry) -> Option<&'a [u8]> {
    entry.has_value.then(|| bytes.get(entry.value as usize..entry.end as usize).unwrap_or_default())
}

/// Changes in the order of their keys, one for each key.
pub(super) struct Sorted {
    /// All of them, where none is in a file. The number of it is that of the next change.
    alone: Option<MemoryRun>,
    sources: Vec<Source>,
    /// The next change of each source that is not current.
    next: BinaryHeap<Next>,
    current: Option<Next>,
    void: Void,
}

/// The next key of a source. The one with the least key comes first, and of equal ones that of the latest source.
#[derive(PartialEq, Eq)]
struct Next {
    key: Vec<u8>,
    source: usize,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key).then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

enum Source {
    Memory(MemoryRun),
    Run(Cursor),
}

/// Sorted changes in memory.
struct MemoryRun {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The number of the change behind the one that was read.
    next: usize,
    _charge: Charge,
}

/// Reads a run.
struct Cursor {
    run: Run,
    next_block: usize,
    offset: u64,
    block: Vec<u8>,
    /// Where in the block the next change begins, and the value of the one that was read.
    at: usize,
    value: Value,
    charge: Charge,
}

/// The value of a change of a run.
enum Value {
    Gone,
    /// Where it is in the block.
    Within(std::ops::Range<usize>),
    /// It is the next block, which is not read yet.
    NextBlock,
    /// It was a block of its own.
    Block(Vec<u8>),
}

impl Sorted {
    fn new(
        runs: Vec<Run>,
        in_memory: Option<MemoryRun>,
        void: &Void,
        memory: &Arc<Memory>,
    ) -> io::Result<Self> {
        if runs.is_empty() {
            // What was forgotten before it came is in no run.
            let (sources, next, void) = (Vec::new(), BinaryHeap::new(), Void::new());
            return Ok(Self { alone: in_memory, sources, next, current: None, void });
        }
        let cursor = |run| {
            let (block, charge) = (Vec::new(), Charge::new(memory, 0));
            Source::Run(Cursor { run, next_block: 0, offset: 0, block, at: 0, value: Value::Gone, charge })
        };
        let sources: Vec<Source> =
            runs.into_iter().map(cursor).chain(in_memory.map(Source::Memory)).collect();
        let next = BinaryHeap::with_capacity(sources.len());
        let mut sorted = Self { alone: None, sources, next, current: None, void: void.clone() };
        for source in 0..sorted.sources.len() {
            sorted.read(Next { key: Vec::new(), source })?;
        }
        sorted.take_next()?;
        Ok(sorted)
    }

    /// Goes on to the next change.
    fn take_next(&mut self) -> io::Result<()> {
        self.current = self.next.pop();
        let source = self.current.as_ref().and_then(|next| self.sources.get_mut(next.source));
        match source {
            Some(Source::Run(cursor)) => cursor.read_value(),
            Some(Source::Memory(_)) | None => Ok(()),
        }
    }

    /// The key of the next change.
    pub(super) fn key(&self) -> Option<&[u8]> {
        match &self.alone {
            Some(held) => held.entries.get(held.next).map(|entry| key_of(&held.bytes, entry)),
            None => self.current.as_ref().map(|next| next.key.as_slice()),
        }
    }

    /// The value that it gives to the key.
    pub(super) fn value(&self) -> Option<&[u8]> {
        if let Some(held) = &self.alone {
            return value_of(&held.bytes, held.entries.get(held.next)?);
        }
        match self.sources.get(self.current.as_ref()?.source)? {
            Source::Memory(held) => value_of(&held.bytes, held.entries.get(held.next.checked_sub(1)?)?),
            Source::Run(cursor) => cursor.value(),
        }
    }

    pub(super) fn advance(&mut self) -> io::Result<()> {
        if let Some(held) = &mut self.alone {
            held.next += 1;
            return Ok(());
        }
        let Some(done) = self.current.take() else { return Ok(()) };
        while self.next.peek().is_some_and(|next| next.key == done.key) {
            let Some(earlier) = self.next.pop() else { break };
            self.read(earlier)?;
        }
        self.read(done)?;
        self.take_next()
    }

    /// Reads on in a source.
    fn read(&mut self, mut next: Next) -> io::Result<()> {
        loop {
            let (found, number) = match self.sources.get_mut(next.source) {
                None => return Ok(()),
                Some(Source::Memory(held)) => (held.read(&mut next.key), u32::MAX),
                Some(Source::Run(cursor)) => (cursor.read(&mut next.key)?, cursor.run.number),
            };
            if !found {
                return Ok(());
            }
            let void = next.key.first_chunk::<2>().and_then(|prefix| self.void.get(prefix));
            if void.is_none_or(|void| number >= *void) {
                self.next.push(next);
                return Ok(());
            }
        }
    }
}

impl MemoryRun {
    fn read(&mut self, key: &mut Vec<u8>) -> bool {
        let Some(entry) = self.entries.get(self.next) else { return false };
        key.clear();
        key.extend_from_slice(key_of(&self.bytes, entry));
        self.next += 1;
        true
    }
}

impl Cursor {
    /// Reads the next change, but a value that is a block of its own; `key` is that of the one before.
    fn read(&mut self, key: &mut Vec<u8>) -> io::Result<bool> {
        match std::mem::replace(&mut self.value, Value::Gone) {
            Value::NextBlock => self.pass_block(),
            Value::Block(_) => self.charge.set(self.block.len()),
            Value::Gone | Value::Within(_) => {}
        }
        if self.at >= self.block.len() {
            let Some(block) = self.read_block()? else { return Ok(false) };
            self.block = block;
            self.charge.set(self.block.len());
            self.at = 0;
            key.clear();
        }
        let mut input = Input(self.block.get(self.at..).unwrap_or_default());
        let mut change = || {
            read_key(&mut input, key)?;
            let kind = input.byte()?;
            Some((kind, if kind == FOLLOWS { input.sized()?.len() } else { 0 }))
        };
        let (kind, length) = change().ok_or_else(unreadable)?;
        self.at = self.block.len() - input.0.len();
        self.value = match kind {
            GONE => Value::Gone,
            FOLLOWS => Value::Within(self.at - length..self.at),
            NEXT_BLOCK => Value::NextBlock,
            _ => return Err(unreadable()),
        };
        Ok(true)
    }

    /// Reads the value of the change that was read, where it is a block of its own.
    fn read_value(&mut self) -> io::Result<()> {
        if matches!(self.value, Value::NextBlock) {
            let value = self.read_block()?.ok_or_else(unreadable)?;
            self.charge.set(self.block.len() + value.len());
            self.value = Value::Block(value);
        }
        Ok(())
    }

    fn value(&self) -> Option<&[u8]> {
        match &self.value {
            Value::Gone | Value::NextBlock => None,
            Value::Within(range) => self.block.get(range.clone()),
            Value::Block(value) => Some(value),
        }
    }

    /// Reads the next block.
    fn read_block(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = self.run.blocks.get(self.next_block) else { return Ok(None) };
        let mut bytes = vec![0; *length as usize];
        if self.run.file.read_at(&mut bytes, self.offset)? < bytes.len() {
            return Err(unreadable());
        }
        self.pass_block();
        let (head, payload) = bytes.split_at_checked(CHECKSUM_BYTES).ok_or_else(unreadable)?;
        if head != crc32c::crc32c(payload).to_be_bytes() {
            return Err(unreadable());
        }
        unpack(payload).ok_or_else(unreadable).map(Some)
    }

    fn pass_block(&mut self) {
        self.offset += u64::from(self.run.blocks.get(self.next_block).copied().unwrap_or_default());
        self.next_block += 1;
    }
}

/// What was committed is whole, so this is no damage of the index.
fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "sorted changes are not what was written")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use storage::FaultFs;

    use super::*;

    fn sorter_of(fs: &FaultFs, memory: Arc<Memory>) -> Sorter {
        fs.create_dir_all(Path::new("/runs")).unwrap();
        Sorter::new(&Scratch::new(Arc::new(fs.clone()), PathBuf::from("/runs"), memory))
    }

    fn sorter(fs: &FaultFs) -> Sorter {
        sorter_of(fs, Memory::new(0))
    }

    fn all(mut sorted: Sorted) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        while let Some(key) = sorted.key() {
            found.push((key.to_vec(), sorted.value().map(<[u8]>::to_vec)));
            sorted.advance().unwrap();
        }
        found
    }

    #[test]
    fn the_last_change_of_each_key_comes_in_order() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let fs = FaultFs::new(seed);
            let mut sorter = sorter(&fs);
            let mut expected = BTreeMap::new();
            // At times more than a hundred runs.
            for _ in 0..random.usize(..4000) {
                let key = [&[0, random.u8(..4)][..], format!("{}", random.u16(..900)).as_bytes()].concat();
                let value = random.bool().then(|| vec![random.u8(..); random.usize(..100)]);
                sorter.push(&key, value.as_deref()).unwrap();
                expected.insert(key, value);
                if random.u16(..300) == 0 {
                    let prefix = [0, random.u8(..4)];
                    sorter.forget(prefix);
                    expected.retain(|key, _| !key.starts_with(&prefix));
                }
            }
            assert!(seed > 0 || sorter.spilled() > 1000);
            let found = all(sorter.sorted().unwrap());
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(fs.list(Path::new("/runs")).unwrap(), Vec::<String>::new());
        }
    }

    #[test]
    fn of_large_values_one_at_a_time_is_in_memory() {
        const MIB: usize = 1 << 20;
        let (fs, memory) = (FaultFs::new(1), Memory::new(0));
        let mut sorter = sorter_of(&fs, memory.clone());
        let value = |at: usize| {
            (!at.is_multiple_of(9)).then(|| vec![at as u8; if at.is_multiple_of(5) { 5 } else { MIB }])
        };
        let mut expected = BTreeMap::new();
        // So many runs that some are made one, and some that have the last change of a key beside others that have an earlier one.
        for at in 0..150 {
            let key = [0, (at % 2) as u8, (at % 70) as u8];
            sorter.push(&key, value(at).as_deref()).unwrap();
            expected.insert(key, value(at));
            assert!(memory.used() < 3 * MIB, "{} bytes after {at}", memory.used());
            if at == 40 {
                sorter.forget([0, 1]);
                expected.retain(|key, _| key[1] != 1);
            }
        }
        assert!(sorter.runs.len() > 20, "{} runs", sorter.runs.len());
        let (mut sorted, mut most) = (sorter.sorted().unwrap(), memory.used());
        for (key, value) in expected {
            assert_eq!((sorted.key(), sorted.value()), (Some(&key[..]), value.as_deref()));
            sorted.advance().unwrap();
            most = most.max(memory.used());
        }
        assert_eq!(sorted.key(), None);
        assert!(most < 3 * MIB, "{most} bytes were held at once");
    }

    #[test]
    fn what_was_not_written_so_is_refused() {
        let fs = FaultFs::new(1);
        let mut sorter = sorter(&fs);
        for key in 0..200_u16 {
            sorter.push(&key.to_be_bytes(), Some(b"some value")).unwrap();
        }
        let name = fs.list(Path::new("/runs")).unwrap().pop().unwrap();
        assert!(fs.flip_bit(&Path::new("/runs").join(name), 50, 3));
        let mut sorted = match sorter.sorted() {
            Ok(sorted) => sorted,
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::InvalidData),
        };
        while sorted.key().is_some() {
            if let Err(error) = sorted.advance() {
                return assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            }
        }
        panic!("the flipped bit was not seen");
    }
}
