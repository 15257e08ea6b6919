//! Steps over JSON without looking into it: strings are skipped eight bytes at a time, containers by counting
//! brackets outside strings (see [`super::block`]).
//!
//! The text is taken to be valid JSON, since it was checked when it was stored. If it is not, what is found may be
//! nonsense, but every step ends, and ends inside the text.

use base::Status;

/// Deepest value in a document that can be operated on; the document itself is at 1.
pub(super) const LEVELS_MAX: usize = 32;

/// A place in a document.
#[derive(Clone, Copy)]
pub(super) struct Scanner<'d> {
    pub(super) text: &'d [u8],
    pub(super) at: usize,
}

impl Scanner<'_> {
    /// The next byte that is not white space, without stepping over it.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                byte => return byte.copied(),
            }
        }
    }

    /// Steps over `byte`, if it comes next but for white space.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Steps over the value that comes next, which is at `level`.
    #[inline]
    pub(super) fn value(&mut self, level: usize) -> Result<(), Status> {
        match self.peek() {
            _ if level > LEVELS_MAX => Err(Status::SubdocDocTooDeep),
            Some(b'"') => self.string().map(|_| ()),
            Some(b'{' | b'[') => self.container(level),
            Some(_) => self.scalar(),
            None => Err(Status::SubdocDocNotJson),
        }
    }

    /// From an opening quote to behind the closing one; whether there are escapes between.
    #[inline]
    pub(super) fn string(&mut self) -> Result<bool, Status> {
        self.at += 1;
        let mut has_escapes = false;
        loop {
            self.skip_plain();
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 2;
                }
                Some(_) => self.at += 1,
                None => return Err(Status::SubdocDocNotJson),
            }
        }
        self.at += 1;
        Ok(has_escapes)
    }

    /// A number, `true`, `false` or `null`.
    fn scalar(&mut self) -> Result<(), Status> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r');
        match rest.iter().position(is_end) {
            Some(0) => Err(Status::SubdocDocNotJson),
            Some(length) => {
                self.at += length;
                Ok(())
            }
            None => {
                self.at = self.text.len();
                Ok(())
            }
        }
    }

    /// Skips what is no quote or backslash, while eight bytes are left to look at.
    #[inline]
    fn skip_plain(&mut self) {
        while let Some(chunk) = self.text.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            let word = u64::from_le_bytes(*chunk);
            let special = marks(word, b'"') | marks(word, b'\\');
            if special != 0 {
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }
}

/// Marks the bytes of `word` that are `byte`; the lowest mark is exact, higher ones may be false.
#[inline]
fn marks(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let word = word ^ (ONES * u64::from(byte));
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}
