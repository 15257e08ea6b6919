//! The answer to a client: the bytes of a query's answer, made bit by bit of the answers of nodes.
//!
//! `total_rows` comes before the rows and counts those of all nodes. So the answer begins once each node has said how many it has, or has
//! failed. Errors come behind the rows. Where the query stops at the first error, that one ends the answer.

use crate::{
    index::{Functions, Merge, MergedRow, Source, Step},
    query::{OnError, Query},
    rows::{MapRow, NodeError, Origin, Writer},
};

/// See the module.
pub struct Response<S> {
    merge: Merge<S>,
    /// Rows tell where they come from.
    debug: bool,
    debug_info: Option<String>,
    stops: bool,
    reduces: bool,
    phase: Phase,
}

enum Phase {
    /// Nodes have yet to say how many rows they have.
    Begins,
    /// The head is written with the first row, as an answer that has nothing but errors has another one.
    Goes {
        total_rows: Option<u64>,
        writer: Option<Writer>,
    },
    Ended,
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to write.
    More,
    /// What comes next of a node is on its way. The node's source is one of [`Response::sources`].
    Waiting,
    /// Everything is written.
    Ended,
}

impl<S: Source> Response<S> {
    /// The answer to a query, of the answers of nodes, each with what its rows are told to be from. `debug_info` is the text of an object.
    pub fn new(
        query: &Query,
        sources: impl IntoIterator<Item = (String, S)>,
        debug_info: Option<String>,
    ) -> Self {
        Self {
            merge: Merge::new(query, sources),
            debug: query.debug,
            debug_info,
            stops: query.on_error == OnError::Stop,
            reduces: query.grouping.is_some(),
            phase: Phase::Begins,
        }
    }

    /// The answers of nodes, to be given what has come.
    pub fn sources(&mut self) -> impl Iterator<Item = &mut S> {
        self.merge.sources()
    }

    /// Appends to `out` until that has enough, by what `is_enough` says of its length before each row. `functions` reduce where the view
    /// has a function for that.
    pub fn fill(
        &mut self,
        functions: &mut dyn Functions,
        out: &mut Vec<u8>,
        mut is_enough: impl FnMut(usize) -> bool,
    ) -> Progress {
        loop {
            let (total_rows, writer) = match &mut self.phase {
                Phase::Ended => return Progress::Ended,
                Phase::Begins => {
                    let total_rows = if self.reduces { None } else { self.merge.total_rows() };
                    if total_rows.is_none() && !self.reduces {
                        return Progress::Waiting;
                    }
                    self.phase = Phase::Goes { total_rows, writer: None };
                    continue;
                }
                Phase::Goes { total_rows, writer } => (*total_rows, writer),
            };
            if is_enough(out.len()) {
                return Progress::More;
            }
            match self.merge.step(functions) {
                Step::Waiting => return Progress::Waiting,
                Step::Passed => {}
                Step::Row(row) => {
                    let writer = writer
                        .get_or_insert_with(|| Writer::begin(total_rows, self.debug_info.as_deref(), out));
                    write(writer, &row, self.debug, |source| self.merge.name(source), out);
                }
                Step::End => {
                    let writer = writer.take();
                    self.end(total_rows, writer, out);
                    self.phase = Phase::Ended;
                }
            }
        }
    }

    fn end(&self, total_rows: Option<u64>, writer: Option<Writer>, out: &mut Vec<u8>) {
        let told = self.merge.errors();
        let most = if self.stops { 1 } else { usize::MAX };
        let errors: Vec<NodeError<'_>> = told
            .iter()
            .take(most)
            .map(|error| NodeError { from: &error.from, reason: &error.reason })
            .collect();
        match writer {
            Some(writer) => writer.end(&errors, out),
            None if self.stops && !errors.is_empty() => {
                Writer::only_errors(total_rows.map(|_| 0), &errors, out)
            }
            None => Writer::begin(total_rows, self.debug_info.as_deref(), out).end(&errors, out),
        }
    }
}

fn write<'n>(
    writer: &mut Writer,
    row: &MergedRow,
    debug: bool,
    name: impl Fn(usize) -> &'n str,
    out: &mut Vec<u8>,
) {
    match row {
        MergedRow::Row(row, source) => {
            let origin = debug.then(|| Origin { partition: row.vb.get(), node: name(*source) });
            let (key, value) = (row.key.as_bytes(), row.value.as_bytes());
            writer.map_row(&MapRow { docid: &row.docid, key, value, origin }, out);
        }
        MergedRow::Group { key, value } => writer.reduced_row(key.as_bytes(), value.as_bytes(), out),
    }
}
