//! The page `docs/statistics.md`, made from the declarations. A test compares it with the file in the repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use stats::{Kind, Statistic};

use super::{
    absent::{ABSENT, ABSENT_SERIES, Absent, UNMEASURED, UNMEASURED_SERIES},
    *,
};

const HEAD: &str = "\
# Statistics

This page is made from the declarations in `crates/dataplane/src/statistics` and `crates/daemon/src/statistics`. A test compares both; the command below writes the
page anew after a change of the declarations:

```sh
SETTEE_WRITE_DOCS=1 cargo test -p settee-daemon statistics::page
```

STAT shows a figure under its name in the first column, `/pools/default/buckets/B/stats` under that in the second, and
`/metrics` as the series in the third. REST shows counters as rates by the second. Statistics of a bucket carry the label `bucket` in `/metrics`. A counter only grows, until the process
starts anew. Names that begin with `settee_` are Settee's own; others are Couchbase's.

STAT has further groups. Their names depend on what they tell of: `vbucket`, `vbucket-details`, `vbucket-seqno`, `failovers`,
`durability-monitor`, `collections`, `scopes`, `settings`, `dcp`, `dcpagg`, `range-scans`, `timings`, `phases`, `runtimes`.
";

const ABSENT_HEAD: &str = "
## Names that have no meaning here

Couchbase's exporter for Prometheus reads these names from REST as well. Settee does not show them:
";

const UNMEASURED_HEAD: &str = "
## Names that Settee does not measure

The exporter reads these as well. They would have a meaning here, and Settee does not show them:
";

const SERIES_HEAD: &str = "
## Series of published dashboards that `/metrics` does not have

The dashboards and rules are those of `couchbaselabs/observability` and the Couchbase mixin of `grafana/jsonnet-libs`. They draw these
names, too. Those of services that Settee does not have (`n1ql_`, `index_`, `fts_`, `cbas_`, `eventing_`) are not listed.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (title, statistics) in sections() {
        let _ = write!(
            page,
            "\n## {title}\n\n| STAT | REST | `/metrics` | Kind | Unit | Says |\n|---|---|---|---|---|---|\n"
        );
        for about in statistics {
            let (stat, rest, series) = (listed(about.stat), listed(shown_by_rest(about)), series_of(about));
            let (kind, unit, help) = (about.kind.word(), about.unit.word(), about.help);
            let _ = writeln!(page, "| {stat} | {rest} | {series} | {kind} | {unit} | {help} |");
        }
    }
    let series = [ABSENT_SERIES, UNMEASURED_SERIES].concat();
    for (head, absent) in [(ABSENT_HEAD, ABSENT), (UNMEASURED_HEAD, UNMEASURED), (SERIES_HEAD, &series)] {
        let _ = writeln!(page, "{head}\n| Names | Why |\n|---|---|");
        for (names, reason) in absent {
            let _ = writeln!(page, "| {} | {reason} |", listed(names));
        }
    }
    page
}

/// REST shows no words.
fn shown_by_rest(about: &Statistic) -> &'static [&'static str] {
    if about.kind == Kind::Text { &[] } else { about.rest }
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn series_of(about: &Statistic) -> String {
    let series = about.metrics.iter().map(|metric| {
        let labels: Vec<_> =
            metric.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        if labels.is_empty() {
            format!("`{}`", metric.family)
        } else {
            format!("`{}{{{}}}`", metric.family, labels.join(","))
        }
    });
    series.collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_of_the_documentation_is_what_is_declared() {
    tidy::page_is("docs/statistics.md", &page());
}

#[test]
fn no_name_has_two_meanings() {
    let mut seen: BTreeMap<(&str, String), &str> = BTreeMap::new();
    for about in sections().into_iter().flat_map(|(_, statistics)| statistics) {
        let stat = about.stat.iter().map(|name| ("STAT", (*name).to_owned()));
        let rest = about.rest.iter().map(|name| ("REST", (*name).to_owned()));
        let series =
            about.metrics.iter().map(|metric| ("metrics", format!("{}{:?}", metric.family, metric.labels)));
        for name in stat.chain(rest).chain(series) {
            let former = seen.insert(name.clone(), about.help);
            assert_eq!(former, None, "{name:?} is declared twice");
        }
    }
}

/// A name in `/metrics` has one HELP and one TYPE, however many series it has.
#[test]
fn series_of_one_name_are_of_one_kind_and_have_one_help() {
    let mut families: BTreeMap<&str, (Kind, Option<&str>)> = BTreeMap::new();
    for about in sections().into_iter().flat_map(|(_, statistics)| statistics) {
        assert!(about.help.ends_with('.') && about.help.len() > 8, "{about:?}");
        for metric in about.metrics {
            if let Some(former) = families.insert(metric.family, (about.kind, metric.help)) {
                assert_eq!(former, (about.kind, metric.help), "{}", metric.family);
                assert!(
                    metric.help.is_some(),
                    "{} has several series: say what they have in common",
                    metric.family
                );
            }
        }
    }
}

/// What `promtool check metrics` says of names that are ours to choose.
#[test]
fn our_own_metrics_are_named_as_prometheus_wants_it() {
    for about in sections().into_iter().flat_map(|(_, statistics)| statistics) {
        for metric in about.metrics.iter().filter(|metric| metric.family.starts_with("settee_")) {
            let is_total = metric.family.ends_with("_total");
            assert_eq!(is_total, about.kind == Kind::Counter, "{}", metric.family);
            for wrong in ["_count", "_sum", "_bucket", "_info", "_milliseconds", "_percent"] {
                assert!(!metric.family.ends_with(wrong), "{}", metric.family);
            }
        }
    }
}

/// The names that Couchbase's exporter for Prometheus reads from `/pools/default/buckets/B[/nodes/N]/stats`.
const EXPORTER: &str = include_str!("exporter.txt");

#[test]
fn every_name_that_the_public_exporter_reads_is_shown_or_is_listed_with_a_reason() {
    let statistics: Vec<_> = sections().into_iter().flat_map(|(_, statistics)| statistics).collect();
    let shown: Vec<&str> = statistics.iter().flat_map(|about| shown_by_rest(about)).copied().collect();
    let absent: Vec<&str> = ABSENT.iter().chain(UNMEASURED).flat_map(|(names, _)| *names).copied().collect();
    let read: Vec<&str> = EXPORTER.split_whitespace().collect();
    assert_eq!(read.len(), 198);
    for name in &read {
        assert!(shown.contains(name) != absent.contains(name), "{name}");
    }
    assert!(absent.iter().all(|name| read.contains(name)), "nobody reads what is listed");
    assert_eq!(misplaced(ABSENT), [] as [&Absent; 0], "these would have a meaning");
    assert_eq!(read.len() - absent.len(), 160, "state the number in the compatibility page");
    let is_constant = |about: &&&Statistic| about.help.contains("Always ");
    let constant: Vec<&str> =
        statistics.iter().filter(is_constant).flat_map(|about| shown_by_rest(about)).copied().collect();
    assert_eq!(constant.len(), 12, "state the number in the compatibility page: {constant:?}");
    for name in shown.iter().filter(|name| name.starts_with("vb_pending_")) {
        assert!(
            constant.contains(name),
            "no vBucket is pending: {name} is constant, and its help has to say so"
        );
    }
}

/// Those with a reason that speaks of what could be measured.
fn misplaced(absent: &[Absent]) -> Vec<&Absent> {
    let unmeasured = |reason: &str| {
        ["not measured", "not counted", "not built", "only a batch"].iter().any(|word| reason.contains(word))
    };
    absent.iter().filter(|(_, reason)| unmeasured(reason)).collect()
}

/// The names of Couchbase 7 in dashboards and rules of `couchbaselabs/observability`, and in the Couchbase mixin of
/// `grafana/jsonnet-libs`.
const DASHBOARDS: &str = include_str!("dashboards.txt");

#[test]
fn every_series_that_published_dashboards_draw_is_shown_or_is_listed_with_a_reason() {
    let mut shown = BTreeSet::new();
    for about in sections().into_iter().flat_map(|(_, statistics)| statistics) {
        let parts: &[&str] =
            if about.kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        let families = about.metrics.iter().map(|metric| metric.family);
        shown.extend(families.flat_map(|family| parts.iter().map(move |part| format!("{family}{part}"))));
    }
    let absent: Vec<&str> =
        ABSENT_SERIES.iter().chain(UNMEASURED_SERIES).flat_map(|(names, _)| *names).copied().collect();
    let drawn: Vec<&str> = DASHBOARDS.split_whitespace().collect();
    assert_eq!(drawn.len(), 36);
    for name in &drawn {
        assert!(shown.contains(*name) != absent.contains(name), "{name}");
    }
    assert!(absent.iter().all(|name| drawn.contains(name)), "nothing draws what is listed");
    assert_eq!(misplaced(ABSENT_SERIES), [] as [&Absent; 0], "these would have a meaning");
}
