//! What is told of documents that a view does not have: the last ones, with the reason, and how many there were.

use std::collections::{BTreeMap, VecDeque};

use views::index::RefusedValue;

/// So many are told of each view.
const KEPT: usize = 20;
/// Bytes of an id and of a text that are kept.
const TEXT_BYTES_MAX: usize = 1024;

/// A document that a view does not have, or has without some rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The document.
    pub docid: String,
    /// Why.
    pub text: String,
}

/// The mistakes of one view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewMistakes {
    /// How many since the index was opened.
    pub count: u64,
    /// The last ones, the oldest first.
    pub last: VecDeque<Mistake>,
    /// The last rows that `_sum` and `_stats` leave out, since their values are no numbers. The index itself knows how many it has.
    pub values: VecDeque<RefusedValue>,
}

/// The mistakes of the views of an index, by the number of their map function.
#[derive(Clone, Debug, Default)]
pub struct Mistakes(BTreeMap<usize, ViewMistakes>);

impl Mistakes {
    /// Notes one.
    pub fn note(&mut self, map: usize, docid: &str, text: &str) {
        let of_view = self.0.entry(map).or_default();
        of_view.count = of_view.count.saturating_add(1);
        if of_view.last.len() >= KEPT {
            of_view.last.pop_front();
        }
        of_view.last.push_back(Mistake { docid: bounded(docid), text: bounded(text) });
    }

    /// Notes a row that a reduction leaves out.
    pub fn note_value(&mut self, map: usize, value: &RefusedValue) {
        let values = &mut self.0.entry(map).or_default().values;
        if values.len() >= KEPT {
            values.pop_front();
        }
        values.push_back(RefusedValue { docid: bounded(&value.docid), key: bounded(&value.key) });
    }

    /// Those of the views of a map function.
    #[must_use]
    pub fn of(&self, map: usize) -> ViewMistakes {
        self.0.get(&map).cloned().unwrap_or_default()
    }
}

/// The beginning of a text, of whole characters.
fn bounded(text: &str) -> String {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_all_are_counted() {
        let mut mistakes = Mistakes::default();
        for number in 0..100 {
            mistakes.note(1, &format!("d{number}"), "thrown");
        }
        mistakes.note(2, "x", &"é".repeat(1000));
        let first = mistakes.of(1);
        assert_eq!((first.count, first.last.len()), (100, KEPT));
        assert_eq!(first.last.front().map(|mistake| mistake.docid.as_str()), Some("d80"));
        assert_eq!(first.last.back().map(|mistake| mistake.docid.as_str()), Some("d99"));
        assert_eq!(mistakes.of(2).last.front().map(|mistake| mistake.text.len()), Some(TEXT_BYTES_MAX));
        assert_eq!(mistakes.of(0), ViewMistakes::default());
        for number in 0..30 {
            mistakes.note_value(3, &RefusedValue { docid: format!("d{number}"), key: "1".repeat(2000) });
        }
        let third = mistakes.of(3);
        let oldest = third.values.front().map(|value| (value.docid.as_str(), value.key.len()));
        assert_eq!((third.count, third.values.len(), oldest), (0, KEPT, Some(("d10", TEXT_BYTES_MAX))));
    }
}
