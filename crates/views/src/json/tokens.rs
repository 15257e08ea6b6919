//! The reader of tokens.
//!
//! Invariants: the bits of `low` and `high` below `depth` say which open containers are objects; a token's text lies
//! within the text that is read.

use super::{
    JsonError,
    scan::{container_bytes, plain_bytes},
};

/// What a token is, in the order in which views collate values. An end comes before everything, so that a shorter
/// container comes before a longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The end of an array or object.
    End,
    /// `null`.
    Null,
    /// `false`.
    False,
    /// `true`.
    True,
    /// A number.
    Number,
    /// A string that is a value.
    String,
    /// The name of a member.
    Name,
    /// The beginning of an array.
    Array,
    /// The beginning of an object.
    Object,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text; of strings what is between the quotes.
    pub text: &'a str,
    /// Whether a string has escape sequences.
    pub escaped: bool,
    /// Where it begins, a string at its quote.
    pub at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    FirstElement,
    FirstName,
    More,
    Nothing,
}

/// Reads a text token by token.
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    low: u64,
    high: Vec<u64>,
    expect: Expect,
}

impl<'a> Tokens<'a> {
    /// A reader at the beginning of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, low: 0, high: Vec::new(), expect: Expect::Value }
    }

    /// How many bytes were read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many containers are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The next token, or `None` at the end of a well-formed text.
    ///
    /// # Errors
    /// The text is no JSON.
    #[expect(clippy::should_implement_trait, reason = "an iterator's items are no results that end it")]
    pub fn next(&mut self) -> Result<Option<Token<'a>>, JsonError> {
        self.skip_blanks();
        let first = self.peek();
        match self.expect {
            Expect::Nothing => match first {
                None => Ok(None),
                Some(_) => Err(self.wrong("something after the value")),
            },
            Expect::Value => self.value(first).map(Some),
            Expect::FirstElement if first == Some(b']') => Ok(Some(self.end())),
            Expect::FirstElement => self.value(first).map(Some),
            Expect::FirstName if first == Some(b'}') => Ok(Some(self.end())),
            Expect::FirstName => self.name(first).map(Some),
            Expect::More => self.more(first).map(Some),
        }
    }

    /// The whole text of the value that begins with `first`, which was just read.
    ///
    /// # Errors
    /// The text is no JSON.
    pub fn rest_of(&mut self, first: &Token<'a>) -> Result<&'a str, JsonError> {
        if matches!(first.kind, Kind::Array | Kind::Object) {
            let outside = self.depth.saturating_sub(1);
            while self.depth > outside {
                self.next()?;
            }
        }
        Ok(self.text.get(first.at..self.at).unwrap_or_default())
    }

    /// Reads a value whole, after the name of a member, and gives its text.
    ///
    /// Of arrays and objects only the end is looked for. So this is for texts that are known to be JSON, or that somebody
    /// else reads in detail.
    ///
    /// # Errors
    /// There is no value, or no end of it.
    pub fn skip_value(&mut self) -> Result<&'a str, JsonError> {
        self.skip_blanks();
        let from = self.at;
        match (self.expect, self.peek()) {
            (Expect::Value, Some(b'{' | b'[')) => {
                self.at += container_bytes(self.bytes().get(from..).unwrap_or_default())
                    .ok_or_else(|| self.wrong("end of text within a container"))?;
                self.close_value();
            }
            (Expect::Value, first) => drop(self.value(first)?),
            _ => return Err(self.wrong("no value is expected")),
        }
        Ok(self.text.get(from..self.at).unwrap_or_default())
    }

    /// Reads the next element of the array that is open whole, as [`Tokens::skip_value`] does, or its end.
    ///
    /// # Errors
    /// No array is open, or the text is no JSON.
    pub fn next_element(&mut self) -> Result<Option<&'a str>, JsonError> {
        self.skip_blanks();
        let first = self.peek();
        match self.expect {
            Expect::FirstElement | Expect::More if first == Some(b']') && !self.in_object() => {
                self.end();
                return Ok(None);
            }
            Expect::FirstElement => {}
            Expect::More if first == Some(b',') && !self.in_object() => self.at += 1,
            _ => return Err(self.wrong("no element of an array")),
        }
        self.expect = Expect::Value;
        self.skip_value().map(Some)
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    fn wrong(&self, what: &'static str) -> JsonError {
        JsonError { at: self.at, what }
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn more(&mut self, first: Option<u8>) -> Result<Token<'a>, JsonError> {
        let object = self.in_object();
        match (first, object) {
            (Some(b','), _) => {
                self.at += 1;
                self.skip_blanks();
                let first = self.peek();
                if object { self.name(first) } else { self.value(first) }
            }
            (Some(b']'), false) | (Some(b'}'), true) => Ok(self.end()),
            (None, _) => Err(self.wrong("end of text within a container")),
            _ => Err(self.wrong("no comma between elements")),
        }
    }

    fn name(&mut self, first: Option<u8>) -> Result<Token<'a>, JsonError> {
        if first != Some(b'"') {
            return Err(self.wrong("no name of a member"));
        }
        let mut token = self.string()?;
        token.kind = Kind::Name;
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.wrong("no colon after a name"));
        }
        self.at += 1;
        self.expect = Expect::Value;
        Ok(token)
    }

    fn value(&mut self, first: Option<u8>) -> Result<Token<'a>, JsonError> {
        match first {
            Some(b'"') => {
                let token = self.string()?;
                self.close_value();
                Ok(token)
            }
            Some(b'{') => Ok(self.begin(Kind::Object)),
            Some(b'[') => Ok(self.begin(Kind::Array)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Kind::True),
            Some(b'f') => self.word("false", Kind::False),
            Some(b'n') => self.word("null", Kind::Null),
            None => Err(self.wrong("end of text instead of a value")),
            Some(_) => Err(self.wrong("no value")),
        }
    }

    fn token(&self, kind: Kind, from: usize) -> Token<'a> {
        Token { kind, text: self.text.get(from..self.at).unwrap_or_default(), escaped: false, at: from }
    }

    fn word(&mut self, word: &str, kind: Kind) -> Result<Token<'a>, JsonError> {
        let from = self.at;
        if !self.bytes().get(from..).is_some_and(|rest| rest.starts_with(word.as_bytes())) {
            return Err(self.wrong("no value"));
        }
        self.at += word.len();
        self.close_value();
        Ok(self.token(kind, from))
    }

    fn number(&mut self) -> Result<Token<'a>, JsonError> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.wrong("no digit in a number")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        self.close_value();
        Ok(self.token(Kind::Number, from))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == from { Err(self.wrong("no digit in a number")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Token<'a>, JsonError> {
        let at = self.at;
        let from = at + 1;
        self.at = from;
        let mut escaped = false;
        loop {
            self.at += plain_bytes(self.bytes().get(self.at..).unwrap_or_default());
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                None => return Err(self.wrong("end of text within a string")),
                Some(_) => return Err(self.wrong("control character in a string")),
            }
        }
        let text = self.text.get(from..self.at).unwrap_or_default();
        self.at += 1;
        Ok(Token { kind: Kind::String, text, escaped, at })
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let rest = self.bytes().get(self.at + 1..).unwrap_or_default();
        match rest.first() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') if rest.get(1..5).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
                self.at += 6
            }
            _ => return Err(self.wrong("no such escape sequence")),
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind) -> Token<'a> {
        let from = self.at;
        self.at += 1;
        let object = kind == Kind::Object;
        self.push(object);
        self.expect = if object { Expect::FirstName } else { Expect::FirstElement };
        self.token(kind, from)
    }

    fn end(&mut self) -> Token<'a> {
        let from = self.at;
        self.at += 1;
        self.pop();
        self.close_value();
        self.token(Kind::End, from)
    }

    fn close_value(&mut self) {
        self.expect = if self.depth == 0 { Expect::Nothing } else { Expect::More };
    }

    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.high.push(self.low);
            self.low = 0;
        }
        self.low = self.low << 1 | u64::from(object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.low >>= 1;
        if self.depth.is_multiple_of(64)
            && let Some(low) = self.high.pop()
        {
            self.low = low;
        }
    }

    fn in_object(&self) -> bool {
        self.low & 1 == 1
    }
}
