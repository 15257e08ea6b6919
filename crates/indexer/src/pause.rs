//! How long to wait before something that failed is tried again: twice as long each time, within bounds.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// Failures in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    failures: u32,
}

impl Pause {
    /// It failed once more: how long to wait now.
    pub fn failed(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        FIRST.saturating_mul(factor).min(LONGEST)
    }

    /// It went well.
    pub fn worked(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_begin_anew_after_a_success() {
        let mut pause = Pause::default();
        let waits: Vec<u128> = (0..11).map(|_| pause.failed().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        for _ in 0..100 {
            assert_eq!(pause.failed(), LONGEST);
        }
        pause.worked();
        assert_eq!(pause.failed(), FIRST);
    }
}
