//! When memory, metadata and disk of this node run out, as far as the past says ([`plan::forecast`]). Looked at every ten minutes, and when
//! a file of the past was read. REST, the console, `settee plan` and alerts read what was found last.
//!
//! It takes a few milliseconds of a thread that may block for each figure, since it looks at pairs of points.

use std::sync::Arc;

use admin::{Foretold, Limit, Outlook, PastForecasts};
use base::bucket::BucketKind;
use dataplane::shared::DiskLevel;
use engine::Bucket;
use parking_lot::Mutex;
use plan::forecast::{Forecast, Model, Point, past_error, reaching};

use crate::past::history::History;

/// Between two forecasts.
const FORECAST_EVERY_SECS: u64 = 600;
/// The same while a bucket has none.
const NEW_EVERY_SECS: u64 = 5;
/// Percent of a quota that keys and metadata may take (ns_server).
pub(crate) const OVERHEAD_PERCENT: u64 = 50;
const DAY_SECS: u64 = 24 * 3600;
/// Days ahead of which forecasts of the past are judged.
const JUDGED_DAYS: [u64; 2] = [1, 7];

/// What was found last.
#[derive(Default)]
pub(crate) struct Forecasting {
    told: Mutex<Vec<Foretold>>,
    /// When it was looked last, and how many files of the past had been read.
    last: Mutex<Option<(u64, u64)>>,
}

impl Forecasting {
    /// The buckets of these names are gone.
    pub(crate) fn forget(&self, buckets: &[String]) {
        self.told.lock().retain(|told| !told.bucket.as_ref().is_some_and(|name| buckets.contains(name)));
    }

    pub(crate) fn told(&self) -> Vec<Foretold> {
        self.told.lock().clone()
    }
}

impl Forecasting {
    /// Makes all forecasts anew. `buckets`: those that are open.
    pub(crate) fn look(&self, past: &History, buckets: &[Arc<Bucket>], disk: &DiskLevel, now_secs: u64) {
        let looking = Looking { past, now_secs };
        let mut told: Vec<Foretold> = Vec::new();
        for bucket in buckets {
            told.extend(looking.memory_of(bucket));
            told.extend(looking.metadata_of(bucket));
        }
        told.extend(looking.disk_of(disk, buckets));
        *self.told.lock() = told;
    }

    /// Whether it is time for it: `of` so many open buckets.
    pub(crate) fn is_due(&self, past: &History, of: usize, now_secs: u64) -> bool {
        let mut last = self.last.lock();
        let is_memory = |one: &&Foretold| one.what == Limit::Memory;
        // A bucket that is new has not been sampled yet.
        let told = self.told.lock().iter().filter(is_memory).count();
        let every = if told < of { NEW_EVERY_SECS } else { FORECAST_EVERY_SECS };
        let is_due = last.is_none_or(|(at, read)| now_secs.abs_diff(at) >= every || read != past.adopted());
        if is_due {
            *last = Some((now_secs, past.adopted()));
        }
        is_due
    }
}

/// One look.
struct Looking<'a> {
    past: &'a History,
    now_secs: u64,
}

impl Looking<'_> {
    /// What a statistic of a bucket was, each hour.
    fn points(&self, bucket: &str, stat: &str) -> Vec<Point> {
        let hours = self.past.hours(bucket, stat).into_iter();
        hours.map(|(at_secs, value)| Point { at_secs, value }).collect()
    }

    fn memory_of(&self, bucket: &Bucket) -> Option<Foretold> {
        let (name, stats) = (bucket.name(), bucket.stats());
        let points = self.points(name, "mem_used");
        let mut told =
            foretell(Limit::Memory, Some(name), &points, stats.mem_high_wat as f64, self.now_secs)?;
        // The pager keeps memory below the watermark from then on, so the line says nothing any more.
        if bucket.kind() == BucketKind::Couchbase && stats.resident_percent < 100 {
            (told.outlook, told.likely_secs, told.early_secs) = (Outlook::Reached, None, None);
        }
        Some(told)
    }

    /// Keys and metadata, as far as they cannot leave memory.
    fn metadata_of(&self, bucket: &Bucket) -> Option<Foretold> {
        if bucket.kind() != BucketKind::Couchbase {
            return None;
        }
        let limit = bucket.stats().quota_bytes as f64 * OVERHEAD_PERCENT as f64 / 100.0;
        let points = self.points(bucket.name(), "settee_mem_floor");
        foretell(Limit::Metadata, Some(bucket.name()), &points, limit, self.now_secs)
    }

    /// The disk, which every bucket's past tells of.
    fn disk_of(&self, disk: &DiskLevel, buckets: &[Arc<Bucket>]) -> Option<Foretold> {
        let of = |bucket: &Arc<Bucket>, stat| self.points(bucket.name(), stat);
        let free = buckets.iter().map(|bucket| (bucket, of(bucket, "settee_disk_free")));
        let (bucket, free) = free.max_by_key(|(_, free)| free.len())?;
        let points = used(&free, &of(bucket, "settee_disk_total"), disk.total as f64);
        let limit = disk.total.saturating_sub(disk.free_min) as f64;
        foretell(Limit::Disk, None, &points, limit, self.now_secs)
    }
}

/// What was in use of a disk, whose size may have changed meanwhile. What was free before its size was noted was free of the first size
/// that was, or of the one that it has now.
fn used(free: &[Point], totals: &[Point], total_now: f64) -> Vec<Point> {
    let known: Vec<&Point> = totals.iter().filter(|point| point.value > 0.0).collect();
    let total_at = |at_secs| {
        let next = known.partition_point(|point| point.at_secs < at_secs);
        known.get(next).map_or(total_now, |point| point.value)
    };
    free.iter().map(|point| Point { value: total_at(point.at_secs) - point.value, ..*point }).collect()
}

/// Nothing where the figure is not known at all.
fn foretell(
    what: Limit,
    bucket: Option<&str>,
    points: &[Point],
    limit: f64,
    now_secs: u64,
) -> Option<Foretold> {
    let newest = points.last()?;
    let (outlook, likely_secs, early_secs) = match reaching(points, limit) {
        Forecast::NotEnoughData => (Outlook::NotEnoughData, None, None),
        Forecast::Reached => (Outlook::Reached, None, None),
        Forecast::Never => (Outlook::NotInSight, None, None),
        Forecast::Reaches { early_secs, likely_secs: None } => (Outlook::NotInSight, None, Some(early_secs)),
        Forecast::Reaches { early_secs, likely_secs } => (Outlook::Dated, likely_secs, Some(early_secs)),
    };
    let judged = |days: u64| {
        let error = past_error(points, days * DAY_SECS)?;
        Some(PastForecasts { days, percent: error.percent, forecasts: error.forecasts })
    };
    Some(Foretold {
        what,
        bucket: bucket.map(str::to_owned),
        value: newest.value,
        limit,
        per_day: Model::of(points).map(|model| model.trend.slope * DAY_SECS as f64),
        outlook,
        likely_secs,
        early_secs,
        past: JUDGED_DAYS.into_iter().filter_map(judged).collect(),
        at_secs: now_secs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_use_of_a_disk_is_the_same_after_the_disk_was_made_larger() {
        let points = |values: &[(u64, f64)]| -> Vec<Point> {
            values.iter().map(|&(at_secs, value)| Point { at_secs, value }).collect()
        };
        let free = points(&[(1, 20.0), (2, 10.0), (3, 110.0), (4, 100.0)]);
        let values = |totals: &[(u64, f64)]| -> Vec<f64> {
            used(&free, &points(totals), 200.0).iter().map(|point| point.value).collect()
        };
        assert_eq!(values(&[(1, 100.0), (2, 100.0), (3, 200.0), (4, 200.0)]), [80.0, 90.0, 90.0, 100.0]);
        // An earlier version has not noted the size.
        assert_eq!(values(&[(2, 100.0), (3, 200.0)]), [80.0, 90.0, 90.0, 100.0]);
        assert_eq!(values(&[(1, 0.0)]), [180.0, 190.0, 90.0, 100.0]);
    }
}
