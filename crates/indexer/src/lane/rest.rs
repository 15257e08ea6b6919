//! When a lane that builds indexes rests, so that clients come first.
//!
//! A lane rests while clients wait for longer than they shall, in proportion to the work that it has just done. It never stops
//! altogether: queries that need the index would never be answered.

use std::time::Duration;

/// A rest lasts so many times as long as the work before it.
const PER_WORK: u32 = 3;

/// Until when a lane rests.
#[derive(Debug, Default)]
pub(super) struct Rest {
    until: Option<Duration>,
}

impl Rest {
    /// Work from `began` to `done` has ended, and `clients_wait` says whether they wait for longer than they shall.
    pub(super) fn after(&mut self, began: Duration, done: Duration, clients_wait: bool) {
        self.until = clients_wait.then(|| done + PER_WORK * done.saturating_sub(began));
    }

    /// A rest ends when its time is over, or when clients do not wait any more.
    pub(super) fn goes_on(&mut self, now: Duration, clients_wait: impl FnOnce() -> bool) -> bool {
        self.until = self.until.filter(|until| now < *until && clients_wait());
        self.until.is_some()
    }

    pub(super) fn until(&self) -> Option<Duration> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_rest_is_as_long_as_the_work_before_it_asks_for() {
        let mut rest = Rest::default();
        assert!(!rest.goes_on(ms(100), || true), "nothing was done");
        rest.after(ms(100), ms(110), true);
        assert_eq!(rest.until(), Some(ms(140)));
        assert!(rest.goes_on(ms(139), || true));
        assert!(!rest.goes_on(ms(140), || panic!("its time is over, whatever clients wait for")));
        assert_eq!(rest.until(), None);
    }

    #[test]
    fn a_rest_ends_with_its_reason() {
        let mut rest = Rest::default();
        rest.after(ms(100), ms(110), false);
        assert!(!rest.goes_on(ms(110), || true), "nobody waited when the work ended");
        rest.after(ms(100), ms(110), true);
        assert!(!rest.goes_on(ms(111), || false));
        assert!(!rest.goes_on(ms(112), || true), "it has ended, and does not begin again by itself");
    }
}
