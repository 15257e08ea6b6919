//! Nodes on the disk: appended to segments, read by address, each with a checksum of its bytes and of where they belong.
//!
//! A segment's file is removed when none of its nodes belongs to the index any more. A reader keeps the files open that it
//! began with, and goes on.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use storage::{Fs, FsFile};

use super::{
    error::IndexError,
    memory::Memory,
    node::{Address, Child, Content, Node, Place, Shape},
    packed::{Packer, unpack},
    runs::is_run,
};

/// So many bytes are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Before the bytes of a node: their checksum.
const HEAD_BYTES: usize = 4;
/// No node has more.
const NODE_BYTES_MAX: usize = 1 << 30;
const SUFFIX: &str = ".segment";
/// The segment that nodes are appended to is given up as others are once it has so many bytes. Of a small index it is the only one.
const SEALED_BYTES_MIN: u64 = 1 << 20;

type File = Arc<Box<dyn FsFile>>;

/// Reads nodes.
#[derive(Clone)]
pub(super) struct Reader {
    index: u64,
    files: Arc<BTreeMap<u32, File>>,
    pub(super) memory: Arc<Memory>,
}

/// What is known of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentUse {
    /// Bytes that were written.
    pub(super) length: u64,
    /// Bytes of nodes that belong to the index.
    pub(super) live: u64,
}

/// The segments of an index.
pub(super) struct Store {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// A segment gets no more nodes when it has so many bytes.
    segment_bytes: u64,
    pub(super) reader: Reader,
    pub(super) segments: BTreeMap<u32, SegmentUse>,
    pub(super) next_segment: u32,
    current: Option<Current>,
    /// Files that have bytes which were not synced.
    unsynced: Vec<File>,
    /// Bytes that were written since the store was opened.
    pub(super) written: u64,
    packer: Packer,
}

struct Current {
    id: u32,
    file: File,
    flushed: u64,
    buffer: Vec<u8>,
}

fn name(segment: u32) -> String {
    format!("{segment:08x}{SUFFIX}")
}

/// The number of the segment whose file has this name.
fn number(name: &str) -> Option<u32> {
    u32::from_str_radix(name.strip_suffix(SUFFIX)?, 16).ok()
}

fn checksum(segment: u32, offset: u64, bytes: &[u8]) -> u32 {
    let seed = crc32c::crc32c(&segment.to_be_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &offset.to_be_bytes()), bytes)
}

impl Reader {
    /// The number of this opening of the index.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// The node of a child.
    pub(super) fn node(&self, child: &Child, shape: &Shape) -> Result<Arc<Node>, IndexError> {
        match &child.place {
            Place::Memory(node) => Ok(node.clone()),
            Place::Disk(address) => self.load(*address, child.height, shape),
        }
    }

    fn load(&self, address: Address, height: u8, shape: &Shape) -> Result<Arc<Node>, IndexError> {
        let place = (self.index, address.segment, address.offset);
        if let Some(node) = self.memory.find(place) {
            return Ok(node);
        }
        let bytes = self.bytes(address)?;
        let content = unpack(bytes.get(HEAD_BYTES..).unwrap_or_default())
            .and_then(|payload| Content::decode(&payload, shape))
            .ok_or(IndexError::Damaged("a node cannot be read"))?;
        let fits = match &content {
            Content::Leaf(_) => height == 0,
            Content::Inner(children) => children.iter().all(|child| child.height + 1 == height),
        };
        if !fits {
            return Err(IndexError::Damaged("a node is not of the height that it has to be of"));
        }
        let node = content.into_node(&self.memory);
        self.memory.keep(place, node.clone());
        Ok(node)
    }

    /// The bytes of a node and its checksum.
    fn bytes(&self, address: Address) -> Result<Vec<u8>, IndexError> {
        let file = self.files.get(&address.segment).ok_or(IndexError::Damaged("a segment is missing"))?;
        let length = address.length as usize;
        if !(HEAD_BYTES..=NODE_BYTES_MAX).contains(&length) {
            return Err(IndexError::Damaged("a node has an impossible length"));
        }
        let mut bytes = vec![0; length];
        if file.read_at(&mut bytes, address.offset).map_err(IndexError::of_read)? < length {
            return Err(IndexError::Damaged("a segment is too short"));
        }
        let (head, payload) = bytes.split_at(HEAD_BYTES);
        if head != checksum(address.segment, address.offset, payload).to_be_bytes() {
            return Err(IndexError::Damaged("the checksum of a node does not match"));
        }
        Ok(bytes)
    }
}

impl Store {
    /// Opens the segments that a commit tells of, and removes other ones.
    pub(super) fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        memory: Arc<Memory>,
        (segments, next_segment): (BTreeMap<u32, SegmentUse>, u32),
        segment_bytes: u64,
    ) -> Result<Self, IndexError> {
        let mut last = next_segment;
        for name in fs.list(dir)? {
            if is_run(&name) {
                fs.remove(&dir.join(&name))?;
            }
            let Some(number) = number(&name) else { continue };
            if !segments.contains_key(&number) {
                fs.remove(&dir.join(&name))?;
                last = last.max(number.saturating_add(1));
            }
        }
        let mut files = BTreeMap::new();
        for (id, known) in &segments {
            let file = match fs.open(&dir.join(name(*id))) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(IndexError::Damaged("a segment is missing"));
                }
                Err(error) => return Err(error.into()),
            };
            if file.length()? < known.length {
                return Err(IndexError::Damaged("a segment is too short"));
            }
            files.insert(*id, Arc::new(file));
        }
        let reader = Reader { index: memory.next_index(), files: Arc::new(files), memory };
        Ok(Self {
            fs,
            dir: dir.to_owned(),
            segment_bytes,
            reader,
            segments,
            next_segment: last,
            current: None,
            unsynced: Vec::new(),
            written: 0,
            packer: Packer::new(),
        })
    }

    /// The node of a child, also where it is still in the buffer.
    pub(super) fn node(&mut self, child: &Child, shape: &Shape) -> Result<Arc<Node>, IndexError> {
        if let (Place::Disk(address), Some(current)) = (&child.place, &self.current)
            && address.segment == current.id
            && address.offset >= current.flushed
        {
            self.flush()?;
        }
        self.reader.node(child, shape)
    }

    /// Appends a node.
    pub(super) fn append(&mut self, node: &Arc<Node>, shape: &Shape) -> Result<Address, IndexError> {
        let content = node.content.encode(shape).ok_or(IndexError::Damaged("a row cannot be read"))?;
        let mut payload = Vec::new();
        self.packer.pack(&content, &mut payload)?;
        let address = self.append_bytes(&payload)?;
        self.reader.memory.keep((self.reader.index, address.segment, address.offset), node.clone());
        Ok(address)
    }

    /// Appends the node at an address once more; its bytes are checked, not read.
    pub(super) fn copy(&mut self, address: Address) -> Result<Address, IndexError> {
        let bytes = self.reader.bytes(address)?;
        self.append_bytes(bytes.get(HEAD_BYTES..).unwrap_or_default())
    }

    fn append_bytes(&mut self, payload: &[u8]) -> Result<Address, IndexError> {
        let length = u32::try_from(payload.len() + HEAD_BYTES)
            .ok()
            .filter(|length| *length as usize <= NODE_BYTES_MAX)
            .ok_or(io::Error::from(io::ErrorKind::FileTooLarge))?;
        if self
            .current
            .as_ref()
            .is_none_or(|current| current.flushed + current.buffer.len() as u64 >= self.segment_bytes)
        {
            self.begin_segment()?;
        }
        let Some(current) = &mut self.current else { return Err(IndexError::Unusable) };
        let (segment, offset) = (current.id, current.flushed + current.buffer.len() as u64);
        current.buffer.extend_from_slice(&checksum(segment, offset, payload).to_be_bytes());
        current.buffer.extend_from_slice(payload);
        let full = current.buffer.len() >= BUFFER_BYTES;
        let known = self.segments.entry(segment).or_default();
        known.length += u64::from(length);
        known.live += u64::from(length);
        self.written += u64::from(length);
        if full {
            self.flush()?;
        }
        Ok(Address { segment, offset, length })
    }

    fn begin_segment(&mut self) -> Result<(), IndexError> {
        self.flush()?;
        let id = self.next_segment;
        self.next_segment = id.checked_add(1).ok_or(IndexError::Damaged("all segments are used up"))?;
        let file: File = Arc::new(self.fs.create(&self.dir.join(name(id)))?);
        let mut files = (*self.reader.files).clone();
        files.insert(id, file.clone());
        self.reader.files = Arc::new(files);
        self.unsynced.push(file.clone());
        self.segments.insert(id, SegmentUse::default());
        self.current = Some(Current { id, file, flushed: 0, buffer: Vec::new() });
        Ok(())
    }

    /// What is appended from now on goes into another segment.
    pub(super) fn seal(&mut self) -> Result<(), IndexError> {
        self.flush()?;
        self.current = None;
        Ok(())
    }

    /// Writes what is in the buffer, so that every reader finds it.
    pub(super) fn flush(&mut self) -> Result<(), IndexError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.buffer.is_empty() {
            return Ok(());
        }
        current.file.write_at(&current.buffer, current.flushed)?;
        current.flushed += current.buffer.len() as u64;
        current.buffer.clear();
        if !self.unsynced.iter().any(|file| Arc::ptr_eq(file, &current.file)) {
            self.unsynced.push(current.file.clone());
        }
        Ok(())
    }

    /// Makes everything that was appended durable.
    pub(super) fn sync(&mut self) -> Result<(), IndexError> {
        self.flush()?;
        for file in std::mem::take(&mut self.unsynced) {
            file.sync_data()?;
        }
        Ok(())
    }

    /// A node belongs to the index no more.
    pub(super) fn release(&mut self, address: Address) {
        if let Some(known) = self.segments.get_mut(&address.segment) {
            known.live = known.live.saturating_sub(u64::from(address.length));
        }
    }

    /// Segments that a commit no longer needs.
    pub(super) fn dead(&self) -> Vec<u32> {
        let current = self.current.as_ref().map(|current| current.id);
        let dead = self.segments.iter().filter(|(id, known)| known.live == 0 && Some(**id) != current);
        dead.map(|(id, _)| *id).collect()
    }

    /// Removes the files of segments that no commit tells of any more. A file that stays is removed when the index is opened.
    pub(super) fn remove(&mut self, dead: &[u32]) {
        if dead.is_empty() {
            return;
        }
        let mut files = (*self.reader.files).clone();
        for id in dead {
            files.remove(id);
            self.segments.remove(id);
            let _ = self.fs.remove(&self.dir.join(name(*id)));
        }
        self.reader.files = Arc::new(files);
    }

    /// Bytes on the disk, and those of them that belong to the index.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.segments.values().fold((0, 0), |(all, live), known| (all + known.length, live + known.live))
    }

    /// Segments whose nodes are worth writing anew, so that less than a quarter of the disk's bytes is of no use. They have
    /// at most `live_max` bytes to be written, or are a single one. Nothing more is appended to them.
    pub(super) fn victims(&mut self, live_max: u64) -> Result<Vec<u32>, IndexError> {
        let (all, live) = self.bytes();
        let current = self.current.as_ref().map(|current| current.id);
        let mut excess = (all - live).saturating_sub(all / 4);
        let is_open = |id: &u32, known: &SegmentUse| Some(*id) == current && known.length < SEALED_BYTES_MIN;
        let mut candidates: Vec<_> = self
            .segments
            .iter()
            .filter(|(id, known)| !is_open(id, known) && known.live > 0 && known.live * 4 < known.length * 3)
            .collect();
        candidates.sort_by_key(|(_, known)| known.live * 1000 / known.length.max(1));
        let (mut chosen, mut moved) = (Vec::new(), 0);
        // Segments without any live node go for nothing.
        excess = excess.saturating_sub(
            self.segments.values().filter(|known| known.live == 0).map(|known| known.length).sum(),
        );
        for (id, known) in candidates {
            if excess == 0 {
                break;
            }
            // The first one is taken however large it is: otherwise large segments would never be given up.
            if !chosen.is_empty() && moved + known.live > live_max {
                continue;
            }
            excess = excess.saturating_sub(known.length - known.live);
            moved += known.live;
            chosen.push(*id);
        }
        let is_worn_out = |id: &u32| {
            self.segments.get(id).is_some_and(|known| known.live == 0 && known.length >= SEALED_BYTES_MIN)
        };
        if current.is_some_and(|current| chosen.contains(&current) || is_worn_out(&current)) {
            self.seal()?;
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use storage::FaultFs;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn victims(segments: &[(u64, u64)], live_max: u64) -> Vec<u32> {
        let fs = Arc::new(FaultFs::new(1));
        fs.create_dir_all(Path::new("/index")).unwrap();
        let nothing = (BTreeMap::new(), 0);
        let mut store = Store::open(fs, Path::new("/index"), Memory::new(0), nothing, 32 * MIB).unwrap();
        let known = segments.iter().map(|(length, live)| SegmentUse { length: *length, live: *live });
        store.segments = (0..).zip(known).collect();
        store.victims(live_max).unwrap()
    }

    #[test]
    fn segments_are_given_up_however_large_they_are() {
        let half = [(32 * MIB, 18 * MIB); 10];
        assert_eq!(victims(&half, 16 * MIB), [0]);
        assert_eq!(victims(&half, 40 * MIB), [0, 1]);
        // One that is too large does not keep a smaller one behind it from being chosen.
        let mixed =
            [(32 * MIB, 18 * MIB), (32 * MIB, 20 * MIB), (8 * MIB, 6 * MIB - 1), (32 * MIB, 18 * MIB + 1)];
        assert_eq!(victims(&mixed, 24 * MIB), [0, 2]);
        assert_eq!(victims(&[(32 * MIB, 25 * MIB); 10], 16 * MIB), [0_u32; 0]);
    }
}
