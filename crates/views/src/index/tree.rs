//! Changes of a tree: what they touch is made anew, what they do not touch is shared with the tree as it was.
//!
//! Changes come in the order of their keys, any number of them, and the tree is gone through once beside them. Its nodes are
//! made from the leaves up; of each level no more than two nodes are held open. A tree that was empty is so built in one go.
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
/// An inner node that is cut has so many children in each part, however long their keys are.
const CHILDREN_MIN: usize = 4;

/// Changes of a tree, in the order of their keys, one for each.
pub(super) trait Changes {
    /// The key of the next change.
    fn key(&self) -> Option<&[u8]>;

    /// Takes the next change, whose key had this value before. Says whether it has one from now on, and gives that.
    ///
    /// # Errors
    /// The disk's, or what was there before cannot be read.
    fn take(&mut self, before: Option<&[u8]>, value: &mut Vec<u8>) -> Result<bool, IndexError>;
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

impl Editor<'_> {
    /// The tree with these changes.
    pub(super) fn apply(
        &mut self,
        root: Option<&Child>,
        changes: &mut dyn Changes,
        shape: &Shape,
    ) -> Result<Option<Child>, IndexError> {
        if changes.key().is_none() {
            return Ok(root.cloned());
        }
        let mut builder = Builder {
            editor: self,
            shape,
            leaf: Leaf::default(),
            size: 0,
            levels: Vec::new(),
            scratch: Scratch::default(),
        };
        match root {
            None => builder.rows(&Leaf::default(), None, changes)?,
            Some(root) => builder.part(root, None, changes)?,
        }
        let mut root = builder.end()?;
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
        if *shape != Shape::Documents {
            // They are added up while the node is in memory: once it is written, its counts are told by its parent only.
            child.counts();
        }
        let address = self.store.append(&node, shape)?;
        self.release(child);
        Ok(Child { place: Place::Disk(address), ..child.clone() })
    }

    /// Has functions reduce what is below a child, to be kept beside it, however long that is. The parent is made afterwards, so the
    /// account charges it with that. One that fails is asked again by each query.
    fn reduce(&mut self, child: &Child, shape: &Shape) {
        let Shape::Rows(reducing) = shape else { return };
        for (slot, reduced) in child.summary.reduced.iter().enumerate() {
            if matches!(reduced, Reduced::Function(_)) && slot < reducing.len() {
                let _ = self.store.flush();
                let _ = reduction(&self.store.reader, shape, child, slot, usize::MAX, self.functions);
            }
        }
    }
}

/// Makes a tree from the leaves up.
struct Builder<'a, 'b> {
    editor: &'a mut Editor<'b>,
    shape: &'a Shape,
    /// Rows that no leaf has yet, and about how many bytes these are.
    leaf: Leaf,
    size: usize,
    /// For each height, children of that height that no node has yet.
    levels: Vec<Level>,
    scratch: Scratch,
}

#[derive(Default)]
struct Level {
    children: Vec<Child>,
    size: usize,
}

#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Builder<'_, '_> {
    /// Adds a part of the former tree, whose keys are below the bound, together with the changes whose keys are below it.
    fn part(
        &mut self,
        child: &Child,
        bound: Option<&[u8]>,
        changes: &mut dyn Changes,
    ) -> Result<(), IndexError> {
        let is_touched = is_below(changes.key(), bound);
        if !is_touched && !self.has_small_below(child.height) {
            self.end_below(child.height)?;
            return self.child(child.clone());
        }
        let node = self.editor.store.node(child, self.shape)?;
        self.editor.release(child);
        match &node.content {
            Content::Leaf(leaf) => self.rows(leaf, bound, changes),
            Content::Inner(children) => {
                for (at, child) in children.iter().enumerate() {
                    let next = children.get(at + 1).map(|next| &*next.first);
                    self.part(child, next.or(bound), changes)?;
                }
                Ok(())
            }
        }
    }

    /// Adds the rows of a leaf, with the changes below the bound.
    fn rows(
        &mut self,
        leaf: &Leaf,
        bound: Option<&[u8]>,
        changes: &mut dyn Changes,
    ) -> Result<(), IndexError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut rows = leaf.rows().peekable();
        loop {
            let change = changes.key().filter(|key| is_below(Some(key), bound));
            let Some(key) = change else {
                for (key, value) in rows {
                    self.row(key, value)?;
                }
                break;
            };
            if let Some((old, value)) = rows.next_if(|(old, _)| *old < key) {
                self.row(old, value)?;
                continue;
            }
            scratch.key.clear();
            scratch.key.extend_from_slice(key);
            scratch.value.clear();
            let before = rows.next_if(|(old, _)| *old == scratch.key.as_slice());
            if changes.take(before.map(|(_, value)| value), &mut scratch.value)? {
                self.row(&scratch.key, &scratch.value)?;
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), IndexError> {
        self.leaf.push(key, value);
        self.size += row_size(key, value);
        if self.size < 2 * self.editor.node_bytes || self.leaf.len() < 2 {
            return Ok(());
        }
        let (count, first_size) = self.leaf.part(self.editor.node_bytes);
        let first = self.leaf.take(count);
        self.size -= first_size;
        self.end_leaf(first, first_size)
    }

    fn end_leaf(&mut self, leaf: Leaf, size: usize) -> Result<(), IndexError> {
        let Some((first, _)) = leaf.row(0) else { return Ok(()) };
        let first = Arc::from(first);
        let summary =
            Summary::of_leaf(&leaf, self.shape).ok_or(IndexError::Damaged("a row cannot be read"))?;
        let child = self.editor.child(first, summary, 0, size, Content::Leaf(leaf), self.shape)?;
        self.child(child)
    }

    /// Adds a child of which nothing before is open at lower levels.
    fn child(&mut self, child: Child) -> Result<(), IndexError> {
        let (height, node_bytes) = (usize::from(child.height), self.editor.node_bytes);
        if self.levels.len() <= height {
            self.levels.resize_with(height + 1, Level::default);
        }
        let Some(level) = self.levels.get_mut(height) else { return Ok(()) };
        level.size += child.entry_size();
        level.children.push(child);
        let most = level.children.len().saturating_sub(CHILDREN_MIN);
        if level.size < 2 * node_bytes || most < CHILDREN_MIN {
            return Ok(());
        }
        let (mut count, mut size) = (0, 0);
        for child in level.children.iter().take(most) {
            if count >= CHILDREN_MIN && size >= node_bytes {
                break;
            }
            size += child.entry_size();
            count += 1;
        }
        let part = level.children.drain(..count).collect();
        level.size = level.size.saturating_sub(size);
        self.end_node(part, size)
    }

    fn end_node(&mut self, children: Vec<Child>, size: usize) -> Result<(), IndexError> {
        let Some(first) = children.first() else { return Ok(()) };
        let (key, height) = (first.first.clone(), first.height + 1);
        let summary = Summary::of_children(&children, self.shape);
        let child = self.editor.child(key, summary, height, size, Content::Inner(children), self.shape)?;
        self.child(child)
    }

    fn is_small(&self, size: usize) -> bool {
        size < self.editor.node_bytes / SMALL_PART
    }

    /// Whether something that is open below a height would become a small node.
    fn has_small_below(&self, height: u8) -> bool {
        let mut more = usize::from(self.leaf.len() > 0);
        if more > 0 && self.is_small(self.size) {
            return true;
        }
        for level in self.levels.iter().take(usize::from(height)) {
            let count = level.children.len() + more;
            if count == 0 {
                continue;
            }
            if count < 2 || self.is_small(level.size) {
                return true;
            }
            more = 1;
        }
        false
    }

    /// Makes nodes of what is open below a height.
    fn end_below(&mut self, height: u8) -> Result<(), IndexError> {
        let leaf = self.leaf.take(self.leaf.len());
        let size = std::mem::take(&mut self.size);
        self.end_leaf(leaf, size)?;
        for at in 0..usize::from(height) {
            let level = self.levels.get_mut(at).map(std::mem::take).unwrap_or_default();
            self.end_node(level.children, level.size)?;
        }
        Ok(())
    }

    /// The root of what was added. The last node of each height may be small; it is opened again when something changes in it.
    fn end(mut self) -> Result<Option<Child>, IndexError> {
        self.end_below(0)?;
        let mut at = 0;
        while at + 1 < self.levels.len() || self.levels.get(at).is_some_and(|top| top.children.len() > 1) {
            at += 1;
            self.end_below(at as u8)?;
        }
        Ok(self.levels.pop().and_then(|mut top| top.children.pop()))
    }
}

fn is_below(key: Option<&[u8]>, bound: Option<&[u8]>) -> bool {
    key.is_some_and(|key| bound.is_none_or(|bound| key < bound))
}

fn is_at(left: &Place, right: &Place) -> bool {
    matches!((left, right), (Place::Disk(left), Place::Disk(right)) if left == right)
}

#[cfg(test)]
mod tests;
