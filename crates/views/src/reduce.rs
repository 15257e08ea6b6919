//! Reductions that need no JavaScript, and the grouping of rows.
//!
//! A reduction is a [`State`] that rows are added to and states are merged into, in any order. Sums carry what rounding
//! lost, so that their fifteen digits do not depend on that order as long as they can be told.
//!
//! In Couchbase one row whose value is no number stops a whole index with `_sum` or `_stats`. Here such a row is left out
//! of the reduction, and counted; the caller learns which row it was.

mod groups;
mod number;

pub use groups::{Group, Groups};
pub use number::number_text;

use crate::json;

/// A reduction without JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// How many rows.
    Count,
    /// The sum of their values.
    Sum,
    /// Sum, count, least, greatest, and sum of squares of their values.
    Stats,
}

/// A row was left out of a reduction: its value is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Value is not a number")]
pub struct NotANumber;

/// The sum of doubles with what rounding lost of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let total = self.sum + value;
        self.lost += if self.sum.abs() >= value.abs() {
            (self.sum - total) + value
        } else {
            (value - total) + self.sum
        };
        self.sum = total;
    }

    fn merge(&mut self, other: &Self) {
        self.add(other.sum);
        self.lost += other.lost;
    }

    /// Where the sum is beyond all doubles, what was lost means nothing.
    fn value(&self) -> f64 {
        if self.lost.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

/// What is known of the rows that were added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    kind: Native,
    count: u64,
    left_out: u64,
    sum: Sum,
    squares: Sum,
    least: f64,
    greatest: f64,
}

impl State {
    /// The length of a state's bytes.
    pub const BYTES: usize = 8 * 8;

    /// The state of no rows.
    #[must_use]
    pub fn new(kind: Native) -> Self {
        let (least, greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { kind, count: 0, left_out: 0, sum: Sum::default(), squares: Sum::default(), least, greatest }
    }

    /// The state of so many rows that are counted.
    pub(crate) fn of_count(rows: u64) -> Self {
        Self { count: rows, ..Self::new(Native::Count) }
    }

    /// Which reduction it is of.
    #[must_use]
    pub fn kind(&self) -> Native {
        self.kind
    }

    /// Adds a row with a value of this text.
    ///
    /// # Errors
    /// The value is no number, and has to be one: the row is left out, and counted.
    pub fn add(&mut self, value: &str) -> Result<(), NotANumber> {
        if self.kind == Native::Count {
            self.count += 1;
            return Ok(());
        }
        let Some(number) = json::as_number(value) else {
            self.left_out += 1;
            return Err(NotANumber);
        };
        self.count += 1;
        self.sum.add(number);
        if self.kind == Native::Stats {
            self.squares.add(number * number);
            self.least = self.least.min(number);
            self.greatest = self.greatest.max(number);
        }
        Ok(())
    }

    /// Adds the rows of another state of the same kind.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }

    /// How many rows were reduced.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many rows were left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The text of the reduction, or `None` where all rows were left out.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let sum = number_text(self.sum.value());
        Some(match self.kind {
            Native::Count => self.count.to_string(),
            Native::Sum => sum,
            Native::Stats => format!(
                "{{\"sum\":{sum},\"count\":{},\"min\":{},\"max\":{},\"sumsqr\":{}}}",
                self.count,
                number_text(self.least),
                number_text(self.greatest),
                number_text(self.squares.value()),
            ),
        })
    }

    /// The state as bytes, for an index to keep.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let floats =
            [self.sum.sum, self.sum.lost, self.squares.sum, self.squares.lost, self.least, self.greatest];
        let words = [self.count, self.left_out].into_iter().chain(floats.map(f64::to_bits));
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The state that bytes of an index tell.
    #[must_use]
    pub fn from_bytes(kind: Native, bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| {
            let word = bytes.get(at * 8..at * 8 + 8).and_then(|word| word.try_into().ok());
            u64::from_be_bytes(word.unwrap_or_default())
        };
        let float = |at| f64::from_bits(word(at));
        Self {
            kind,
            count: word(0),
            left_out: word(1),
            sum: Sum { sum: float(2), lost: float(3) },
            squares: Sum { sum: float(4), lost: float(5) },
            least: float(6),
            greatest: float(7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(kind: Native, values: &[&str]) -> (Option<String>, u64) {
        let mut state = State::new(kind);
        for value in values {
            let _ = state.add(value);
        }
        (state.text(), state.left_out())
    }

    #[test]
    fn reductions_have_the_documented_texts() {
        let values = ["1", "2.5", "-3e0"];
        assert_eq!(reduced(Native::Count, &["null", "[]"]), (Some("2".to_owned()), 0));
        assert_eq!(reduced(Native::Sum, &values), (Some("0.5".to_owned()), 0));
        let stats = "{\"sum\":0.5,\"count\":3,\"min\":-3,\"max\":2.5,\"sumsqr\":16.25}";
        assert_eq!(reduced(Native::Stats, &values), (Some(stats.to_owned()), 0));
        assert_eq!(reduced(Native::Sum, &["0.1", "0.2"]), (Some("0.3".to_owned()), 0));
        assert_eq!(reduced(Native::Sum, &["1e308", "1e308"]), (Some("null".to_owned()), 0));
        assert_eq!(reduced(Native::Sum, &[]), (None, 0));
    }

    #[test]
    fn a_row_that_is_no_number_costs_itself_only() {
        for kind in [Native::Sum, Native::Stats] {
            for bad in ["null", "true", "\"1\"", "[1]", "{}", "", "1 2"] {
                let mut state = State::new(kind);
                assert_eq!(state.add("4"), Ok(()));
                assert_eq!(state.add(bad), Err(NotANumber), "{bad}");
                assert_eq!(state.add("5"), Ok(()));
                assert_eq!((state.count(), state.left_out()), (2, 1));
                assert_eq!(reduced(kind, &["4", "5"]).0, state.text());
            }
            assert_eq!(reduced(kind, &["null"]), (None, 1));
        }
    }

    #[test]
    fn the_order_of_rows_does_not_show() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let mut values: Vec<String> = (0..random.usize(1..60))
                .map(|_| format!("{}e{}", random.i32(-9999..9999), random.i32(-6..6)))
                .collect();
            let text = |values: &[String], cut: usize| {
                let mut parts = [State::new(Native::Stats), State::new(Native::Stats)];
                for (at, value) in values.iter().enumerate() {
                    parts[usize::from(at >= cut)].add(value).unwrap();
                }
                let [mut left, right] = parts;
                let right = State::from_bytes(Native::Stats, &right.to_bytes());
                left.merge(&right);
                left.text()
            };
            let whole = text(&values, 0);
            for _ in 0..5 {
                random.shuffle(&mut values);
                assert_eq!(text(&values, random.usize(..=values.len())), whole);
            }
        }
    }
}
