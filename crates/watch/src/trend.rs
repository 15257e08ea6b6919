//! Whether a figure has grown all the time of late.

/// Figures that are looked at, the newest ones: with one a second, half a minute.
pub const LOOKS: usize = 30;
/// They are compared in pieces: each has to be above the one before.
const PIECE: usize = LOOKS / 3;

/// Whether each ten of the newest figures are more than the ten before in the mean, and the last one is `least` at least.
#[must_use]
pub fn grows(figures: &[f64], least: f64) -> bool {
    let Some(newest) = figures.len().checked_sub(LOOKS).and_then(|from| figures.get(from..)) else {
        return false;
    };
    let sums: Vec<f64> = newest.chunks(PIECE).map(|piece| piece.iter().sum()).collect();
    newest.last().is_some_and(|last| *last >= least) && sums.windows(2).all(|pair| pair[1] > pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(figure: fn(u32) -> f64, looks: u32) -> bool {
        grows(&(0..looks).map(figure).collect::<Vec<_>>(), 1_000.0)
    }

    #[test]
    fn only_what_grows_all_the_time_and_is_large_grows() {
        assert!(of(|look| f64::from(look * 100), 40));
        assert!(of(|look| f64::from(look * 100 + look % 2 * 150), 40), "it swings, and grows");
        assert!(!of(|look| f64::from(look * 100), 29), "not long enough");
        assert!(!of(f64::from, 40), "too small to matter");
        assert!(!of(|look| f64::from(5_000 - look), 40), "it shrinks");
        assert!(!of(|look| f64::from(5_000 + look / 32 * 5_000), 40), "one step is no growth");
        assert!(!of(|_| 5_000.0, 40));
    }
}
