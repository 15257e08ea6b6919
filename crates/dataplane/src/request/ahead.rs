//! Answers of other nodes that wait for their turn on a connection.

use std::collections::VecDeque;

use crate::state::completion::{Answered, Bytes};

/// Answers to retrievals whose turn is still to come, by key, in their order.
#[derive(Debug, Default)]
pub(crate) struct Ahead(VecDeque<Answered>);

impl Ahead {
    /// These are next.
    pub(crate) fn fill(&mut self, answers: Vec<Answered>) {
        self.0 = answers.into();
    }

    /// The answer to a retrieval of that key, if it is the next one.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Bytes> {
        let (_, packet) = self.0.pop_front_if(|(next, _)| **next == *key)?;
        Some(packet)
    }

    /// Something else is next.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_in_their_order() {
        let mut ahead = Ahead::default();
        let answers = [b"a", b"a", b"b"].map(|key| (Box::from(&key[..]), Box::from(&key[..])));
        ahead.fill(answers.to_vec());
        assert!(ahead.take(b"b").is_none());
        assert!(ahead.take(b"a").is_some());
        assert!(ahead.take(b"a").is_some());
        assert!(ahead.take(b"a").is_none());
        ahead.clear();
        assert!(ahead.take(b"b").is_none());
    }
}
