//! What a commit says: where the trees begin, how far each vBucket is indexed, and which segments there are.
//!
//! It is a file of its own that replaces the one before, so that a crash leaves either. Its checksum covers all of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use base::{Seqno, VbId, VbUuid};
use storage::Fs;

use super::{
    bytes::{Input, put_sized, put_varint},
    definition::Definition,
    error::IndexError,
    node::{Child, Shape},
    store::SegmentUse,
};
use crate::collation::ENCODING;

const MAGIC: &[u8; 8] = b"SettView";
/// The layout of heads and nodes.
const VERSION: u32 = 3;
const NAME: &str = "head";
const NEW_NAME: &str = "head.new";
/// No head is longer.
const BYTES_MAX: u64 = 64 << 20;

/// How far a vBucket is indexed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VbState {
    /// The branch of its history that the last changes were on.
    pub branch: VbUuid,
    /// Everything up to here is indexed.
    pub seqno: Seqno,
    /// Documents that have rows.
    pub documents: u64,
    /// Rows, for each map function.
    pub rows: Vec<u64>,
}

/// What a commit says.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) states: BTreeMap<VbId, VbState>,
    /// vBuckets without a state whose rows are not all removed yet.
    pub(super) leaving: BTreeSet<VbId>,
    pub(super) documents: Option<Child>,
    pub(super) maps: Vec<Option<Child>>,
    pub(super) segments: BTreeMap<u32, SegmentUse>,
    pub(super) next_segment: u32,
}

pub(super) fn shapes(definition: &Definition) -> Vec<Shape> {
    definition.maps.iter().map(|reducing| Shape::Rows(reducing.clone())).collect()
}

impl Head {
    fn encode(&self, definition: &Definition) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_be_bytes());
        put_sized(ENCODING.as_bytes(), &mut out);
        out.extend_from_slice(&definition.signature.0);
        out.extend_from_slice(&self.next_segment.to_be_bytes());
        put_varint(self.segments.len() as u64, &mut out);
        for (id, known) in &self.segments {
            out.extend_from_slice(&id.to_be_bytes());
            put_varint(known.length, &mut out);
            put_varint(known.live, &mut out);
        }
        put_varint(self.states.len() as u64, &mut out);
        for (vb, state) in &self.states {
            out.extend_from_slice(&vb.get().to_be_bytes());
            out.extend_from_slice(&state.branch.get().to_be_bytes());
            put_varint(state.seqno.get(), &mut out);
            put_varint(state.documents, &mut out);
            state.rows.iter().for_each(|rows| put_varint(*rows, &mut out));
        }
        put_varint(self.leaving.len() as u64, &mut out);
        self.leaving.iter().for_each(|vb| out.extend_from_slice(&vb.get().to_be_bytes()));
        put_root(self.documents.as_ref(), &Shape::Documents, &mut out);
        for (root, shape) in self.maps.iter().zip(shapes(definition)) {
            put_root(root.as_ref(), &shape, &mut out);
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out
    }

    fn decode(bytes: &[u8], definition: &Definition) -> Result<Self, IndexError> {
        let damaged = IndexError::Damaged("what the last commit says cannot be read");
        let Some((covered, checksum)) = bytes.split_last_chunk::<4>() else { return Err(damaged) };
        let mut input = Input(covered);
        if input.bytes(MAGIC.len()) != Some(MAGIC) || crc32c::crc32c(covered).to_be_bytes() != *checksum {
            return Err(damaged);
        }
        match input.u32() {
            Some(VERSION) => {}
            other => return Err(IndexError::Outdated(format!("version {other:?}"))),
        }
        if input.text() != Some(ENCODING) {
            return Err(IndexError::Outdated("its keys are ordered by other data".to_owned()));
        }
        if input.array() != Some(definition.signature.0) {
            return Err(IndexError::Outdated("it is of other functions".to_owned()));
        }
        Self::decode_content(&mut input, definition).ok_or(damaged)
    }

    fn decode_content(input: &mut Input<'_>, definition: &Definition) -> Option<Self> {
        let mut head = Self { next_segment: input.u32()?, ..Self::default() };
        for _ in 0..input.varint()? {
            let id = input.u32()?;
            head.segments.insert(id, SegmentUse { length: input.varint()?, live: input.varint()? });
        }
        for _ in 0..input.varint()? {
            let vb = VbId(input.u16()?);
            let mut state = VbState {
                branch: VbUuid(input.u64()?),
                seqno: Seqno(input.varint()?),
                documents: input.varint()?,
                rows: Vec::new(),
            };
            for _ in &definition.maps {
                state.rows.push(input.varint()?);
            }
            head.states.insert(vb, state);
        }
        for _ in 0..input.varint()? {
            head.leaving.insert(VbId(input.u16()?));
        }
        head.documents = read_root(&Shape::Documents, input)?;
        for shape in shapes(definition) {
            head.maps.push(read_root(&shape, input)?);
        }
        input.is_empty().then_some(head)
    }

    /// The head of an index in a directory, or one without anything where nothing was committed yet.
    pub(super) fn read(fs: &dyn Fs, dir: &Path, definition: &Definition) -> Result<Self, IndexError> {
        let file = match fs.open(&dir.join(NAME)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { maps: vec![None; definition.maps.len()], ..Self::default() });
            }
            Err(error) => return Err(error.into()),
        };
        let length = file.length()?;
        if length > BYTES_MAX {
            return Err(IndexError::Damaged("what the last commit says is too long"));
        }
        let mut bytes = vec![0; length as usize];
        let count = file.read_at(&mut bytes, 0).map_err(IndexError::of_read)?;
        bytes.truncate(count);
        Self::decode(&bytes, definition)
    }

    /// Makes this what the index is. Everything that it tells of is durable before.
    pub(super) fn write(&self, fs: &dyn Fs, dir: &Path, definition: &Definition) -> io::Result<()> {
        let new = dir.join(NEW_NAME);
        let file = fs.create(&new)?;
        file.write_at(&self.encode(definition), 0)?;
        file.sync_data()?;
        // The names of new segments become durable with it, and never later than the head that tells of them.
        fs.sync_dir(dir)?;
        fs.rename(&new, &dir.join(NAME))?;
        fs.sync_dir(dir)
    }
}

fn put_root(root: Option<&Child>, shape: &Shape, out: &mut Vec<u8>) {
    out.push(u8::from(root.is_some()));
    if let Some(root) = root {
        put_sized(&root.first, out);
        root.put(shape, out);
    }
}

fn read_root(shape: &Shape, input: &mut Input<'_>) -> Option<Option<Child>> {
    if input.byte()? == 0 {
        return Some(None);
    }
    let first = input.sized()?;
    Child::read(first, shape, input).map(Some)
}
