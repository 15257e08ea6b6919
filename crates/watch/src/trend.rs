//! Whether a figure has grown all the time of late.

/// Figures that are looked at, the newest ones: with one a second, half a minute.
pub const LOOKS: usize = 30;
/// The same of a figure whose limit is near.
pub const LOOKS_NEAR: usize = 12;
/// They are compared in so many pieces: each has to be above the one before.
const PIECES: usize = 3;

/// Whether each third of the newest `looks` figures is more than the third before in the mean, and the last one is `least` at least.
#[must_use]
pub fn grows(figures: &[f64], looks: usize, least: f64) -> bool {
    let Some(newest) = figures.len().checked_sub(looks).and_then(|from| figures.get(from..)) else {
        return false;
    };
    let pieces = newest.chunks_exact((looks / PIECES).max(1));
    let sums: Vec<f64> = pieces.map(|piece| piece.iter().sum()).collect();
    newest.last().is_some_and(|last| *last >= least) && sums.is_sorted_by(|one, next| one < next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(figure: fn(u32) -> f64, looks: u32) -> bool {
        grows(&(0..looks).map(figure).collect::<Vec<_>>(), LOOKS, 1_000.0)
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
        assert!(!grows(&[], LOOKS, 0.0));
    }

    #[test]
    fn a_figure_whose_limit_is_near_is_looked_at_for_a_shorter_time() {
        let figures: Vec<f64> = (0..12).map(|look| f64::from(look * 100)).collect();
        assert!(grows(&figures, LOOKS_NEAR, 1_000.0) && !grows(&figures, LOOKS, 1_000.0));
        assert!(!grows(&figures[1..], LOOKS_NEAR, 1_000.0));
    }
}
