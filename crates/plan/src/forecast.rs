//! When a figure that grows will reach a limit.
//!
//! The trend is a Theil-Sen line: the median of the slopes between all pairs of points. A day of nonsense, a bulk load or a deletion
//! does not turn it, as long as fewer than three in ten points are part of that. The dates are where the line, and its fast edge,
//! meet the limit: half of the slopes, and nine of ten, are no steeper.

/// Points that are looked at, the newest ones.
pub const POINTS_MAX: usize = 24 * 14;
/// Points of less than this time say nothing: a day has its own ups and downs.
const SPAN_MIN_SECS: u64 = 24 * 3600;
const POINTS_MIN: usize = 12;

/// A figure at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Seconds since the epoch.
    pub at_secs: u64,
    /// The figure, in whatever unit the limit has too.
    pub value: f64,
}

/// What becomes of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Forecast {
    /// The points are too few, or of too short a time.
    NotEnoughData,
    /// The limit has been reached.
    Reached,
    /// The limit is not reached while things go on as they do.
    Never,
    /// When the limit is reached, in seconds since the epoch.
    Reaches {
        /// Nine of ten slopes between points do not reach it before this.
        early_secs: u64,
        /// Half of the slopes do not reach it before this. None: they never do.
        likely_secs: Option<u64>,
    },
}

/// A robust line through points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// When the newest point was taken, in seconds since the epoch.
    pub at_secs: u64,
    /// Where the line is then.
    pub value: f64,
    /// Growth a second: the median.
    pub slope: f64,
    /// Growth a second that nine of ten slopes do not exceed.
    pub fast_slope: f64,
}

impl Trend {
    /// The line through the newest [`POINTS_MAX`] of these points, which are in order of time. None: they do not suffice.
    #[must_use]
    pub fn through(points: &[Point]) -> Option<Self> {
        let points = &points[points.len().saturating_sub(POINTS_MAX)..];
        let (first, last) = (points.first()?, points.last()?);
        if points.len() < POINTS_MIN || last.at_secs.saturating_sub(first.at_secs) < SPAN_MIN_SECS {
            return None;
        }
        let mut slopes = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
        for (index, from) in points.iter().enumerate() {
            let later = points[index + 1..].iter().filter(|to| to.at_secs > from.at_secs);
            slopes.extend(later.map(|to| (to.value - from.value) / (to.at_secs - from.at_secs) as f64));
        }
        let slope = quantile(&mut slopes, 0.5)?;
        let fast_slope = quantile(&mut slopes, 0.9)?;
        // The newest day's points, carried along the line to the newest one's time. Earlier ones do not know of what was loaded since.
        let age = |point: &Point| last.at_secs.saturating_sub(point.at_secs);
        let newest = points.iter().filter(|point| age(point) < SPAN_MIN_SECS);
        let mut carried: Vec<f64> = newest.map(|point| point.value + slope * age(point) as f64).collect();
        Some(Self { at_secs: last.at_secs, value: quantile(&mut carried, 0.5)?, slope, fast_slope })
    }

    /// What the figure is at a time, by the median slope.
    #[must_use]
    pub fn value_at(&self, secs: u64) -> f64 {
        self.value + self.slope * (secs as f64 - self.at_secs as f64)
    }
}

/// When this figure reaches the limit. `points` are in order of time.
#[must_use]
pub fn reaching(points: &[Point], limit: f64) -> Forecast {
    let Some(trend) = Trend::through(points) else { return Forecast::NotEnoughData };
    if points.last().is_some_and(|newest| newest.value >= limit) || trend.value >= limit {
        return Forecast::Reached;
    }
    let with = |slope: f64| {
        let secs = (limit - trend.value) / slope;
        // Beyond a century it is no date.
        (slope > 0.0 && secs < 100.0 * 365.0 * 86_400.0).then(|| trend.at_secs + secs as u64)
    };
    match with(trend.fast_slope) {
        Some(early_secs) => Forecast::Reaches { early_secs, likely_secs: with(trend.slope) },
        None => Forecast::Never,
    }
}

/// The value that this share of the values does not exceed.
fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    let place = ((values.len().checked_sub(1)?) as f64 * share).round() as usize;
    let (_, value, _) = values.select_nth_unstable_by(place, f64::total_cmp);
    Some(*value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;
    const START: u64 = 1_700_000_000;

    fn hourly(hours: u64, value: impl Fn(f64) -> f64) -> Vec<Point> {
        (0..hours).map(|hour| Point { at_secs: START + hour * HOUR, value: value(hour as f64) }).collect()
    }

    /// By how much of the way a forecast is off: the figure at its date is held against the limit.
    fn error_percent(forecast: Forecast, truth_secs: u64, now_secs: u64) -> f64 {
        let Forecast::Reaches { likely_secs: Some(likely), .. } = forecast else {
            panic!("{forecast:?}");
        };
        (likely as f64 - truth_secs as f64).abs() / (truth_secs - now_secs) as f64 * 100.0
    }

    #[test]
    fn steady_growth_is_foretold_to_the_hour() {
        let points = hourly(7 * 24, |hour| 100.0 + hour);
        let truth = START + 900 * HOUR;
        let now = points.last().unwrap().at_secs;
        assert!(error_percent(reaching(&points, 1_000.0), truth, now) < 0.2);
    }

    #[test]
    fn days_and_nights_do_not_turn_the_line() {
        let points =
            hourly(14 * 24, |hour| 100.0 + hour + 40.0 * (hour / 24.0 * std::f64::consts::TAU).sin());
        let now = points.last().unwrap().at_secs;
        let error = error_percent(reaching(&points, 1_000.0), START + 900 * HOUR, now);
        println!("season: off by {error:.1} %");
        assert!(error < 8.0, "{error}");
    }

    #[test]
    fn noise_and_outliers_move_the_date_by_little() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut points = hourly(14 * 24, |hour| 100.0 + hour);
        for point in &mut points {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Up to 50 either way; one in eight is something else altogether.
            point.value =
                if state.is_multiple_of(8) { 5_000.0 } else { point.value + (state % 101) as f64 - 50.0 };
        }
        // The newest is not one of these.
        points.last_mut().unwrap().value = 435.0;
        let now = points.last().unwrap().at_secs;
        let error = error_percent(reaching(&points, 1_000.0), START + 900 * HOUR, now);
        println!("noise: off by {error:.1} %");
        assert!(error < 10.0, "{error}");
    }

    /// The line through the first and the last point would be twice as steep.
    #[test]
    fn a_bulk_load_that_is_over_is_no_trend() {
        let points = hourly(14 * 24, |hour| 100.0 + hour + if hour > 300.0 { 400.0 } else { 0.0 });
        let now = points.last().unwrap().at_secs;
        let error = error_percent(reaching(&points, 2_000.0), START + 1_500 * HOUR, now);
        println!("step: off by {error:.1} %");
        assert!(error < 5.0, "{error}");
    }

    #[test]
    fn what_does_not_grow_reaches_nothing() {
        assert_eq!(reaching(&hourly(48, |_| 5.0), 10.0), Forecast::Never);
        assert_eq!(reaching(&hourly(48, |hour| 50.0 - hour), 60.0), Forecast::Never);
        assert_eq!(reaching(&hourly(48, |_| 5.0), 4.0), Forecast::Reached);
    }

    #[test]
    fn a_day_is_the_least() {
        assert_eq!(reaching(&hourly(24, |hour| hour), 1e6), Forecast::NotEnoughData);
        assert_eq!(reaching(&[], 1.0), Forecast::NotEnoughData);
        let two = [Point { at_secs: START, value: 1.0 }, Point { at_secs: START + 9 * DAY, value: 2.0 }];
        assert_eq!(reaching(&two, 10.0), Forecast::NotEnoughData);
        assert_ne!(reaching(&hourly(25, |hour| hour), 1e6), Forecast::NotEnoughData);
    }

    #[test]
    fn points_of_one_moment_and_clocks_set_back_do_no_harm() {
        let mut points = hourly(48, |hour| hour);
        points[20].at_secs = START;
        points[30].at_secs = points[31].at_secs;
        assert!(matches!(reaching(&points, 100.0), Forecast::Reaches { .. }));
    }
}
