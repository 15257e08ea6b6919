//! When a figure that grows will reach a limit.
//!
//! The trend is a Theil-Sen line: the median of the slopes between all pairs of points. A day of nonsense, a bulk load or a deletion does
//! not turn it, as long as it makes fewer than three in ten points. Where days or weeks resemble one another, the line goes through the points
//! without the share of hours and days ([`Season`]). The dates are where the line, and its fast edge, with that
//! share, meet the limit. Half of the slopes are no steeper than the line, and nine of ten no steeper than its fast edge.
//!
//! How far such forecasts were off is found out by making them anew from what was known some time ago ([`past_error`]).

/// Points that are looked at, the newest ones.
pub const POINTS_MAX: usize = 24 * 14;
/// Points of less than this time say nothing: a day has its own ups and downs.
const SPAN_MIN_SECS: u64 = DAY_SECS;
const POINTS_MIN: usize = 12;
const DAY_SECS: u64 = 24 * HOUR_SECS;
const HOUR_SECS: u64 = 3600;
/// Days that resemble one another are seen after so many.
const SEASON_DAYS_MIN: usize = 4;
/// What hours explain has to leave this much of what the points are away from their days at the most.
const SEASON_LEAVES: f64 = 0.7;
/// Weeks that resemble one another are seen after so many, and in the newest so many.
const WEEKS_MIN: usize = 2;
const WEEKS_MAX: u64 = 4;
/// What days of the week explain has to leave this much of what days are away from their weeks. Two of each may resemble one another by
/// chance, so it is less than for hours.
const WEEK_LEAVES: f64 = 0.4;
const WEEK_DAYS: u64 = 7;
/// A day that has begun, or has gaps, has fewer points, and says nothing.
const DAY_POINTS_MIN: usize = 20;
/// Past forecasts that are made anew.
const PAST_FORECASTS: u64 = 7;

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
        let points = newest(points);
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

/// By how much hours of a day and days of a week, in UTC, are above the line or below it. Zero where they do not resemble one another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Season {
    hours: [f64; 24],
    days: [f64; WEEK_DAYS as usize],
}

impl Season {
    /// None: neither days nor weeks resemble one another, or they are too few.
    fn of(points: &[Point], slope: f64) -> Option<Self> {
        let hours = hours_of(newest(points), slope);
        let days = days_of(points, slope, &hours.unwrap_or_default());
        let season = Self { hours: hours.unwrap_or_default(), days: days.unwrap_or_default() };
        (hours.is_some() || days.is_some()).then_some(season)
    }

    fn at(&self, secs: u64) -> f64 {
        let of_hour = self.hours.get(hour(secs)).copied().unwrap_or_default();
        of_hour + self.days.get(weekday(secs)).copied().unwrap_or_default()
    }

    fn peak(&self) -> f64 {
        let most = |shares: &[f64]| shares.iter().copied().fold(f64::MIN, f64::max);
        most(&self.hours) + most(&self.days)
    }
}

fn newest(points: &[Point]) -> &[Point] {
    points.get(points.len().saturating_sub(POINTS_MAX)..).unwrap_or_default()
}

/// The whole days among these points, each with the slope taken out.
fn whole_days(points: &[Point]) -> impl Iterator<Item = &[Point]> {
    let days = points.chunk_by(|a, b| a.at_secs / DAY_SECS == b.at_secs / DAY_SECS);
    days.filter(|day| day.len() >= DAY_POINTS_MIN)
}

/// What each hour of the day adds. None: there are too few days, or they do not resemble one another.
fn hours_of(points: &[Point], slope: f64) -> Option<[f64; 24]> {
    // What a point is above its own day: a load on one day says nothing of the others.
    let mut above: Vec<(usize, f64)> = Vec::with_capacity(points.len());
    for day in whole_days(points) {
        let flat = |point: &Point| point.value - slope * (point.at_secs % DAY_SECS) as f64;
        let mut values: Vec<f64> = day.iter().map(flat).collect();
        let middle = quantile(&mut values, 0.5)?;
        above.extend(day.iter().map(|point| (hour(point.at_secs), flat(point) - middle)));
    }
    shares_of(&above, SEASON_DAYS_MIN, SEASON_LEAVES)
}

/// What each day of the week adds, beside what its hours do. None: there are too few weeks, or they do not resemble one another.
fn days_of(points: &[Point], slope: f64, hours: &[f64; 24]) -> Option<[f64; WEEK_DAYS as usize]> {
    let last_day = points.last()?.at_secs / DAY_SECS;
    let of_hour = |secs: u64| hours.get(hour(secs)).copied().unwrap_or_default();
    let mut weeks: Vec<Vec<(usize, f64)>> = vec![Vec::new(); WEEKS_MAX as usize];
    for day in whole_days(points) {
        let number = day.first()?.at_secs / DAY_SECS;
        let flat = |point: &Point| {
            let after = point.at_secs as f64 - (last_day * DAY_SECS) as f64;
            point.value - of_hour(point.at_secs) - slope * after
        };
        let mut values: Vec<f64> = day.iter().map(flat).collect();
        // A day that is not over belongs to no week; the one before it ends the newest week.
        let ago = last_day.saturating_sub(number).saturating_sub(1) / WEEK_DAYS;
        if let (Some(week), true) = (weeks.get_mut(ago as usize), number < last_day) {
            week.push(((number % WEEK_DAYS) as usize, quantile(&mut values, 0.5)?));
        }
    }
    // What a day is above its own week: a load in one week says nothing of the others.
    let mut above = Vec::new();
    for week in weeks.iter().filter(|week| week.len() as u64 == WEEK_DAYS) {
        let mut values: Vec<f64> = week.iter().map(|(_, value)| *value).collect();
        let middle = quantile(&mut values, 0.5)?;
        above.extend(week.iter().map(|(day, value)| (*day, value - middle)));
    }
    shares_of(&above, WEEKS_MIN, WEEK_LEAVES)
}

/// What each place adds. None: a place has too few of them, or they leave too much unexplained.
fn shares_of<const N: usize>(above: &[(usize, f64)], least: usize, leaves: f64) -> Option<[f64; N]> {
    let mut shares = [0.0; N];
    for (of_place, share) in shares.iter_mut().enumerate() {
        let mut seen: Vec<f64> =
            above.iter().filter(|(place, _)| *place == of_place).map(|(_, above)| *above).collect();
        if seen.len() < least {
            return None;
        }
        *share = middle(&mut seen)?;
    }
    let before: f64 = above.iter().map(|(_, above)| above.abs()).sum();
    let left: f64 = above
        .iter()
        .map(|(place, above)| (above - shares.get(*place).copied().unwrap_or_default()).abs())
        .sum();
    (left < before * leaves).then_some(shares)
}

fn weekday(secs: u64) -> usize {
    (secs / DAY_SECS % WEEK_DAYS) as usize
}

fn hour(secs: u64) -> usize {
    (secs / HOUR_SECS % 24) as usize
}

/// A line, and what hours and days add to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The line, without the share of hours and days.
    pub trend: Trend,
    season: Option<Season>,
}

impl Model {
    /// What the newest [`POINTS_MAX`] of these points follow, which are in order of time. Weeks are looked for in those before as well. None:
    /// they do not suffice.
    #[must_use]
    pub fn of(points: &[Point]) -> Option<Self> {
        let raw = Trend::through(points)?;
        let Some(season) = Season::of(points, raw.slope) else {
            return Some(Self { trend: raw, season: None });
        };
        let without = |point: &Point| Point { value: point.value - season.at(point.at_secs), ..*point };
        let flat: Vec<Point> = newest(points).iter().map(without).collect();
        Some(Self { trend: Trend::through(&flat)?, season: Some(season) })
    }

    /// What the figure is at a time.
    #[must_use]
    pub fn value_at(&self, secs: u64) -> f64 {
        self.trend.value_at(secs) + self.season.map_or(0.0, |season| season.at(secs))
    }

    /// When the figure gets to the limit, growing at this pace. None: never.
    fn reaches(&self, limit: f64, slope: f64) -> Option<u64> {
        let line = limit - self.season.map_or(0.0, |season| season.peak());
        let secs = ((line - self.trend.value) / slope).max(0.0);
        // Beyond a century it is no date.
        if slope <= 0.0 || secs >= 100.0 * 365.0 * DAY_SECS as f64 {
            return None;
        }
        // The hour of the peak is within a week from where the line is high enough for it.
        let begin = self.trend.at_secs + secs as u64;
        let Some(season) = self.season else { return Some(begin) };
        let at = |secs: u64| self.trend.value + slope * (secs - self.trend.at_secs) as f64 + season.at(secs);
        Some(
            (0..WEEK_DAYS * 24)
                .map(|hour| begin + hour * HOUR_SECS)
                .find(|secs| at(*secs) >= limit)
                .unwrap_or(begin),
        )
    }
}

/// When this figure reaches the limit. `points` are in order of time.
#[must_use]
pub fn reaching(points: &[Point], limit: f64) -> Forecast {
    let Some(model) = Model::of(points) else { return Forecast::NotEnoughData };
    if points.last().is_some_and(|newest| newest.value >= limit)
        || model.value_at(model.trend.at_secs) >= limit
    {
        return Forecast::Reached;
    }
    match model.reaches(limit, model.trend.fast_slope) {
        Some(early_secs) => {
            Forecast::Reaches { early_secs, likely_secs: model.reaches(limit, model.trend.slope) }
        }
        None => Forecast::Never,
    }
}

/// How far forecasts of the past were off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastError {
    /// Mean distance from what came true, in percent of that.
    pub percent: f64,
    /// How many forecasts that is the mean of.
    pub forecasts: u32,
}

/// Makes forecasts anew, for each of the last days, from what was known so long before it. None: the points do not reach back far enough.
#[must_use]
pub fn past_error(points: &[Point], ahead_secs: u64) -> Option<PastError> {
    let newest = points.last()?.at_secs;
    let (mut sum, mut forecasts) = (0.0, 0_u32);
    for days in 0..PAST_FORECASTS {
        let target = newest.saturating_sub(days * DAY_SECS);
        let upto = |secs: u64| points.get(..points.partition_point(|point| point.at_secs <= secs));
        let Some(came_true) = upto(target).and_then(<[Point]>::last) else { break };
        let known = upto(target.saturating_sub(ahead_secs)).unwrap_or_default();
        let Some(model) = Model::of(known) else { break };
        if came_true.value.abs() > f64::EPSILON {
            sum += ((model.value_at(came_true.at_secs) - came_true.value) / came_true.value).abs();
            forecasts += 1;
        }
    }
    (forecasts > 0).then(|| PastError { percent: sum / f64::from(forecasts) * 100.0, forecasts })
}

/// The median; of an even number the mean of the two in the middle.
fn middle(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
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
        let value = |hour: f64| 100.0 + hour + 40.0 * (hour / 24.0 * std::f64::consts::TAU).sin();
        let points = hourly(14 * 24, value);
        let now = points.last().unwrap().at_secs;
        let truth = (0_u32..2_000).find(|hour| value(f64::from(*hour)) >= 1_000.0).unwrap();
        let error = error_percent(reaching(&points, 1_000.0), START + u64::from(truth) * HOUR, now);
        println!("season: off by {error:.1} %");
        assert!(error < 1.0, "{error}");
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

    /// The peak of the day reaches the limit before the line does.
    #[test]
    fn the_date_is_the_hour_in_which_the_peak_gets_there() {
        let of = |hour: f64| 100.0 + hour + if hour % 24.0 == 13.0 { 100.0 } else { 0.0 };
        let begin = START / DAY * DAY;
        let points: Vec<Point> =
            (0..10 * 24).map(|hour| Point { at_secs: begin + hour * HOUR, value: of(hour as f64) }).collect();
        let truth = (10 * 24..2_000).find(|hour| of(*hour as f64) >= 1_000.0).unwrap();
        let Forecast::Reaches { likely_secs: Some(likely), .. } = reaching(&points, 1_000.0) else {
            panic!()
        };
        assert_eq!(likely, begin + truth * HOUR);
    }

    /// Two weeks suffice, and less does not: each day of the week has to be seen twice.
    #[test]
    fn days_of_the_week_are_seen_after_two_of_each() {
        let begin = START / DAY * DAY;
        let of = |hour: u64| 1_000.0 + hour as f64 - if hour / 24 % 7 < 2 { 300.0 } else { 0.0 };
        let points = |days: u64| -> Vec<Point> {
            (0..days * 24 + 1).map(|hour| Point { at_secs: begin + hour * HOUR, value: of(hour) }).collect()
        };
        let error = |days: u64| {
            let model = Model::of(&points(days)).unwrap();
            let off = |hour: u64| (model.value_at(begin + hour * HOUR) - of(hour)).abs();
            (days * 24 + 1..(days + 7) * 24).map(off).fold(0.0, f64::max)
        };
        assert!(
            error(14) < 10.0 && error(21) < 10.0 && error(30) < 10.0,
            "{} {} {}",
            error(14),
            error(21),
            error(30)
        );
        assert!(error(13) > 100.0, "{}", error(13));
        // The limit is met on the first day that is no weekend from where the line is high enough.
        let truth = (21 * 24..).find(|hour| of(*hour) >= 1_800.0).unwrap();
        let Forecast::Reaches { likely_secs: Some(likely), .. } = reaching(&points(21), 1_800.0) else {
            panic!()
        };
        assert!(likely.abs_diff(begin + truth * HOUR) <= 2 * HOUR, "{likely} {}", begin + truth * HOUR);
    }

    /// What forecasts are worth where the answer is known: error a day and a week ahead, in percent of the value.
    #[test]
    fn back_tests_print_their_error() {
        let noise = |hour: f64| ((hour * 12.9898).sin() * 43_758.545).fract();
        let day = |hour: f64| (hour / 24.0 * std::f64::consts::TAU).sin();
        type Series = Box<dyn Fn(f64) -> f64>;
        let weekend = |hour: f64| (START + hour as u64 * HOUR) / DAY % 7 < 2;
        let series: [(&str, Series, f64); 9] = [
            ("growth", Box::new(|hour| 1_000.0 + hour), 0.1),
            ("growth with noise", Box::new(move |hour| 1_000.0 + hour + 50.0 * noise(hour)), 4.0),
            ("days and nights", Box::new(move |hour| 1_000.0 + hour + 200.0 * day(hour)), 1.0),
            (
                "days with noise",
                Box::new(move |hour| 1_000.0 + hour + 200.0 * day(hour) + 50.0 * noise(hour)),
                4.0,
            ),
            (
                "a step two weeks ago",
                Box::new(|hour| 1_000.0 + hour + if hour > 400.0 { 500.0 } else { 0.0 }),
                4.0,
            ),
            (
                "quiet weekends",
                Box::new(move |hour| {
                    1_000.0 + hour + 200.0 * day(hour) - if weekend(hour) { 300.0 } else { 0.0 }
                }),
                2.0,
            ),
            (
                "weekends with noise",
                Box::new(move |hour| {
                    1_000.0 + hour + 50.0 * noise(hour) - if weekend(hour) { 300.0 } else { 0.0 }
                }),
                4.0,
            ),
            ("growth that stopped", Box::new(|hour: f64| 1_000.0 + hour.min(600.0)), 12.0),
            ("growth that doubles in a month", Box::new(|hour| 1_000.0 * (hour / 720.0).exp2()), 5.0),
        ];
        println!("{:32}{:>10}{:>10}", "error in percent", "1 day", "7 days");
        for (name, value, most) in series {
            let points = hourly(31 * 24, value);
            let [one, seven] = [1, 7].map(|days| past_error(&points, days * DAY).unwrap());
            println!("{name:32}{:>10.2}{:>10.2}", one.percent, seven.percent);
            assert_eq!((one.forecasts, seven.forecasts), (7, 7));
            assert!(one.percent <= most && seven.percent <= most, "{name}");
        }
        assert_eq!(past_error(&hourly(30, |hour| hour), 7 * DAY), None);
        assert_eq!(
            past_error(&hourly(8 * 24 + 2, |hour| 1.0 + hour), 7 * DAY).map(|one| one.forecasts),
            Some(1)
        );
    }
}
