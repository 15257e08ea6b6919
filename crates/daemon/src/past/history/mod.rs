//! The past of statistics: what REST shows of a bucket over the last minute, hour, day, week, month and year.
//!
//! Samples are taken once a second. The last minute is kept as it was; further back is kept as means over longer steps. REST reads all of it
//! from memory. What is further back than a minute takes [`BYTES_MAX`] at most, however many buckets are open. With more buckets each
//! reaches back less far.
//!
//! The means are on disk as well ([`keeper`]), from where a process that starts has them. The last minute is not.
//!
//! Counters are kept as rates: what REST shows of them is by the second.

pub(crate) mod file;
pub(crate) mod keeper;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use stats::{Across, Kind, Reading, Samples, Statistic, Zoom};

use self::file::{Kept, Step, zooms};

/// What the past of all buckets may take.
const BYTES_MAX: usize = 48 << 20;
/// What a row takes beside its figures, about.
const ROW_BYTES: usize = 48;

/// The past of every open bucket.
#[derive(Debug)]
pub(crate) struct History {
    buckets: Mutex<BTreeMap<String, Series>>,
    /// Files that have been read: what the past says may be another thing after each.
    adopted: AtomicU64,
    bytes_max: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { buckets: Mutex::default(), adopted: AtomicU64::new(0), bytes_max: BYTES_MAX }
    }
}

impl History {
    /// Adds what every open bucket said at a moment. The past of other buckets is forgotten.
    pub(crate) fn add(&self, at: Moment, said: Vec<Said>) {
        let mut buckets = self.buckets.lock();
        let open: BTreeSet<&str> = said.iter().map(|said| said.bucket.as_str()).collect();
        buckets.retain(|name, _| open.contains(name.as_str()));
        let share_bytes = self.bytes_max / said.len().max(1);
        for Said { bucket, uuid, readings } in said {
            let series = buckets.entry(bucket).or_default();
            series.is_of(uuid);
            series.add(at, &readings, share_bytes);
        }
    }

    /// Whether a bucket's file has not been asked for.
    pub(crate) fn has_unread(&self) -> bool {
        self.buckets.lock().values().any(|series| !series.is_read)
    }

    /// Buckets whose files have not been read. Each is told once.
    fn unread(&self) -> Vec<Fresh> {
        let mut buckets = self.buckets.lock();
        let unread = buckets.iter_mut().filter(|(_, series)| !series.is_read);
        unread
            .map(|(bucket, series)| {
                series.is_read = true;
                Fresh { bucket: bucket.clone(), uuid: series.uuid.clone(), columns: series.columns.clone() }
            })
            .collect()
    }

    /// Has a bucket's file asked for again.
    fn read_again(&self, uuid: &str) {
        let mut buckets = self.buckets.lock();
        buckets.values_mut().filter(|series| series.uuid == uuid).for_each(|series| series.is_read = false);
    }

    /// Puts what a file had before what this process has sampled.
    fn adopt(&self, bucket: &str, uuid: &str, kept: Kept, now_secs: u64) {
        let mut buckets = self.buckets.lock();
        let Some(series) = buckets.get_mut(bucket).filter(|series| series.uuid == uuid) else { return };
        for (zoom, steps) in kept.steps {
            if let Some(archive) = series.further.iter_mut().find(|archive| archive.zoom == zoom) {
                archive.adopt(steps, now_secs);
            }
        }
        self.adopted.fetch_add(1, Ordering::Relaxed);
    }

    /// How many files have been read.
    pub(crate) fn adopted(&self) -> u64 {
        self.adopted.load(Ordering::Relaxed)
    }

    /// The buckets that are sampled, by uuid.
    fn open(&self) -> BTreeSet<String> {
        self.buckets.lock().values().map(|series| series.uuid.clone()).collect()
    }

    /// What is to be written of a bucket. The steps that are not over are among it.
    fn unwritten(&self, uuid: &str) -> Vec<(Zoom, Step)> {
        let mut buckets = self.buckets.lock();
        let of_bucket = buckets.values_mut().filter(|series| series.uuid == uuid);
        let archives = of_bucket.flat_map(|series| &mut series.further);
        archives
            .flat_map(|archive| archive.unwritten().into_iter().map(|step| (archive.zoom, step)))
            .collect()
    }

    /// What was told last as unwritten is written.
    fn written(&self, uuid: &str) {
        let mut buckets = self.buckets.lock();
        let of_bucket = buckets.values_mut().filter(|series| series.uuid == uuid);
        of_bucket.flat_map(|series| &mut series.further).for_each(|archive| archive.written = archive.told);
    }

    /// What a bucket said of one statistic each second of the last minute, by its first name in REST; counters as rates.
    pub(crate) fn last_minute(&self, bucket: &str, stat: &str) -> Vec<f64> {
        let buckets = self.buckets.lock();
        let Some(series) = buckets.get(bucket) else { return Vec::new() };
        let column = series.columns.iter().position(|about| about.rest.first() == Some(&stat));
        let of_row = |row: &[f64]| column.and_then(|column| row.get(column)).copied();
        series.minute.iter().filter_map(|(_, row)| of_row(row)).collect()
    }

    /// What a bucket said of one statistic, by its first name in REST: a figure an hour for a month. Hours in which an earlier version did
    /// not know it are left out.
    pub(crate) fn hours(&self, bucket: &str, stat: &str) -> Vec<(u64, f64)> {
        let buckets = self.buckets.lock();
        let Some(series) = buckets.get(bucket) else { return Vec::new() };
        let column = series.columns.iter().position(|about| about.rest.first() == Some(&stat));
        let archive = series.further.iter().find(|archive| archive.zoom == Zoom::Month);
        let Some((column, archive)) = column.zip(archive) else { return Vec::new() };
        hourly(archive.all().into_iter().filter_map(|(at, row)| Some((at, *row.get(column)?))))
    }

    /// What a bucket said over a time; nothing where it has said nothing yet.
    pub(crate) fn samples(&self, bucket: &str, zoom: Zoom) -> Option<Samples> {
        self.buckets.lock().get(bucket).map(|series| series.samples(zoom))
    }
}

/// What is said now, for a bucket that has no past. Rates are not known yet.
pub(crate) fn only(at: Moment, readings: &[Reading]) -> Samples {
    let mut series = Series::default();
    series.add(at, readings, BYTES_MAX);
    series.samples(Zoom::Minute)
}

/// What a bucket said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) bucket: String,
    /// Tells it from an earlier bucket of that name.
    pub(crate) uuid: String,
    pub(crate) readings: Vec<Reading>,
}

/// A bucket whose file has not been read.
struct Fresh {
    bucket: String,
    uuid: String,
    columns: Vec<&'static Statistic>,
}

/// When a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    /// By the clock that clients see, which may be set.
    pub(crate) unix_secs: u64,
    /// By one that may not.
    pub(crate) steady_secs: f64,
}

#[derive(Debug, Default)]
struct Series {
    uuid: String,
    /// Whether the file has been asked for.
    is_read: bool,
    columns: Vec<&'static Statistic>,
    /// The last sample as it was said: rates follow from two of them.
    last: Option<(Moment, Vec<f64>)>,
    /// Ascending.
    minute: VecDeque<(u64, Box<[f64]>)>,
    /// For every zoom but the minute.
    further: Vec<Archive>,
}

impl Series {
    /// A bucket that was flushed has another uuid, and so another file. Its past stays.
    fn is_of(&mut self, uuid: String) {
        if self.uuid != uuid {
            (self.uuid, self.is_read) = (uuid, false);
            self.further.iter_mut().for_each(|archive| (archive.written, archive.told) = (0, 0));
        }
    }

    fn add(&mut self, at: Moment, readings: &[Reading], bytes_max: usize) {
        let sampled = readings.iter().filter(|reading| is_sampled(reading.about));
        let (columns, said): (Vec<_>, Vec<f64>) =
            sampled.map(|reading| (reading.about, reading.value.number().unwrap_or_default())).unzip();
        if columns.len() != self.columns.len() {
            // Only a bucket of another kind would say something else.
            *self = Self {
                uuid: std::mem::take(&mut self.uuid),
                columns,
                further: zooms().map(Archive::new).collect(),
                ..Self::default()
            };
        }
        let shown = self.rated(at, &said);
        self.last = Some((at, said));
        for archive in &mut self.further {
            archive.add(at.unix_secs, &shown, rows_kept(archive.zoom, self.columns.len(), bytes_max));
        }
        push(&mut self.minute, at.unix_secs, shown.into(), Zoom::Minute.rows());
    }

    /// Counters become rates; a counter that went back has begun anew.
    fn rated(&self, at: Moment, said: &[f64]) -> Vec<f64> {
        let elapsed = self.last.as_ref().map_or(0.0, |(last, _)| at.steady_secs - last.steady_secs);
        let before = |column: usize| self.last.as_ref().and_then(|(_, said)| said.get(column)).copied();
        let rate = |now: f64, then: Option<f64>| match then {
            Some(then) if elapsed > 0.0 && now >= then => (now - then) / elapsed,
            _ => 0.0,
        };
        let columns = self.columns.iter().zip(said).enumerate();
        columns
            .map(|(index, (about, now))| match about.kind {
                Kind::Counter => rate(*now, before(index)),
                Kind::Gauge | Kind::Histogram | Kind::Text => *now,
            })
            .collect()
    }

    fn samples(&self, zoom: Zoom) -> Samples {
        let further = || self.further.iter().find(|archive| archive.zoom == zoom);
        let rows: Vec<(u64, Vec<f64>)> = match zoom {
            Zoom::Minute => self.minute.iter().map(|(at, row)| (*at, row.to_vec())).collect(),
            _ => further().map(Archive::all).unwrap_or_default(),
        };
        // A figure that an earlier version did not know is not known.
        let figure = |row: &[f64], index: usize| row.get(index).copied().filter(|one| one.is_finite());
        let column =
            |index: usize| rows.iter().map(|(_, row)| figure(row, index).unwrap_or_default()).collect();
        let values = self.columns.iter().enumerate().filter_map(|(index, about)| {
            let name = about.rest.first()?;
            Some(((*name).to_owned(), column(index)))
        });
        Samples { timestamps: rows.iter().map(|(at, _)| at * 1000).collect(), values: values.collect() }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let minute: usize = self.minute.iter().map(|(_, row)| ROW_BYTES + row.len() * 8).sum();
        let rows = self.further.iter().flat_map(|archive| &archive.rows);
        minute + rows.map(|(_, row)| ROW_BYTES + row.len() * 4).sum::<usize>()
    }
}

/// One figure an hour: the first.
fn hourly(rows: impl Iterator<Item = (u64, f64)>) -> Vec<(u64, f64)> {
    let mut hours: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
    for (at, value) in rows.filter(|(_, value)| value.is_finite()) {
        hours.entry(at / 3_600).or_insert((at, value));
    }
    hours.into_values().collect()
}

/// Whether REST shows a statistic that a node says itself. Others follow from those.
fn is_sampled(about: &Statistic) -> bool {
    let has_number = matches!(about.kind, Kind::Counter | Kind::Gauge);
    has_number && !about.rest.is_empty() && !matches!(about.across, Across::Of(_))
}

/// How many rows of a zoom are kept, where a bucket's past may take so many bytes.
fn rows_kept(zoom: Zoom, columns: usize, bytes_max: usize) -> usize {
    let row_bytes = ROW_BYTES + columns * 4;
    let wanted: usize = zooms().map(|zoom| zoom.rows() * row_bytes).sum();
    let left = bytes_max.saturating_sub(Zoom::Minute.rows() * (ROW_BYTES + columns * 8));
    if wanted <= left { zoom.rows() } else { (zoom.rows() * left / wanted).max(1) }
}

/// Rows stay in order also where the clock was set back: what was said after that moment is forgotten.
fn push<T>(rows: &mut VecDeque<(u64, Box<[T]>)>, at: u64, row: Box<[T]>, keep: usize) {
    while rows.back().is_some_and(|(last, _)| *last >= at) {
        rows.pop_back();
    }
    rows.push_back((at, row));
    while rows.len() > keep {
        rows.pop_front();
    }
}

/// Means over steps of one length.
#[derive(Debug)]
struct Archive {
    zoom: Zoom,
    rows: VecDeque<(u64, Box<[f32]>)>,
    /// The step that is not over: its begin, sums, and how many samples are in them.
    begun: (u64, Vec<f64>, u32),
    /// Steps that are over are on disk up to this one; up to `told` they are on the way.
    written: u64,
    told: u64,
}

impl Archive {
    fn new(zoom: Zoom) -> Self {
        Self { zoom, rows: VecDeque::new(), begun: (0, Vec::new(), 0), written: 0, told: 0 }
    }

    fn add(&mut self, at: u64, row: &[f64], keep: usize) {
        // Also between steps, which last up to six hours: with another bucket there is less room for this one.
        while self.rows.len() > keep {
            self.rows.pop_front();
        }
        let step = at - at % self.zoom.step_secs();
        let (begin, sums, count) = &mut self.begun;
        if *begin != step {
            if let Some(mean) = mean(sums, *count) {
                let mean: Box<[f32]> = mean.map(|figure| figure as f32).collect();
                push(&mut self.rows, *begin, mean, keep);
                // Where the clock was set back the step is in the file as it was before that.
                self.written = self.written.min(begin.saturating_sub(1));
                self.told = self.told.min(self.written);
            }
            (*begin, *count) = (step, 0);
            sums.clear();
            sums.resize(row.len(), 0.0);
        }
        sums.iter_mut().zip(row).for_each(|(sum, figure)| *sum += figure);
        *count += 1;
    }

    /// The steps that are over, and the one that is not.
    fn all(&self) -> Vec<(u64, Vec<f64>)> {
        let (begin, sums, count) = &self.begun;
        // After a time without samples steps that are too old may be left.
        let reach = self.zoom.step_secs() * self.zoom.rows() as u64;
        let over = self.rows.iter().filter(|(at, _)| at < begin && at + reach >= *begin);
        let over = over.map(|(at, row)| (*at, row.iter().map(|figure| f64::from(*figure)).collect()));
        over.chain(mean(sums, *count).map(|mean| (*begin, mean.collect()))).collect()
    }

    /// Takes steps of an earlier process, which are in order. A step that is not over goes on.
    fn adopt(&mut self, steps: Vec<Step>, now_secs: u64) {
        let (begin, sums, count) = &mut self.begun;
        let first = self.rows.front().map_or(*begin, |(at, _)| *at);
        let reach = self.zoom.step_secs() * self.zoom.rows() as u64;
        let is_past = |step: &&Step| step.at < first && step.at <= now_secs && step.at + reach >= now_secs;
        for step in steps.iter().filter(is_past).rev() {
            self.rows.push_front((step.at, step.figures.clone()));
            self.written = self.written.max(step.at);
        }
        let goes_on = |step: &&Step| {
            step.at == *begin
                && step.figures.len() == sums.len()
                && step.figures.iter().all(|one| one.is_finite())
        };
        if let Some(same) = steps.iter().find(goes_on) {
            let figures = same.figures.iter().map(|figure| f64::from(*figure) * f64::from(same.samples));
            sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
            *count = count.saturating_add(same.samples);
        }
    }

    /// What the file does not have: steps that are over since, and the one that is not.
    fn unwritten(&mut self) -> Vec<Step> {
        let samples = u32::try_from(self.zoom.step_secs()).unwrap_or(u32::MAX);
        let over = self.rows.iter().filter(|(at, _)| *at > self.written);
        let mut steps: Vec<Step> =
            over.map(|(at, row)| Step { at: *at, samples, figures: row.clone() }).collect();
        self.told = steps.last().map_or(self.written, |step| step.at);
        let (begin, sums, count) = &self.begun;
        if let Some(mean) = mean(sums, *count) {
            let figures = mean.map(|figure| figure as f32).collect();
            steps.push(Step { at: *begin, samples: *count, figures });
        }
        steps
    }
}

fn mean(sums: &[f64], count: u32) -> Option<impl Iterator<Item = f64>> {
    (count > 0).then(|| sums.iter().map(move |sum| sum / f64::from(count)))
}

#[cfg(test)]
mod tests {
    use stats::Unit;

    use super::{keeper::Keeper, *};

    const fn statistic(rest: &'static [&'static str], kind: Kind, across: Across) -> Statistic {
        Statistic { stat: &[], rest, metrics: &[], help: "Says something.", unit: Unit::Count, kind, across }
    }

    static ITEMS: Statistic = statistic(&["items", "alias"], Kind::Gauge, Across::Sum);
    static OPS: Statistic = statistic(&["ops"], Kind::Counter, Across::Sum);
    static HIDDEN: Statistic = statistic(&[], Kind::Gauge, Across::Sum);
    static DERIVED: Statistic = statistic(&["derived"], Kind::Gauge, Across::Of(|of| of("items")));

    fn readings(items: u64, ops: u64) -> Vec<Reading> {
        let reading = |about, value: u64| Reading::of(about, value.into());
        vec![reading(&ITEMS, items), reading(&HIDDEN, 1), reading(&OPS, ops), reading(&DERIVED, 2)]
    }

    fn at(secs: u64) -> Moment {
        Moment { unix_secs: 1_700_000_000 + secs, steady_secs: secs as f64 }
    }

    fn add(history: &History, secs: u64, items: u64, ops: u64) {
        history.add(at(secs), said(&["b"], items, ops));
    }

    fn said(names: &[&str], items: u64, ops: u64) -> Vec<Said> {
        let of = |name: &&str| Said {
            bucket: (*name).to_owned(),
            uuid: name.repeat(32),
            readings: readings(items, ops),
        };
        names.iter().map(of).collect()
    }

    #[test]
    fn counters_are_rates_and_gauges_stay_what_they_are() {
        let history = History::default();
        assert_eq!(history.samples("b", Zoom::Minute), None);
        for (secs, items, ops) in [(0, 5, 100), (1, 6, 110), (3, 7, 150), (4, 8, 20)] {
            add(&history, secs, items, ops);
        }
        let told = history.samples("b", Zoom::Minute).unwrap();
        assert_eq!(
            told.values.keys().collect::<Vec<_>>(),
            ["items", "ops"],
            "what follows from others is not kept"
        );
        assert_eq!(told.values["items"], [5.0, 6.0, 7.0, 8.0]);
        assert_eq!(told.values["ops"], [0.0, 10.0, 20.0, 0.0], "the last one began anew");
        assert_eq!(told.timestamps, [0, 1, 3, 4].map(|secs| (1_700_000_000 + secs) * 1000));
    }

    #[test]
    fn a_minute_has_sixty_samples_and_an_hour_means_of_four_seconds() {
        let history = History::default();
        for secs in 0..4_000 {
            add(&history, secs, secs, secs * 3);
        }
        let minute = history.samples("b", Zoom::Minute).unwrap();
        assert_eq!((minute.timestamps.len(), minute.values["items"].last()), (60, Some(&3_999.0)));
        let hour = history.samples("b", Zoom::Hour).unwrap();
        // Nine hundred that are over, and the one that is not.
        assert_eq!(hour.timestamps.len(), 901);
        assert!(hour.timestamps.windows(2).all(|two| two[1] - two[0] == 4_000));
        assert_eq!(hour.values["items"].last(), Some(&3_997.5), "3996 to 3999");
        assert_eq!(hour.values["ops"].last(), Some(&3.0));
        let day = history.samples("b", Zoom::Day).unwrap();
        assert!((66..=68).contains(&day.timestamps.len()), "{}", day.timestamps.len());
    }

    #[test]
    fn the_past_of_many_buckets_is_bounded_and_that_of_a_dropped_one_is_gone() {
        let history = History { bytes_max: 100_000, ..History::default() };
        let names = ["a", "b", "c"];
        for secs in 0..8_000 {
            history.add(at(secs), said(&names, secs, secs));
        }
        let bytes: usize = history.buckets.lock().values().map(Series::bytes).sum();
        assert!(bytes <= 100_000 && bytes > 30_000, "{bytes}");
        // Alone again, the bucket has room for more.
        for secs in 8_000..12_000 {
            add(&history, secs, secs, secs);
        }
        assert_eq!(history.samples("a", Zoom::Hour), None);
        let kept = history.samples("b", Zoom::Hour).unwrap().timestamps.len();
        assert!(kept > 200, "{kept}");
    }

    #[test]
    fn a_bucket_makes_room_at_once_for_the_past_of_others() {
        let history = History { bytes_max: 40_000, ..History::default() };
        for secs in 0..8_000 {
            history.add(at(secs), said(&["a"], secs, secs));
        }
        let bytes = || history.buckets.lock()["a"].bytes();
        assert!(bytes() > 15_000, "{}", bytes());
        history.add(at(8_000), said(&["a", "b", "c", "d"], 8_000, 8_000));
        assert!(bytes() <= 10_000, "{}", bytes());
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_samples_in_order() {
        let history = History::default();
        for secs in (100..130).chain(110..120) {
            add(&history, secs, secs, 0);
        }
        for zoom in [Zoom::Minute, Zoom::Hour] {
            let told = history.samples("b", zoom).unwrap();
            assert!(told.timestamps.windows(2).all(|two| two[0] < two[1]), "{:?}", told.timestamps);
            assert_eq!(told.timestamps.last().map(|at| at / 1000 / 10), Some(170_000_011));
        }
    }

    /// The file of a node whose process is killed: nothing is written at its end.
    #[test]
    fn a_process_that_starts_has_what_the_one_before_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("history");
        let mut keeper = Keeper::new(folder.clone());
        let before = History::default();
        for secs in 0..4_000 {
            add(&before, secs, secs, secs * 3);
            if secs % 60 == 7 {
                keeper.load(&before, at(secs).unix_secs);
                keeper.write(&before);
            }
        }
        let told = |history: &History, zoom| history.samples("b", zoom).unwrap();
        // Written last at 3967, in the middle of all steps.
        let (after, mut keeper) = (History::default(), Keeper::new(folder.clone()));
        for secs in 4_060..4_100 {
            add(&after, secs, secs, 0);
        }
        keeper.load(&after, at(4_100).unix_secs);
        for (zoom, newest) in [(Zoom::Hour, 3_964), (Zoom::Day, 3_940)] {
            let newest = at(newest).unix_secs * 1_000;
            let (was, is) = (told(&before, zoom), told(&after, zoom));
            let old = |samples: &Samples| samples.timestamps.iter().filter(|at| **at < newest).count();
            assert!(old(&is) > 30, "{zoom:?}");
            // The hour of the process before began a little earlier.
            let skipped = old(&was) - old(&is);
            assert_eq!(was.timestamps[skipped..old(&was)], is.timestamps[..old(&is)], "{zoom:?}");
            assert_eq!(was.values["items"][skipped..old(&was)], is.values["items"][..old(&is)], "{zoom:?}");
            assert!(is.timestamps.windows(2).all(|two| two[0] < two[1]), "{:?}", is.timestamps);
        }
        // A step of six hours goes on: 0 to 3967 and 4060 to 4099.
        let year = told(&after, Zoom::Year);
        let mean = ((0..=3_967).sum::<u64>() + (4_060..4_100).sum::<u64>()) as f64 / 4_008.0;
        let newest = year.values["items"].last().unwrap();
        assert!((newest - mean).abs() < 0.01, "{newest} {mean}");
        // A bucket that was dropped has no file, and one of its name no past.
        let other = History::default();
        other.add(
            at(5_000),
            vec![Said { bucket: "b".into(), uuid: "c".repeat(32), readings: readings(1, 1) }],
        );
        keeper.load(&other, at(5_000).unix_secs);
        assert_eq!(told(&other, Zoom::Hour).timestamps.len(), 1);
        keeper.remove_dropped(&BTreeSet::from(["c".repeat(32)])).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [std::ffi::OsString::from("c".repeat(32))]);
    }

    #[test]
    fn a_bucket_that_was_flushed_keeps_its_past() {
        let dir = tempfile::tempdir().unwrap();
        let (history, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
        let flushed = |secs| Said { bucket: "b".into(), uuid: "c".repeat(32), readings: readings(secs, 0) };
        for secs in 0..100 {
            add(&history, secs, secs, 0);
        }
        keeper.load(&history, at(99).unix_secs);
        keeper.write(&history);
        history.add(at(100), vec![flushed(100)]);
        keeper.load(&history, at(100).unix_secs);
        keeper.write(&history);
        let (after, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
        after.add(at(200), vec![flushed(200)]);
        keeper.load(&after, at(200).unix_secs);
        assert_eq!(after.samples("b", Zoom::Hour).unwrap().timestamps.len(), 27);
    }

    #[test]
    fn what_was_sampled_long_ago_is_in_no_hour() {
        let history = History::default();
        add(&history, 0, 1, 0);
        add(&history, 10, 1, 0);
        add(&history, 9_000, 1, 0);
        assert_eq!(history.samples("b", Zoom::Hour).unwrap().timestamps.len(), 1);
        assert_eq!(history.samples("b", Zoom::Day).unwrap().timestamps.len(), 2);
    }

    #[test]
    fn a_disk_that_refuses_costs_no_samples() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("history");
        // A file where the folder should be.
        std::fs::write(&folder, "").unwrap();
        let (history, mut keeper) = (History::default(), Keeper::new(folder.clone()));
        for secs in 0..10 {
            add(&history, secs, secs, 0);
            keeper.load(&history, at(secs).unix_secs);
            keeper.write(&history);
        }
        assert_eq!(history.samples("b", Zoom::Minute).unwrap().timestamps.len(), 10);
        // Once it takes files again, they have everything.
        std::fs::remove_file(&folder).unwrap();
        keeper.load(&history, at(10).unix_secs);
        keeper.write(&history);
        let (after, mut keeper) = (History::default(), Keeper::new(folder));
        add(&after, 20, 20, 0);
        keeper.load(&after, at(20).unix_secs);
        assert_eq!(after.samples("b", Zoom::Hour).unwrap().timestamps.len(), 4);
    }
}
