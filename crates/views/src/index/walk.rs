//! A way through the rows of a tree within a range, in either direction.
//!
//! Where a whole part of the tree lies in the range it is offered as such. What is known of that part need not be read
//! from its rows.

use std::sync::Arc;

use super::{
    error::IndexError,
    node::{Child, Content, Node, Shape},
    store::Reader,
    vbs::VbSet,
};
use crate::query::Range;

/// See the module.
pub(super) struct Walk {
    reader: Reader,
    shape: Shape,
    active: VbSet,
    range: Range,
    descending: bool,
    frames: Vec<Frame>,
    root: Option<Child>,
}

struct Frame {
    node: Arc<Node>,
    /// Items before this one are not done yet where rows come from the end; otherwise items from it on.
    at: usize,
    /// The first key behind the node, where that is known.
    behind: Option<Arc<[u8]>>,
}

/// Says whether a part of the tree that lies in the range is taken whole.
pub(super) type Takes<'a> = dyn FnMut(&Part<'_>) -> bool + 'a;

/// A part of the tree that lies in the range.
pub(super) struct Part<'a> {
    pub(super) child: &'a Child,
    /// The first key behind it, where that is known.
    pub(super) behind: Option<&'a Arc<[u8]>>,
    /// Whether all of its rows are of vBuckets that count.
    pub(super) counts: bool,
}

/// What comes next.
pub(super) enum Piece {
    /// A row of the leaf, at this place.
    Row(Arc<Node>, usize),
    /// Everything below a child lies in the range. Some of its rows are of vBuckets that count.
    Whole(Child),
}

impl Walk {
    pub(super) fn new(
        reader: Reader,
        shape: Shape,
        root: Option<Child>,
        active: VbSet,
        range: Range,
        descending: bool,
    ) -> Self {
        Self { reader, shape, active, range, descending, frames: Vec::new(), root }
    }

    /// The next row or part. Where `takes` declines a part, its rows come.
    pub(super) fn next(&mut self, takes: &mut Takes<'_>) -> Result<Option<Piece>, IndexError> {
        if let Some(root) = self.root.take()
            && let Some(whole) = self.visit(root, None, takes)?
        {
            return Ok(Some(whole));
        }
        while let Some(frame) = self.frames.last_mut() {
            let at = if self.descending { frame.at.checked_sub(1) } else { Some(frame.at) };
            let count = match &frame.node.content {
                Content::Leaf(leaf) => leaf.len(),
                Content::Inner(children) => children.len(),
            };
            let Some(at) = at.filter(|at| *at < count) else {
                self.frames.pop();
                continue;
            };
            frame.at = if self.descending { at } else { at + 1 };
            let node = frame.node.clone();
            match &node.content {
                Content::Leaf(leaf) => {
                    let (key, _) = leaf.row(at).ok_or(IndexError::Damaged("a row is missing"))?;
                    if !self.range.contains(key) {
                        return Ok(self.end());
                    }
                    return Ok(Some(Piece::Row(node, at)));
                }
                Content::Inner(children) => {
                    let next = children.get(at + 1).map(|next| next.first.clone());
                    let behind = next.or_else(|| frame.behind.clone());
                    let child = children.get(at).cloned().ok_or(IndexError::Damaged("a child is missing"))?;
                    if self.is_out(&child, behind.as_ref()) {
                        return Ok(self.end());
                    }
                    if let Some(whole) = self.visit(child, behind, takes)? {
                        return Ok(Some(whole));
                    }
                }
            }
        }
        Ok(None)
    }

    fn end(&mut self) -> Option<Piece> {
        self.frames.clear();
        None
    }

    /// Whether a child and everything behind it, in the direction of the walk, is out of the range.
    fn is_out(&self, child: &Child, behind: Option<&Arc<[u8]>>) -> bool {
        if self.descending {
            behind.is_some_and(|behind| **behind <= *self.range.lower)
        } else {
            self.range.upper.as_deref().is_some_and(|upper| *child.first >= *upper)
        }
    }

    fn visit(
        &mut self,
        child: Child,
        behind: Option<Arc<[u8]>>,
        takes: &mut Takes<'_>,
    ) -> Result<Option<Piece>, IndexError> {
        if child.summary.vbs.is_disjoint(&self.active) {
            return Ok(None);
        }
        let ends_inside = match &self.range.upper {
            None => true,
            Some(upper) => behind.as_deref().is_some_and(|behind| behind <= upper.as_slice()),
        };
        let inside = *child.first >= *self.range.lower && ends_inside;
        if inside {
            let counts = child.summary.vbs.is_subset(&self.active);
            if takes(&Part { child: &child, behind: behind.as_ref(), counts }) {
                return Ok(Some(Piece::Whole(child)));
            }
        }
        let node = self.reader.node(&child, &self.shape)?;
        let at = self.begin(&node);
        self.frames.push(Frame { node, at, behind });
        Ok(None)
    }

    /// Where in a node the range begins, in the direction of the walk.
    fn begin(&self, node: &Node) -> usize {
        match (&node.content, self.descending, &self.range.upper) {
            (Content::Leaf(leaf), false, _) => leaf.before(&self.range.lower),
            (Content::Leaf(leaf), true, Some(upper)) => leaf.before(upper),
            (Content::Leaf(leaf), true, None) => leaf.len(),
            (Content::Inner(children), false, _) => {
                children.partition_point(|child| *child.first <= *self.range.lower).saturating_sub(1)
            }
            (Content::Inner(children), true, Some(upper)) => {
                children.partition_point(|child| *child.first < **upper)
            }
            (Content::Inner(children), true, None) => children.len(),
        }
    }

    /// What the rows are.
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(super) fn active(&self) -> &VbSet {
        &self.active
    }
}
