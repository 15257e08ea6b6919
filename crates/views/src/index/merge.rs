//! The answers of several nodes put together, as they come.
//!
//! Rows come in the order of the query. Groups that several nodes have are put together, by collation. What is held is the
//! next item of each node, and one group. A node that fails is named at the end; what the others have comes all the same, unless the query
//! says that it ends there.

use std::cmp::Ordering;

use super::{
    answer::{Answer, Group, Item, Partial, Row},
    error::IndexError,
    functions::Functions,
};
use crate::{
    collation::group_prefix,
    query::{Grouping, OnError, Query},
};

/// Partial results of a group that are reduced again at once.
const PARTS_MAX: usize = 64;

/// The answer of one node.
pub trait Source {
    /// The next item and the number of its range; nothing at the end.
    ///
    /// # Errors
    /// What the client is told. The source is asked no more then.
    fn next(&mut self, functions: &mut dyn Functions) -> Result<Option<(usize, Item)>, String>;
}

impl Source for Answer {
    fn next(&mut self, functions: &mut dyn Functions) -> Result<Option<(usize, Item)>, String> {
        Self::next(self, functions).map_err(|error: IndexError| error.to_string())
    }
}

/// Answers that are put together. See the module.
pub struct Merge<S> {
    sources: Vec<Branch<S>>,
    grouping: Option<Grouping>,
    descending: bool,
    on_error: OnError,
    skip: u64,
    left: u64,
    errors: Vec<SourceError>,
}

struct Branch<S> {
    /// What errors of it are told to be from.
    name: String,
    source: S,
    next: Next,
}

enum Next {
    Unknown,
    Item(usize, Item),
    End,
}

/// An error of a source: where it is from, and what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// The name of the source.
    pub from: String,
    /// What happened.
    pub reason: String,
}

/// A part of the whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergedRow {
    /// A row, and the number of its source.
    Row(Row, usize),
    /// The texts of the key and the value of a group.
    Group {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
}

impl<S: Source> Merge<S> {
    /// Puts together answers to a query, each with what errors of it are told to be from.
    pub fn new(query: &Query, sources: impl IntoIterator<Item = (String, S)>) -> Self {
        let branch = |(name, source)| Branch { name, source, next: Next::Unknown };
        Self {
            sources: sources.into_iter().map(branch).collect(),
            grouping: query.grouping,
            descending: query.descending,
            on_error: query.on_error,
            skip: query.skip,
            left: query.limit,
            errors: Vec::new(),
        }
    }

    /// The errors so far, to be told behind the rows.
    #[must_use]
    pub fn errors(&self) -> &[SourceError] {
        &self.errors
    }

    /// The next row or group. `functions` reduce where the view has a function for that.
    pub fn next(&mut self, functions: &mut dyn Functions) -> Option<MergedRow> {
        while self.left > 0 {
            self.fill(functions);
            if self.on_error == OnError::Stop && !self.errors.is_empty() {
                break;
            }
            let first = self.first()?;
            let Some((range, item)) = self.take(first) else { continue };
            let row = match item {
                Item::Row(row) => Some(MergedRow::Row(row, first)),
                Item::Group(group) => match self.group(range, first, group, functions) {
                    Ok(group) => group,
                    // The reduction of a group failed: nothing can be said of it.
                    Err(error) => {
                        self.errors.push(error);
                        continue;
                    }
                },
            };
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            if row.is_some() {
                return row;
            }
        }
        self.left = 0;
        None
    }

    /// Asks each source for its next item.
    fn fill(&mut self, functions: &mut dyn Functions) {
        for branch in &mut self.sources {
            if !matches!(branch.next, Next::Unknown) {
                continue;
            }
            branch.next = match branch.source.next(functions) {
                Ok(Some((range, item))) => Next::Item(range, item),
                Ok(None) => Next::End,
                Err(reason) => {
                    self.errors.push(SourceError { from: branch.name.clone(), reason });
                    Next::End
                }
            };
        }
    }

    /// The source whose item comes first.
    fn first(&self) -> Option<usize> {
        let items = self.sources.iter().enumerate().filter_map(|(at, branch)| match &branch.next {
            Next::Item(range, item) => Some((at, *range, item.place())),
            _ => None,
        });
        items
            .min_by(|(_, left_range, left), (_, right_range, right)| {
                let order = left.cmp(right);
                left_range.cmp(right_range).then(if self.descending { order.reverse() } else { order })
            })
            .map(|(at, ..)| at)
    }

    fn take(&mut self, at: usize) -> Option<(usize, Item)> {
        let branch = self.sources.get_mut(at)?;
        match std::mem::replace(&mut branch.next, Next::Unknown) {
            Next::Item(range, item) => Some((range, item)),
            other => {
                branch.next = other;
                None
            }
        }
    }

    /// The whole of a group: what other sources have of it is taken, too. Nothing where none of its rows can be reduced.
    fn group(
        &mut self,
        range: usize,
        first: usize,
        group: Group,
        functions: &mut dyn Functions,
    ) -> Result<Option<MergedRow>, SourceError> {
        let Group { place, key, partial } = group;
        let mut parts = Vec::new();
        let (mut native, function) = match partial {
            Partial::Native(state) => (Some(state), None),
            Partial::Function(function, text) => {
                parts.push(text);
                (None, Some(function))
            }
        };
        for at in (0..self.sources.len()).filter(|at| *at != first) {
            if !self.is_of(at, range, &place) {
                continue;
            }
            match (self.take(at), &mut native) {
                (Some((_, Item::Group(Group { partial: Partial::Native(other), .. }))), Some(state)) => {
                    state.merge(&other);
                }
                (Some((_, Item::Group(Group { partial: Partial::Function(_, text), .. }))), None) => {
                    parts.push(text);
                }
                _ => {}
            }
            if parts.len() >= PARTS_MAX {
                parts = vec![self.reduced(first, function, &parts, functions)?];
            }
        }
        let value = match native {
            Some(state) => state.text(),
            None if parts.len() > 1 => Some(self.reduced(first, function, &parts, functions)?),
            None => parts.pop(),
        };
        Ok(value.map(|value| MergedRow::Group { key, value }))
    }

    /// Whether the next item of a source is of the group that has a row at this place.
    fn is_of(&self, at: usize, range: usize, place: &[u8]) -> bool {
        let level = match self.grouping {
            Some(Grouping::Level(level)) => level,
            Some(Grouping::Exact) => u64::MAX,
            Some(Grouping::All) => 0,
            None => return false,
        };
        match self.sources.get(at).map(|branch| &branch.next) {
            Some(Next::Item(of, item)) if *of == range => {
                self.grouping == Some(Grouping::All)
                    || group_prefix(item.place(), level).cmp(&group_prefix(place, level)) == Ordering::Equal
            }
            _ => false,
        }
    }

    fn reduced(
        &self,
        first: usize,
        function: Option<usize>,
        parts: &[String],
        functions: &mut dyn Functions,
    ) -> Result<String, SourceError> {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        functions.reduce(function.unwrap_or(usize::MAX), None, &parts).map_err(|failure| {
            let from = self.sources.get(first).map(|branch| branch.name.clone()).unwrap_or_default();
            SourceError { from, reason: failure.text }
        })
    }
}
