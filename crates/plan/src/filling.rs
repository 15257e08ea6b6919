//! When a figure that grows by the minute will reach its limit: minutes from now, where [`crate::forecast`] looks at weeks.
//!
//! The newest points are looked at through windows of half a minute, two minutes and eight. Each window is cut into three pieces. Of each
//! piece its median counts, so one sample says nothing. Two paces are those from one piece to the next. The third one is that of what the
//! last piece has above everything of five windows before. The least of them counts.
//!
//! - Noise is no growth: three quarters of the third piece have to be above three quarters of the first.
//! - A bulk load that has ended has no pace from the second piece to the third. A long window would still see it as growth for a while, so
//!   the last two minutes have to show some as well. A load that was shorter than two pieces lies in both of them, though it has ended.
//!   So the newest third of the third piece has to be above the middle of that piece.
//! - A saw tooth, as compaction makes it, does not rise above the teeth before.
//! - No window foretells what is more than ten times its length away. So a short one speaks only of a limit that is near.

use crate::forecast::Point;

/// What is foretold is at most so far away, in seconds.
pub const AHEAD_SECS: u64 = 3_600;
/// Points that are older say nothing, in seconds.
pub const PAST_SECS: u64 = WINDOWS_SECS[2] * (1 + BEFORE);
/// Windows, the shortest first.
const WINDOWS_SECS: [u64; 3] = [36, 120, 480];
const PIECES: u64 = 3;
/// Points of a piece that count. Newer ones are closer to one another, and would outvote the rest.
const POINTS: u64 = 10;
/// So many windows before one are what it has to rise above.
const BEFORE: u64 = 5;
/// A window sees so many of its own lengths ahead.
const REACH: u64 = 10;
/// Points that a piece has at least.
const POINTS_MIN: usize = 2;

/// A figure that reaches its limit soon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filling {
    /// Growth a second.
    pub per_sec: f64,
    /// When it reaches the limit, in seconds since the epoch.
    pub full_secs: u64,
}

/// When these points reach the limit, if that is within [`AHEAD_SECS`] and they go on as they do. They are in order of time. None also
/// where the newest one has reached it.
#[must_use]
pub fn filling(points: &[Point], limit: f64) -> Option<Filling> {
    let newest = points.last()?;
    if newest.value >= limit {
        return None;
    }
    if !goes_on(points, newest.at_secs) {
        return None;
    }
    let seen = WINDOWS_SECS.into_iter().filter_map(|window| through(points, newest.at_secs, window, limit));
    seen.min_by_key(|one| one.full_secs)
}

/// Whether there was growth from the first to the last third of two minutes. Where so much was not seen, nothing speaks against it.
fn goes_on(points: &[Point], now_secs: u64) -> bool {
    let piece_secs = WINDOWS_SECS[1] / PIECES;
    let [first, third] = [2, 0].map(|ago| piece(points, now_secs, piece_secs, ago));
    first.zip(third).is_none_or(|(first, third)| third.middle > first.middle)
}

/// The piece that ends so many pieces ago.
fn piece(points: &[Point], now_secs: u64, piece_secs: u64, ago: u64) -> Option<Piece> {
    let end = now_secs.checked_sub(ago * piece_secs)?;
    let (from, to) = (first_after(points, end.checked_sub(piece_secs)?), first_after(points, end));
    Piece::of(points.get(from..to)?, piece_secs / POINTS)
}

fn through(points: &[Point], now_secs: u64, window_secs: u64, limit: f64) -> Option<Filling> {
    let piece_secs = window_secs / PIECES;
    let piece = |ago| piece(points, now_secs, piece_secs, ago);
    let (first, second, third) = (piece(2)?, piece(1)?, piece(0)?);
    if third.low <= first.high || third.end <= third.middle {
        return None;
    }
    let before = (PIECES..PIECES * (1 + BEFORE)).filter_map(piece).map(|piece| piece.middle);
    let above = |highest: f64| (third.middle - highest) / window_secs as f64;
    let above = before.reduce(f64::max).map_or(f64::MAX, above);
    let step = (second.middle - first.middle).min(third.middle - second.middle);
    let per_sec = (step / piece_secs as f64).min(above);
    // What the third piece says is of its middle.
    let left_secs = (limit - third.middle) / per_sec - piece_secs as f64 / 2.0;
    let reach = (window_secs * REACH).min(AHEAD_SECS) as f64;
    let is_near = per_sec > 0.0 && left_secs <= reach;
    is_near.then(|| Filling { per_sec, full_secs: now_secs + left_secs.max(0.0) as u64 })
}

fn first_after(points: &[Point], secs: u64) -> usize {
    points.partition_point(|point| point.at_secs <= secs)
}

/// What the points of a piece are like.
struct Piece {
    /// A quarter of them is not above this.
    low: f64,
    middle: f64,
    /// A quarter of them is not below this.
    high: f64,
    /// The middle of the newest third of them.
    end: f64,
}

impl Piece {
    /// None: the points are too few.
    fn of(points: &[Point], apart_secs: u64) -> Option<Self> {
        let (mut values, mut next) = (Vec::new(), 0);
        for point in points.iter().filter(|point| point.value.is_finite()) {
            if point.at_secs >= next {
                values.push(point.value);
                next = point.at_secs + apart_secs.max(1);
            }
        }
        if values.len() < POINTS_MIN {
            return None;
        }
        let mut newest = values.split_off(values.len() - values.len().div_ceil(3));
        newest.sort_unstable_by(f64::total_cmp);
        let end = newest.get(newest.len() / 2).copied()?;
        values.extend(newest);
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len() - 1;
        let at = |place: usize| values.get(place).copied();
        // One of two or three points is no quarter.
        Some(Self { low: at(last / 4)?, middle: at(last / 2)?, high: at(last - last / 4)?, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;
    const LOOKED_EVERY: usize = 5;

    /// What is seen of a figure after so many seconds: one each second for a minute, one in four before.
    fn seen(of: &impl Fn(f64) -> f64, secs: u64) -> Vec<Point> {
        let is_kept = |at: &u64| at + 60 > secs || at.is_multiple_of(4);
        let kept = (secs.saturating_sub(PAST_SECS)..=secs).filter(is_kept);
        kept.map(|at| Point { at_secs: START + at, value: of(at as f64) }).collect()
    }

    fn full_in(of: &impl Fn(f64) -> f64, secs: u64, limit: f64) -> Option<u64> {
        filling(&seen(of, secs), limit).map(|one| one.full_secs - START - secs)
    }

    /// The seconds in which it fires.
    fn fires(of: impl Fn(f64) -> f64, secs: u64, limit: f64) -> Vec<u64> {
        (0..secs).step_by(LOOKED_EVERY).filter(|secs| full_in(&of, *secs, limit).is_some()).collect()
    }

    #[test]
    fn growth_is_told_an_hour_ahead_to_the_minute() {
        // Full after three hours.
        let of = |secs: f64| secs;
        let at = fires(of, 3 * 3_600, 10_800.0);
        let first = 10_800 - at[0];
        assert!((3_570..=3_630).contains(&first), "told {first} s ahead");
        assert_eq!(at.len() as u64 * 5, first, "it does not stop before it is full");
        for left in [3_500, 1_800, 600, 60, 10] {
            let told = full_in(&of, 10_800 - left, 10_800.0).unwrap();
            assert!(told.abs_diff(left) <= 5 + left / 50, "{left}: {told}");
        }
    }

    #[test]
    fn what_begins_to_fill_at_once_is_told_in_time() {
        // Nothing for an hour, then full within so many seconds; that much later it is told at the latest.
        for (full, latest) in [(60, 40), (240, 40), (900, 125), (3_000, 500)] {
            let of = |secs: f64| (secs - 3_600.0).max(0.0);
            let at = fires(of, 3_600 + full, full as f64);
            let after = at.first().map(|first| first - 3_600);
            assert!(after.is_some_and(|after| after <= latest), "full in {full} s, told after {after:?} s");
        }
        // The node has just begun to sample.
        assert!(fires(|secs| secs, 60, 100.0)[0] <= 40);
    }

    #[test]
    fn a_bulk_load_that_has_ended_is_over() {
        // Ten minutes of load, which would fill the rest in twenty.
        let of = |secs: f64| 5_000.0 + (secs - 1_000.0).clamp(0.0, 600.0);
        let at = fires(of, 4_000, 6_800.0);
        let over = at.last().map(|last| last - 1_600);
        assert!(
            at.first() > Some(&1_030) && over.is_some_and(|over| over <= 100),
            "{:?}, {over:?}",
            at.first()
        );
    }

    #[test]
    fn a_short_load_that_has_ended_is_no_growth() {
        // A load of so many seconds fills half of what is free. An alert fires after five seconds of looks, one a second.
        let fires = |load: u64, from: u64| -> Vec<u64> {
            let of = |secs: f64| (secs - 1_000.0).clamp(0.0, load as f64);
            let told = |secs: u64| full_in(&of, secs, load as f64 * 2.0).is_some();
            (1_000 + from..1_200).filter(|secs| (secs - 5..=*secs).all(told)).collect()
        };
        let fires_after_its_end = |load: u64| fires(load, load).len();
        for load in 1..=18 {
            assert_eq!(fires_after_its_end(load), 0, "a load of {load} s");
        }
        // What was long enough is over as soon.
        for load in [25, 30, 36] {
            assert!(fires_after_its_end(load) <= 8, "a load of {load} s: {}", fires_after_its_end(load));
        }
        let first = fires(36, 0).first().copied();
        assert!((1_028..=1_031).contains(&first.unwrap_or_default()), "{first:?}");
    }

    #[test]
    fn one_sample_a_step_and_a_level_figure_say_nothing() {
        let spike = |secs: f64| if secs == 2_000.0 { 990.0 } else { 100.0 };
        assert_eq!(fires(spike, 4_000, 1_000.0), []);
        let step = |secs: f64| if secs >= 2_000.0 { 900.0 } else { 100.0 };
        assert_eq!(fires(step, 4_000, 1_000.0), []);
        assert_eq!(fires(|_| 900.0, 4_000, 1_000.0), []);
        assert_eq!(fires(|secs| 900.0 - secs / 10.0, 4_000, 1_000.0), []);
        assert_eq!(fires(|_| 1_000.0, 4_000, 1_000.0), [], "that is told by others");
        assert_eq!(filling(&[], 1.0), None);
    }

    #[test]
    fn noise_around_a_level_says_nothing() {
        let noise = |secs: f64| ((secs * 12.9898).sin() * 43_758.545).fract();
        assert_eq!(fires(|secs| 900.0 + 20.0 * noise(secs), 7_200, 1_000.0), []);
    }

    #[test]
    fn the_saw_tooth_of_compaction_is_no_growth() {
        // Each tooth is 100 high; a fifth as much again is free above it.
        for tooth in [10.0, 25.0, 45.0, 90.0, 200.0, 420.0, 900.0, 2_000.0] {
            let of = |secs: f64| 500.0 + secs % tooth / tooth * 100.0;
            // Before one tooth is over, nobody can know it from growth.
            let at: Vec<_> =
                fires(of, 9_000, 900.0).into_iter().filter(|secs| *secs > 2 * tooth as u64).collect();
            assert_eq!(at, [], "teeth of {tooth} s");
        }
    }

    #[test]
    fn growth_beneath_a_saw_tooth_is_seen() {
        // Teeth of a minute, and growth that fills the disk in half an hour.
        let of = |secs: f64| secs % 60.0 + secs;
        let at = fires(of, 1_800, 1_800.0);
        assert!(at.first().is_some_and(|first| *first < 900), "{:?}", at.first());
        assert!(at.iter().any(|secs| *secs > 1_500));
    }

    #[test]
    fn growth_by_whole_files_is_growth() {
        // A file of 64 each 64 seconds.
        let of = |secs: f64| (secs / 64.0).floor() * 64.0;
        let at = fires(of, 3_600, 4_000.0);
        assert!(at.first().is_some_and(|first| *first < 1_200), "{:?}", at.first());
    }

    #[test]
    fn gaps_and_clocks_that_were_set_do_no_harm() {
        let mut points = seen(&|secs| secs, 1_000);
        points.retain(|point| !(START + 700..START + 990).contains(&point.at_secs));
        let _ = filling(&points, 1_100.0);
        let tiny: Vec<Point> = (0..40).map(|at| Point { at_secs: at, value: at as f64 }).collect();
        assert!(filling(&tiny, 50.0).is_some());
    }
}
