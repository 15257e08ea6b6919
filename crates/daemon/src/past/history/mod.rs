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
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use stats::{Across, Kind, Reading, Samples, Statistic, Zoom};

use self::file::{Kept, Step, zooms};
use super::let_go_farthest;

/// What the past of all buckets may take: that of five. All that shows a node together stays below 64 MiB (`super::memory`).
pub(super) const BYTES_MAX: usize = 30 << 20;
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

    /// The bucket of that name is another one.
    pub(crate) fn forget(&self, bucket: &str) {
        self.buckets.lock().remove(bucket);
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
    fn adopt(&self, bucket: &str, uuid: &str, kept: Kept) {
        let mut buckets = self.buckets.lock();
        let Some(series) = buckets.get_mut(bucket).filter(|series| series.uuid == uuid) else { return };
        for (zoom, steps) in kept.steps {
            if let Some(archive) = series.further.iter_mut().find(|archive| archive.zoom == zoom) {
                archive.adopt(steps);
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
        of_bucket.flat_map(|series| &mut series.further).for_each(Archive::written);
    }

    /// What a bucket said of one statistic each second of the last minute, by its first name in REST; counters as rates.
    pub(crate) fn last_minute(&self, bucket: &str, stat: &str) -> Vec<f64> {
        let buckets = self.buckets.lock();
        let Some(series) = buckets.get(bucket) else { return Vec::new() };
        let column = series.columns.iter().position(|about| about.rest.first() == Some(&stat));
        let of_row = |row: &[f64]| column.and_then(|column| row.get(column)).copied();
        series.minute.iter().filter_map(|(_, row)| of_row(row)).collect()
    }

    /// What a bucket said of one statistic since a moment, by its first name in REST. That is each second of the last minute, and means of
    /// four seconds before. Counters are rates.
    pub(crate) fn recent(&self, bucket: &str, stat: &str, since_secs: u64) -> Vec<(u64, f64)> {
        let buckets = self.buckets.lock();
        let Some(series) = buckets.get(bucket) else { return Vec::new() };
        let column = series.columns.iter().position(|about| about.rest.first() == Some(&stat));
        let Some(column) = column else { return Vec::new() };
        let minute_at = series.minute.front().map_or(u64::MAX, |(at, _)| *at);
        let hour = series.further.iter().find(|archive| archive.zoom == Zoom::Hour);
        let of_row = |(at, row): (&u64, &Row)| Some((*at, f64::from(*row.figures.get(column)?)));
        let hour =
            hour.into_iter().flat_map(|archive| archive.rows.range(since_secs.min(minute_at)..minute_at));
        let minute = series.minute.iter().filter(|(at, _)| *at >= since_secs);
        let minute = minute.filter_map(|(at, row)| Some((*at, *row.get(column)?)));
        hour.filter_map(of_row).filter(|(_, value)| value.is_finite()).chain(minute).collect()
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
            self.further.iter_mut().for_each(Archive::begin_another_file);
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
        minute + rows.map(|(_, row)| ROW_BYTES + row.figures.len() * 4).sum::<usize>()
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

/// Whether the file of a bucket has a row as it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDisk {
    No,
    OnItsWay,
    Yes,
}

/// The means of a step that is not under way.
#[derive(Debug)]
struct Row {
    /// How many samples they are of.
    samples: u32,
    figures: Box<[f32]>,
    on_disk: OnDisk,
}

/// Means over steps of one length.
///
/// A step belongs to the time that the clock told, right or wrong. A clock that is set leaves what was sampled where it is: rows later
/// than now are not shown until the clock comes there. A step that the clock comes by again goes on. Where there is too much, the rows
/// farthest from now go first.
#[derive(Debug)]
struct Archive {
    zoom: Zoom,
    /// By the begin of their steps.
    rows: BTreeMap<u64, Row>,
    /// The step under way: its begin, sums, and how many samples are in them.
    begun: (u64, Vec<f64>, u32),
}

impl Archive {
    fn new(zoom: Zoom) -> Self {
        Self { zoom, rows: BTreeMap::new(), begun: (0, Vec::new(), 0) }
    }

    fn add(&mut self, at: u64, row: &[f64], keep: usize) {
        let step = at - at % self.zoom.step_secs();
        if self.begun.0 != step {
            self.begin(step, row.len());
        }
        let (_, sums, count) = &mut self.begun;
        sums.iter_mut().zip(row).for_each(|(sum, figure)| *sum += figure);
        *count = count.saturating_add(1);
        // Also between steps, which last up to six hours: with another bucket there is less room for this one.
        while self.rows.len() > keep && let_go_farthest(&mut self.rows, at).is_some() {}
    }

    fn begin(&mut self, step: u64, columns: usize) {
        let (at, sums, samples) = std::mem::replace(&mut self.begun, (step, vec![0.0; columns], 0));
        if let Some(mean) = mean(&sums, samples) {
            let figures = mean.map(|figure| figure as f32).collect();
            self.rows.insert(at, Row { samples, figures, on_disk: OnDisk::No });
        }
        if let Some(Row { samples, figures, .. }) = self.rows.remove(&step) {
            self.go_on(samples, &figures);
        }
    }

    /// Takes what was sampled of the step under way before.
    fn go_on(&mut self, samples: u32, figures: &[f32]) {
        let (_, sums, count) = &mut self.begun;
        // A figure that an earlier version did not know would make the mean unknown.
        if figures.len() == sums.len() && figures.iter().all(|one| one.is_finite()) {
            let of_step = figures.iter().map(|figure| f64::from(*figure) * f64::from(samples));
            sums.iter_mut().zip(of_step).for_each(|(sum, figure)| *sum += figure);
            *count = count.saturating_add(samples);
        }
    }

    /// The steps that are over, and the one under way.
    fn all(&self) -> Vec<(u64, Vec<f64>)> {
        let (begin, sums, count) = &self.begun;
        // After a time without samples steps that are too old may be left.
        let reach = self.zoom.step_secs() * self.zoom.rows() as u64;
        let over = self.rows.range(begin.saturating_sub(reach)..*begin);
        let over = over.map(|(at, row)| (*at, row.figures.iter().map(|figure| f64::from(*figure)).collect()));
        over.chain(mean(sums, *count).map(|mean| (*begin, mean.collect()))).collect()
    }

    /// Takes steps of an earlier process. One that this process has sampled as well is of both.
    fn adopt(&mut self, steps: Vec<Step>) {
        for Step { at, samples, figures } in steps {
            if at == self.begun.0 {
                self.go_on(samples, &figures);
                continue;
            }
            match self.rows.entry(at) {
                Entry::Vacant(place) => {
                    place.insert(Row { samples, figures, on_disk: OnDisk::Yes });
                }
                Entry::Occupied(mut own) => own.get_mut().take_in(samples, &figures),
            }
        }
    }

    /// What the file does not have: steps that are over since, and the one under way.
    fn unwritten(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, row) in self.rows.iter_mut().filter(|(_, row)| row.on_disk != OnDisk::Yes) {
            row.on_disk = OnDisk::OnItsWay;
            steps.push(Step { at: *at, samples: row.samples, figures: row.figures.clone() });
        }
        let (begin, sums, count) = &self.begun;
        if let Some(mean) = mean(sums, *count) {
            let figures = mean.map(|figure| figure as f32).collect();
            steps.push(Step { at: *begin, samples: *count, figures });
        }
        steps
    }

    /// What was told last as unwritten is written.
    fn written(&mut self) {
        let told = self.rows.values_mut().filter(|row| row.on_disk == OnDisk::OnItsWay);
        told.for_each(|row| row.on_disk = OnDisk::Yes);
    }

    /// The file is another one, which has nothing.
    fn begin_another_file(&mut self) {
        self.rows.values_mut().for_each(|row| row.on_disk = OnDisk::No);
    }
}

impl Row {
    /// The means are of both.
    fn take_in(&mut self, samples: u32, figures: &[f32]) {
        let all = self.figures.iter().chain(figures);
        if figures.len() != self.figures.len() || !all.clone().all(|one| one.is_finite()) {
            return;
        }
        let (own, other) = (f64::from(self.samples), f64::from(samples));
        for (mean, figure) in self.figures.iter_mut().zip(figures) {
            let sum = f64::from(*mean) * own + f64::from(*figure) * other;
            *mean = (sum / (own + other).max(1.0)) as f32;
        }
        self.samples = self.samples.saturating_add(samples);
        self.on_disk = OnDisk::No;
    }
}

fn mean(sums: &[f64], count: u32) -> Option<impl Iterator<Item = f64>> {
    (count > 0).then(|| sums.iter().map(move |sum| sum / f64::from(count)))
}

#[cfg(test)]
mod tests;
