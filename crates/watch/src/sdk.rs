//! What clients tell of their own operations: application telemetry, as SDKs report it since Couchbase 8.
//!
//! A report is Prometheus' text. Its figures are what is new since the client's last report, so they are added up here. Latencies are in
//! milliseconds, in cumulative steps whose bounds are fixed by the protocol.
//!
//! Invariants: a client adds figures to series that exist by this declaration, and never makes one. So what is kept is bounded by
//! [`TOLD_OF_MAX`], whatever clients send. No figure of a report is larger than [`FIGURE_MAX`], also where many lines add up to it.

use std::collections::BTreeMap;

use crate::burn::Counts;

/// Pairs of a node and a bucket that are told apart. Operations on further ones are counted as those of another node.
pub const TOLD_OF_MAX: usize = 256;
/// Largest figure of a report: a client does less in ten minutes.
pub const FIGURE_MAX: u64 = 10_000_000_000;
/// Most steps of a histogram, the last one without a bound included.
const STEPS_MAX: usize = 7;

const DOCUMENTS: &[u32] = &[1, 10, 100, 500, 1_000, 2_500];
const DURABLE: &[u32] = &[10, 100, 500, 1_000, 2_000, 10_000];
const REQUESTS: &[u32] = &[100, 1_000, 10_000, 30_000, 75_000];

macro_rules! latencies {
    ($($(#[$doc:meta])* $id:ident $name:literal $bounds:ident;)*) => {
        /// Operations whose latencies a client tells.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Latency { $($(#[$doc])* $id,)* }

        impl Latency {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$id,)*];

            /// As it is called in the names of series.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$id => $name,)* }
            }

            /// Upper bounds of the steps, in milliseconds. One more step has everything above.
            #[must_use]
            pub const fn bounds(self) -> &'static [u32] {
                match self { $(Self::$id => $bounds,)* }
            }
        }
    };
}

latencies! {
    /// Reads of documents.
    Retrieval "kv_retrieval" DOCUMENTS;
    /// Writes without a durability level.
    Mutation "kv_mutation_nondurable" DOCUMENTS;
    /// Writes with a durability level.
    DurableMutation "kv_mutation_durable" DURABLE;
    /// Statements.
    Query "query" REQUESTS;
    /// Searches.
    Search "search" REQUESTS;
    /// Statements of analytics.
    Analytics "analytics" REQUESTS;
    /// Management.
    Management "management" REQUESTS;
    /// Management of functions.
    Eventing "eventing" REQUESTS;
}

impl Latency {
    /// The highest bound that is no higher than `latency_us`, with its place.
    #[must_use]
    pub fn bound_within(self, latency_us: u32) -> Option<(usize, u32)> {
        let bounds = self.bounds().iter().copied().enumerate();
        bounds.take_while(|(_, bound)| bound.saturating_mul(1_000) <= latency_us).last()
    }
}

/// Services whose requests a client counts.
pub const SERVICES: [&str; 6] = ["kv", "query", "search", "analytics", "management", "eventing"];
/// How a client counts requests: those that it gave up after a time, those that it was told to give up, and all.
pub const ENDS: [&str; 3] = ["timedout", "canceled", "total"];

/// Latencies of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Cumulative: how many took no longer than each bound, and how many there were.
    steps: [u64; STEPS_MAX],
    /// All of them together, in milliseconds.
    pub sum_ms: u64,
    /// How many there were.
    pub count: u64,
}

impl Histogram {
    /// Bounds in milliseconds, with how many took no longer; all of them at last, without a bound.
    pub fn steps(&self, of: Latency) -> impl Iterator<Item = (Option<u32>, u64)> {
        let bounds = of.bounds().iter().copied().map(Some).chain([None]);
        bounds.zip(self.steps)
    }

    /// What was counted for an objective of that latency. An operation is good where the whole of its step is. Nothing is said of a
    /// latency below the lowest bound: no step could be good.
    #[must_use]
    pub fn counts(&self, of: Latency, latency_us: u32) -> Option<Counts> {
        let (at, _) = of.bound_within(latency_us)?;
        let good = *self.steps.get(at)?;
        Some(Counts { good: good.min(self.count), total: self.count })
    }

    /// Lines of one series add up: they differ in labels that are left out.
    fn add(&mut self, part: Part, value: u64) {
        let figure = match part {
            Part::Step(at) => self.steps.get_mut(at),
            Part::Sum => Some(&mut self.sum_ms),
            Part::Count => Some(&mut self.count),
        };
        if let Some(figure) = figure {
            *figure = figure.saturating_add(value).min(FIGURE_MAX);
        }
    }

    fn plus(&mut self, other: &Self) {
        self.steps.iter_mut().zip(other.steps).for_each(|(own, more)| *own = own.saturating_add(more));
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        self.count = self.count.saturating_add(other.count);
    }
}

/// What clients have told of their operations on a bucket at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    latencies: [Histogram; Latency::ALL.len()],
    ended: [[u64; ENDS.len()]; SERVICES.len()],
}

/// What is kept of all pairs takes in memory at most, about: half of a map may be unused.
pub const TOLD_BYTES: usize = TOLD_OF_MAX * 2 * (size_of::<Told>() + size_of::<About>());

impl Told {
    /// Latencies of that kind.
    #[must_use]
    pub fn latency(&self, of: Latency) -> &Histogram {
        &self.latencies[of as usize]
    }

    /// Requests of the service at that place of [`SERVICES`], in the order of [`ENDS`].
    #[must_use]
    pub fn ended(&self, service: usize) -> [u64; ENDS.len()] {
        self.ended.get(service).copied().unwrap_or_default()
    }

    /// Adds what another report says.
    pub fn plus(&mut self, other: &Self) {
        self.latencies.iter_mut().zip(&other.latencies).for_each(|(own, more)| own.plus(more));
        let ended = self.ended.iter_mut().flatten().zip(other.ended.iter().flatten());
        ended.for_each(|(own, more)| *own = own.saturating_add(*more));
    }

    fn add(&mut self, figure: Figure, value: u64) {
        match figure {
            Figure::Latency(of, part) => self.latencies[of as usize].add(part, value),
            Figure::Ended(service, end) => {
                if let Some(count) = self.ended.get_mut(service).and_then(|ends| ends.get_mut(end)) {
                    *count = count.saturating_add(value).min(FIGURE_MAX);
                }
            }
        }
    }
}

/// What operations were about: the uuid of a node, and a bucket where they were about one.
pub type About = (String, Option<String>);

/// One report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it says, by what that is about.
    pub told: BTreeMap<About, Told>,
    /// Lines that say nothing which could be counted.
    pub invalid: u64,
}

impl Report {
    /// Reads a report. `is_known` says whether there are such a node and bucket.
    #[must_use]
    pub fn read(text: &str, is_known: impl Fn(&str, Option<&str>) -> bool) -> Self {
        let mut report = Self::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let read = Line::read(line).filter(|line| is_known(&line.node, line.bucket.as_deref()));
            match read {
                Some(Line { figure, node, bucket, value }) => {
                    report.told.entry((node, bucket)).or_default().add(figure, value);
                }
                None => report.invalid = report.invalid.saturating_add(1),
            }
        }
        report
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Step(usize),
    Sum,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Latency(Latency, Part),
    Ended(usize, usize),
}

impl Figure {
    /// By the name of its series; with `le` for a step.
    fn of(name: &str, le: Option<&str>) -> Option<Self> {
        let name = name.strip_prefix("sdk_")?;
        if let Some((service, end)) = name.split_once("_r_") {
            let service = SERVICES.iter().position(|known| *known == service)?;
            return Some(Self::Ended(service, ENDS.iter().position(|known| *known == end)?));
        }
        let (of, rest) = name.split_once("_duration_")?;
        let of = *Latency::ALL.iter().find(|known| known.name() == of)?;
        // The first SDKs shortened the unit.
        let part = match rest.strip_prefix("milliseconds_").or_else(|| rest.strip_prefix("ms_"))? {
            "sum" => Part::Sum,
            "count" => Part::Count,
            "bucket" => Part::Step(step(of, le?)?),
            _ => return None,
        };
        Some(Self::Latency(of, part))
    }
}

fn step(of: Latency, le: &str) -> Option<usize> {
    if le == "+Inf" {
        return Some(of.bounds().len());
    }
    let bound: f64 = le.parse().ok()?;
    of.bounds().iter().position(|known| f64::from(*known) == bound)
}

struct Line {
    figure: Figure,
    node: String,
    bucket: Option<String>,
    value: u64,
}

impl Line {
    /// `name{label="value",...} value [timestamp]`.
    fn read(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once('{')?;
        let (mut node, mut bucket, mut le) = (None, None, None);
        let mut labels = Labels(rest);
        while let Some((label, value)) = labels.next()? {
            match label {
                "node_uuid" => node = Some(value),
                "bucket" => bucket = Some(value).filter(|name| !name.is_empty()),
                "le" => le = Some(value),
                _ => {}
            }
        }
        let mut words = labels.0.split_ascii_whitespace();
        let value = figure(words.next()?)?;
        // The time of a report is when it comes.
        let is_whole = words.next().is_none_or(|time| time.parse::<f64>().is_ok()) && words.next().is_none();
        let figure = Figure::of(name.trim(), le.as_deref())?;
        is_whole.then_some(Self { figure, node: node?, bucket, value })
    }
}

fn figure(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    // Neither what is no number nor what is negative is within.
    (0.0..=FIGURE_MAX as f64).contains(&value).then(|| value.round() as u64)
}

/// What is left of a line behind the brace that opens its labels.
struct Labels<'a>(&'a str);

impl<'a> Labels<'a> {
    /// The next label; within, none behind the last. None: these are no labels.
    fn next(&mut self) -> Option<Option<(&'a str, String)>> {
        let rest = self.0.trim_start().trim_start_matches(',').trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            self.0 = rest;
            return Some(None);
        }
        let (label, rest) = rest.split_once('=')?;
        let rest = rest.trim_start().strip_prefix('"')?;
        let mut value = String::new();
        let mut letters = rest.char_indices();
        loop {
            match letters.next()? {
                (at, '"') => {
                    self.0 = rest.get(at + 1..)?;
                    return Some(Some((label.trim(), value)));
                }
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        }
    }
}

/// What all clients of this node have told it since it started. Operations are told apart by node and bucket.
#[derive(Debug, Default)]
pub struct Totals {
    told: BTreeMap<About, Told>,
    /// What was told of, when too much else was told apart already.
    rest: Told,
    invalid: u64,
}

impl Totals {
    /// Adds a report.
    pub fn add(&mut self, report: &Report) {
        self.invalid = self.invalid.saturating_add(report.invalid);
        for (about, told) in &report.told {
            let has_room = self.told.len() < TOLD_OF_MAX;
            match self.told.get_mut(about) {
                Some(known) => known.plus(told),
                None if has_room => {
                    self.told.insert(about.clone(), told.clone());
                }
                None => self.rest.plus(told),
            }
        }
    }

    /// Forgets nodes and buckets that are gone.
    pub fn keep(&mut self, is_known: impl Fn(&str, Option<&str>) -> bool) {
        self.told.retain(|(node, bucket), _| is_known(node, bucket.as_deref()));
    }

    /// What was told of each pair, by the node's uuid.
    pub fn told(&self) -> impl Iterator<Item = (&str, Option<&str>, &Told)> {
        self.told.iter().map(|((node, bucket), told)| (node.as_str(), bucket.as_deref(), told))
    }

    /// What is not told apart any more; nothing while everything is.
    #[must_use]
    pub fn rest(&self) -> Option<&Told> {
        (self.rest != Told::default()).then_some(&self.rest)
    }

    /// Lines that said nothing which could be counted.
    #[must_use]
    pub const fn invalid(&self) -> u64 {
        self.invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(_: &str, _: Option<&str>) -> bool {
        true
    }

    fn read(text: &str) -> Report {
        Report::read(text, all)
    }

    const LABELS: &str = r#"agent="sdk/go 2.11",bucket="b",node="10.0.0.1",node_uuid="n""#;

    fn retrievals() -> String {
        let steps = [("1", 2), ("10", 5), ("100", 5), ("500", 5), ("1000", 5), ("2500", 6), ("+Inf", 7)];
        let of = |(le, count): (&str, u32)| {
            format!(
                "sdk_kv_retrieval_duration_milliseconds_bucket{{le=\"{le}\",{LABELS}}} {count} 1695747260000\n"
            )
        };
        let mut text: String = steps.map(of).concat();
        text += &format!("sdk_kv_retrieval_duration_milliseconds_sum{{{LABELS}}} 7513 1695747260000\n");
        text += &format!("sdk_kv_retrieval_duration_milliseconds_count{{{LABELS}}} 7 1695747260000\n");
        text + &format!("sdk_kv_r_timedout{{{LABELS}}} 1 1695747260000\n\n# a remark\n")
    }

    fn about() -> About {
        ("n".into(), Some("b".into()))
    }

    #[test]
    fn reports_are_added_up_by_what_they_are_about() {
        let report = read(&retrievals());
        assert_eq!((report.invalid, report.told.len()), (0, 1));
        let mut totals = Totals::default();
        totals.add(&report);
        totals.add(&report);
        let (node, bucket, told) = totals.told().next().unwrap();
        assert_eq!((node, bucket, told.ended(0)), ("n", Some("b"), [2, 0, 0]));
        let known = told.latency(Latency::Retrieval);
        assert_eq!((known.count, known.sum_ms), (14, 15_026));
        let steps: Vec<_> = known.steps(Latency::Retrieval).collect();
        assert_eq!((steps[0], steps[5], steps[6]), ((Some(1), 4), (Some(2_500), 12), (None, 14)));
        assert_eq!(told.latency(Latency::Mutation), &Histogram::default());
    }

    #[test]
    fn an_operation_is_good_where_its_whole_step_is_within_the_latency() {
        let report = read(&retrievals());
        let known = report.told[&about()].latency(Latency::Retrieval);
        for (latency_us, good) in
            [(999, None), (1_000, Some(2)), (9_999, Some(2)), (10_000, Some(5)), (60_000_000, Some(6))]
        {
            let expected = good.map(|good| Counts { good, total: 7 });
            assert_eq!(known.counts(Latency::Retrieval, latency_us), expected, "{latency_us}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_counted_as_such_and_adds_nothing() {
        let good = format!("sdk_kv_r_total{{{LABELS}}} 1");
        assert_eq!(read(&good).invalid, 0);
        for wrong in [
            "sdk_kv_r_total 1".to_owned(),
            r#"sdk_kv_r_total{node="x"} 1"#.into(),
            format!("sdk_kv_r_other{{{LABELS}}} 1"),
            format!("kv_r_total{{{LABELS}}} 1"),
            format!("sdk_any_thing{{{LABELS}}} 1"),
            format!("sdk_kv_retrieval_duration_milliseconds_bucket{{{LABELS}}} 1"),
            format!("sdk_kv_retrieval_duration_milliseconds_bucket{{le=\"3\",{LABELS}}} 1"),
            format!("sdk_kv_r_total{{{LABELS}}} x"),
            format!("sdk_kv_r_total{{{LABELS}}} -1"),
            format!("sdk_kv_r_total{{{LABELS}}} NaN"),
            format!("sdk_kv_r_total{{{LABELS}}} 1e300"),
            format!("sdk_kv_r_total{{{LABELS}}} 1 1 1"),
            format!("sdk_kv_r_total{{{LABELS} 1"),
            "sdk_kv_r_total{node_uuid=\"n 1".into(),
            "sdk_kv_r_total{node_uuid=\"n\\".into(),
        ] {
            let report = read(&wrong);
            assert_eq!((report.invalid, report.told.len()), (1, 0), "{wrong}");
        }
        let nobody = Report::read(&good, |node, bucket| node == "n" && bucket != Some("b"));
        assert_eq!((nobody.invalid, nobody.told.len()), (1, 0), "a bucket that is not there");
    }

    #[test]
    fn labels_may_be_spaced_and_escaped_and_the_unit_shortened() {
        let text = r#" sdk_query_duration_ms_count { node_uuid = "n\"} 1" , agent="a,b}" , } 1e2 5"#;
        let report = read(text);
        assert_eq!(report.told[&("n\"} 1".to_owned(), None)].latency(Latency::Query).count, 100);
    }

    #[test]
    fn what_is_kept_is_bounded_however_much_is_told_of() {
        let mut totals = Totals::default();
        for at in 0..TOLD_OF_MAX + 10 {
            totals.add(&read(&format!("sdk_kv_r_total{{node_uuid=\"{at}\"}} 1")));
        }
        assert_eq!(totals.told().count(), TOLD_OF_MAX);
        assert_eq!(totals.rest().unwrap().ended(0), [0, 0, 10]);
        totals.keep(|node, _| node == "3");
        assert_eq!(totals.told().count(), 1);
    }

    #[test]
    fn lines_of_one_series_add_up_to_no_more_than_a_figure_may_be() {
        let of = |name: &str, agent: &str, value: u64| {
            format!("{name}{{node_uuid=\"n\",bucket=\"b\",agent=\"{agent}\"}} {value}\n")
        };
        let (total, count) = ("sdk_kv_r_total", "sdk_kv_retrieval_duration_milliseconds_count");
        let two = |value: u64| {
            let text: String = [total, count].map(|name| of(name, "x", 5) + &of(name, "y", value)).concat();
            let told = read(&text).told[&about()].clone();
            (told.ended(0)[2], told.latency(Latency::Retrieval).count)
        };
        assert_eq!((two(2), two(FIGURE_MAX)), ((7, 7), (FIGURE_MAX, FIGURE_MAX)));
    }

    #[test]
    fn no_report_breaks_the_reader() {
        let mut random = fastrand::Rng::with_seed(11);
        let whole = retrievals();
        for _ in 0..2_000 {
            let mut bytes = whole.clone().into_bytes();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(random.usize(..bytes.len()));
            let report = read(&String::from_utf8_lossy(&bytes));
            let mut totals = Totals::default();
            totals.add(&report);
            assert!(totals.told().all(|(.., told)| told.ended(0).iter().all(|count| *count <= FIGURE_MAX)));
        }
    }
}
