//! Collects the answers of other nodes to what was asked for together, and keeps them until their turn comes.
//!
//! A client can ask for much, and take nothing. So what waits is in the node's account, of the connection and of all together.

use std::{collections::VecDeque, sync::Arc};

use engine::Waiter;
use parking_lot::Mutex;

use crate::state::{
    account::{Accounted, NodeAccount, NodePool},
    completion::{Answer, Answered, Bytes, Completion, Unanswered},
    errand::Asked,
};

/// Bytes of answers kept for later; what is more is asked for again in its turn.
const KEPT_BYTES: usize = 1 << 20;
/// As much may be on its way to and from other nodes where an answer is kept for later. Requests may take more, so that answers that
/// nobody takes leave room for them.
const KEPT_BYTES_OF_ALL: u64 = 64 << 20;

/// Collects the answers to what was asked for together.
#[derive(Debug)]
pub(crate) struct Gathering {
    asked: Asked,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    first: Answer,
    /// The keys behind the first, and what was answered.
    others: Vec<(Bytes, Option<Bytes>)>,
    kept: usize,
    missing: usize,
    /// Of all answers.
    held: Accounted,
}

impl Gathering {
    /// Of one retrieval, and of those keys behind it.
    pub(crate) fn new(asked: Asked, keys: Vec<Bytes>, account: &Arc<NodeAccount>) -> Self {
        let missing = 1 + keys.len();
        let others = keys.into_iter().map(|key| (key, None)).collect();
        let held = Accounted::new(account, NodePool::Forwarding, 0);
        let state = State { first: Err(Unanswered::Lost), others, kept: 0, missing, held };
        Self { asked, state: Mutex::new(state) }
    }

    /// Whether its asker waits still.
    pub(crate) fn set_out(&self) -> bool {
        self.asked.set_out()
    }

    /// Takes an answer; place 0 is the first retrieval's. The last answer completes the gathering: its asker is returned with what it is to
    /// be told. Where the first has no room to wait for others, it completes the gathering too. The others are asked for again in their turn.
    pub(crate) fn put(&self, place: usize, answer: Answer) -> Option<(Waiter, Completion)> {
        let mut state = self.state.lock();
        if state.missing == 0 {
            return None;
        }
        state.missing -= 1;
        if !state.take(place, answer) {
            state.missing = 0;
        }
        (state.missing == 0).then(|| (self.asked.waiter, state.completion(self.asked.clone())))
    }
}

impl State {
    /// False where there is no room for the first answer to wait.
    fn take(&mut self, place: usize, answer: Answer) -> bool {
        if place == 0 {
            let bytes = answer.as_ref().map_or(0, |packet| packet.len());
            self.first = answer;
            return self.held.grow_within(bytes, KEPT_BYTES_OF_ALL);
        }
        if let (Some((key, slot)), Ok(packet)) = (self.others.get_mut(place - 1), answer)
            && self.kept + packet.len() <= KEPT_BYTES
            && self.held.grow_within(key.len() + packet.len(), KEPT_BYTES_OF_ALL)
        {
            self.kept += packet.len();
            *slot = Some(packet);
        }
        true
    }

    fn completion(&mut self, asked: Asked) -> Completion {
        let first = std::mem::replace(&mut self.first, Err(Unanswered::Lost));
        let others = std::mem::take(&mut self.others).into_iter();
        let others = others.filter_map(|(key, packet)| Some((key, packet?))).collect();
        Completion::Gathered { asked, first, others: Kept::new(others, self.held.take_over()) }
    }
}

/// Answers that wait for their turn, in their order. They are in the account for as long.
#[derive(Debug)]
pub(crate) struct Kept {
    answers: VecDeque<Answered>,
    bytes: usize,
    held: Accounted,
}

impl Kept {
    /// `held` counts them from now on.
    pub(crate) fn new(answers: Vec<Answered>, mut held: Accounted) -> Self {
        let bytes = answers.iter().map(bytes_of).sum();
        held.set(bytes);
        Self { answers: answers.into(), bytes, held }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// The answer to a retrieval of that key, if it is the next one.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Bytes> {
        let answer = self.answers.pop_front_if(|(next, _)| **next == *key)?;
        self.bytes -= bytes_of(&answer);
        self.held.set(self.bytes);
        Some(answer.1)
    }
}

fn bytes_of((key, packet): &Answered) -> usize {
    key.len() + packet.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::errand::Errand;

    const WAITER: Waiter = Waiter { worker: 0, connection: 1, ticket: 2 };

    fn gathering(account: &Arc<NodeAccount>) -> Gathering {
        let keys = [&b"a"[..], b"b", b"c"].map(Box::from).to_vec();
        Gathering::new(Errand::new().asked_by(WAITER), keys, account)
    }

    fn packet(bytes: usize) -> Answer {
        Ok(vec![7; bytes].into())
    }

    #[test]
    fn a_waiter_is_told_once_and_what_is_too_much_is_left_out() {
        let gathering = gathering(&Arc::default());
        assert!(gathering.put(1, packet(10)).is_none());
        assert!(gathering.put(3, packet(KEPT_BYTES)).is_none());
        assert!(gathering.put(2, Err(Unanswered::Lost)).is_none());
        let Some((WAITER, Completion::Gathered { first: Ok(first), mut others, .. })) =
            gathering.put(0, packet(2 * KEPT_BYTES))
        else {
            panic!("all are here");
        };
        assert_eq!(first.len(), 2 * KEPT_BYTES, "there is always one that gets on");
        assert_eq!(others.take(b"a"), Some(Box::from([7; 10])));
        assert!(others.is_empty());
    }

    #[test]
    fn what_is_kept_is_counted_for_as_long() {
        let account = Arc::<NodeAccount>::default();
        let held = || account.of(NodePool::Forwarding);
        let gathering = gathering(&account);
        assert!(gathering.put(0, packet(1000)).is_none());
        assert!(gathering.put(1, packet(99)).is_none());
        assert_eq!(held(), 1100);
        assert!(gathering.put(2, packet(9)).is_none());
        let told = gathering.put(3, Err(Unanswered::Lost));
        assert!(matches!(told, Some((WAITER, Completion::Gathered { .. }))));
        assert_eq!(held(), 110, "the first is its connection's now");
        drop(told);
        assert_eq!(held(), 0);
    }

    /// A crowd of clients that take nothing, each of them with answers that wait.
    #[test]
    fn nothing_is_kept_for_later_where_much_waits_already() {
        let account = Arc::default();
        let _others = Accounted::new(&account, NodePool::Forwarding, KEPT_BYTES_OF_ALL as usize);
        let gathering = gathering(&account);
        assert!(gathering.put(1, packet(10)).is_none());
        let Some((WAITER, Completion::Gathered { first: Ok(_), others, .. })) = gathering.put(0, packet(10))
        else {
            panic!("the first waits for nothing");
        };
        assert!(others.is_empty());
        assert!(gathering.put(2, packet(10)).is_none(), "its waiter was told");
        assert!(gathering.put(3, packet(10)).is_none());
        assert_eq!(account.of(NodePool::Forwarding), KEPT_BYTES_OF_ALL);
    }
}
