//! The answers of several nodes put together, as they come.
//!
//! Rows come in the order of the query. Groups that several nodes have are put together, by collation. What is held is the
//! next item of each node, one group, and a bounded number of errors. A node that fails is named at the end. Rows of the others come all
//! the same, unless the query says that it ends there.
//!
//! Nothing here waits. Where the next item of a source is on its way, the merge says [`Step::Waiting`] and goes on when it is asked again.

use std::cmp::Ordering;

use super::{
    answer::{Answer, Group, Item, Partial, Row},
    functions::Functions,
};
use crate::{
    collation::group_prefix,
    query::{Grouping, OnError, Query},
};

/// Partial results of a group that are reduced again at once.
const PARTS_MAX: usize = 64;

/// Groups whose reduction failed that are told one by one.
const FAILED_GROUPS_MAX: usize = 16;
/// What the node that puts answers together calls itself.
const HERE: &str = "local";

/// The answer of one node.
pub trait Source {
    /// The next part. Nothing is asked of a source after its end or an error.
    ///
    /// # Errors
    /// What the client is told.
    fn pull(&mut self, functions: &mut dyn Functions) -> Result<Pull, SourceError>;

    /// How many rows the view has on the node, whatever the query asks for; `None` while that is on its way.
    ///
    /// # Errors
    /// What the client is told.
    fn total_rows(&mut self) -> Result<Option<u64>, SourceError>;

    /// What the answer lacks, of a source whose end was not asked for: it would have said so there.
    fn lacks(&mut self) -> Option<SourceError> {
        None
    }
}

/// What a source gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Pull {
    /// An item, and the number of its range.
    Item(usize, Item),
    /// The next item is on its way.
    Waiting,
    /// Nothing more.
    End,
}

impl Source for Answer {
    fn pull(&mut self, functions: &mut dyn Functions) -> Result<Pull, SourceError> {
        match self.next(functions) {
            Ok(Some((range, item))) => Ok(Pull::Item(range, item)),
            Ok(None) => Ok(Pull::End),
            Err(error) => Err(SourceError::new(HERE, error.to_string())),
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(Self::total_rows(self)))
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
    /// Groups whose reduction failed.
    failed_groups: usize,
}

struct Branch<S> {
    /// What its rows are told to be from.
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
    /// `local`, an address, or a URL.
    pub from: String,
    /// What happened.
    pub reason: String,
}

impl SourceError {
    /// An error of a source.
    pub fn new(from: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { from: from.into(), reason: reason.into() }
    }
}

/// What a merge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next row or group.
    Row(MergedRow),
    /// An item was left out: it is skipped, or its group has no value.
    Passed,
    /// The next item of a source is on its way.
    Waiting,
    /// The answer ends.
    End,
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
    /// Puts together answers to a query, each with what its rows are told to be from.
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
            failed_groups: 0,
        }
    }

    /// The errors so far, to be told behind the rows. Of many groups that failed the first are told, and how many more did.
    #[must_use]
    pub fn errors(&self) -> Vec<SourceError> {
        let mut errors = self.errors.clone();
        let untold = self.failed_groups.saturating_sub(FAILED_GROUPS_MAX);
        if untold > 0 {
            errors.push(SourceError::new(HERE, format!("the reduction of {untold} more groups failed")));
        }
        errors
    }

    /// Whether there was an error.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// What rows of a source are told to be from.
    #[must_use]
    pub fn name(&self, source: usize) -> &str {
        self.sources.get(source).map_or("", |branch| &branch.name)
    }

    /// The sources, to be given what has come of those that wait.
    pub fn sources(&mut self) -> impl Iterator<Item = &mut S> {
        self.sources.iter_mut().map(|branch| &mut branch.source)
    }

    /// How many rows the view has in all; `None` while a source has yet to say that. A source that fails says nothing more.
    pub fn total_rows(&mut self) -> Option<u64> {
        let mut total = Some(0_u64);
        for branch in self.sources.iter_mut().filter(|branch| !matches!(branch.next, Next::End)) {
            match branch.source.total_rows() {
                Ok(Some(rows)) => total = total.map(|total| total.saturating_add(rows)),
                Ok(None) => total = None,
                Err(error) => {
                    self.errors.push(error);
                    branch.next = Next::End;
                }
            }
        }
        total
    }

    /// Goes on by one row or group. `functions` reduce where the view has a function for that.
    pub fn step(&mut self, functions: &mut dyn Functions) -> Step {
        if self.left == 0 {
            return self.end();
        }
        self.fill(functions);
        if self.on_error == OnError::Stop && self.has_failed() {
            return self.end();
        }
        if self.sources.iter().any(|branch| matches!(branch.next, Next::Unknown)) {
            return Step::Waiting;
        }
        let Some(first) = self.first() else { return self.end() };
        let Some((range, item)) = self.take(first) else { return self.end() };
        let row = match item {
            Item::Row(row) => MergedRow::Row(row, first),
            Item::Group(group) => match self.group(range, first, group, functions) {
                Ok(Some(group)) => group,
                Ok(None) => return Step::Passed,
                // The reduction of a group failed: nothing can be said of it.
                Err(error) => {
                    self.failed_groups += 1;
                    if self.failed_groups <= FAILED_GROUPS_MAX {
                        self.errors.push(error);
                    }
                    return Step::Passed;
                }
            },
        };
        if self.skip > 0 {
            self.skip -= 1;
            return Step::Passed;
        }
        self.left -= 1;
        Step::Row(row)
    }

    fn end(&mut self) -> Step {
        self.left = 0;
        for branch in self.sources.iter_mut().filter(|branch| !matches!(branch.next, Next::End)) {
            self.errors.extend(branch.source.lacks());
            branch.next = Next::End;
        }
        Step::End
    }

    /// Asks each source whose next item is not known for it.
    fn fill(&mut self, functions: &mut dyn Functions) {
        for branch in &mut self.sources {
            if !matches!(branch.next, Next::Unknown) {
                continue;
            }
            branch.next = match branch.source.pull(functions) {
                Ok(Pull::Item(range, item)) => Next::Item(range, item),
                Ok(Pull::Waiting) => Next::Unknown,
                Ok(Pull::End) => Next::End,
                Err(error) => {
                    self.errors.push(error);
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
            SourceError::new(from, failure.text)
        })
    }
}
