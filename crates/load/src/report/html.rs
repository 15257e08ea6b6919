//! A page for readers: the figures and their plots in one file that needs nothing else.

use super::plot::{Axis, Plot};
use super::{Moment, Report, heat_from};
use crate::conduct::Step;
use crate::tally::{Latencies, Tally};
use std::fmt::Write;

const STYLE: &str = "\
:root{--ink:#1f2430;--faint:#d8dbe2;--paper:#fff;--soft:#667;--c0:#1f77b4;--c1:#2ca02c;--c2:#e6850e;--c3:#c2333c;--c4:#7d5fb2}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6ec;--faint:#3a3f4b;--paper:#15181e;--soft:#9aa}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:900px;margin:2em auto;padding:0 1em}
h1{font-size:1.4em}h2{font-size:1.05em;margin:2em 0 .3em}p{color:var(--soft);margin:.2em 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid var(--faint)}
td:first-child,th:first-child{text-align:left}code{font-size:.9em;overflow-wrap:anywhere}
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--soft)}.label{fill:var(--ink)}
.grid{stroke:var(--faint);stroke-width:1}polyline,svg line{fill:none;stroke-width:1.6}.level{stroke:var(--soft);stroke-dasharray:5 4}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.dot{fill:var(--ink)}
.heat{fill:var(--c0)}.bad{color:var(--c3)}";

/// A line's name, and where its figures come from.
type Series<T, N> = (&'static str, fn(&T) -> N);

/// The report as a page.
#[must_use]
pub fn html(report: &Report) -> String {
    let tally = &report.tally;
    let mut out = page("settee load", "Load report");
    // Writing to a String cannot fail.
    let _ = write!(out, "<p><code>{}</code></p>", escape(&report.title));
    summary(report, &mut out);
    section(&mut out, "Latencies in microseconds", "Successes, misses and errors are measured apart.");
    table(tally, &mut out);
    if !report.moments.is_empty() {
        section(
            &mut out,
            "Latency over time",
            "Successful operations; from the time each was due in an open loop.",
        );
        out.push_str(&latency_over_time(report));
        section(&mut out, "Rate over time", "Operations per second.");
        out.push_str(&rate_over_time(report));
        section(
            &mut out,
            "Heat map",
            "How many successful operations had which latency when; four bands per doubling.",
        );
        out.push_str(&heat_map(report));
    }
    section(&mut out, "Percentiles", "Which share of the operations took no longer than this.");
    out.push_str(&percentiles(tally));
    if !report.steps.is_empty() {
        section(
            &mut out,
            "Latency by rate",
            "Every step of the run; the first interval of each is left out.",
        );
        out.push_str(&steps(report));
    }
    out.push_str("</html>\n");
    out
}

/// The beginning of a page.
pub(super) fn page(title: &str, heading: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style><h1>{heading}</h1>"
    )
}

pub(super) fn section(out: &mut String, title: &str, words: &str) {
    // Writing to a String cannot fail.
    let _ = write!(out, "<h2>{title}</h2><p>{words}</p>");
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn summary(report: &Report, out: &mut String) {
    let tally = &report.tally;
    let _ = write!(
        out,
        "<p>{} operations in {:.2} s: <b>{:.0} ops/s</b>",
        tally.done(),
        tally.elapsed.as_secs_f64(),
        tally.ops_per_sec()
    );
    if let Some(rate) = report.rate {
        let _ = write!(out, " of {rate:.0} asked for");
    }
    let _ = write!(out, "; {} misses, {} errors", tally.misses(), tally.failed());
    if tally.unsent > 0 {
        let _ =
            write!(out, "; <span class=\"bad\">{} operations were due and never sent</span>", tally.unsent);
    }
    let _ = write!(out, ".</p><p>Client: {:.2} us of CPU per operation", report.client_us_per_op());
    if let Some(server) = report.server_us_per_op() {
        let _ = write!(out, "; server: {server:.2} us");
    }
    out.push_str(".</p>");
    for (name, count) in &tally.failures {
        let _ = write!(out, "<p class=\"bad\">{}: {count}</p>", escape(name));
    }
    for sentence in &report.findings {
        let _ = write!(out, "<p>{}</p>", escape(sentence));
    }
}

fn table(tally: &Tally, out: &mut String) {
    out.push_str(
        "<table><tr><th>operation<th>count<th>mean<th>p50<th>p95<th>p99<th>p99.9<th>p99.99<th>max</tr>",
    );
    for (op, one) in tally.ops() {
        row(out, op.name(), &one.ok);
        row(out, &format!("{} misses", op.name()), &one.miss);
        row(out, &format!("{} errors", op.name()), &one.failed);
    }
    let split = &tally.split;
    row(out, "— in client queue", &split.queue);
    row(out, "— sent to reply", &split.service);
    row(out, "— in server", &split.server);
    row(out, "— beside it", &split.beside);
    row(out, "— in own kernel", &split.receive);
    out.push_str("</table>");
}

fn row(out: &mut String, name: &str, latencies: &Latencies) {
    if latencies.count() == 0 {
        return;
    }
    let _ = write!(out, "<tr><td>{name}<td>{}<td>{:.0}", latencies.count(), latencies.mean_us());
    for percent in [50.0, 95.0, 99.0, 99.9, 99.99] {
        let _ = write!(out, "<td>{:.0}", latencies.percentile_us(percent));
    }
    let _ = write!(out, "<td>{:.0}</tr>", latencies.max_us());
}

fn second(report: &Report, moment: &Moment) -> f64 {
    (moment.index + 1) as f64 * report.interval
}

fn seconds(report: &Report) -> Axis {
    Axis::linear("seconds", report.moments.iter().map(|moment| second(report, moment)))
}

fn latency_over_time(report: &Report) -> String {
    let micros = |moment: &Moment, place: usize| moment.latency[place] as f64 / 1e3;
    let all = report.moments.iter().flat_map(|moment| (0..4).map(move |place| micros(moment, place)));
    let mut plot = Plot::new(seconds(report), Axis::decades("microseconds", all));
    for (place, name) in ["p50", "p99", "p99.9", "max"].into_iter().enumerate() {
        let points = report.moments.iter().filter(|moment| moment.latency[place] > 0);
        plot.line(place, name, points.map(|moment| (second(report, moment), micros(moment, place))));
    }
    plot.svg()
}

fn rate_over_time(report: &Report) -> String {
    let series: [Series<Moment, u64>; 3] = [
        ("successes", |moment| moment.done - moment.misses),
        ("misses", |moment| moment.misses),
        ("errors", |moment| moment.failed),
    ];
    // The last interval is a part of one unless the run ended exactly with it.
    let whole = report.moments.len().max(2) - 1;
    let moments = || report.moments.iter().take(whole);
    let per_second = |count: u64| count as f64 / report.interval;
    let most = moments().flat_map(|moment| series.iter().map(move |(_, of)| of(moment)));
    let mut plot = Plot::new(seconds(report), Axis::linear("operations per second", most.map(per_second)));
    for (place, (name, of)) in series.into_iter().enumerate() {
        let colour = [1, 2, 3][place];
        plot.line(colour, name, moments().map(|moment| (second(report, moment), per_second(of(moment)))));
    }
    if let Some(rate) = report.rate {
        plot.level(rate);
    }
    plot.svg()
}

fn heat_map(report: &Report) -> String {
    let cells =
        || report.moments.iter().flat_map(|moment| moment.heat.iter().map(move |cell| (moment, cell)));
    let bounds = cells().flat_map(|(_, (band, _))| [heat_from(*band) / 1e3, heat_from(band + 1) / 1e3]);
    let mut plot = Plot::new(seconds(report), Axis::decades("microseconds", bounds));
    let most = cells().map(|(_, (_, count))| *count).max().unwrap_or(1) as f64;
    for (moment, (band, count)) in cells() {
        let (from, to) = (heat_from(*band) / 1e3, heat_from(band + 1) / 1e3);
        let end = second(report, moment);
        // By the logarithm: rare long latencies are what one looks for.
        let strength = 0.12 + 0.88 * (1.0 + *count as f64).ln() / (1.0 + most).ln();
        let tip = format!("{from:.0} to {to:.0} us: {count}");
        plot.cell((end - report.interval, from), (end, to), strength, &tip);
    }
    plot.svg()
}

/// The share above a percentile, as the axis counts: one unit per nine.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10()
}

fn percentiles(tally: &Tally) -> String {
    const MARKS: [f64; 6] = [0.0, 90.0, 99.0, 99.9, 99.99, 99.999];
    const POINTS: u32 = 200;
    let ops: Vec<_> = tally.ops().filter(|(_, one)| one.ok.count() > 0).collect();
    let most = ops.iter().map(|(_, one)| one.ok.count()).max().unwrap_or(1);
    // Beyond this there is less than one sample.
    let last = (most as f64).log10().clamp(1.0, 5.0);
    let x = Axis {
        label: "percentile",
        from: 0.0,
        to: last,
        log: false,
        ticks: MARKS
            .iter()
            .filter(|p| nines(**p) <= last + 1e-9)
            .map(|p| (nines(*p), format!("{p}")))
            .collect(),
    };
    let all = ops.iter().flat_map(|(_, one)| [one.ok.min_us(), one.ok.max_us()]);
    let mut plot = Plot::new(x, Axis::decades("microseconds", all));
    for (place, (op, one)) in ops.iter().enumerate() {
        let points = (0..=POINTS).map(|i| f64::from(i) / f64::from(POINTS) * last);
        let curve = points.map(|x| (x, one.ok.percentile_us(100.0 * (1.0 - 10f64.powf(-x)))));
        plot.line(place % 5, op.name(), curve);
    }
    plot.svg()
}

fn steps(report: &Report) -> String {
    let mut steps = report.steps.clone();
    steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let series: [Series<Step, f64>; 4] = [
        ("p50", |step| step.p50_us),
        ("p99", |step| step.p99_us),
        ("p99.9", |step| step.p99_9_us),
        ("max", |step| step.max_us),
    ];
    let all = steps.iter().flat_map(|step| series.iter().map(move |(_, of)| of(step)));
    let rates = Axis::linear("operations per second", steps.iter().map(|step| step.rate));
    let mut plot = Plot::new(rates, Axis::decades("microseconds", all));
    for (place, (name, of)) in series.into_iter().enumerate() {
        plot.line(place, name, steps.iter().map(|step| (step.rate, of(step))));
    }
    plot.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Class, Op};
    use crate::tally::Interval;

    #[test]
    fn the_page_is_whole_and_harmless() {
        let mut report = Report { title: "<script>".to_owned(), interval: 1.0, ..Report::default() };
        for index in 0..3 {
            let mut tally = Tally::default();
            (1..100).for_each(|i| tally.record(Op::Get, Class::Success, 1_000 * i));
            tally.record(Op::Get, Class::Miss, 77_000);
            report.add(&Interval { index, tally });
        }
        let step = Step {
            rate: 1.0,
            achieved: 1.0,
            p50_us: 1.0,
            p99_us: 2.0,
            p99_9_us: 3.0,
            max_us: 4.0,
            errors: 0,
            met: true,
        };
        report.steps = vec![step, Step { rate: 2.0, ..step }];
        let page = html(&report);
        assert!(!page.contains("<script") && !page.contains("http"), "nothing from elsewhere");
        assert_eq!(page.matches("<svg").count(), 5);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("NaN") && !page.contains("inf\""), "every point has a place");
        assert!(page.contains("get misses<td>3"));
    }

    #[test]
    fn a_run_without_anything_is_a_page_too() {
        let page = html(&Report::default());
        assert!(page.contains("0 operations") && !page.contains("NaN"));
    }
}
