//! Collects the answers of other nodes to what was asked for together.

use engine::Waiter;
use parking_lot::Mutex;

use crate::state::{
    completion::{Answer, Bytes, Completion, Unanswered},
    errand::Asked,
};

/// Bytes of answers kept for later; what is more is asked for again in its turn.
const KEPT_BYTES: usize = 1 << 20;

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
}

impl Gathering {
    /// Of one retrieval, and of those keys behind it.
    pub(crate) fn new(asked: Asked, keys: Vec<Bytes>) -> Self {
        let missing = 1 + keys.len();
        let others = keys.into_iter().map(|key| (key, None)).collect();
        Self { asked, state: Mutex::new(State { first: Err(Unanswered::Lost), others, kept: 0, missing }) }
    }

    /// Whether its asker waits still.
    pub(crate) fn set_out(&self) -> bool {
        self.asked.set_out()
    }

    /// Takes an answer: place 0 is the first retrieval's. With the last one, whom to tell what.
    pub(crate) fn put(&self, place: usize, answer: Answer) -> Option<(Waiter, Completion)> {
        let mut state = self.state.lock();
        state.missing = state.missing.saturating_sub(1);
        state.take(place, answer);
        (state.missing == 0).then(|| (self.asked.waiter, state.completion(self.asked.clone())))
    }
}

impl State {
    fn take(&mut self, place: usize, answer: Answer) {
        if place == 0 {
            self.first = answer;
        } else if let (Some((_, slot)), Ok(packet)) = (self.others.get_mut(place - 1), answer)
            && self.kept + packet.len() <= KEPT_BYTES
        {
            self.kept += packet.len();
            *slot = Some(packet);
        }
    }

    fn completion(&mut self, asked: Asked) -> Completion {
        let first = std::mem::replace(&mut self.first, Err(Unanswered::Lost));
        let others = std::mem::take(&mut self.others).into_iter();
        let others = others.filter_map(|(key, packet)| Some((key, packet?))).collect();
        Completion::Gathered { asked, first, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::errand::Errand;

    const WAITER: Waiter = Waiter { worker: 0, connection: 1, ticket: 2 };

    #[test]
    fn a_waiter_is_told_once_and_what_is_too_much_is_left_out() {
        let keys = [&b"a"[..], b"b", b"c"].map(Box::from).to_vec();
        let gathering = Gathering::new(Errand::new().asked_by(WAITER), keys);
        let packet = |bytes: usize| Ok(vec![7; bytes].into());
        assert!(gathering.put(1, packet(10)).is_none());
        assert!(gathering.put(3, packet(KEPT_BYTES)).is_none());
        assert!(gathering.put(2, Err(Unanswered::Lost)).is_none());
        let Some((WAITER, Completion::Gathered { first: Ok(first), others, .. })) =
            gathering.put(0, packet(2 * KEPT_BYTES))
        else {
            panic!("all are here");
        };
        assert_eq!(first.len(), 2 * KEPT_BYTES, "there is always one that gets on");
        assert_eq!(others, [(Box::from(&b"a"[..]), Box::from([7; 10]))]);
    }
}
