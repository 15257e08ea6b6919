//! The body of an HTTP answer as it comes: by its length, in chunks, or until the end of the connection.
//!
//! A body that ends before its end is an error, never a short body.

use std::io::{self, BufRead, Read};

use crate::rest::read_line;

/// What is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// So many bytes.
    Bytes(u64),
    /// So many bytes of this chunk, and then its end.
    Chunk(u64),
    /// The first chunk, or the one behind a chunk that was read to its end.
    NextChunk,
    /// All that comes until the connection ends.
    ToTheEnd,
    Nothing,
}

/// A body that is read as it comes.
pub struct Body<R> {
    from: R,
    left: Left,
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP answer: {what}"))
}

impl<R: BufRead> Body<R> {
    /// The body behind the headers that said this of it.
    pub(crate) fn new(from: R, length: Option<u64>, chunked: bool) -> Self {
        let left = match (chunked, length) {
            (true, _) => Left::NextChunk,
            (false, Some(length)) => Left::Bytes(length),
            (false, None) => Left::ToTheEnd,
        };
        Self { from, left }
    }

    fn next_chunk(&mut self) -> io::Result<u64> {
        let line = read_line(&mut self.from).map_err(|error| garbled(&error.to_string()))?;
        let size = line.split(';').next().unwrap_or_default().trim();
        u64::from_str_radix(size, 16).map_err(|_| garbled("bad chunk length"))
    }

    /// Reads some of the next `left` bytes.
    fn some(&mut self, buffer: &mut [u8], left: u64) -> io::Result<usize> {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.from.read(buffer.get_mut(..most).unwrap_or_default())?;
        if count == 0 && most > 0 {
            return Err(garbled("the body is shorter than announced"));
        }
        Ok(count)
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.left {
                Left::Nothing | Left::Bytes(0) => return Ok(0),
                Left::ToTheEnd => return self.from.read(buffer),
                Left::Bytes(left) => {
                    let count = self.some(buffer, left)?;
                    self.left = Left::Bytes(left - count as u64);
                    return Ok(count);
                }
                Left::NextChunk => match self.next_chunk()? {
                    0 => self.left = Left::Nothing,
                    size => self.left = Left::Chunk(size),
                },
                Left::Chunk(0) => {
                    let end = read_line(&mut self.from).map_err(|error| garbled(&error.to_string()))?;
                    if !end.is_empty() {
                        return Err(garbled("a chunk ends early"));
                    }
                    self.left = Left::NextChunk;
                }
                Left::Chunk(left) => {
                    let count = self.some(buffer, left)?;
                    self.left = Left::Chunk(left - count as u64);
                    return Ok(count);
                }
            }
        }
    }
}
