//! Groups of rows that follow one another.

use crate::{
    collation::{group_prefix, group_text},
    query::Grouping,
};

/// A group whose rows have all been seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<S> {
    /// The text of its key: of its first row, cut to the level; `null` where all rows are one group.
    pub key: String,
    /// What its rows came to.
    pub state: S,
}

/// Tells apart the groups of rows that come in the order of their keys, in either direction.
#[derive(Debug)]
pub struct Groups<S> {
    grouping: Grouping,
    current: Option<(Vec<u8>, Group<S>)>,
}

impl<S> Groups<S> {
    /// No rows yet.
    #[must_use]
    pub fn new(grouping: Grouping) -> Self {
        Self { grouping, current: None }
    }

    /// Gives the state that a row with this key belongs to, and the group that ended before it. `new` makes the state of a
    /// group without rows.
    pub fn row(&mut self, encoded: &[u8], text: &str, new: impl FnOnce() -> S) -> (Option<Group<S>>, &mut S) {
        let decides = match self.grouping {
            Grouping::All => &[],
            Grouping::Exact => encoded,
            Grouping::Level(level) => group_prefix(encoded, level).unwrap_or(encoded),
        };
        let mut ended = None;
        if self.current.as_ref().is_some_and(|(of, _)| of != decides) {
            ended = self.current.take().map(|(_, group)| group);
        }
        let grouping = self.grouping;
        let (_, group) = self.current.get_or_insert_with(|| {
            let key = match grouping {
                Grouping::All => "null".to_owned(),
                Grouping::Exact => text.to_owned(),
                Grouping::Level(level) => group_text(text, level),
            };
            (decides.to_vec(), Group { key, state: new() })
        });
        (ended, &mut group.state)
    }

    /// The last group, where there was a row.
    #[must_use]
    pub fn end(self) -> Option<Group<S>> {
        self.current.map(|(_, group)| group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collation::encode;

    fn groups(grouping: Grouping, keys: &[&str]) -> Vec<(String, u32)> {
        let mut groups = Groups::new(grouping);
        let mut found = Vec::new();
        for key in keys {
            let mut encoded = Vec::new();
            encode(key, &mut encoded).unwrap();
            let (ended, state) = groups.row(&encoded, key, || 0);
            *state += 1;
            found.extend(ended);
        }
        found.extend(groups.end());
        found.into_iter().map(|group| (group.key, group.state)).collect()
    }

    fn expect(grouping: Grouping, keys: &[&str], expected: &[(&str, u32)]) {
        let found = groups(grouping, keys);
        let found: Vec<(&str, u32)> = found.iter().map(|(key, rows)| (key.as_str(), *rows)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn rows_that_follow_one_another_are_grouped() {
        let keys = ["1", "1.0", "\"a\"", "[1]", "[1,2]", "[1.0,2,3]", "[1,3]"];
        expect(Grouping::All, &keys, &[("null", 7)]);
        expect(Grouping::All, &[], &[]);
        let exact = [("1", 2), ("\"a\"", 1), ("[1]", 1), ("[1,2]", 1), ("[1.0,2,3]", 1), ("[1,3]", 1)];
        expect(Grouping::Exact, &keys, &exact);
        expect(Grouping::Level(1), &keys, &[("1", 2), ("\"a\"", 1), ("[1]", 4)]);
        expect(Grouping::Level(2), &keys, &[("1", 2), ("\"a\"", 1), ("[1]", 1), ("[1,2]", 2), ("[1,3]", 1)]);
        let backwards: Vec<&str> = keys.into_iter().rev().collect();
        expect(Grouping::Level(1), &backwards, &[("[1]", 4), ("\"a\"", 1), ("1.0", 2)]);
    }
}
