//! Files that a run leaves, and the historical generator's lines.

use super::super::Failure;
use super::args::AnswerArgs;
use super::plan::Plan;
use load::report::{self, HdrLog, Quirks, Report, Series};
use load::{Interval, Tally};
use std::fs::{File, OpenOptions};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Buckets and seconds between lines of the historical generator, where no file of its own says otherwise.
const HISTORIC_BUCKETS: usize = 20;
const HISTORIC_LINES: f64 = 5.0;

/// What is written besides the report on standard output.
pub(super) struct Outputs {
    html: Option<PathBuf>,
    csv: Option<PathBuf>,
    hdr_log: Option<HdrLog<BufWriter<File>>>,
    historic: Option<Historic>,
    /// What could not be written; told at the end, because a measurement is worth more than its log.
    failure: Option<Failure>,
}

/// The historical generator's way of telling.
struct Historic {
    quirks: Quirks,
    /// Whether its lines are printed while the run goes on; a file may ask for the report alone.
    prints: bool,
    /// Averages over time, if they are asked for instead of histograms.
    series: Option<Series>,
    label: String,
    buckets: usize,
    every: f64,
    export: Option<PathBuf>,
    json: bool,
    interval: f64,
    total: u64,
    since: Tally,
    seconds: f64,
}

/// Refuses a path before the run that could not be written after it. What the file holds stays until then.
pub(super) fn check_writable(path: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| cannot(path, error))
}

impl Outputs {
    /// Refuses paths that could not be written. The warm-up is part of the run, so this comes before it.
    pub(super) fn check(answers: &AnswerArgs) -> Result<(), Failure> {
        let paths = [&answers.html, &answers.csv, &answers.hdr_log];
        paths.into_iter().flatten().try_for_each(|path| check_writable(path))
    }

    /// Opens what is written while the run goes on.
    pub(super) fn begin(answers: &AnswerArgs, plan: &Plan) -> Result<Outputs, Failure> {
        let interval = plan.phase.interval.as_secs_f64();
        let hdr_log = match &answers.hdr_log {
            None => None,
            Some(path) => {
                let begun = File::create(path).and_then(|file| HdrLog::begin(BufWriter::new(file), interval));
                Some(begun.map_err(|error| cannot(path, error))?)
            }
        };
        let profile = plan.profile.as_ref();
        let export = profile.and_then(|profile| profile.export.clone()).map(PathBuf::from);
        let historic = (answers.historic || export.is_some()).then(|| Historic {
            prints: answers.historic,
            series: profile.and_then(|profile| profile.series).map(Series::new),
            quirks: if answers.historic_quirks { Quirks::Kept } else { Quirks::Mended },
            label: profile.map_or_else(String::new, |profile| profile.label.clone()),
            buckets: profile.map_or(HISTORIC_BUCKETS, |profile| profile.buckets),
            every: profile.map_or(HISTORIC_LINES, |profile| profile.lines_every),
            export,
            json: profile.is_some_and(|profile| profile.json),
            interval,
            total: 0,
            since: Tally::default(),
            seconds: 0.0,
        });
        Ok(Outputs { html: answers.html.clone(), csv: answers.csv.clone(), hdr_log, historic, failure: None })
    }

    /// One more interval.
    pub(super) fn see(&mut self, interval: &Interval) {
        if let Some(log) = &mut self.hdr_log
            && let Err(error) = log.add(interval)
        {
            self.failure.get_or_insert(Failure::doing("cannot write the histogram log", error));
        }
        if let Some(historic) = &mut self.historic {
            historic.see(interval);
        }
    }

    /// Writes what is written at the end.
    pub(super) fn finish(self, report: &Report) -> Result<(), Failure> {
        let write =
            |path: &Path, text: String| std::fs::write(path, text).map_err(|error| cannot(path, error));
        if let Some(path) = &self.html {
            write(path, report::html(report))?;
        }
        if let Some(path) = &self.csv {
            write(path, report::csv(report))?;
        }
        if let Some(historic) = &self.historic {
            let text = match &historic.series {
                Some(series) => series.report(&report.tally, historic.quirks),
                None => report::historic(&report.tally, historic.buckets, historic.quirks),
            };
            let text = if historic.json { report::historic_json(&text) } else { text };
            match &historic.export {
                Some(path) => write(path, text)?,
                None => print!("{text}"),
            }
        }
        self.failure.map_or(Ok(()), Err)
    }
}

pub(super) fn cannot(path: &Path, error: std::io::Error) -> Failure {
    Failure::doing(format_args!("cannot write {}", path.display()), error)
}

impl Historic {
    fn see(&mut self, interval: &Interval) {
        if let Some(series) = &mut self.series {
            series.see(interval);
        }
        if !self.prints {
            return;
        }
        let tally = &interval.tally;
        self.total += tally.done() + tally.failed();
        self.since.merge(tally);
        self.seconds += self.interval;
        if self.seconds >= self.every {
            let second = (interval.index + 1) as f64 * self.interval;
            let (label, total, since) = (&self.label, self.total, &self.since);
            let line = match &self.series {
                Some(_) => Series::line(label, second, total, since, self.seconds, self.quirks),
                None => report::historic_line(label, second, total, since, self.seconds),
            };
            println!("{line}");
            (self.since, self.seconds) = (Tally::default(), 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_writable;

    #[test]
    fn a_path_is_refused_before_the_run_and_a_file_keeps_what_it_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("missing/report.html");
        let refused = check_writable(&missing).expect_err("the folder is missing");
        assert!(refused.0.contains("report.html"), "{}", refused.0);
        let kept = folder.path().join("kept.csv");
        std::fs::write(&kept, "before").expect("written");
        check_writable(&kept).expect("writable");
        assert_eq!(std::fs::read_to_string(&kept).expect("read"), "before");
    }
}
