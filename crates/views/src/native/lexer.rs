//! Tokens of sources that consist of what programs may consist of.

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Number(f64),
    Text(String),
    Sign(&'static str),
}

/// A token, and whether a line ends between it and the one before.
pub(super) struct Placed<'a> {
    pub(super) token: Token<'a>,
    pub(super) begins_line: bool,
}

/// A number of so many digits is the same for every reader.
const DIGITS_MAX: usize = 17;
/// Longer ones come before those that they begin with. What is no part of a program is here where it would be taken for something else.
const SIGNS: &[&str] = &[
    ">>>=", "===", "!==", "...", "<<=", ">>=", ">>>", "**=", "&&=", "||=", "??=", "==", "!=", "<=", ">=",
    "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "=>", "**", "<<",
    ">>", "(", ")", "{", "}", "[", "]", ";", ",", ".", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "=",
];

/// The tokens of a source, or nothing where something else is in it.
pub(super) fn tokens(source: &str) -> Option<Vec<Placed<'_>>> {
    // In sloppy mode the first two begin comments. The engine takes no zero byte.
    if ["<!--", "-->", "\0"].iter().any(|other| source.contains(other)) {
        return None;
    }
    let (mut rest, mut tokens, mut begins_line) = (source, Vec::new(), false);
    while let Some(first) = rest.bytes().next() {
        if matches!(first, b' ' | b'\t' | b'\n' | b'\r') {
            begins_line |= matches!(first, b'\n' | b'\r');
            rest = rest.get(1..)?;
            continue;
        }
        if let Some(behind) = comment(rest)? {
            begins_line |= rest.get(..rest.len() - behind.len())?.contains(['\n', '\r']);
            rest = behind;
            continue;
        }
        let (token, behind) = token(first, rest)?;
        tokens.push(Placed { token, begins_line: std::mem::take(&mut begins_line) });
        rest = behind;
    }
    Some(tokens)
}

/// What is behind a comment at the beginning of `rest`, if there is one. A comment of a line has an end: the engine puts sources between
/// parentheses, and the comment would have the second one.
fn comment(rest: &str) -> Option<Option<&str>> {
    if rest.starts_with("//") {
        let end = rest.find(['\n', '\r', '\u{2028}', '\u{2029}'])?;
        return Some(rest.get(end..));
    }
    let Some(inside) = rest.strip_prefix("/*") else { return Some(None) };
    let (_, behind) = inside.split_once("*/")?;
    Some(Some(behind))
}

fn token(first: u8, rest: &str) -> Option<(Token<'_>, &str)> {
    match first {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => {
            let (word, behind) = rest.split_at(length_of(rest, is_part));
            Some((Token::Word(word), behind))
        }
        b'0'..=b'9' => number(rest),
        b'"' | b'\'' => text(first, rest),
        _ => {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
            Some((Token::Sign(sign), rest.get(sign.len()..)?))
        }
    }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

fn length_of(text: &str, is: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| is(*byte)).count()
}

fn number(rest: &str) -> Option<(Token<'_>, &str)> {
    let whole = length_of(rest, |byte| byte.is_ascii_digit());
    let mut length = whole;
    if rest.as_bytes().get(whole) == Some(&b'.') {
        let fraction = length_of(rest.get(whole + 1..)?, |byte| byte.is_ascii_digit());
        (fraction > 0).then_some(())?;
        length += 1 + fraction;
    }
    let (text, behind) = rest.split_at_checked(length)?;
    // Octal, hexadecimal and other ones. Of many digits the engine may make another number.
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if digits > DIGITS_MAX
        || (text.starts_with('0') && whole > 1)
        || behind.bytes().next().is_some_and(is_part)
    {
        return None;
    }
    Some((Token::Number(text.parse().ok()?), behind))
}

fn text(quote: u8, rest: &str) -> Option<(Token<'_>, &str)> {
    let (mut out, mut characters) = (String::new(), rest.char_indices().skip(1));
    loop {
        let (at, character) = characters.next()?;
        match character {
            '"' | '\'' if character == char::from(quote) => {
                return Some((Token::Text(out), rest.get(at + 1..)?));
            }
            '\\' => out.push(match characters.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other @ ('\\' | '"' | '\'' | '/') => other,
                _ => return None,
            }),
            '\n' | '\r' | '\u{2028}' | '\u{2029}' => return None,
            other => out.push(other),
        }
    }
}
