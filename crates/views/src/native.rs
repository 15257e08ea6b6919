//! Map functions of a few plain shapes, run without an engine.
//!
//! Most map functions test some members, loop over an array, and emit. To run one of these here takes less time than to send its document
//! to another process. What they may consist of is small: conditions, loops that count, plain operators, members and elements. A program
//! is made only of a source that consists of nothing else.
//!
//! The rows are those of the engine. A document about which that is not certain is given up. It may have a member of `undefined`, half of
//! a surrogate pair, operands of kinds that ECMAScript converts, or rows beyond a limit. The caller asks the engine about it, and so gets
//! the engine's error too. A run is bounded: it gives up after a number of steps, and long texts take many of them.

mod lexer;
mod parser;
mod run;
mod value;

use std::ops::Range;

use crate::{
    index::JoinedRows,
    js::{Row, Sources},
};

/// A document of which rows are wanted.
pub trait Given {
    /// Its id.
    fn id(&self) -> &str;

    /// The text of its body, where that is JSON and was read.
    fn json(&self) -> Option<&str>;

    /// The text of the object `meta`.
    fn meta(&self) -> &str;
}

/// All map functions of an index.
#[derive(Debug)]
pub struct Programs(Vec<parser::Program>);

impl Programs {
    /// The functions as programs, or nothing where one of them is of another shape.
    #[must_use]
    pub fn of(sources: &Sources) -> Option<Self> {
        let programs = sources.maps.iter().map(|source| parser::program(source));
        let programs: Vec<parser::Program> = programs.collect::<Option<_>>()?;
        // Reductions share variables that are not declared with the functions.
        if !sources.reduces.is_empty() && programs.iter().any(|program| program.sets_globals) {
            return None;
        }
        Some(Self(programs))
    }

    /// Appends the rows of a document and says where they are, or appends nothing where the engine has to be asked. No function fails here.
    pub fn join(&self, document: &dyn Given, out: &mut JoinedRows) -> Option<Range<usize>> {
        let begin = out.len();
        for (map, program) in self.0.iter().enumerate() {
            if run::rows(program, document, out).is_none() {
                out.truncate(begin);
                return None;
            }
            out.end_map(map);
        }
        Some(begin..out.len())
    }

    /// The rows of each function, or nothing where the engine has to be asked.
    #[must_use]
    pub fn rows(&self, document: &dyn Given) -> Option<Vec<Vec<Row>>> {
        let mut joined = JoinedRows::default();
        let range = self.join(document, &mut joined)?;
        joined.texts(&range, self.0.len())
    }
}
