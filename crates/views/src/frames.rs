//! A stream of bytes cut into frames: the length of the rest in four bytes, then the rest, whose first byte says what it is.

/// Cuts a stream into frames. It holds what came and was not taken yet, and reserves nothing for what is only announced.
#[derive(Debug)]
pub struct Frames {
    most: usize,
    bytes: Vec<u8>,
    at: usize,
}

/// A frame is empty, or longer than a frame may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

impl Frames {
    /// For frames of at most `most` bytes behind their length.
    #[must_use]
    pub fn up_to(most: usize) -> Self {
        Self { most, bytes: Vec::new(), at: 0 }
    }

    /// Takes bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, without its length.
    ///
    /// # Errors
    /// It is longer than a frame may be, or empty.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadLength)?;
        if length == 0 || length > self.most {
            return Err(BadLength);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.at + 4;
        self.at = from + length;
        Ok(self.bytes.get(from..self.at))
    }

    /// Whether everything that came was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }
}
