//! How soon a link to another node is dialled again that could not be dialled, or does not hold.
//!
//! Times are milliseconds of a clock that does not jump.

/// The pause after a connection that broke, or since the beginning of a dialling that failed; each failure in a row doubles it. A
/// network that has healed is noticed by the next try.
const PAUSE_MILLIS_MIN: u64 = 50;
const PAUSE_MILLIS_MAX: u64 = 1_000;
/// A connection that has lived this long was a success.
const SUCCESS_MILLIS: u64 = 3_000;

/// See the module. One per link.
#[derive(Debug, Default)]
pub struct Redial {
    /// When the present connection was made.
    connected_at: Option<u64>,
    /// The last pause; 0 where none was needed since the last success.
    pause: u64,
}

impl Redial {
    /// There is a connection.
    pub fn connected(&mut self, now: u64) {
        self.connected_at = Some(now);
    }

    /// There is none any more, or none could be made. Returns for how many milliseconds the link rests: since then, or since the
    /// dialling began.
    pub fn lost(&mut self, now: u64) -> u64 {
        let lived = self.connected_at.take().map(|at| now.saturating_sub(at));
        let was_success = lived.is_some_and(|lived| lived >= SUCCESS_MILLIS);
        let doubled = if was_success { 0 } else { self.pause * 2 };
        self.pause = doubled.clamp(PAUSE_MILLIS_MIN, PAUSE_MILLIS_MAX);
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_has_held() {
        let mut redial = Redial::default();
        let failed: Vec<u64> = (0..7).map(|_| redial.lost(0)).collect();
        assert_eq!(failed, [50, 100, 200, 400, 800, 1_000, 1_000]);
        redial.connected(10);
        assert_eq!(redial.lost(10 + SUCCESS_MILLIS - 1), 1_000, "it did not hold");
        redial.connected(20);
        assert_eq!(redial.lost(20 + SUCCESS_MILLIS), 50);
        assert_eq!(redial.lost(20 + SUCCESS_MILLIS), 100, "what was a success before that is over");
    }
}
