//! The body of an HTTP answer, as blocking code reads it: a part at a time. The reader waits for each part as long as the
//! asker is patient.
//!
//! A body that ends before its end is an error, never a short body.

use std::{
    io::{self, Read},
    time::Duration,
};

use http_body_util::BodyExt as _;
use hyper::body::{Buf as _, Bytes, Incoming};
use tokio::{runtime::Runtime, time::timeout};

/// A body that is read as it comes.
pub struct Body {
    /// Drives the connection, which ends with it.
    runtime: Runtime,
    rest: Incoming,
    part: Bytes,
    patience: Duration,
}

impl Body {
    /// The body of an answer whose connection this runtime drives.
    pub(crate) fn new(runtime: Runtime, rest: Incoming, patience: Duration) -> Self {
        Self { runtime, rest, part: Bytes::new(), patience }
    }

    /// The next part; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let frame = async { timeout(self.patience, self.rest.frame()).await };
        match self.runtime.block_on(frame) {
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(broken(&error)),
            Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        }
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.next()? {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let count = self.part.len().min(buffer.len());
        self.part.copy_to_slice(buffer.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}

/// What a broken exchange is to callers: a failed connection, or bytes that are no HTTP answer.
pub(crate) fn broken(error: &hyper::Error) -> io::Error {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    match source {
        Some(source) => io::Error::new(source.kind(), source.to_string()),
        None => io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {error}")),
    }
}
