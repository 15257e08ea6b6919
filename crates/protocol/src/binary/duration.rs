//! Server durations: microseconds squeezed into sixteen bits, `encoded = (micros × 2) ^ (1 / 1.74)`, which
//! reaches two minutes with a precision that suits latencies. A traced response carries one in frame info 0.

use std::{sync::LazyLock, time::Duration};

const EXPONENT: f64 = 1.74;
/// Most microseconds that fit: the decoded value of `u16::MAX`.
const MICROS_MAX: u64 = 120_125_042;

/// Nearly every operation ends within this many microseconds; those skip the power function.
const TABLE_MICROS: usize = 512;

static TABLE: LazyLock<[u8; TABLE_MICROS]> = LazyLock::new(|| {
    let mut table = [0; TABLE_MICROS];
    for (micros, entry) in table.iter_mut().enumerate() {
        *entry = compute(micros as u64) as u8;
    }
    table
});

/// An encoded server duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerDuration(pub u16);

impl ServerDuration {
    /// Encodes `micros` microseconds, saturating at about two minutes.
    #[inline]
    #[must_use]
    pub fn from_micros(micros: u64) -> Self {
        match usize::try_from(micros).ok().and_then(|index| TABLE.get(index)) {
            Some(&encoded) => Self(u16::from(encoded)),
            None => Self(compute(micros.min(MICROS_MAX))),
        }
    }

    /// Encodes a duration.
    #[inline]
    #[must_use]
    pub fn from_duration(duration: Duration) -> Self {
        Self::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }

    /// What the other side understands.
    #[must_use]
    pub fn to_duration(self) -> Duration {
        Duration::from_micros((f64::from(self.0).powf(EXPONENT) / 2.0).round() as u64)
    }
}

fn compute(micros: u64) -> u16 {
    (micros as f64 * 2.0).powf(1.0 / EXPONENT).round() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_and_a_known_point_are_exact() {
        assert_eq!(ServerDuration::from_micros(0), ServerDuration(0));
        assert_eq!(ServerDuration::from_micros(1), ServerDuration(1));
        assert_eq!(ServerDuration::from_micros(u64::MAX), ServerDuration(u16::MAX));
        assert_eq!(ServerDuration::from_micros(1_000), ServerDuration(79));
        assert_eq!(ServerDuration(79).to_duration(), Duration::from_micros(1_002));
    }

    #[test]
    fn encoding_never_shrinks_with_time_and_errs_by_less_than_three_percent_from_a_millisecond_on() {
        let mut last = ServerDuration(0);
        for micros in (0..2_000).chain((2_000..120_000_000).step_by(99_991)) {
            let encoded = ServerDuration::from_micros(micros);
            assert!(encoded >= last, "{micros}");
            last = encoded;
            if micros >= 1_000 {
                let decoded = encoded.to_duration().as_micros() as f64;
                assert!((decoded / micros as f64 - 1.0).abs() < 0.03, "{micros} became {decoded}");
            }
        }
    }
}
