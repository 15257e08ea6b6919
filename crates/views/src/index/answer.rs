//! What a node answers to a query: rows, or groups with what their rows come to, one by one in the order of the query.
//!
//! Memory does not depend on how much is asked for: a way down the tree, and one row or group.

use base::VbId;

use super::{
    Snapshot, ViewPlace,
    definition::Reducing,
    error::IndexError,
    functions::{Collector, Functions, KEPT_BY_QUERIES_BYTES_MAX, reduction},
    node::{Child, Content, Reduced, RowValue, Shape},
    vbs::VbSet,
    walk::{Part, Piece, Walk},
};
use crate::{
    collation::{group_prefix, group_text, split_row_key},
    query::{Grouping, Query},
    reduce::{Native, State},
};

/// A row of a map function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place in the order of rows: encoded key, document, ordinal.
    pub place: Vec<u8>,
    /// The vBucket of the document.
    pub vb: VbId,
    /// The document.
    pub docid: String,
    /// The text of its key.
    pub key: String,
    /// The text of its value.
    pub value: String,
}

/// A group of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The place of its first row in the order of the query.
    pub place: Vec<u8>,
    /// The text of its key, `null` where all rows are one group.
    pub key: String,
    /// What its rows come to on this node.
    pub partial: Partial,
}

/// What rows come to, to be put together with others.
#[derive(Clone, Debug, PartialEq)]
pub enum Partial {
    /// By a built-in reduction.
    Native(State),
    /// By the function of this number: its result.
    Function(usize, String),
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A row, where the query does not reduce.
    Row(Row),
    /// A group, where it does.
    Group(Group),
}

impl Item {
    /// Where it stands in the order of rows.
    #[must_use]
    pub fn place(&self) -> &[u8] {
        match self {
            Self::Row(row) => &row.place,
            Self::Group(group) => &group.place,
        }
    }
}

/// A node's answer to a query. See the module.
pub struct Answer {
    snapshot: Snapshot,
    map: usize,
    reduction: Option<(usize, Reducing)>,
    query: Query,
    active: VbSet,
    /// The number of the next range.
    range: usize,
    walk: Option<Walk>,
    /// The group that was begun.
    open: Option<Open>,
    /// Rows to be passed by.
    skip: u64,
    left: u64,
}

struct Open {
    place: Vec<u8>,
    key: String,
    decides: Vec<u8>,
    sum: Sum,
}

enum Sum {
    Native(State),
    Function(Collector),
}

impl Snapshot {
    /// Answers a query of a view over these vBuckets. Of the query count ranges, direction, grouping and how many items
    /// are asked for. Nothing is skipped, since only the node that puts answers together knows what to skip.
    ///
    /// # Errors
    /// The index has no such view, or the query reduces one that has no reduction.
    pub fn query(&self, view: ViewPlace, query: &Query, active: &VbSet) -> Result<Answer, IndexError> {
        let reducing = self.0.definition.maps.get(view.map).ok_or(IndexError::NoSuchView)?;
        let reduction = match (query.grouping, view.reduction) {
            (None, _) => None,
            (Some(_), Some(slot)) => Some((slot, *reducing.get(slot).ok_or(IndexError::NoSuchView)?)),
            (Some(_), None) => return Err(IndexError::NoSuchView),
        };
        Ok(Answer {
            snapshot: self.clone(),
            map: view.map,
            reduction,
            query: query.clone(),
            active: active.intersection(&self.0.vbuckets),
            range: 0,
            walk: None,
            open: None,
            skip: 0,
            left: query.skip.saturating_add(query.limit),
        })
    }
}

impl Answer {
    /// How many rows the map function has in the vBuckets that were asked for, in the query's ranges or not.
    #[must_use]
    pub fn total_rows(&self) -> u64 {
        self.snapshot.total_rows(self.map, &self.active)
    }

    /// Passes by the next rows of a query that does not reduce. Of rows that lie together it needs only their number, so this takes
    /// about as long as finding one row. For the only answer to a query, whose reader then skips nothing itself.
    ///
    /// Says how many items the reader still has to skip.
    pub fn skip(&mut self, rows: u64) -> u64 {
        if self.reduction.is_some() {
            return rows;
        }
        self.skip = self.skip.saturating_add(rows);
        self.left = self.left.saturating_sub(rows);
        0
    }

    /// The next item, and which range of the query it is of. `functions` reduce where the view has a function for that.
    ///
    /// # Errors
    /// The disk's; the index is damaged; or a function failed. Nothing comes after an error.
    pub fn next(&mut self, functions: &mut dyn Functions) -> Result<Option<(usize, Item)>, IndexError> {
        if self.left == 0 {
            return Ok(None);
        }
        let next = self.advance(functions);
        match &next {
            Ok(Some(_)) => self.left -= 1,
            _ => self.left = 0,
        }
        next
    }

    fn advance(&mut self, functions: &mut dyn Functions) -> Result<Option<(usize, Item)>, IndexError> {
        loop {
            let Some(mut walk) = self.walk.take().or_else(|| self.begin_range()) else { return Ok(None) };
            let range = self.range - 1;
            let item = match self.reduction {
                None => next_row(&mut walk, &mut self.skip)?.map(Item::Row),
                Some(reduction) => self.next_group(&mut walk, reduction, functions)?.map(Item::Group),
            };
            if let Some(item) = item {
                self.walk = Some(walk);
                return Ok(Some((range, item)));
            }
        }
    }

    fn begin_range(&mut self) -> Option<Walk> {
        let range = self.query.ranges.get(self.range)?.clone();
        self.range += 1;
        let of = &self.snapshot.0;
        Some(Walk::new(
            of.reader.clone(),
            of.shapes.get(self.map)?.clone(),
            of.roots.get(self.map)?.clone(),
            self.active,
            range,
            self.query.descending,
        ))
    }

    fn next_group(
        &mut self,
        walk: &mut Walk,
        (slot, reducing): (usize, Reducing),
        functions: &mut dyn Functions,
    ) -> Result<Option<Group>, IndexError> {
        let grouping = self.query.grouping.unwrap_or(Grouping::All);
        loop {
            let open = self.open.as_ref().filter(|open| open.counts(grouping));
            let open = open.map(|open| open.decides.as_slice());
            // How many rows each vBucket has is known everywhere; what else they come to, for all vBuckets together.
            let counted = matches!(reducing, Reducing::Native(Native::Count));
            let piece =
                walk.next(&mut |part| (part.counts || counted) && is_one_group(grouping, open, part))?;
            let Some(piece) = piece else {
                let open = self.open.take().filter(|open| open.counts(grouping));
                return open.map(|open| open.end(functions)).transpose();
            };
            let (node, at) = match piece {
                Piece::Whole(child) => {
                    let open = self.open.get_or_insert_with(|| Open::all(reducing));
                    open.add_whole(walk, &child, slot, functions)?;
                    continue;
                }
                Piece::Row(node, at) => (node, at),
            };
            let Content::Leaf(leaf) = &node.content else { continue };
            let (place, value) = leaf.row(at).ok_or(IndexError::Damaged("a row is missing"))?;
            let row = RowValue::read(value).ok_or(IndexError::Damaged("a row cannot be read"))?;
            if !walk.active().contains(row.vb) {
                continue;
            }
            let decides = decides(grouping, place);
            let open = self.open.as_mut().filter(|open| open.decides == decides && open.counts(grouping));
            if let Some(open) = open {
                open.add(&row, functions)?;
                continue;
            }
            let mut next = Open::new(reducing, grouping, place, decides, &row);
            next.add(&row, functions)?;
            if let Some(ended) = self.open.replace(next).filter(|open| open.counts(grouping)) {
                return ended.end(functions).map(Some);
            }
        }
    }
}

/// The bytes of a row that decide its group.
fn decides(grouping: Grouping, place: &[u8]) -> &[u8] {
    let level = match grouping {
        Grouping::All => return &[],
        Grouping::Level(level) => level,
        Grouping::Exact => u64::MAX,
    };
    group_prefix(place, level).unwrap_or(place)
}

/// Whether all rows below a child are of the group that was begun. The first row of a group is always read, for its key.
fn is_one_group(grouping: Grouping, open: Option<&[u8]>, part: &Part<'_>) -> bool {
    if grouping == Grouping::All {
        return true;
    }
    let (Some(open), Some(behind)) = (open, part.behind) else { return false };
    decides(grouping, &part.child.first) == open && decides(grouping, behind) == open
}

/// Passes by rows that are skipped, and gives the next one.
fn next_row(walk: &mut Walk, skip: &mut u64) -> Result<Option<Row>, IndexError> {
    loop {
        let (active, most) = (*walk.active(), *skip);
        let piece = walk.next(&mut |part| most > 0 && part.child.counts().of(&active) <= most)?;
        let (node, at) = match piece {
            None => return Ok(None),
            Some(Piece::Whole(child)) => {
                *skip -= child.counts().of(&active);
                continue;
            }
            Some(Piece::Row(node, at)) => (node, at),
        };
        let Content::Leaf(leaf) = &node.content else { continue };
        let (place, value) = leaf.row(at).ok_or(IndexError::Damaged("a row is missing"))?;
        let row = RowValue::read(value).ok_or(IndexError::Damaged("a row cannot be read"))?;
        if active.contains(row.vb) {
            if *skip > 0 {
                *skip -= 1;
                continue;
            }
            let split =
                split_row_key(place).ok_or(IndexError::Damaged("the place of a row cannot be read"))?;
            return Ok(Some(Row {
                place: place.to_vec(),
                vb: row.vb,
                docid: split.docid,
                key: row.key.to_owned(),
                value: row.value.to_owned(),
            }));
        }
    }
}

impl Sum {
    fn new(reducing: Reducing) -> Self {
        match reducing {
            Reducing::Native(kind) => Self::Native(State::new(kind)),
            Reducing::Function(function) => Self::Function(Collector::new(function)),
        }
    }
}

impl Open {
    /// The group of all rows.
    fn all(reducing: Reducing) -> Self {
        Self { place: Vec::new(), key: "null".to_owned(), decides: Vec::new(), sum: Sum::new(reducing) }
    }

    fn new(reducing: Reducing, grouping: Grouping, place: &[u8], decides: &[u8], row: &RowValue<'_>) -> Self {
        let key = match grouping {
            Grouping::All => return Self::all(reducing),
            Grouping::Exact => row.key.to_owned(),
            Grouping::Level(level) => group_text(row.key, level),
        };
        Self { place: place.to_vec(), key, decides: decides.to_vec(), sum: Sum::new(reducing) }
    }

    /// Whether it is a group so far. Rows that the reduction leaves out make none: a query neither skips it, nor is it one of those that
    /// a limit allows.
    fn counts(&self, grouping: Grouping) -> bool {
        match &self.sum {
            Sum::Native(state) => state.count() > 0 || grouping == Grouping::All,
            Sum::Function(_) => true,
        }
    }

    fn add(&mut self, row: &RowValue<'_>, functions: &mut dyn Functions) -> Result<(), IndexError> {
        match &mut self.sum {
            Sum::Native(state) => {
                // A row that is no number is left out and counted.
                let _ = state.add(row.value);
                Ok(())
            }
            Sum::Function(collector) => collector.row(row, functions),
        }
    }

    fn add_whole(
        &mut self,
        walk: &Walk,
        child: &Child,
        slot: usize,
        functions: &mut dyn Functions,
    ) -> Result<(), IndexError> {
        let shape: &Shape = walk.shape();
        match (&mut self.sum, child.summary.reduced.get(slot)) {
            (Sum::Native(state), _) if !child.summary.vbs.is_subset(walk.active()) => {
                state.merge(&State::of_count(child.counts().of(walk.active())));
                Ok(())
            }
            (Sum::Native(state), Some(Reduced::Native(known))) => {
                state.merge(known);
                Ok(())
            }
            (Sum::Function(collector), _) => {
                let kept_max = KEPT_BY_QUERIES_BYTES_MAX;
                let part = reduction(walk.reader(), shape, child, slot, kept_max, functions)?;
                collector.part(part, functions)
            }
            _ => Err(IndexError::NoSuchView),
        }
    }

    fn end(self, functions: &mut dyn Functions) -> Result<Group, IndexError> {
        let partial = match self.sum {
            Sum::Native(state) => Partial::Native(state),
            Sum::Function(collector) => {
                let function = collector.function();
                let text = collector.end(functions)?;
                Partial::Function(function, text.ok_or(IndexError::Damaged("a group has no rows"))?)
            }
        };
        Ok(Group { place: self.place, key: self.key, partial })
    }
}
