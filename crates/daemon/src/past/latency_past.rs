//! How long operations took and what they waited for, over the last ten minutes and the last day: histograms of intervals, by bucket.
//!
//! Meters count from a bucket's opening on; what lies between two looks is an interval's. Intervals begin at multiples of five seconds by
//! the clock that clients see, on every node alike. All of it is in memory and takes [`BYTES_MAX`] at most: with many buckets, or
//! figures that are spread widely, it reaches back less far.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use admin::latency::{LatencyCount, LatencyInterval, LatencyPast as Told, LatencyZoom};
use dataplane::{
    meter::{BucketMeter, LatencyStep, OpKind, step_floor, step_of},
    phases::Phase,
};
use parking_lot::Mutex;

use super::let_go_farthest;

/// What the past of all buckets may take. All that shows a node together stays below 64 MiB (`super::memory`).
pub(super) const BYTES_MAX: usize = 8 << 20;
/// What an interval takes beside its counts, about.
const ROW_BYTES: usize = 48;
/// Seconds of an interval, and how many of them are kept.
const FINE_SECS: u64 = 5;
const FINE_MAX: usize = 120;
/// The same further back.
const COARSE_SECS: u64 = 60;
const COARSE_MAX: usize = 1440;

/// The past of every open bucket.
#[derive(Debug)]
pub(crate) struct LatencyPast {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

impl Default for LatencyPast {
    fn default() -> Self {
        Self { inner: Mutex::default(), bytes_max: BYTES_MAX }
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// The interval that the last look was in.
    at_secs: u64,
    buckets: BTreeMap<String, Series>,
}

/// What was counted in one step of the histogram of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// An operation, or behind those a phase.
    of: u8,
    step: u8,
    count: u32,
}

/// What was counted in an interval. One that the clock has come by twice has the same step twice.
#[derive(Debug, Default)]
struct Row(Vec<Count>);

impl Row {
    fn bytes(&self) -> usize {
        ROW_BYTES + self.0.len() * size_of::<Count>()
    }
}

#[derive(Debug, Default)]
struct Series {
    /// What counted at the last look, and what it said. A flush keeps the past of a bucket, and begins to count anew.
    meter: Weak<BucketMeter>,
    last: Vec<Vec<LatencyStep>>,
    /// The interval that was over last. Where the clock was set back some rows are later, and not told until it comes there.
    at_secs: u64,
    fine: BTreeMap<u64, Row>,
    coarse: BTreeMap<u64, Row>,
    /// The minute that is not over.
    minute: BTreeMap<(u8, u8), u32>,
    minute_at: Option<u64>,
}

impl LatencyPast {
    /// Counts what has happened since the look before, where another interval has begun.
    pub(crate) fn look<'a>(
        &self,
        unix_secs: u64,
        meters: impl Iterator<Item = (&'a str, &'a Arc<BucketMeter>)>,
    ) {
        let mut inner = self.inner.lock();
        let now = unix_secs - unix_secs % FINE_SECS;
        if inner.at_secs == now {
            return;
        }
        inner.at_secs = now;
        let before = std::mem::take(&mut inner.buckets);
        let mut before: BTreeMap<_, _> = before.into_iter().collect();
        for (name, meter) in meters {
            let mut series = before.remove(name).unwrap_or_default();
            series.follow(meter);
            series.look(now.saturating_sub(FINE_SECS), said(meter));
            inner.buckets.insert(name.to_owned(), series);
        }
        let share = self.bytes_max / inner.buckets.len().max(1);
        inner.buckets.values_mut().for_each(|series| series.keep(share));
    }

    /// The bucket of that name is another one.
    pub(crate) fn forget(&self, bucket: &str) {
        self.inner.lock().buckets.remove(bucket);
    }

    /// What was counted of a bucket; nothing where it has not been looked at twice.
    pub(crate) fn told(&self, bucket: &str, zoom: LatencyZoom) -> Option<Told> {
        self.inner.lock().buckets.get(bucket).map(|series| series.told(zoom))
    }
}

/// What a meter says of each operation and phase.
fn said(meter: &BucketMeter) -> Vec<Vec<LatencyStep>> {
    let operations = OpKind::ALL.iter().map(|(kind, _)| meter.latencies(*kind));
    let phases = Phase::ALL.iter().map(|(phase, _)| meter.phase(*phase).steps);
    operations.chain(phases).collect()
}

impl Series {
    /// What another meter has counted than at the last look, it has counted since.
    fn follow(&mut self, meter: &Arc<BucketMeter>) {
        if !std::ptr::eq(self.meter.as_ptr(), Arc::as_ptr(meter)) {
            self.meter = Arc::downgrade(meter);
            self.last.iter_mut().for_each(Vec::clear);
        }
    }

    fn look(&mut self, at_secs: u64, said: Vec<Vec<LatencyStep>>) {
        let last = std::mem::replace(&mut self.last, said);
        if last.is_empty() {
            // What was counted before lies in no interval.
            return;
        }
        let mut counts = Vec::new();
        for (of, (now, before)) in (0_u8..).zip(self.last.iter().zip(&last)) {
            counts.extend(now.iter().filter_map(|step| since(of, step, before)));
        }
        self.at_secs = at_secs;
        self.add_to_minute(at_secs, &counts);
        self.fine.entry(at_secs).or_default().0.extend(counts);
    }

    fn add_to_minute(&mut self, at_secs: u64, counts: &[Count]) {
        let minute = at_secs - at_secs % COARSE_SECS;
        if let Some(over) = self.minute_at.replace(minute).filter(|at| *at != minute) {
            let counts = std::mem::take(&mut self.minute);
            let counts = counts.into_iter().map(|((of, step), count)| Count { of, step, count });
            self.coarse.entry(over).or_default().0.extend(counts);
        }
        for count in counts {
            let sum = self.minute.entry((count.of, count.step)).or_default();
            *sum = sum.saturating_add(count.count);
        }
    }

    /// Forgets what is farthest from now of what is too much.
    fn keep(&mut self, bytes_max: usize) {
        let (now, rows) = (self.at_secs, self.fine.values().chain(self.coarse.values()));
        let mut bytes: usize = rows.map(Row::bytes).sum();
        let mut let_go = |rows: &mut BTreeMap<u64, Row>, most: usize| {
            while rows.len() > most || (bytes > bytes_max && !rows.is_empty()) {
                bytes -= let_go_farthest(rows, now).map_or(0, |row| row.bytes());
            }
        };
        let_go(&mut self.coarse, COARSE_MAX);
        let_go(&mut self.fine, FINE_MAX);
    }

    fn told(&self, zoom: LatencyZoom) -> Told {
        let rows = if zoom == LatencyZoom::Minutes { &self.fine } else { &self.coarse };
        let step_secs = zoom.step_secs();
        let shown = rows.range(..=self.at_secs);
        let newest = shown.clone().next_back().map_or(0, |(at_secs, _)| *at_secs);
        let from = newest.saturating_sub(step_secs * zoom.steps() as u64);
        let mut sums: BTreeMap<(u8, u64, u8), u64> = BTreeMap::new();
        let mut told = Told::default();
        for (at_secs, row) in shown.filter(|(at_secs, _)| **at_secs >= from) {
            let at_secs = at_secs - at_secs % step_secs;
            if told.at_secs.last() != Some(&at_secs) {
                told.at_secs.push(at_secs);
            }
            for count in &row.0 {
                *sums.entry((count.of, at_secs, count.step)).or_default() += u64::from(count.count);
            }
        }
        for ((of, at_secs, step), count) in sums {
            let Some(intervals) = place(&mut told, of) else { continue };
            let (from_us, to_us) = (step_floor(step.into()), step_floor(usize::from(step) + 1));
            let counted = LatencyCount { from_us, to_us, count };
            match intervals.last_mut().filter(|interval| interval.at_secs == at_secs) {
                Some(interval) => interval.steps.push(counted),
                None => intervals.push(LatencyInterval { at_secs, steps: vec![counted] }),
            }
        }
        told
    }
}

/// Where the intervals of an operation or a phase are told.
fn place(told: &mut Told, of: u8) -> Option<&mut Vec<LatencyInterval>> {
    let of = usize::from(of);
    if let Some((_, name)) = OpKind::ALL.get(of) {
        return Some(told.operations.entry((*name).to_owned()).or_default());
    }
    let (_, name) = Phase::ALL.get(of - OpKind::ALL.len())?;
    Some(told.phases.entry((*name).to_owned()).or_default())
}

/// What a step has counted since an earlier look.
fn since(of: u8, step: &LatencyStep, before: &[LatencyStep]) -> Option<Count> {
    let earlier = before.binary_search_by_key(&step.from_micros, |earlier| earlier.from_micros);
    let earlier = earlier.ok().and_then(|at| before.get(at)).map_or(0, |earlier| earlier.count);
    let count = u32::try_from(step.count.saturating_sub(earlier)).unwrap_or(u32::MAX);
    let step = u8::try_from(step_of(step.from_micros)).ok()?;
    (count > 0).then_some(Count { of, step, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(past: &LatencyPast, at: u64, meter: &Arc<BucketMeter>) {
        past.look(at, std::iter::once(("b", meter)));
    }

    fn counts(past: &LatencyPast, zoom: LatencyZoom) -> Vec<(u64, u64)> {
        let told = past.told("b", zoom).unwrap();
        let of = |interval: &LatencyInterval| interval.steps.iter().map(|step| step.count).sum();
        told.operations.get("get").into_iter().flatten().map(|one| (one.at_secs, of(one))).collect()
    }

    #[test]
    fn an_interval_has_what_was_counted_in_it() {
        let (past, meter) = (LatencyPast::default(), Arc::new(BucketMeter::new(1)));
        meter.record(0, OpKind::Get, 100, 7);
        look(&past, 1000, &meter);
        assert_eq!(counts(&past, LatencyZoom::Minutes), [], "what came before is of no interval");
        meter.record(0, OpKind::Get, 3, 7);
        meter.record(0, OpKind::Get, 2, 900);
        meter.record_phase(0, Phase::Fetch, 2, 900_000);
        look(&past, 1003, &meter);
        assert_eq!(counts(&past, LatencyZoom::Minutes), [], "the interval is not over");
        look(&past, 1006, &meter);
        look(&past, 1012, &meter);
        assert_eq!(counts(&past, LatencyZoom::Minutes), [(1000, 5)]);
        let told = past.told("b", LatencyZoom::Minutes).unwrap();
        assert_eq!(told.at_secs, [1000, 1005]);
        let steps = &told.operations["get"][0].steps;
        assert_eq!((steps[0].from_us, steps[0].to_us, steps[0].count), (7, 8, 3));
        assert!(steps[1].from_us <= 900 && 900 < steps[1].to_us, "{steps:?}");
        assert_eq!(told.phases["fetch"][0].steps[0].count, 2);
    }

    #[test]
    fn operations_after_a_flush_are_counted_from_the_first_on() {
        let past = LatencyPast::default();
        let [before, after] = [(); 2].map(|()| Arc::new(BucketMeter::new(1)));
        before.record(0, OpKind::Get, 100, 7);
        look(&past, 1000, &before);
        before.record(0, OpKind::Get, 4, 7);
        look(&past, 1005, &before);
        after.record(0, OpKind::Get, 3, 7);
        look(&past, 1010, &after);
        after.record(0, OpKind::Get, 2, 7);
        look(&past, 1015, &after);
        assert_eq!(counts(&past, LatencyZoom::Minutes), [(1000, 4), (1005, 3), (1010, 2)]);
    }

    #[test]
    fn minutes_are_kept_for_a_day_and_told_in_longer_intervals() {
        let (past, mut series) = (LatencyPast::default(), Series::default());
        let get = Count { of: 0, step: 7, count: 6 };
        for at in (0..2 * 86_400).step_by(30) {
            series.at_secs = at;
            series.add_to_minute(at, &[get]);
            series.keep(BYTES_MAX);
        }
        past.inner.lock().buckets.insert("b".to_owned(), series);
        let hour = counts(&past, LatencyZoom::Hour);
        assert!(hour.len() >= 60 && hour.iter().all(|(at, count)| at % 60 == 0 && *count == 12), "{hour:?}");
        let day = counts(&past, LatencyZoom::Day);
        assert!((240..=241).contains(&day.len()), "{}", day.len());
        let whole = day.get(1..day.len() - 1).unwrap_or_default();
        assert!(whole.iter().all(|(at, count)| at % 360 == 0 && *count == 72), "{day:?}");
        assert_eq!(past.inner.lock().buckets["b"].coarse.len(), COARSE_MAX);
    }

    #[test]
    fn the_past_takes_no_more_than_it_may_and_ends_with_its_bucket() {
        let past = LatencyPast { bytes_max: 10_000, ..LatencyPast::default() };
        let meter = Arc::new(BucketMeter::new(1));
        for at in (0..7200).step_by(5) {
            look(&past, at, &meter);
            (0..40).for_each(|step| meter.record(0, OpKind::Get, 1, step * 100));
        }
        let bytes: usize = past.inner.lock().buckets["b"].fine.values().map(Row::bytes).sum();
        assert!((5_000..=10_000).contains(&bytes), "{bytes}");
        assert_eq!(past.told("c", LatencyZoom::Hour), None);
        past.look(8000, std::iter::empty());
        assert_eq!(past.told("b", LatencyZoom::Hour), None);
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_no_interval_twice() {
        let (past, meter) = (LatencyPast::default(), Arc::new(BucketMeter::new(1)));
        for at in [1000, 1005, 1010, 1015, 1005, 1010] {
            look(&past, at, &meter);
            meter.record(0, OpKind::Get, 1, 7);
        }
        let times: Vec<_> = past.told("b", LatencyZoom::Minutes).unwrap().at_secs;
        assert_eq!(times, [1000, 1005]);
    }

    #[test]
    fn a_clock_that_is_behind_for_a_while_costs_no_interval_of_before() {
        let (past, meter) = (LatencyPast::default(), Arc::new(BucketMeter::new(1)));
        let look_at = |times: std::ops::Range<u64>| {
            for at in times.step_by(5) {
                look(&past, at, &meter);
                meter.record(0, OpKind::Get, 1, 7);
            }
        };
        // Two hours, five hours behind for two minutes, and right again.
        look_at(100_000..107_200);
        let (minutes, day) = (counts(&past, LatencyZoom::Minutes), counts(&past, LatencyZoom::Day));
        look_at(89_200..89_320);
        let told = past.told("b", LatencyZoom::Minutes).unwrap();
        assert_eq!(told.at_secs.last(), Some(&89_310), "nothing is of the future");
        look_at(107_320..107_380);
        let has = |zoom, all: &[(u64, u64)]| {
            let now = counts(&past, zoom);
            all.iter().filter(|one| now.contains(one)).count()
        };
        let kept = [has(LatencyZoom::Minutes, &minutes), has(LatencyZoom::Day, &day)];
        // Three minutes have passed, and two took the place of others. The interval that was not over goes on.
        assert!(kept[0] >= minutes.len() - 62 && kept[1] >= day.len() - 1, "{kept:?} {minutes:?} {day:?}");
    }
}
