//! Queries: parameters of the query string and of a body, checked together against the view that is asked.
//!
//! Parameters are read in the order of the query string, where a later one wins. What comes out is a [`Query`] whose
//! ranges are bytes in the encoding of keys. So nothing behind it has to know what descending or an inclusive end is.

mod form;
mod parameters;

use crate::{
    collation::{bound, encode},
    refusal::Refusal,
};

pub use parameters::{Body, OnError, Parameters, Stale};

/// What a query asks of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Where its rows are: one range, or one for each of the keys that were asked for, in their order.
    pub ranges: Vec<Range>,
    /// Rows come from the end of each range.
    pub descending: bool,
    /// How many rows, or groups, are left out at first.
    pub skip: u64,
    /// How many come then at most.
    pub limit: u64,
    /// How rows are reduced; `None` where they are not.
    pub grouping: Option<Grouping>,
    /// How new the index has to be.
    pub stale: Stale,
    /// What an error of one node does to the answer.
    pub on_error: OnError,
    /// Rows tell where they come from.
    pub debug: bool,
    /// A view under development is asked over all documents.
    pub full_set: bool,
    /// How long another node may take, in milliseconds.
    pub connection_timeout: Option<u64>,
}

/// Rows from `lower` on and before `upper`, as bytes of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first bytes that belong to it.
    pub lower: Vec<u8>,
    /// The first bytes behind it.
    pub upper: Option<Vec<u8>>,
}

impl Range {
    /// Whether a row belongs to the range.
    #[must_use]
    pub fn contains(&self, row: &[u8]) -> bool {
        row >= self.lower.as_slice() && self.upper.as_deref().is_none_or(|upper| row < upper)
    }
}

/// Which rows are reduced together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All.
    All,
    /// Those whose arrays begin with the same elements, so many of them.
    Level(u64),
    /// Those with equal keys.
    Exact,
}

/// One end of the range as it was asked for.
struct End<'a> {
    key: Option<&'a str>,
    docid: Option<&'a str>,
}

impl Parameters {
    /// The query that these parameters are, of a view with or without a reduction.
    ///
    /// # Errors
    /// They do not fit together, or do not fit the view; the refusal has Couchbase's text.
    pub fn query(&self, has_reduction: bool) -> Result<Query, Refusal> {
        let reduces = has_reduction && self.reduce != Some(false);
        self.check(has_reduction, reduces)?;
        let grouping = match (reduces, self.group, self.group_level) {
            (false, ..) => None,
            (true, Some(true), _) => Some(Grouping::Exact),
            (true, _, None | Some(0)) => Some(Grouping::All),
            (true, _, Some(level)) => Some(Grouping::Level(level)),
        };
        Ok(Query {
            ranges: self.ranges()?,
            descending: self.descending,
            skip: self.skip,
            limit: self.limit,
            grouping,
            stale: self.stale,
            on_error: self.on_error,
            debug: self.debug,
            full_set: self.full_set,
            connection_timeout: self.connection_timeout,
        })
    }

    fn check(&self, has_reduction: bool, reduces: bool) -> Result<(), Refusal> {
        if self.group.is_some() && self.group_level.is_some() {
            return Err(Refusal::query("Query parameter `group_level` is not compatible with `group`"));
        }
        if self.keys.is_some() && self.start_key.is_some() {
            return Err(Refusal::query("Query parameter `start_key` is not compatible with multi-get"));
        }
        if self.keys.is_some() && self.end_key.is_some() {
            return Err(Refusal::query("Query parameter `end_key` is not compatible with multi-get"));
        }
        if !reduces && (self.group.is_some() || self.group_level.is_some()) {
            let text = "Invalid URL parameter 'group' or  'group_level' for non-reduce view.";
            return Err(Refusal::query(text));
        }
        if !has_reduction && self.reduce == Some(true) {
            return Err(Refusal::query("Invalid URL parameter `reduce` for map view."));
        }
        if reduces && self.include_docs {
            return Err(Refusal::query("Query parameter `include_docs` is invalid for reduce views."));
        }
        if reduces && self.conflicts {
            return Err(Refusal::query("Query parameter `conflicts` is invalid for reduce views."));
        }
        if reduces && self.keys.is_some() && self.group != Some(true) {
            return Err(Refusal::query("Multi-key fetchs for reduce view must include `group=true`"));
        }
        Ok(())
    }

    fn ranges(&self) -> Result<Vec<Range>, Refusal> {
        if let Some(keys) = &self.keys {
            return keys.iter().map(|key| one_key(key)).collect();
        }
        let start = End { key: self.start_key.as_deref(), docid: self.start_docid.as_deref() };
        let end = End { key: self.end_key.as_deref(), docid: self.end_docid.as_deref() };
        self.check_order(&start, &end)?;
        let (lower, upper) = if self.descending {
            (self.end(&end)?.unwrap_or_default(), self.start(&start)?)
        } else {
            (self.start(&start)?.unwrap_or_default(), self.end(&end)?)
        };
        Ok(vec![Range { lower, upper }])
    }

    fn check_order(&self, start: &End<'_>, end: &End<'_>) -> Result<(), Refusal> {
        let (Some(start), Some(end)) = (start.key, end.key) else { return Ok(()) };
        let (start, end) = (encoded(start)?, encoded(end)?);
        let (wrong, other) = if self.descending { (start < end, false) } else { (start > end, true) };
        if wrong {
            return Err(Refusal::query(format!(
                "No rows can match your key range, reverse your start_key and end_key or set descending={other}"
            )));
        }
        Ok(())
    }

    /// Where rows begin that come first; the id counts only beside its key.
    fn start(&self, start: &End<'_>) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(key) = start.key else { return Ok(None) };
        Ok(Some(bound(&encoded(key)?, start.docid, self.descending)))
    }

    /// Where rows end; without an inclusive end before the id that was given, or before every row with the key.
    fn end(&self, end: &End<'_>) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(key) = end.key else { return Ok(None) };
        Ok(Some(bound(&encoded(key)?, end.docid, self.inclusive_end != self.descending)))
    }
}

fn encoded(key: &str) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    encode(key, &mut bytes).map_err(|error| Refusal::bad_request(error.to_string()))?;
    Ok(bytes)
}

fn one_key(key: &str) -> Result<Range, Refusal> {
    let key = encoded(key)?;
    Ok(Range { lower: bound(&key, None, false), upper: Some(bound(&key, None, true)) })
}

#[cfg(test)]
mod tests;
