//! Changes of a tree: what they touch is made anew, what they do not touch is shared with the tree as it was.
//!
//! New nodes stay in memory until a commit writes them, or until too many are there.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    error::IndexError,
    functions::{Functions, reduction},
    node::{Child, Content, Leaf, Place, Reduced, Shape, Summary, row_size},
    store::Store,
};

/// A node of fewer than this part of the usual bytes is joined with its neighbour.
const SMALL_PART: usize = 4;
/// An inner node has so many children, however long their keys are.
const CHILDREN_MIN: usize = 4;

/// A change: the value that a key has from now on, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

/// Changes trees.
pub(super) struct Editor<'a> {
    pub(super) store: &'a mut Store,
    /// Bytes of nodes that are in memory only.
    pub(super) dirty: &'a mut usize,
    /// With more of them, nodes are written as soon as they are made.
    pub(super) dirty_max: usize,
    /// About how many bytes a node has.
    pub(super) node_bytes: usize,
    pub(super) functions: &'a mut dyn Functions,
}

type Row<'a> = (&'a [u8], &'a [u8]);

impl Editor<'_> {
    /// The tree with these changes, which are in the order of their keys, one for each.
    pub(super) fn apply(
        &mut self,
        root: Option<&Child>,
        changes: &[Change],
        shape: &Shape,
    ) -> Result<Option<Child>, IndexError> {
        let mut children = match root {
            None => self.leaves(&merged(&Leaf::default(), changes), shape)?,
            Some(root) => self.rebuilt(root, changes, shape)?,
        };
        while children.len() > 1 {
            children = self.parents(children, shape)?;
        }
        let mut root = children.pop();
        while let Some(child) = root.as_ref().filter(|child| child.height > 0) {
            let node = self.store.node(child, shape)?;
            let Content::Inner(below) = &node.content else { break };
            let [only] = below.as_slice() else { break };
            let only = only.clone();
            self.release(child);
            root = Some(only);
        }
        Ok(root)
    }

    fn rebuilt(
        &mut self,
        child: &Child,
        changes: &[Change],
        shape: &Shape,
    ) -> Result<Vec<Child>, IndexError> {
        let node = self.store.node(child, shape)?;
        self.release(child);
        let children = match &node.content {
            Content::Leaf(leaf) => return self.leaves(&merged(leaf, changes), shape),
            Content::Inner(children) => children,
        };
        let (mut all, mut rest) = (Vec::with_capacity(children.len() + 8), changes);
        for (at, child) in children.iter().enumerate() {
            let count = match children.get(at + 1) {
                Some(next) => rest.partition_point(|change| change.key.as_slice() < &*next.first),
                None => rest.len(),
            };
            let (mine, others) = rest.split_at(count);
            rest = others;
            if mine.is_empty() {
                all.push(child.clone());
            } else {
                all.extend(self.rebuilt(child, mine, shape)?);
            }
        }
        self.join_small(&mut all, shape)?;
        self.parents(all, shape)
    }

    /// Joins nodes that became small with a neighbour.
    fn join_small(&mut self, children: &mut Vec<Child>, shape: &Shape) -> Result<(), IndexError> {
        let mut at = 0;
        while at < children.len() && children.len() > 1 {
            if children.get(at).is_none_or(|child| child.size as usize >= self.node_bytes / SMALL_PART) {
                at += 1;
                continue;
            }
            let left = at.min(children.len() - 2);
            let pair: Vec<Child> = children.drain(left..left + 2).collect();
            let joined = self.joined(&pair, shape)?;
            at = left + joined.len().saturating_sub(1);
            let one = joined.len() == 1;
            children.splice(left..left, joined);
            if !one {
                at += 1;
            }
        }
        Ok(())
    }

    fn joined(&mut self, pair: &[Child], shape: &Shape) -> Result<Vec<Child>, IndexError> {
        let mut nodes = Vec::with_capacity(pair.len());
        for child in pair {
            nodes.push(self.store.node(child, shape)?);
            self.release(child);
        }
        let (mut rows, mut children): (Vec<Row<'_>>, Vec<Child>) = (Vec::new(), Vec::new());
        for node in &nodes {
            match &node.content {
                Content::Leaf(leaf) => rows.extend(leaf.rows()),
                Content::Inner(below) => children.extend(below.iter().cloned()),
            }
        }
        if children.is_empty() { self.leaves(&rows, shape) } else { self.parents(children, shape) }
    }

    /// Leaves of about the same size with these rows.
    fn leaves(&mut self, rows: &[Row<'_>], shape: &Shape) -> Result<Vec<Child>, IndexError> {
        let sizes: Vec<usize> = rows.iter().map(|(key, value)| row_size(key, value)).collect();
        let mut made = Vec::new();
        let mut rest = rows;
        for count in cuts(&sizes, self.node_bytes, 1) {
            let (part, others) = rest.split_at(count);
            rest = others;
            let Some((first, _)) = part.first() else { continue };
            let mut leaf = Leaf::default();
            let mut size = 0;
            for (key, value) in part {
                leaf.push(key, value);
                size += row_size(key, value);
            }
            let summary =
                Summary::of_leaf(&leaf, shape).ok_or(IndexError::Damaged("a row cannot be read"))?;
            made.push(self.child(Arc::from(*first), summary, 0, size, Content::Leaf(leaf), shape)?);
        }
        Ok(made)
    }

    /// Inner nodes of about the same size above these children.
    fn parents(&mut self, children: Vec<Child>, shape: &Shape) -> Result<Vec<Child>, IndexError> {
        let sizes: Vec<usize> = children.iter().map(Child::entry_size).collect();
        let mut made = Vec::new();
        let mut rest = children.into_iter();
        for count in cuts(&sizes, self.node_bytes, CHILDREN_MIN) {
            let part: Vec<Child> = rest.by_ref().take(count).collect();
            let Some(first) = part.first() else { continue };
            let (key, height) = (first.first.clone(), first.height + 1);
            let size = part.iter().map(Child::entry_size).sum();
            let summary = Summary::of_children(&part, shape);
            made.push(self.child(key, summary, height, size, Content::Inner(part), shape)?);
        }
        Ok(made)
    }

    fn child(
        &mut self,
        first: Arc<[u8]>,
        summary: Summary,
        height: u8,
        size: usize,
        content: Content,
        shape: &Shape,
    ) -> Result<Child, IndexError> {
        let node = content.into_node(&self.store.reader.memory);
        *self.dirty += node.held();
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let child = Child { first, summary: Arc::new(summary), height, size, place: Place::Memory(node) };
        if *self.dirty > self.dirty_max { self.written(&child, shape, &BTreeSet::new()) } else { Ok(child) }
    }

    /// The node of a child belongs to the tree no more.
    fn release(&mut self, child: &Child) {
        match &child.place {
            Place::Memory(node) => *self.dirty = self.dirty.saturating_sub(node.held()),
            Place::Disk(address) => self.store.release(*address),
        }
    }

    /// The same part of the tree, on the disk, and nothing of it in the segments that are given up.
    pub(super) fn written(
        &mut self,
        child: &Child,
        shape: &Shape,
        given_up: &BTreeSet<u32>,
    ) -> Result<Child, IndexError> {
        let moves = match &child.place {
            Place::Memory(_) => true,
            Place::Disk(_) if given_up.is_empty() => return Ok(child.clone()),
            Place::Disk(address) => given_up.contains(&address.segment),
        };
        if let (0, Place::Disk(address)) = (child.height, &child.place) {
            if !moves {
                return Ok(child.clone());
            }
            let place = Place::Disk(self.store.copy(*address)?);
            self.release(child);
            return Ok(Child { place, ..child.clone() });
        }
        let mut node = self.store.node(child, shape)?;
        let mut changed = false;
        if let Content::Inner(below) = &node.content {
            let mut all = Vec::with_capacity(below.len());
            for one in below {
                let new = self.written(one, shape, given_up)?;
                changed |= !is_at(&one.place, &new.place);
                all.push(new);
            }
            if changed {
                node = Content::Inner(all).into_node(&self.store.reader.memory);
            }
        }
        if !moves && !changed {
            return Ok(child.clone());
        }
        self.reduce(child, shape);
        let address = self.store.append(&node, shape)?;
        self.release(child);
        Ok(Child { place: Place::Disk(address), ..child.clone() })
    }

    /// Has functions reduce what is below a child, to be kept beside it. One that fails is asked again by each query.
    fn reduce(&mut self, child: &Child, shape: &Shape) {
        let Shape::Rows(reducing) = shape else { return };
        for (slot, reduced) in child.summary.reduced.iter().enumerate() {
            if matches!(reduced, Reduced::Function(_)) && slot < reducing.len() {
                let _ = self.store.flush();
                let _ = reduction(&self.store.reader, shape, child, slot, self.functions);
            }
        }
    }
}

fn is_at(left: &Place, right: &Place) -> bool {
    matches!((left, right), (Place::Disk(left), Place::Disk(right)) if left == right)
}

/// The rows of a leaf with changes, in order.
fn merged<'a>(leaf: &'a Leaf, changes: &'a [Change]) -> Vec<Row<'a>> {
    let mut rows = Vec::with_capacity(leaf.len() + changes.len());
    let (mut old, mut new) = (leaf.rows().peekable(), changes.iter().peekable());
    loop {
        let next_is_old = match (old.peek(), new.peek()) {
            (Some((key, _)), Some(change)) => *key < change.key.as_slice(),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return rows,
        };
        if next_is_old {
            rows.extend(old.next());
        } else if let Some(change) = new.next() {
            old.next_if(|(key, _)| *key == change.key.as_slice());
            rows.extend(change.value.as_deref().map(|value| (change.key.as_slice(), value)));
        }
    }
}

/// How many things go together, so that each part has about the bytes of a node, and `least` things.
fn cuts(sizes: &[usize], node_bytes: usize, least: usize) -> Vec<usize> {
    let total: usize = sizes.iter().sum();
    let parts = if total <= node_bytes * 3 / 2 { 1 } else { total.div_ceil(node_bytes) };
    let quota = total.div_ceil(parts.max(1));
    let (mut counts, mut bytes, mut count) = (Vec::new(), 0, 0);
    for size in sizes {
        // One more that is too large begins a part of its own.
        if count >= least && bytes + size / 2 > quota {
            counts.push(count);
            (bytes, count) = (0, 0);
        }
        bytes += size;
        count += 1;
    }
    if count > 0 {
        counts.push(count);
    }
    counts
}
