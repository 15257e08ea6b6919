//! Values, and what ECMAScript says of them. Where it converts in a way that is not plainly known here, nothing is said.

use std::{borrow::Cow, io::Write};

use super::parser::Binary;
use crate::{
    canonical::{self, number_text},
    json::{Kind, Tokens, unescape, write_string},
};

/// Whole numbers below this are written digit by digit, and so is every text of them.
const EXACT: f64 = 1e15;

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Cow<'a, str>),
    /// The JSON text of an array.
    Array(&'a str),
    /// The JSON text of an object.
    Object(&'a str),
}

use Value::{Array, Bool, Null, Number, Object, Text, Undefined};

impl<'a> Value<'a> {
    /// The value of a JSON text.
    pub(super) fn of(json: &'a str) -> Option<Self> {
        let json = json.trim_start_matches([' ', '\t', '\n', '\r']);
        Some(match json.as_bytes().first()? {
            b'{' => Object(json),
            b'[' => Array(json),
            _ => {
                let mut tokens = Tokens::new(json);
                let token = tokens.next().ok()??;
                tokens.next().ok()?.is_none().then_some(())?;
                match token.kind {
                    Kind::Null => Null,
                    Kind::True => Bool(true),
                    Kind::False => Bool(false),
                    Kind::Number => Number(number(token.text)?),
                    Kind::String => Text(unescape(&token).ok()?),
                    _ => return None,
                }
            }
        })
    }

    /// The value of a text without blanks around it, which was read as one value.
    pub(super) fn of_read(json: &'a str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'{' => Some(Object(json)),
            b'[' => Some(Array(json)),
            b'"' if memchr::memchr(b'\\', json.as_bytes()).is_none() => {
                Some(Text(Cow::Borrowed(json.get(1..json.len().checked_sub(1)?)?)))
            }
            _ => Self::of(json),
        }
    }

    pub(super) fn is_true(&self) -> bool {
        match self {
            Undefined | Null => false,
            Bool(is) => *is,
            Number(number) => *number != 0.0 && !number.is_nan(),
            Text(text) => !text.is_empty(),
            Array(_) | Object(_) => true,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Undefined => "undefined",
            Bool(_) => "boolean",
            Number(_) => "number",
            Text(_) => "string",
            Null | Array(_) | Object(_) => "object",
        }
    }

    /// About how long it takes to look at it.
    pub(super) fn length(&self) -> usize {
        match self {
            Text(text) => text.len(),
            Array(text) | Object(text) => text.len(),
            _ => 0,
        }
    }

    /// Appends the text that `JSON.stringify` gives; says whether it gives one.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Option<bool> {
        match self {
            Undefined => return Some(false),
            Null => out.extend_from_slice(b"null"),
            Bool(true) => out.extend_from_slice(b"true"),
            Bool(false) => out.extend_from_slice(b"false"),
            Number(number) => write_number(*number, out)?,
            Text(text) => write_string(text, out),
            Array(text) | Object(text) => out.extend_from_slice(canonical::stringified(text)?.as_bytes()),
        }
        Some(true)
    }

    /// A number, of what is one for every operator that wants numbers.
    fn as_number(&self) -> Option<f64> {
        match self {
            Number(number) => Some(*number),
            Undefined => Some(f64::NAN),
            Null | Bool(false) => Some(0.0),
            Bool(true) => Some(1.0),
            Text(_) | Array(_) | Object(_) => None,
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn write_number(number: f64, out: &mut Vec<u8>) -> Option<()> {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and small enough")]
    if number.fract() == 0.0 && number.abs() < EXACT {
        // Minus zero is written as zero.
        let _ = write!(out, "{}", number as i64);
    } else {
        out.extend_from_slice(number_text(number)?.as_bytes());
    }
    Some(())
}

/// What an operator makes of two values.
pub(super) fn binary<'a>(operator: Binary, left: &Value<'a>, right: &Value<'a>) -> Option<Value<'a>> {
    Some(match operator {
        Binary::Equal => Bool(is_equal(left, right)?),
        Binary::Unequal => Bool(!is_equal(left, right)?),
        Binary::Same => Bool(is_same(left, right)?),
        Binary::NotSame => Bool(!is_same(left, right)?),
        Binary::Less | Binary::LessOrSame | Binary::Greater | Binary::GreaterOrSame => {
            Bool(compares(operator, left, right)?)
        }
        Binary::Plus => sum(left, right)?,
        Binary::Minus => Number(left.as_number()? - right.as_number()?),
        Binary::Times => Number(left.as_number()? * right.as_number()?),
        Binary::Divided => Number(left.as_number()? / right.as_number()?),
        Binary::Remainder => Number(left.as_number()? % right.as_number()?),
        Binary::And | Binary::Or => return None,
    })
}

fn is_same(left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    Some(match (left, right) {
        (Undefined, Undefined) | (Null, Null) => true,
        (Bool(left), Bool(right)) => left == right,
        (Number(left), Number(right)) => left == right,
        (Text(left), Text(right)) => left == right,
        // Equal texts may be of one object or of two.
        (Array(_) | Object(_), Array(_) | Object(_)) => return None,
        _ => false,
    })
}

fn is_equal(left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    match (left, right) {
        (Undefined | Null, Undefined | Null) => Some(true),
        (Undefined | Null, _) | (_, Undefined | Null) => Some(false),
        (Bool(_), Bool(_)) | (Number(_), Number(_)) | (Text(_), Text(_)) => is_same(left, right),
        _ => None,
    }
}

fn compares(operator: Binary, left: &Value<'_>, right: &Value<'_>) -> Option<bool> {
    if let (Text(left), Text(right)) = (left, right) {
        let order = left.encode_utf16().cmp(right.encode_utf16());
        return Some(match operator {
            Binary::Less => order.is_lt(),
            Binary::LessOrSame => order.is_le(),
            Binary::Greater => order.is_gt(),
            _ => order.is_ge(),
        });
    }
    let (left, right) = (left.as_number()?, right.as_number()?);
    Some(match operator {
        Binary::Less => left < right,
        Binary::LessOrSame => left <= right,
        Binary::Greater => left > right,
        _ => left >= right,
    })
}

fn sum<'a>(left: &Value<'a>, right: &Value<'a>) -> Option<Value<'a>> {
    let joined = |left: &str, right: &str| Text(Cow::Owned([left, right].concat()));
    let text = |number: f64| {
        let is_finite = number.is_finite();
        let mut out = Vec::new();
        is_finite.then(|| write_number(number, &mut out))??;
        String::from_utf8(out).ok()
    };
    Some(match (left, right) {
        (Text(left), Text(right)) => joined(left, right),
        (Text(left), Number(right)) => joined(left, &text(*right)?),
        (Number(left), Text(right)) => joined(&text(*left)?, right),
        _ => Number(left.as_number()? + right.as_number()?),
    })
}
