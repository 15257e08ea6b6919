//! JSON texts (RFC 8259) read token by token: no tree, no recursion, and no allocation up to 64 levels.
//!
//! Every token is checked while it is read, so a text that was read to its end is well formed.

mod scan;
mod strings;
mod tokens;

pub(crate) use scan::plain_bytes;
pub use strings::{LoneSurrogate, unescape, write_string};
pub use tokens::{Kind, Token, Tokens};

/// Where a text is no JSON, and what was found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Offset in bytes.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Checks that `text` is one well-formed JSON value.
///
/// # Errors
/// The text is no JSON.
pub fn check(text: &str) -> Result<(), JsonError> {
    let mut tokens = Tokens::new(text);
    while tokens.next()?.is_some() {}
    Ok(())
}

/// The value of a JSON string, or `None` where `text` is something else or has half of a surrogate pair.
#[must_use]
pub fn as_string(text: &str) -> Option<String> {
    let token = only_token(text)?;
    if token.kind != Kind::String {
        return None;
    }
    unescape(&token).ok().map(std::borrow::Cow::into_owned)
}

/// The value of a JSON number, or `None` where `text` is something else.
#[must_use]
pub fn as_number(text: &str) -> Option<f64> {
    let token = only_token(text)?;
    if token.kind == Kind::Number { token.text.parse().ok() } else { None }
}

/// The kind of value that a text is.
///
/// # Errors
/// The text is no JSON.
pub fn kind(text: &str) -> Result<Kind, JsonError> {
    check(text)?;
    let first = Tokens::new(text).next()?;
    Ok(first.map_or(Kind::Null, |token| token.kind))
}

fn only_token(text: &str) -> Option<Token<'_>> {
    let mut tokens = Tokens::new(text);
    let token = tokens.next().ok()??;
    tokens.next().ok()?.is_none().then_some(token)
}

/// The elements of an array, each as its text, or `None` where `text` is something else.
#[must_use]
pub fn elements(text: &str) -> Option<Vec<&str>> {
    let mut tokens = Tokens::new(text);
    if tokens.next().ok()??.kind != Kind::Array {
        return None;
    }
    let mut found = Vec::new();
    loop {
        let first = tokens.next().ok()??;
        if first.kind == Kind::End {
            break;
        }
        found.push(tokens.rest_of(&first).ok()?);
    }
    tokens.next().ok()?.is_none().then_some(found)
}

/// The members of an object in their order, duplicates included, each with its decoded name and the text of its value.
///
/// `None` where `text` is something else, or a name has half of a surrogate pair.
#[must_use]
pub fn members(text: &str) -> Option<Vec<(String, &str)>> {
    let mut tokens = Tokens::new(text);
    if tokens.next().ok()??.kind != Kind::Object {
        return None;
    }
    let mut found = Vec::new();
    loop {
        let name = tokens.next().ok()??;
        if name.kind == Kind::End {
            break;
        }
        let first = tokens.next().ok()??;
        let value = tokens.rest_of(&first).ok()?;
        found.push((unescape(&name).ok()?.into_owned(), value));
    }
    tokens.next().ok()?.is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_json_and_texts_that_are_not() {
        let good = [
            "null",
            " true ",
            "[]",
            "{}",
            "[1,2]",
            "{\"a\":[{}]}",
            "-0",
            "1e5",
            "0.5E-3",
            "\"\\u00e9\\n\"",
            "\"é\"",
            "[[[]]]",
        ];
        let bad = [
            "",
            " ",
            "nul",
            "truex",
            "[",
            "]",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\t\"",
            "1 2",
            "[1 2]",
            "{\"a\":1 \"b\":2}",
            "[}",
            "{]",
            "\"\\",
            "NaN",
            "'a'",
        ];
        for text in good {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in bad {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_texts_are_read_without_a_stack() {
        let deep = 100_000;
        let text = "[".repeat(deep) + &"]".repeat(deep);
        assert_eq!(check(&text), Ok(()));
        let mixed = "[{\"a\":".repeat(200) + "1" + &"}]".repeat(200);
        assert_eq!(check(&mixed), Ok(()));
        let crossed = "[{\"a\":".repeat(200) + "1" + &"]}".repeat(200);
        assert!(check(&crossed).is_err());
    }

    #[test]
    fn values_are_skipped_to_their_end() {
        let values = [
            "null",
            " 1.5 ",
            "\"a\\\"]\"",
            "[]",
            "{}",
            "[[1,\"]\"],{\"}\":[\"\\\\\"]}]",
            " { \"a\" : [ ] } ",
        ];
        for first in values {
            for second in values {
                let text = format!("{{\"x\":{first},\"y\":{second}}}");
                let mut tokens = Tokens::new(&text);
                assert_eq!(tokens.next().unwrap().map(|token| token.kind), Some(Kind::Object));
                for value in [first, second] {
                    assert_eq!(tokens.next().unwrap().map(|token| token.kind), Some(Kind::Name), "{text}");
                    assert_eq!(tokens.skip_value(), Ok(value.trim()), "{text}");
                }
                assert_eq!(tokens.next().unwrap().map(|token| token.kind), Some(Kind::End), "{text}");
                assert!(tokens.next().unwrap().is_none());
            }
        }
        for text in ["{\"x\":[", "{\"x\":[\"", "{\"x\":{\"a\\", "{\"x\":", "{\"x\":}"] {
            let mut tokens = Tokens::new(text);
            let _ = (tokens.next(), tokens.next());
            assert!(tokens.skip_value().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_are_given_as_their_text() {
        assert_eq!(
            elements(" [1 , [2,3] ,\"x\", {\"a\": [ ]}] "),
            Some(vec!["1", "[2,3]", "\"x\"", "{\"a\": [ ]}"])
        );
        assert_eq!(elements("{}"), None);
        let members = members("{\"a\\u0062\": 1.0, \"a\":[1, 2] , \"a\":null}");
        let expected = [("ab", "1.0"), ("a", "[1, 2]"), ("a", "null")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(members, Some(expected.to_vec()));
        assert_eq!(as_string("\"\\ud83d\\ude00\""), Some("😀".to_owned()));
        assert_eq!(as_string("\"\\ud83d\""), None);
        assert_eq!(as_number(" -1.5e3"), Some(-1500.0));
    }
}
