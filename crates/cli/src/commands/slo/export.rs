//! Objectives for other tools: rules of Prometheus, and `OpenSLO` v1. Both count by `settee_slo_events_total` and
//! `settee_slo_good_events_total` of all nodes.

use std::fmt::Write as _;

use serde_json::Value;
use watch::{RULES, Severity, Span, alerts};

/// What is exported of an objective.
pub(super) struct Objective {
    bucket: String,
    name: String,
    operation: String,
    latency_us: u64,
    target_percent: f64,
    period_days: u64,
}

/// Counters of every node, in `/metrics`.
const EVENTS: &str = "settee_slo_events_total";
const GOOD: &str = "settee_slo_good_events_total";

impl Objective {
    /// From REST's answer.
    pub(super) fn of(one: &Value) -> Option<Self> {
        let text = |name: &str| one[name].as_str().map(str::to_owned);
        Some(Self {
            bucket: text("bucket")?,
            name: text("name")?,
            operation: text("operation")?,
            latency_us: one["latencyUs"].as_u64()?,
            target_percent: one["targetPercent"].as_f64()?,
            period_days: one["periodDays"].as_u64()?,
        })
    }

    /// Share of events that may be bad.
    fn budget(&self) -> f64 {
        1.0 - self.target()
    }

    /// Decimal digits as they were given: 99.9 is 0.999, not 0.9990000000000001.
    fn target(&self) -> f64 {
        (self.target_percent * 10_000.0).round() / 1_000_000.0
    }

    /// What `OpenSLO` knows it by: at most 63 of `a-z`, `0-9` and `-`. The hash at the end tells names apart that are alike without it.
    /// Such are `a-b` of `c` and `b` of `c-a`, or `Reads` and `reads`.
    fn resource_name(&self) -> String {
        const READABLE_MAX: usize = 39;
        let readable = format!("settee-{}-{}", self.bucket, self.name).to_lowercase();
        let readable = readable.replace(|one: char| !one.is_ascii_alphanumeric(), "-");
        let readable = readable.get(..READABLE_MAX).unwrap_or(&readable).trim_end_matches('-');
        // FNV-1a: the same in every version, unlike the hashes of the standard library. Neither name has a slash.
        let hash =
            format!("{}/{}", self.bucket, self.name).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        format!("{readable}-{hash:016x}")
    }

    fn labels(&self) -> String {
        format!("bucket={},objective={}", quoted(&self.bucket), quoted(&self.name))
    }

    fn sum(&self, counter: &str, window: &str) -> String {
        format!("sum(rate({counter}{{{}}}[{window}]))", self.labels())
    }

    /// Share of bad events over a window.
    fn bad_share(&self, window: &str) -> String {
        format!("1 - ({} / {})", self.sum(GOOD, window), self.sum(EVENTS, window))
    }

    fn says(&self) -> String {
        let (target, days) = (self.target_percent, self.period_days);
        let latency = self.latency_us as f64 / 1_000.0;
        format!("{target} % of {} operations within {latency} ms over {days} days", self.operation)
    }
}

/// A string as JSON, YAML and Prometheus write it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Recording rules of the share of bad events, and alerts on the burn rates.
pub(super) fn prometheus(objectives: &[Objective]) -> String {
    let mut rules = "groups:\n".to_owned();
    for one in objectives {
        // Writing to a string cannot fail.
        let _ = writeln!(rules, "  - name: {}", quoted(&format!("settee-slo-{}/{}", one.bucket, one.name)));
        rules.push_str("    rules:\n");
        for span in Span::ALL {
            let name = span.name();
            let _ = write!(
                rules,
                "      - record: settee_slo:bad_events:ratio_rate{name}\n        expr: {}\n        labels: {{{}}}\n",
                quoted(&one.bad_share(name)),
                yaml_labels(one),
            );
        }
        for rule in RULES {
            rules.push_str(&alert(one, rule));
        }
    }
    if objectives.is_empty() {
        return "groups: []\n".into();
    }
    rules
}

fn yaml_labels(one: &Objective) -> String {
    format!("bucket: {}, objective: {}", quoted(&one.bucket), quoted(&one.name))
}

fn alert(one: &Objective, rule: watch::Rule) -> String {
    let (long, short) = (rule.long.name(), rule.short.name());
    let share = |window: &str| format!("settee_slo:bad_events:ratio_rate{window}{{{}}}", one.labels());
    let most = format!("({} * {:.6})", rule.burn, one.budget());
    let expression = format!("{} > {most} and {} > {most}", share(long), share(short));
    let summary = format!(
        "Bucket {}, objective {}: the error budget burns more than {} times too fast.",
        one.bucket, one.name, rule.burn
    );
    let about = match rule.severity {
        Severity::Page => &alerts::BURN_PAGE,
        Severity::Ticket => &alerts::BURN_TICKET,
    };
    format!(
        "      - alert: SetteeBudgetBurns\n        expr: {}\n        labels: {{severity: {}, long: {long}, short: {short}, {}}}\n        \
         annotations:\n          summary: {}\n          description: {}\n          runbook_url: {}\n",
        quoted(&expression),
        rule.severity.word(),
        yaml_labels(one),
        quoted(&summary),
        quoted(&one.says()),
        quoted(&alerts::runbook_of_any_instance(about)),
    )
}

/// One document for each objective.
pub(super) fn openslo(objectives: &[Objective]) -> String {
    let source = |query: &str, indent: &str| {
        format!(
            "{indent}metricSource:\n{indent}  type: Prometheus\n{indent}  spec:\n{indent}    query: {}\n",
            quoted(query)
        )
    };
    let documents = objectives.iter().map(|one| {
        let name = one.resource_name();
        let of_all = |counter: &str| format!("sum({counter}{{{}}})", one.labels());
        format!(
            "---\napiVersion: openslo/v1\nkind: SLO\nmetadata:\n  name: {}\n  displayName: {}\nspec:\n  description: {}\n  \
             service: settee\n  budgetingMethod: Occurrences\n  timeWindow:\n    - duration: {}d\n      isRolling: true\n  \
             indicator:\n    metadata:\n      name: {}\n    spec:\n      ratioMetric:\n        counter: true\n        good:\n{}        \
             total:\n{}  objectives:\n    - displayName: {}\n      target: {}\n",
            quoted(&name),
            quoted(&format!("{}/{}", one.bucket, one.name)),
            quoted(&one.says()),
            one.period_days,
            quoted(&format!("{name}-indicator")),
            source(&of_all(GOOD), "          "),
            source(&of_all(EVENTS), "          "),
            quoted(&one.says()),
            one.target(),
        )
    });
    documents.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objective() -> Objective {
        let one = json!({
            "bucket": "app", "name": "reads", "operation": "get", "latencyUs": 2000, "targetPercent": 99.9,
            "periodDays": 28,
        });
        Objective::of(&one).unwrap()
    }

    #[test]
    fn prometheus_gets_a_rule_for_every_span_and_an_alert_for_every_pair() {
        let rules = prometheus(&[objective()]);
        assert_eq!(rules.matches("- record:").count(), Span::ALL.len());
        assert_eq!(rules.matches("- alert:").count(), RULES.len());
        for text in [
            r#"expr: "1 - (sum(rate(settee_slo_good_events_total{bucket=\"app\",objective=\"reads\"}[5m])) / sum(rate(settee_slo_events_total{bucket=\"app\",objective=\"reads\"}[5m])))""#,
            r#"ratio_rate1h{bucket=\"app\",objective=\"reads\"} > (14.4 * 0.001000) and settee_slo:bad_events:ratio_rate5m"#,
            r#"runbook_url: "{{ with query \"topk(1, up{job='settee'} == 1)\" }}{{ with . | first | label \"instance\" }}http{{ if match \":18091$\" . }}s{{ end }}://{{ . }}/ui/#/alerts/guide/budget_burns_fast{{ end }}{{ else }}docs/operating/alerts.md#budget_burns_fast{{ end }}""#,
            "labels: {severity: ticket, long: 3d, short: 6h, bucket: \"app\", objective: \"reads\"}",
        ] {
            assert!(rules.contains(text), "{text}\n{rules}");
        }
        assert_eq!(prometheus(&[]), "groups: []\n");
    }

    #[test]
    fn openslo_knows_every_objective_by_a_name_of_its_own() {
        let pairs = [("a-b", "c"), ("a", "b-c"), ("a_b", "c"), ("a.b", "c"), ("A", "b-c"), ("a", "B.c")];
        let long = "x".repeat(100);
        let names: std::collections::BTreeSet<String> = pairs
            .into_iter()
            .chain([(long.as_str(), "a"), (long.as_str(), "b")])
            .map(|(bucket, name)| {
                Objective { bucket: bucket.into(), name: name.into(), ..objective() }.resource_name()
            })
            .collect();
        assert_eq!(names.len(), 8, "{names:?}");
        for name in names {
            let is_plain =
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            assert!(is_plain && name.len() <= 63 && name.starts_with("settee-"), "{name}");
        }
    }

    #[test]
    fn openslo_gets_a_document_for_every_objective() {
        let text = openslo(&[objective()]);
        for line in [
            "apiVersion: openslo/v1",
            "kind: SLO",
            "    - duration: 28d",
            "  budgetingMethod: Occurrences",
            "      target: 0.999",
            r#"            query: "sum(settee_slo_good_events_total{bucket=\"app\",objective=\"reads\"})""#,
        ] {
            assert!(text.lines().any(|found| found.trim_start() == line.trim_start()), "{line}\n{text}");
        }
        assert_eq!(openslo(&[]), "");
    }
}
