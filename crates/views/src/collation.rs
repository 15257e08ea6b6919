//! The order of keys: null, false, true, numbers, strings, arrays, objects.
//!
//! Numbers are compared as doubles. Strings are compared by the root collation of the Unicode Collation Algorithm as
//! ICU has it. Arrays are compared element by element, objects token by token in the order of their members. Keys that
//! collate alike are equal, also where their bytes differ (`1` and `1.0`, composed and decomposed letters).
//!
//! [`encode`] turns a key into bytes that `memcmp` orders in the same way; an index stores these. They depend on the
//! version of the collation's data, so an index records [`ENCODING`] and is built anew where that differs.

mod ascii;
mod encode;
mod group;
mod row;

use std::cmp::Ordering;
use std::sync::OnceLock;

use icu_collator::CollatorBorrowed;

pub use encode::{ENCODING, KEY_TEXT_MAX, check_bounded, encode, encode_bounded};
pub use group::{group_prefix, group_text};
pub(crate) use row::split_place;
pub use row::{RowKey, bound, row_key, split_row_key};

use crate::json::{JsonError, Kind, LoneSurrogate, Token, Tokens, unescape};

/// Why a text cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is no JSON.
    #[error("invalid UTF-8 JSON: {0}")]
    NotJson(#[from] JsonError),
    /// It has half of a surrogate pair.
    #[error(transparent)]
    LoneSurrogate(#[from] LoneSurrogate),
    /// It is longer than a key may be.
    #[error("too long key: {0} bytes")]
    TooLong(usize),
}

/// The root collation with no attribute changed.
fn collator() -> &'static CollatorBorrowed<'static> {
    static ROOT: OnceLock<CollatorBorrowed<'static>> = OnceLock::new();
    ROOT.get_or_init(|| {
        #[expect(clippy::expect_used, reason = "the data of the root collation are compiled in")]
        CollatorBorrowed::try_new(
            icu_collator::CollatorPreferences::default(),
            icu_collator::options::CollatorOptions::default(),
        )
        .expect("the root collation")
    })
}

/// How two keys compare, token by token.
///
/// # Errors
/// One of them is no key.
pub fn compare(left: &str, right: &str) -> Result<Ordering, KeyError> {
    let (mut left, mut right) = (Tokens::new(left), Tokens::new(right));
    loop {
        let (Some(left), Some(right)) = (left.next()?, right.next()?) else {
            return Ok(Ordering::Equal);
        };
        let order = compare_tokens(&left, &right)?;
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
}

fn compare_tokens(left: &Token<'_>, right: &Token<'_>) -> Result<Ordering, KeyError> {
    let order = left.kind.cmp(&right.kind);
    if order != Ordering::Equal {
        return Ok(order);
    }
    Ok(match left.kind {
        Kind::Number => number(left).partial_cmp(&number(right)).unwrap_or(Ordering::Equal),
        Kind::String | Kind::Name => collator().compare(&unescape(left)?, &unescape(right)?),
        _ => Ordering::Equal,
    })
}

/// The double that a number's text is nearest to; minus zero is zero.
fn number(token: &Token<'_>) -> f64 {
    token.text.parse::<f64>().unwrap_or(0.0) + 0.0
}
