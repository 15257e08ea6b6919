//! The nodes of a tree. Leaves have rows in order. Inner nodes say of each child where it is and what is below it.
//!
//! A node never changes. Keys are written without what they have in common with the key before.

use std::sync::{Arc, OnceLock};

pub(super) use super::leaf::{Leaf, RowValue, row_size};
use base::VbId;

use super::{
    bytes::{Input, put_sized, put_varint},
    counts::{Counts, Tally},
    definition::Reducing,
    leaf::{put_key, read_key},
    memory::{Charge, Memory},
    vbs::VbSet,
};
use crate::reduce::{Native, State};

/// Most bytes of reductions by functions that are kept of a child; others are asked for again.
const KEPT_REDUCTIONS_BYTES_MAX: usize = 64 << 10;
/// No tree is higher.
const HEIGHT_MAX: u8 = 40;

/// What a node is.
const LEAF: u8 = 0;
const INNER: u8 = 1;

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
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) vbs: VbSet,
    /// The rows of each vBucket; none for documents. See [`Child::counts`].
    counts: OnceLock<Counts>,
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

impl Child {
    /// About how many bytes it takes in its parent.
    pub(super) fn entry_size(&self) -> usize {
        self.first.len() + 48 + self.summary.counts_held() + self.summary.reduced.len() * State::BYTES
    }
}

impl Child {
    /// The rows of each vBucket below it. Those of a new inner node are added up when a query or a commit asks. So the many changes
    /// before that need not add them up.
    pub(super) fn counts(&self) -> &Counts {
        self.summary.counts.get_or_init(|| {
            let mut tally = Tally::new();
            if let Place::Memory(node) = &self.place
                && let Content::Inner(children) = &node.content
            {
                for child in children {
                    child.counts().iter().for_each(|(vb, rows)| tally.add(vb, rows));
                }
            }
            tally.end().0
        })
    }
}

impl Content {
    pub(super) fn into_node(self, memory: &Arc<Memory>) -> Arc<Node> {
        let bytes = match &self {
            Self::Leaf(leaf) => leaf.held(),
            Self::Inner(children) => children
                .iter()
                .map(|child| {
                    child.first.len()
                        + size_of::<Child>()
                        + size_of::<Summary>()
                        + child.summary.counts_held()
                        + child.summary.reduced.iter().map(Reduced::held).sum::<usize>()
                })
                .sum(),
        };
        Arc::new(Node { content: self, charge: Charge::new(memory, bytes + size_of::<Node>()) })
    }

    /// The bytes of a node, or nothing where a row of it cannot be read.
    pub(super) fn encode(&self, shape: &Shape) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match (self, shape) {
            (Self::Leaf(leaf), Shape::Documents) => {
                out.push(LEAF);
                leaf.put(&mut out);
            }
            (Self::Leaf(leaf), Shape::Rows(_)) => {
                out.push(LEAF);
                leaf.put_rows(&mut out)?;
            }
            (Self::Inner(children), _) => {
                out.push(INNER);
                put_varint(children.len() as u64, &mut out);
                let mut before: &[u8] = &[];
                for child in children {
                    put_key(before, &child.first, &mut out);
                    child.put(shape, &mut out);
                    before = &child.first;
                }
            }
        }
        Some(out)
    }

    pub(super) fn decode(bytes: &[u8], shape: &Shape) -> Option<Self> {
        let mut input = Input(bytes);
        let content = match (input.byte()?, shape) {
            (LEAF, Shape::Documents) => Self::Leaf(Leaf::read(&mut input)?),
            (LEAF, Shape::Rows(_)) => Self::Leaf(Leaf::read_rows(&mut input)?),
            (INNER, _) => {
                let (mut children, mut key) = (Vec::new(), Vec::new());
                for _ in 0..input.length()? {
                    read_key(&mut input, &mut key)?;
                    children.push(Child::read(&key, shape, &mut input)?);
                }
                Self::Inner(children)
            }
            _ => return None,
        };
        let count = match &content {
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(children) => children.len(),
        };
        (count > 0 && input.is_empty()).then_some(content)
    }
}

impl Node {
    pub(super) fn held(&self) -> usize {
        self.charge.bytes()
    }
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
        self.counts().put(out);
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
        let mut summary = Summary { rows, ..Summary::default() };
        if let Shape::Rows(reducing) = shape {
            let (counts, vbs) = Counts::read(input, rows)?;
            (summary.counts, summary.vbs) = (OnceLock::from(counts), vbs);
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
    /// About how many bytes the counts take.
    fn counts_held(&self) -> usize {
        self.counts.get().map_or(self.vbs.len() as usize, Counts::held)
    }

    /// What is in a leaf; nothing where a row of it cannot be read.
    pub(super) fn of_leaf(leaf: &Leaf, shape: &Shape) -> Option<Self> {
        let mut summary = Self { rows: leaf.len() as u64, ..Self::default() };
        let Shape::Rows(reducing) = shape else { return Some(summary) };
        summary.reduced = reducing.iter().map(|reducing| Reduced::new(*reducing)).collect();
        let mut tally = Tally::new();
        let looks_at_values = summary.reduced.iter_mut().fold(false, |looks, reduced| match reduced {
            Reduced::Native(state) if state.kind() == Native::Count => {
                *state = State::of_count(leaf.len() as u64);
                looks
            }
            Reduced::Native(_) => true,
            Reduced::Function(_) => looks,
        });
        for (_, value) in leaf.rows() {
            tally.add(VbId(Input(value).u16()?), 1);
            if !looks_at_values {
                continue;
            }
            let row = RowValue::read(value)?;
            for reduced in &mut summary.reduced {
                if let Reduced::Native(state) = reduced
                    && state.kind() != Native::Count
                {
                    // A row that is no number is left out and counted.
                    let _ = state.add(row.value);
                }
            }
        }
        let (counts, vbs) = tally.end();
        (summary.counts, summary.vbs) = (OnceLock::from(counts), vbs);
        Some(summary)
    }

    /// What is below all of these children.
    pub(super) fn of_children(children: &[Child], shape: &Shape) -> Self {
        let rows = children.iter().fold(0_u64, |rows, child| rows.saturating_add(child.summary.rows));
        let mut summary = Self { rows, ..Self::default() };
        let Shape::Rows(reducing) = shape else { return summary };
        summary.reduced = reducing.iter().map(|reducing| Reduced::new(*reducing)).collect();
        for child in children {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collation::{encode, row_key};

    fn shape() -> Shape {
        let natives = [Native::Count, Native::Sum, Native::Stats].map(Reducing::Native);
        Shape::Rows(natives.into_iter().chain([Reducing::Function(0)]).collect())
    }

    fn leaf(from: usize) -> Leaf {
        let mut leaf = Leaf::default();
        for at in from..from + 5 {
            let text = (at / 2).to_string();
            let (mut encoded, mut place, mut value) = (Vec::new(), Vec::new(), Vec::new());
            encode(&text, &mut encoded).unwrap();
            row_key(&encoded, &format!("d{at:03}"), 0, &mut place);
            RowValue { vb: VbId(at as u16 * 7), key: &text, value: "3" }.put(&mut value);
            leaf.push(&place, &value);
        }
        leaf
    }

    /// A node of three leaves that were written.
    fn inner() -> Content {
        let child = |number: usize| {
            let leaf = leaf(number * 5);
            let summary = Summary::of_leaf(&leaf, &shape()).unwrap();
            if let Some(Reduced::Function(text)) = summary.reduced.last() {
                text.set(Box::from("[15]")).unwrap();
            }
            let place = Place::Disk(Address { segment: 1, offset: number as u64 * 1000, length: 900 });
            let first = Arc::from(leaf.row(0).unwrap().0);
            Child { first, summary: Arc::new(summary), height: 0, size: 900, place }
        };
        Content::Inner((0..3).map(child).collect())
    }

    #[test]
    fn nodes_come_back() {
        for content in [Content::Leaf(leaf(0)), inner()] {
            let bytes = content.encode(&shape()).unwrap();
            let again = Content::decode(&bytes, &shape()).unwrap();
            assert_eq!(again.encode(&shape()).unwrap(), bytes);
            for length in 0..bytes.len() {
                assert!(Content::decode(&bytes[..length], &shape()).is_none(), "cut off at {length}");
            }
            assert!(Content::decode(&[&bytes[..], &[0]].concat(), &shape()).is_none());
        }
        let Content::Inner(children) = inner() else { panic!() };
        let summary = Summary::of_children(&children, &shape());
        let all: VbSet = (0..15).map(|at| VbId(at * 7)).collect();
        assert_eq!((summary.rows, summary.vbs), (15, all));
    }

    #[test]
    fn damaged_nodes_are_refused_or_read() {
        let mut random = fastrand::Rng::with_seed(6);
        let whole = [Content::Leaf(leaf(0)), inner()].map(|content| content.encode(&shape()).unwrap());
        for at in 0..6000 {
            let mut bytes = whole[at % 2].clone();
            for _ in 0..=random.usize(..3) {
                let place = random.usize(..bytes.len());
                bytes[place] = if random.bool() { random.u8(..) } else { bytes[place] ^ 1 << random.u8(..8) };
            }
            for shape in [shape(), Shape::Documents] {
                let Some(content) = Content::decode(&bytes, &shape) else { continue };
                let _ = content.encode(&shape);
                let Content::Inner(children) = &content else { continue };
                let (first, summary) = (Arc::from([]), Summary::of_children(children, &shape));
                let place = Place::Memory(content.into_node(&Memory::new(0)));
                let _ = Child { first, summary: Arc::new(summary), height: 1, size: 0, place }.counts();
            }
        }
    }
}
