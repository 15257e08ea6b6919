//! Answers of other nodes that wait for their turn on a connection.

use crate::state::{completion::Bytes, gathering::Kept};

/// Answers to retrievals whose turn is still to come, by key, in their order. Most connections never have any.
#[derive(Debug, Default)]
pub(crate) struct Ahead(Option<Box<Kept>>);

impl Ahead {
    /// These are next.
    pub(crate) fn fill(&mut self, answers: Kept) {
        self.0 = (!answers.is_empty()).then(|| Box::new(answers));
    }

    /// The answer to a retrieval of that key, if it is the next one.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Bytes> {
        let kept = self.0.as_mut()?;
        let packet = kept.take(key);
        if kept.is_empty() {
            self.clear();
        }
        packet
    }

    /// Something else is next.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::state::account::{Accounted, NodeAccount, NodePool};

    #[test]
    fn answers_are_taken_in_their_order_and_counted_until_then() {
        let (mut ahead, account) = (Ahead::default(), Arc::<NodeAccount>::default());
        let held = || account.of(NodePool::Forwarding);
        let answers = [b"a", b"a", b"b"].map(|key| (Box::from(&key[..]), Box::from(&[7; 9][..])));
        let room = Accounted::new(&account, NodePool::Forwarding, 0);
        ahead.fill(Kept::new(answers.to_vec(), room));
        assert_eq!(held(), 30);
        assert!(ahead.take(b"b").is_none());
        assert!(ahead.take(b"a").is_some());
        assert!(ahead.take(b"a").is_some());
        assert!(ahead.take(b"a").is_none());
        assert_eq!(held(), 10);
        ahead.clear();
        assert!(ahead.take(b"b").is_none());
        assert_eq!(held(), 0);
    }
}
