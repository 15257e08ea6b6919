//! The answer of another node as a source of a merge: it is given bytes as they come, and waits for none.

use super::{AnswerReader, Event, Expected, WireError};
use crate::index::{Functions, Item, Pull, Source, SourceError};

/// See the module.
#[derive(Debug)]
pub struct Remote {
    /// What errors within the answer are told to be from.
    within: String,
    reader: AnswerReader,
    total_rows: Option<u64>,
    /// What the other node's index lacks.
    lacks: Option<String>,
    /// It was asked for more than had come.
    is_waiting: bool,
    /// What ended the stream.
    closed: Option<Result<(), SourceError>>,
}

impl Remote {
    /// An answer of which nothing has come yet. Errors within it are told to be from `within`.
    #[must_use]
    pub fn new(within: impl Into<String>, expected: Expected) -> Self {
        Self {
            within: within.into(),
            reader: AnswerReader::new(expected),
            total_rows: None,
            lacks: None,
            is_waiting: false,
            closed: None,
        }
    }

    /// Whether it needs more bytes, or to hear that none come. One that is given bytes only then holds little.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Takes bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.is_waiting = false;
        self.reader.push(bytes);
    }

    /// Nothing more comes: the stream ended, or this error ended it.
    pub fn close(&mut self, how: Result<(), SourceError>) {
        self.is_waiting = false;
        self.closed = Some(how);
    }

    fn failed(&self, error: WireError) -> SourceError {
        SourceError::new(self.within.clone(), error.to_string())
    }

    /// The next event but for the end, which counts once the stream has ended as well: then its connection can be used again.
    fn read(&mut self) -> Result<Read, SourceError> {
        loop {
            match self.reader.next_event().map_err(|error| self.failed(error))? {
                Some(Event::Head(rows, lacks)) => {
                    (self.total_rows, self.lacks) = (Some(rows), lacks);
                    return Ok(Read::TotalRows);
                }
                Some(Event::Item(range, item)) => return Ok(Read::Item(range, item)),
                Some(Event::Failed(reason)) => return Err(SourceError::new(self.within.clone(), reason)),
                Some(Event::End) => {}
                None => break,
            }
        }
        match self.closed.take() {
            None => {
                self.is_waiting = true;
                Ok(Read::Nothing)
            }
            Some(Err(error)) => Err(error),
            Some(Ok(())) => self.reader.close().map(|()| Read::End).map_err(|error| self.failed(error)),
        }
    }
}

enum Read {
    TotalRows,
    Item(usize, Item),
    Nothing,
    End,
}

impl Source for Remote {
    fn pull(&mut self, _: &mut dyn Functions) -> Result<Pull, SourceError> {
        loop {
            match self.read()? {
                Read::TotalRows => {}
                Read::Item(range, item) => return Ok(Pull::Item(range, item)),
                Read::Nothing => return Ok(Pull::Waiting),
                Read::End => return Ok(Pull::End),
            }
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        // An answer begins with it.
        if self.total_rows.is_none() {
            self.read()?;
        }
        Ok(self.total_rows)
    }

    fn lacks(&mut self) -> Option<SourceError> {
        self.lacks.take().map(|reason| SourceError::new(self.within.clone(), reason))
    }
}
