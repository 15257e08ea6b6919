//! The nodes of a tree: leaves with rows in order, and inner nodes that say of each child where it is and what is below it.
//!
//! A node never changes. What is written has the keys of a node without what they have in common with their predecessors.

use std::sync::{Arc, OnceLock};

use base::VbId;

use super::{
    bytes::{Input, put_sized, put_varint},
    definition::Reducing,
    memory::{Charge, Memory},
    vbs::VbSet,
};
use crate::reduce::{Native, State};

/// Most bytes of reductions by functions that are kept of a child; others are asked for again.
const KEPT_REDUCTIONS_BYTES_MAX: usize = 64 << 10;
/// No tree is higher.
const HEIGHT_MAX: u8 = 40;

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    charge: Charge,
}

#[derive(Debug)]
pub(super) enum Content {
    Leaf(Leaf),
    Inner(Vec<Child>),
}

/// Rows in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

/// A row: a key from `key` to `value`, and its value from there to the end.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: u32,
    value: u32,
    end: u32,
}

/// A part of a tree.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// The key of its first row.
    pub(super) first: Arc<[u8]>,
    pub(super) summary: Arc<Summary>,
    /// Leaves have zero.
    pub(super) height: u8,
    /// About how many bytes its node has, its keys in full.
    pub(super) size: u32,
    pub(super) place: Place,
}

/// Where a node is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Memory(Arc<Node>),
    Disk(Address),
}

/// Where a node was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// What is below a child.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) vbs: VbSet,
    pub(super) reduced: Vec<Reduced>,
}

/// What rows come to.
#[derive(Debug)]
pub(super) enum Reduced {
    Native(State),
    /// Known once somebody needed it.
    Function(OnceLock<Box<str>>),
}

/// What the rows of a tree are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Documents with the keys of their rows.
    Documents,
    /// Rows of a map function.
    Rows(Vec<Reducing>),
}

/// The value of a row in the tree of a map function.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowValue<'a> {
    pub(super) vb: VbId,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

impl<'a> RowValue<'a> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.vb.get().to_be_bytes());
        put_sized(self.key.as_bytes(), out);
        out.extend_from_slice(self.value.as_bytes());
    }

    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut input = Input(bytes);
        let vb = VbId(input.u16()?);
        let key = input.text()?;
        Some(Self { vb, key, value: std::str::from_utf8(input.0).ok()? })
    }
}

impl Leaf {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.slots.push(Slot { key: start, value: middle, end: self.bytes.len() as u32 });
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The row at a place, or nothing behind the last one.
    pub(super) fn row(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let slot = self.slots.get(at)?;
        let part = |from: u32, to: u32| self.bytes.get(from as usize..to as usize);
        Some((part(slot.key, slot.value)?, part(slot.value, slot.end)?))
    }

    pub(super) fn rows(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        (0..self.len()).filter_map(|at| self.row(at))
    }

    /// How many rows come before `key`.
    pub(super) fn before(&self, key: &[u8]) -> usize {
        self.slots.partition_point(|slot| {
            self.bytes.get(slot.key as usize..slot.value as usize).is_some_and(|known| known < key)
        })
    }
}

/// About how many bytes a row takes in a node.
pub(super) fn row_size(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + 4
}

impl Child {
    /// About how many bytes it takes in its parent.
    pub(super) fn entry_size(&self) -> usize {
        self.first.len() + 48 + self.summary.reduced.len() * State::BYTES
    }
}

impl Content {
    pub(super) fn into_node(self, memory: &Arc<Memory>) -> Arc<Node> {
        let bytes = match &self {
            Self::Leaf(leaf) => leaf.bytes.len() + leaf.len() * size_of::<Slot>(),
            Self::Inner(children) => children
                .iter()
                .map(|child| {
                    child.first.len()
                        + size_of::<Child>()
                        + size_of::<Summary>()
                        + child.summary.reduced.iter().map(Reduced::held).sum::<usize>()
                })
                .sum(),
        };
        Arc::new(Node { content: self, charge: Charge::new(memory, bytes + size_of::<Node>()) })
    }

    pub(super) fn encode(&self, shape: &Shape) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Leaf(leaf) => {
                out.push(0);
                put_varint(leaf.len() as u64, &mut out);
                let mut before: &[u8] = &[];
                for (key, value) in leaf.rows() {
                    put_key(before, key, &mut out);
                    put_sized(value, &mut out);
                    before = key;
                }
            }
            Self::Inner(children) => {
                out.push(1);
                put_varint(children.len() as u64, &mut out);
                let mut before: &[u8] = &[];
                for child in children {
                    put_key(before, &child.first, &mut out);
                    child.put(shape, &mut out);
                    before = &child.first;
                }
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8], shape: &Shape) -> Option<Self> {
        let mut input = Input(bytes);
        let kind = input.byte()?;
        let count = input.length()?;
        let mut key = Vec::new();
        let content = match kind {
            0 => {
                let mut leaf = Leaf::default();
                for _ in 0..count {
                    read_key(&mut input, &mut key)?;
                    leaf.push(&key, input.sized()?);
                }
                Self::Leaf(leaf)
            }
            1 => {
                let mut children = Vec::new();
                for _ in 0..count {
                    read_key(&mut input, &mut key)?;
                    children.push(Child::read(&key, shape, &mut input)?);
                }
                Self::Inner(children)
            }
            _ => return None,
        };
        (count > 0 && input.is_empty()).then_some(content)
    }
}

impl Node {
    pub(super) fn held(&self) -> usize {
        self.charge.bytes()
    }
}

fn put_key(before: &[u8], key: &[u8], out: &mut Vec<u8>) {
    let shared = before.iter().zip(key).take_while(|(left, right)| left == right).count();
    put_varint(shared as u64, out);
    put_sized(key.get(shared..).unwrap_or_default(), out);
}

fn read_key(input: &mut Input<'_>, key: &mut Vec<u8>) -> Option<()> {
    let shared = input.length()?;
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(input.sized()?);
    Some(())
}

impl Child {
    /// Appends a child that was written; its key is told beside it.
    pub(super) fn put(&self, shape: &Shape, out: &mut Vec<u8>) {
        let address = match &self.place {
            Place::Disk(address) => *address,
            // No caller has such a child; what is read there is damaged.
            Place::Memory(_) => Address { segment: 0, offset: 0, length: 0 },
        };
        out.push(self.height);
        out.extend_from_slice(&address.segment.to_be_bytes());
        put_varint(address.offset, out);
        put_varint(u64::from(address.length), out);
        put_varint(u64::from(self.size), out);
        put_varint(self.summary.rows, out);
        if *shape == Shape::Documents {
            return;
        }
        self.summary.vbs.put(out);
        let mut kept = 0;
        for reduced in &self.summary.reduced {
            match reduced {
                Reduced::Native(state) if state.kind() == Native::Count => {}
                Reduced::Native(state) => out.extend_from_slice(&state.to_bytes()),
                Reduced::Function(text) => {
                    let text = text.get().filter(|text| kept + text.len() <= KEPT_REDUCTIONS_BYTES_MAX);
                    kept += text.map_or(0, |text| text.len());
                    out.push(u8::from(text.is_some()));
                    if let Some(text) = text {
                        put_sized(text.as_bytes(), out);
                    }
                }
            }
        }
    }

    pub(super) fn read(first: &[u8], shape: &Shape, input: &mut Input<'_>) -> Option<Self> {
        let height = input.byte()?;
        let address = Address {
            segment: input.u32()?,
            offset: input.varint()?,
            length: u32::try_from(input.varint()?).ok()?,
        };
        let size = u32::try_from(input.varint()?).ok()?;
        let rows = input.varint()?;
        let mut summary = Summary { rows, vbs: VbSet::default(), reduced: Vec::new() };
        if let Shape::Rows(reducing) = shape {
            summary.vbs = VbSet::read(input)?;
            for reducing in reducing {
                summary.reduced.push(Reduced::read(*reducing, rows, input)?);
            }
        }
        let first = Arc::from(first);
        let summary = Arc::new(summary);
        (height <= HEIGHT_MAX).then_some(Self { first, summary, height, size, place: Place::Disk(address) })
    }
}

impl Reduced {
    fn new(reducing: Reducing) -> Self {
        match reducing {
            Reducing::Native(kind) => Self::Native(State::new(kind)),
            Reducing::Function(_) => Self::Function(OnceLock::new()),
        }
    }

    fn read(reducing: Reducing, rows: u64, input: &mut Input<'_>) -> Option<Self> {
        Some(match reducing {
            Reducing::Native(Native::Count) => Self::Native(State::of_count(rows)),
            Reducing::Native(kind) => Self::Native(State::from_bytes(kind, &input.array()?)),
            Reducing::Function(_) => match input.byte()? {
                0 => Self::Function(OnceLock::new()),
                _ => Self::Function(OnceLock::from(Box::from(input.text()?))),
            },
        })
    }

    fn held(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Native(_) => 0,
                Self::Function(text) => text.get().map_or(0, |text| text.len()),
            }
    }
}

impl Summary {
    /// What is in a leaf; nothing where a row of it cannot be read.
    pub(super) fn of_leaf(leaf: &Leaf, shape: &Shape) -> Option<Self> {
        let mut summary = Self { rows: leaf.len() as u64, vbs: VbSet::default(), reduced: Vec::new() };
        let Shape::Rows(reducing) = shape else { return Some(summary) };
        summary.reduced = reducing.iter().map(|reducing| Reduced::new(*reducing)).collect();
        for (_, value) in leaf.rows() {
            let row = RowValue::read(value)?;
            summary.vbs.insert(row.vb);
            for reduced in &mut summary.reduced {
                if let Reduced::Native(state) = reduced {
                    // A row that is no number is left out and counted.
                    let _ = state.add(row.value);
                }
            }
        }
        Some(summary)
    }

    /// What is below all of these children.
    pub(super) fn of_children(children: &[Child], shape: &Shape) -> Self {
        let mut summary = Self { rows: 0, vbs: VbSet::default(), reduced: Vec::new() };
        if let Shape::Rows(reducing) = shape {
            summary.reduced = reducing.iter().map(|reducing| Reduced::new(*reducing)).collect();
        }
        for child in children {
            summary.rows += child.summary.rows;
            summary.vbs.extend(&child.summary.vbs);
            for (all, one) in summary.reduced.iter_mut().zip(&child.summary.reduced) {
                if let (Reduced::Native(all), Reduced::Native(one)) = (all, one) {
                    all.merge(one);
                }
            }
        }
        summary
    }
}
