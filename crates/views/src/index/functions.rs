//! Reductions by functions, which run elsewhere.

use super::{
    definition::Reducing,
    error::IndexError,
    node::{Child, Content, Reduced, RowValue, Shape},
    store::Reader,
};
use crate::js;

/// Rows that a function is given at once, and about how many bytes of them.
const ROWS_MAX: usize = 1024;
const BYTES_MAX: usize = 1 << 20;
/// Reductions that are reduced again at once.
const PARTS_MAX: usize = 64;
/// A query keeps reductions of at most so many bytes beside nodes. The account charged the node when it was made, and
/// does not know of what is kept later. Each query makes a longer one anew until a commit writes it.
pub(super) const KEPT_BY_QUERIES_BYTES_MAX: usize = 1 << 10;

/// Runs the reductions of an index.
pub trait Functions {
    /// Reduces values with the function of this number among [`super::Definition::sources`]. Keys are as many as values, and none
    /// where reductions are reduced again.
    ///
    /// # Errors
    /// The function failed, or its result is too large.
    fn reduce(
        &mut self,
        function: usize,
        keys: Option<&[&str]>,
        values: &[&str],
    ) -> Result<String, js::Failure>;
}

impl Functions for js::Functions {
    fn reduce(
        &mut self,
        function: usize,
        keys: Option<&[&str]>,
        values: &[&str],
    ) -> Result<String, js::Failure> {
        Self::reduce(self, function, keys, values)
    }
}

/// For indexes whose reductions are all built in.
#[derive(Clone, Copy, Debug)]
pub struct NoFunctions;

impl Functions for NoFunctions {
    fn reduce(&mut self, _: usize, _: Option<&[&str]>, _: &[&str]) -> Result<String, js::Failure> {
        Err(js::Failure::new(js::FailureKind::NotAFunction, "no functions run here"))
    }
}

/// Collects rows and reductions of one function, and has them reduced part by part.
#[derive(Debug)]
pub(super) struct Collector {
    function: usize,
    keys: Vec<String>,
    values: Vec<String>,
    bytes: usize,
    parts: Vec<String>,
}

impl Collector {
    pub(super) fn new(function: usize) -> Self {
        Self { function, keys: Vec::new(), values: Vec::new(), bytes: 0, parts: Vec::new() }
    }

    pub(super) fn function(&self) -> usize {
        self.function
    }

    pub(super) fn row(
        &mut self,
        row: &RowValue<'_>,
        functions: &mut dyn Functions,
    ) -> Result<(), IndexError> {
        self.bytes += row.key.len() + row.value.len();
        self.keys.push(row.key.to_owned());
        self.values.push(row.value.to_owned());
        if self.keys.len() >= ROWS_MAX || self.bytes >= BYTES_MAX {
            self.reduce_rows(functions)
        } else {
            Ok(())
        }
    }

    pub(super) fn part(&mut self, part: String, functions: &mut dyn Functions) -> Result<(), IndexError> {
        self.parts.push(part);
        if self.parts.len() >= PARTS_MAX { self.reduce_parts(functions) } else { Ok(()) }
    }

    /// The reduction of everything; nothing where there was nothing.
    pub(super) fn end(mut self, functions: &mut dyn Functions) -> Result<Option<String>, IndexError> {
        self.reduce_rows(functions)?;
        if self.parts.len() > 1 {
            self.reduce_parts(functions)?;
        }
        Ok(self.parts.pop())
    }

    fn reduce_rows(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let part = {
            let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
            let values: Vec<&str> = self.values.iter().map(String::as_str).collect();
            functions.reduce(self.function, Some(&keys), &values).map_err(IndexError::Reduction)?
        };
        self.keys.clear();
        self.values.clear();
        self.bytes = 0;
        self.part(part, functions)
    }

    fn reduce_parts(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        let part = {
            let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
            functions.reduce(self.function, None, &parts).map_err(IndexError::Reduction)?
        };
        self.parts.clear();
        self.parts.push(part);
        Ok(())
    }
}

/// What the rows below a child come to, by the function of a slot. It is kept beside the child from then on, where it is no longer
/// than `kept_max`.
pub(super) fn reduction(
    reader: &Reader,
    shape: &Shape,
    child: &Child,
    slot: usize,
    kept_max: usize,
    functions: &mut dyn Functions,
) -> Result<String, IndexError> {
    let Shape::Rows(reducing) = shape else { return Err(IndexError::NoSuchView) };
    let (Some(Reducing::Function(function)), Some(Reduced::Function(kept))) =
        (reducing.get(slot), child.summary.reduced.get(slot))
    else {
        return Err(IndexError::NoSuchView);
    };
    if let Some(text) = kept.get() {
        return Ok(text.to_string());
    }
    let mut collector = Collector::new(*function);
    let node = reader.node(child, shape)?;
    match &node.content {
        Content::Leaf(leaf) => {
            for (_, value) in leaf.rows() {
                let row = RowValue::read(value).ok_or(IndexError::Damaged("a row cannot be read"))?;
                collector.row(&row, functions)?;
            }
        }
        Content::Inner(children) => {
            for below in children {
                // The charge of a node that is there knows nothing of what is kept beside its children.
                let part = reduction(reader, shape, below, slot, KEPT_BY_QUERIES_BYTES_MAX, functions)?;
                collector.part(part, functions)?;
            }
        }
    }
    let text = collector.end(functions)?.ok_or(IndexError::Damaged("a node has no rows"))?;
    if text.len() <= kept_max {
        kept.get_or_init(|| Box::from(text.as_str()));
    }
    Ok(text)
}
