//! Tokens of a source, or nothing where it is not certain what they are.
//!
//! A slash is a division behind a name, a number, a string or a closing square bracket, and begins a regular expression
//! behind other signs. Behind a closing parenthesis or brace nothing but a parser can tell. Nor can anything else behind `of`,
//! which may be a name, or at the beginning of a line, where a statement may have ended. Escapes in names, letters beyond
//! ASCII in names, templates with expressions, spreads and comments of HTML are given up on as well. So are texts with words
//! that are unclear in code: a text can name a member, and can become code.

use super::UNCLEAR;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    /// A number, a string or a regular expression.
    Literal,
    /// A template without expressions.
    Template,
    /// `.`
    Dot,
    /// `=>`
    Arrow,
    /// Another sign, one character of it at a time.
    Sign(char),
}

/// Keywords behind which an expression begins, so that a slash there begins a regular expression.
const BEFORE_EXPRESSIONS: &[&str] =
    &["case", "delete", "do", "else", "in", "instanceof", "new", "return", "throw", "typeof", "void"];

/// The tokens of `source`, or `None` where they are uncertain.
pub(super) fn tokenize(source: &str) -> Option<Vec<Token<'_>>> {
    if source.contains(['\u{2028}', '\u{2029}', '\u{feff}', '\0'])
        || source.contains("<!--")
        || source.contains("-->")
    {
        return None;
    }
    let mut tokenizer = Tokenizer { source, at: 0, tokens: Vec::new(), begins_line: false };
    while tokenizer.next()? {}
    Some(tokenizer.tokens)
}

/// Whether a word in the text is one that would be unclear in code, or is the name of what emits.
fn has_unclear_word(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$');
    text.split(|letter| !is_part(letter)).any(|word| word == "emit" || UNCLEAR.contains(&word))
}

struct Tokenizer<'a> {
    source: &'a str,
    at: usize,
    tokens: Vec<Token<'a>>,
    /// A line has ended behind the last token.
    begins_line: bool,
}

impl<'a> Tokenizer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    /// Reads a token or what stands between tokens; says whether there is more.
    fn next(&mut self) -> Option<bool> {
        let Some(first) = self.byte(0) else { return Some(false) };
        match first {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                self.begins_line |= matches!(first, b'\n' | b'\r');
                self.at += 1;
            }
            b'/' => self.slash()?,
            b'"' | b'\'' => self.string(first)?,
            b'`' => self.template()?,
            b'0'..=b'9' => self.number()?,
            b'.' if self.byte(1).is_some_and(|next| next.is_ascii_digit()) => self.number()?,
            b'.' => self.dots()?,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => self.word()?,
            b'=' if self.byte(1) == Some(b'>') => self.push(Token::Arrow, 2),
            b'\\' | b'#' | b'@' | 0x80.. => return None,
            _ => self.push(Token::Sign(char::from(first)), 1),
        }
        Some(true)
    }

    fn push(&mut self, token: Token<'a>, length: usize) {
        self.tokens.push(token);
        self.begins_line = false;
        self.at += length;
    }

    fn dots(&mut self) -> Option<()> {
        // Two dots are no token, and three are a spread: with it nobody can tell which argument is which.
        (self.byte(1) != Some(b'.')).then_some(())?;
        self.push(Token::Dot, 1);
        Some(())
    }

    fn word(&mut self) -> Option<()> {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        let length = self.rest().bytes().take_while(is_part).count();
        let word = self.rest().get(..length)?;
        self.push(Token::Word(word), length);
        // A name that goes on with an escape or another letter is not this name.
        match self.byte(0) {
            Some(b'\\' | 0x80..) => None,
            _ => Some(()),
        }
    }

    fn number(&mut self) -> Option<()> {
        let bytes = self.rest().as_bytes();
        let mut length = 0;
        while let Some(byte) = bytes.get(length) {
            let signed = matches!(byte, b'+' | b'-')
                && matches!(bytes.get(length.wrapping_sub(1)), Some(b'e' | b'E'))
                && !matches!(bytes.get(1), Some(b'x' | b'X'));
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || signed) {
                break;
            }
            length += 1;
        }
        // `1.e` can be a member of a number; where letters follow a dot nothing is said.
        let text = self.rest().get(..length)?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_hexadecimal =
            text.starts_with("0x") && text.bytes().skip(2).all(|byte| byte.is_ascii_hexdigit());
        (is_hexadecimal || (plain(whole) && plain(fraction))).then_some(())?;
        self.push(Token::Literal, length);
        Some(())
    }

    fn string(&mut self, quote: u8) -> Option<()> {
        let mut length = 1;
        loop {
            match self.byte(length)? {
                b'\\' => length += 2,
                b'\n' | b'\r' => return None,
                byte if byte == quote => break,
                _ => length += 1,
            }
        }
        self.text(Token::Literal, length + 1)
    }

    /// A string or a template of that length, unless a word in it, or an escape of a letter, makes it unclear.
    fn text(&mut self, token: Token<'a>, length: usize) -> Option<()> {
        let (mut plain, mut letters) = (String::with_capacity(length), self.rest().get(..length)?.chars());
        while let Some(letter) = letters.next() {
            plain.push(match letter {
                '\\' => match letters.next()? {
                    'n' | 'r' | 't' | '"' | '\'' | '/' | '\\' => ' ',
                    _ => return None,
                },
                other => other,
            });
        }
        (!has_unclear_word(&plain)).then_some(())?;
        self.push(token, length);
        Some(())
    }

    fn template(&mut self) -> Option<()> {
        let mut length = 1;
        loop {
            match self.byte(length)? {
                b'\\' => length += 2,
                b'`' => break,
                b'$' if self.byte(length + 1) == Some(b'{') => return None,
                _ => length += 1,
            }
        }
        self.text(Token::Template, length + 1)
    }

    fn slash(&mut self) -> Option<()> {
        match self.byte(1) {
            Some(b'/') => {
                let length = self.rest().find(['\n', '\r']).unwrap_or(self.rest().len());
                self.at += length;
                Some(())
            }
            Some(b'*') => {
                let length = self.rest().get(2..)?.find("*/")? + 4;
                self.begins_line |= self.rest().get(..length)?.contains(['\n', '\r']);
                self.at += length;
                Some(())
            }
            _ if self.divides()? => {
                self.push(Token::Sign('/'), 1);
                Some(())
            }
            _ => self.regular_expression(),
        }
    }

    fn divides(&self) -> Option<bool> {
        if self.begins_line {
            return None;
        }
        Some(match self.tokens.last()? {
            Token::Literal | Token::Template | Token::Sign(']') => true,
            Token::Word(word) => {
                let is_member =
                    self.tokens.len().checked_sub(2).and_then(|at| self.tokens.get(at)) == Some(&Token::Dot);
                if *word == "of" && !is_member {
                    return None;
                }
                is_member || !BEFORE_EXPRESSIONS.contains(word)
            }
            Token::Sign(')' | '}' | '+' | '-') => return None,
            Token::Dot => return None,
            Token::Arrow | Token::Sign(_) => false,
        })
    }

    fn regular_expression(&mut self) -> Option<()> {
        let (mut length, mut in_class) = (1, false);
        loop {
            match self.byte(length)? {
                b'\n' | b'\r' => return None,
                b'\\' => length += 1,
                b'[' => in_class = true,
                b']' => in_class = false,
                b'/' if !in_class => break,
                _ => {}
            }
            length += 1;
        }
        length += 1;
        while self.byte(length).is_some_and(|byte| byte.is_ascii_alphabetic()) {
            length += 1;
        }
        (!has_unclear_word(self.rest().get(..length)?)).then_some(())?;
        self.push(Token::Literal, length);
        Some(())
    }
}
