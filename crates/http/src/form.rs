//! `application/x-www-form-urlencoded` text and path segments, decoded strictly: what is no UTF-8 or no proper percent
//! escape is an error, never a guess. The crate `form_urlencoded` replaces what it cannot decode, so it is not used.

use cluster::FieldErrors;

/// Most fields in a form; more is refused.
const FIELDS_MAX: usize = 1000;

/// Decoded names and values in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl From<Vec<(String, String)>> for Form {
    fn from(fields: Vec<(String, String)>) -> Self {
        Self(fields)
    }
}

impl Form {
    /// Decodes a body or query string; `None` when it is malformed.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        for part in text.split(|byte| *byte == b'&').filter(|part| !part.is_empty()) {
            if fields.len() == FIELDS_MAX {
                return None;
            }
            let at = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
            let (name, value) = part.split_at(at);
            fields.push((decode(name, true)?, decode(value.strip_prefix(b"=").unwrap_or(value), true)?));
        }
        Some(Self(fields))
    }

    /// The last value given for `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every field.
    pub fn fields(&self) -> &[(String, String)] {
        &self.0
    }

    /// Whether a field says yes.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true"))
    }

    /// A whole number, or a refusal recorded in `errors`.
    pub fn integer<T: std::str::FromStr>(&self, name: &str, errors: &mut FieldErrors) -> Option<T> {
        let value = self.get(name)?;
        let number = value.trim().parse().ok();
        if number.is_none() {
            errors.insert(name.into(), "The value must be an integer".into());
        }
        number
    }

    /// A switch, or a refusal recorded in `errors`.
    pub fn boolean(&self, name: &str, errors: &mut FieldErrors) -> Option<bool> {
        match self.get(name)? {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => {
                errors.insert(name.into(), "The value must be one of the following: [true,false]".into());
                None
            }
        }
    }
}

/// Encodes fields as a form.
pub fn encode(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A text with percent escapes, for a path or a form.
pub fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut escaped, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
        escaped
    })
}

/// Decodes percent escapes, and `+` as a space in forms; `None` when it is malformed.
pub fn decode(text: &[u8], plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'%' => bytes.push(hex_digit(*rest.next()?)? << 4 | hex_digit(*rest.next()?)?),
            b'+' if plus_is_space => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_decode_and_malformed_ones_are_refused() {
        let form = Form::parse(b"name=a+b%2Bc&empty=&bare&x=1&x=2").unwrap();
        assert_eq!(form.get("name"), Some("a b+c"));
        assert_eq!((form.get("empty"), form.get("bare"), form.get("x")), (Some(""), Some(""), Some("2")));
        assert_eq!(form.get("absent"), None);
        for malformed in [&b"a=%"[..], b"a=%4", b"a=%zz", b"%ff=1", b"a=\xff"] {
            assert_eq!(Form::parse(malformed), None, "{malformed:?}");
        }
        assert_eq!(Form::parse("&x".repeat(FIELDS_MAX + 1).as_bytes()), None);
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        let fields = [("host name", "http://[::1]:8091/?a=b&c"), ("é", "+%")];
        let form = Form::parse(encode(&fields).as_bytes()).unwrap();
        for (name, value) in fields {
            assert_eq!(form.get(name), Some(value));
        }
    }

    #[test]
    fn a_plus_in_a_path_is_a_plus() {
        assert_eq!(decode(b"a+b%20c", false).as_deref(), Some("a+b c"));
    }
}
