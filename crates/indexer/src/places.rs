//! How many processes run functions of views at the same time on a node. Lanes of all buckets share these places.
//!
//! - A lane has a place for as long as it has a process. One that is asked for its place gives it back between two batches. It does so
//!   once it has nothing to do or has had the place for a while.
//! - Places are given in the order in which lanes began to wait. Lanes of slow functions have half of the places at most, since each may
//!   hold one for as long as a function may take.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// Between two looks at whether there is still reason to wait.
const LOOK: Duration = Duration::from_millis(50);

/// Asks a lane for its place.
type Ask = Arc<dyn Fn() + Send + Sync>;

/// See the module.
pub struct Places {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    most: usize,
    next: u64,
    /// Those that wait, the first one first, and whether their functions are slow.
    waiting: VecDeque<(u64, bool)>,
    held: BTreeMap<u64, (bool, Ask)>,
}

/// A place; dropping it gives it back.
pub(crate) struct Place {
    of: Arc<Places>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        let gone = state.held.remove(&self.number);
        drop(state);
        drop(gone);
        self.of.freed.notify_all();
    }
}

impl Places {
    /// So many places, one at least.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        let state = State { most: most.max(1), ..State::default() };
        Arc::new(Self { state: Mutex::new(state), freed: Condvar::new() })
    }

    /// From now on there are so many, one at least. Lanes keep places that are too many by then until they give them back.
    pub fn set_most(&self, most: usize) {
        self.state.lock().most = most.max(1);
        self.freed.notify_all();
    }

    /// How many lanes have one.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Waits for a place for as long as `goes_on` says. `ask` is called, on any thread, where somebody waits for the place.
    pub(crate) fn take(
        self: &Arc<Self>,
        is_slow: bool,
        ask: Ask,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<Place> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back((number, is_slow));
        while !state.is_next(number) {
            if !goes_on() {
                state.waiting.retain(|(waiting, _)| *waiting != number);
                drop(state);
                self.freed.notify_all();
                return None;
            }
            // A lane that got its place meanwhile has not been asked for it.
            let asks: Vec<Ask> = state.held.values().map(|(_, ask)| Arc::clone(ask)).collect();
            drop(state);
            asks.iter().for_each(|ask| ask());
            state = self.state.lock();
            if !state.is_next(number) {
                self.freed.wait_for(&mut state, LOOK);
            }
        }
        state.waiting.retain(|(waiting, _)| *waiting != number);
        state.held.insert(number, (is_slow, ask));
        Some(Place { of: Arc::clone(self), number })
    }

    /// Whether somebody waits who would get the place of a lane, whose functions are slow or are not. A lane of slow functions that
    /// waits for another one of these gets no other place.
    pub(crate) fn is_awaited(&self, is_slow: bool) -> bool {
        let state = self.state.lock();
        let slow = state.held.values().filter(|(is_slow, _)| *is_slow).count();
        let left = slow.saturating_sub(usize::from(is_slow));
        state.waiting.iter().any(|(_, waits_slow)| !waits_slow || left < state.most.div_ceil(2))
    }
}

impl State {
    /// Whether a place is free, and nobody else gets it first.
    fn is_next(&self, number: u64) -> bool {
        let slow = self.held.values().filter(|(is_slow, _)| *is_slow).count();
        let may = |is_slow: bool| !is_slow || slow < self.most.div_ceil(2);
        let first = self.waiting.iter().find(|(_, is_slow)| may(*is_slow));
        self.held.len() < self.most && first.is_some_and(|(first, _)| *first == number)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering::SeqCst},
            mpsc::channel,
        },
        thread,
    };

    use super::*;

    fn silent() -> Ask {
        Arc::new(|| {})
    }

    fn waits_for(places: &Places, count: usize) {
        while places.state.lock().waiting.len() < count {
            thread::yield_now();
        }
    }

    #[test]
    fn the_lane_that_waited_first_gets_a_place_and_its_holder_is_asked() {
        let places = Places::new(1);
        let asked = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&asked);
        let ask: Ask = Arc::new(move || {
            counts.fetch_add(1, SeqCst);
        });
        let first = places.take(false, ask, &|| true).unwrap();
        assert!(!places.is_awaited(false));
        let (told, order) = channel();
        let mut threads = Vec::new();
        for number in 0..3 {
            let (places, told) = (Arc::clone(&places), told.clone());
            let waiting = Arc::clone(&places);
            threads.push(thread::spawn(move || {
                let place = places.take(false, silent(), &|| true);
                told.send(number).unwrap();
                drop(place);
            }));
            waits_for(&waiting, number + 1);
        }
        assert!(places.is_awaited(false) && places.held() == 1);
        while asked.load(SeqCst) == 0 {
            thread::yield_now();
        }
        drop(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(places.held(), 0);
    }

    #[test]
    fn slow_lanes_have_half_of_the_places_and_one_that_gives_up_holds_nobody_up() {
        let places = Places::new(4);
        let slow: Vec<_> = (0..2).map(|_| places.take(true, silent(), &|| true).unwrap()).collect();
        assert!(places.take(true, silent(), &|| false).is_none(), "they have their half");
        let third = {
            let places = Arc::clone(&places);
            thread::spawn(move || places.take(true, silent(), &|| true).map(|_| ()))
        };
        waits_for(&places, 1);
        assert!(places.is_awaited(true) && !places.is_awaited(false), "another place is of no use to it");
        let others: Vec<_> = (0..2).map(|_| places.take(false, silent(), &|| true).unwrap()).collect();
        assert!(places.take(false, silent(), &|| false).is_none(), "all are held");
        drop(others);
        assert_eq!(places.state.lock().waiting.len(), 1, "a slow one waits for a slow one");
        drop(slow);
        assert_eq!(third.join().unwrap(), Some(()));
        assert!(!places.is_awaited(true));
    }

    #[test]
    fn more_places_are_had_at_once_and_fewer_as_they_are_given_back() {
        let places = Places::new(1);
        let first = places.take(false, silent(), &|| true).unwrap();
        assert!(places.take(false, silent(), &|| false).is_none());
        places.set_most(2);
        let second = places.take(false, silent(), &|| false).unwrap();
        places.set_most(0);
        drop(first);
        assert!(places.take(false, silent(), &|| false).is_none(), "the one place is held");
        drop(second);
        assert!(places.take(false, silent(), &|| false).is_some());
    }
}
