//! A dashboard for Grafana and rules for Prometheus, made from the table below. A test compares them with the files in
//! `docs/operating/monitoring`, and the names in them with what is declared.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use super::sections;
use stats::Kind;
use watch::alerts::{self, About};

/// A row of the dashboard: its title, and panels of a title, a unit of Grafana, and what is drawn with its legend.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const ROWS: &[(&str, &[Panel])] = &[
    (
        "Alerts and objectives",
        &[
            (
                "Alerts that fire",
                "none",
                &[(
                    "sum by (alert, level, subject, instance) (settee_alert_firing)",
                    "{{alert}} {{subject}} {{instance}}",
                )],
            ),
            (
                "Burn rate over 1 h",
                "none",
                &[(
                    "sum by (bucket, objective) (settee_slo_burn_rate{window=\"1h\",bucket=~\"$bucket\"}) / count by (bucket, objective) (settee_slo_burn_rate{window=\"1h\",bucket=~\"$bucket\"})",
                    "{{bucket}}/{{objective}}",
                )],
            ),
        ],
    ),
    (
        "Objectives and their budgets",
        &[
            (
                "Error budget that is left",
                "percentunit",
                &[(
                    "min by (bucket, objective) (settee_slo_budget_left_ratio{bucket=~\"$bucket\"})",
                    "{{bucket}}/{{objective}}",
                )],
            ),
            (
                "Error budget that is left, as probes and clients see it",
                "percentunit",
                &[(
                    "min by (bucket, objective, source) (settee_slo_outside_budget_left_ratio{bucket=~\"$bucket\"})",
                    "{{bucket}}/{{objective}} {{source}}",
                )],
            ),
            (
                "Operations that are as fast as promised",
                "percentunit",
                &[(
                    "sum by (bucket, objective) (rate(settee_slo_good_events_total{bucket=~\"$bucket\"}[5m])) / sum by (bucket, objective) (rate(settee_slo_events_total{bucket=~\"$bucket\"}[5m]))",
                    "{{bucket}}/{{objective}}",
                )],
            ),
            (
                "Burn rate over 6 h and 3 d",
                "none",
                &[(
                    "avg by (bucket, objective, window) (settee_slo_burn_rate{window=~\"6h|3d\",bucket=~\"$bucket\"})",
                    "{{bucket}}/{{objective}} {{window}}",
                )],
            ),
        ],
    ),
    (
        "Probes",
        &[
            (
                "99th percentile that probes see",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le, to, operation) (rate(settee_probe_seconds_bucket{bucket=~\"$bucket\"}[5m])))",
                    "{{to}} {{operation}}",
                )],
            ),
            (
                "What becomes of probes",
                "ops",
                &[(
                    "sum by (to, result) (rate(settee_probes_total{bucket=~\"$bucket\"}[1m]))",
                    "{{to}} {{result}}",
                )],
            ),
            (
                "Nodes that answer probes",
                "none",
                &[("min by (to) (settee_probe_up{bucket=~\"$bucket\"})", "{{to}}")],
            ),
        ],
    ),
    (
        "What clients measure",
        &[
            (
                "99th percentile as clients see it",
                "ms",
                &[
                    (
                        "histogram_quantile(0.99, sum by (le, bucket) (rate(sdk_kv_retrieval_duration_milliseconds_bucket{bucket=~\"$bucket\"}[10m])))",
                        "{{bucket}} reads",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le, bucket) (rate(sdk_kv_mutation_nondurable_duration_milliseconds_bucket{bucket=~\"$bucket\"}[10m])))",
                        "{{bucket}} writes",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le, bucket) (rate(sdk_kv_mutation_durable_duration_milliseconds_bucket{bucket=~\"$bucket\"}[10m])))",
                        "{{bucket}} durable writes",
                    ),
                ],
            ),
            (
                "Requests as clients count them",
                "ops",
                &[("sum by (bucket) (rate(sdk_kv_r_total{bucket=~\"$bucket\"}[10m]))", "{{bucket}}")],
            ),
            (
                "Requests that clients gave up",
                "ops",
                &[("sum by (bucket) (rate(sdk_kv_r_timedout{bucket=~\"$bucket\"}[10m]))", "{{bucket}}")],
            ),
            (
                "Clients that tell what they measure",
                "none",
                &[("cm_app_telemetry_curr_connections", "{{instance}}")],
            ),
        ],
    ),
    (
        "Views",
        &[
            (
                "Queries of views",
                "ops",
                &[("sum by (bucket) (rate(couch_views_ops{bucket=~\"$bucket\"}[1m]))", "{{bucket}}")],
            ),
            (
                "Changes that indexes have yet to take",
                "none",
                &[(
                    "sum by (bucket, design_document) (settee_view_changes_left{bucket=~\"$bucket\"})",
                    "{{bucket}} {{design_document}}",
                )],
            ),
            (
                "Files of indexes",
                "bytes",
                &[
                    ("sum by (bucket) (couch_views_disk_size{bucket=~\"$bucket\"})", "{{bucket}} on disk"),
                    ("sum by (bucket) (couch_views_data_size{bucket=~\"$bucket\"})", "{{bucket}} current"),
                ],
            ),
            (
                "Memory of indexes",
                "bytes",
                &[("sum by (instance) (settee_node_memory_bytes{pool=\"services\"})", "{{instance}}")],
            ),
        ],
    ),
    (
        "Operations",
        &[
            (
                "Operations",
                "ops",
                &[("sum by (bucket) (rate(kv_cmd_total_ops{bucket=~\"$bucket\"}[1m]))", "{{bucket}}")],
            ),
            (
                "99th percentile by command",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le, opcode) (rate(kv_cmd_duration_seconds_bucket{bucket=~\"$bucket\"}[1m])))",
                    "{{opcode}}",
                )],
            ),
            (
                "99th percentile by phase",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le, phase) (rate(settee_phase_seconds_bucket{bucket=~\"$bucket\"}[1m])))",
                    "{{phase}}",
                )],
            ),
            (
                "Reads that found nothing",
                "ops",
                &[(
                    "sum by (bucket) (rate(kv_ops{op=\"get\",result=\"miss\",bucket=~\"$bucket\"}[1m]))",
                    "{{bucket}}",
                )],
            ),
        ],
    ),
    (
        "Memory",
        &[
            (
                "Memory of buckets",
                "bytes",
                &[(
                    "sum by (bucket, pool) (settee_memory_bytes{bucket=~\"$bucket\"})",
                    "{{bucket}} {{pool}}",
                )],
            ),
            (
                "Documents in memory",
                "percentunit",
                &[(
                    "avg by (bucket) (kv_vb_perc_mem_resident_ratio{state=\"active\",bucket=~\"$bucket\"})",
                    "{{bucket}}",
                )],
            ),
            (
                "Values read back from disk",
                "ops",
                &[("sum by (bucket) (rate(kv_ep_bg_fetched{bucket=~\"$bucket\"}[1m]))", "{{bucket}}")],
            ),
            (
                "Memory of processes",
                "bytes",
                &[("sum by (instance, pool) (settee_node_memory_bytes)", "{{instance}} {{pool}}")],
            ),
        ],
    ),
    (
        "Disk",
        &[
            (
                "Mutations that wait for the disk",
                "none",
                &[("sum by (bucket) (kv_ep_diskqueue_items{bucket=~\"$bucket\"})", "{{bucket}}")],
            ),
            (
                "Queued and synced",
                "ops",
                &[
                    (
                        "sum by (bucket) (rate(kv_ep_diskqueue_fill{bucket=~\"$bucket\"}[1m]))",
                        "{{bucket}} queued",
                    ),
                    (
                        "sum by (bucket) (rate(kv_ep_diskqueue_drain{bucket=~\"$bucket\"}[1m]))",
                        "{{bucket}} synced",
                    ),
                ],
            ),
            (
                "Use of disks",
                "percentunit",
                &[("settee_disk_used_bytes / settee_disk_total_bytes", "{{instance}}")],
            ),
        ],
    ),
    (
        "Replication and machines",
        &[
            (
                "Changes that replicas have yet to get",
                "none",
                &[(
                    "sum by (bucket) (kv_dcp_items_remaining{connection_type=\"replication\",bucket=~\"$bucket\"})",
                    "{{bucket}}",
                )],
            ),
            (
                "Replicas that are cut off",
                "none",
                &[("sum by (bucket) (settee_replicas_cut_off{bucket=~\"$bucket\"})", "{{bucket}}")],
            ),
            ("Use of processors", "percent", &[("sys_cpu_utilization_rate", "{{instance}}")]),
            ("Client connections", "none", &[("kv_curr_connections", "{{instance}}")]),
        ],
    ),
];

/// A rule: name, condition, how long it has to hold, severity, summary, and the entry of the guide. Without one the series name it.
type Rule = (&'static str, &'static str, &'static str, &'static str, &'static str, Option<&'static About>);

/// Alerts of Prometheus beside those that nodes decide themselves.
const RULES: &[Rule] = &[
    (
        "SetteeAlert",
        "max by (alert, level, subject, instance) (settee_alert_firing) > 0",
        "0m",
        "{{ $labels.level }}",
        "{{ $labels.alert }} {{ $labels.subject }} on {{ $labels.instance }}",
        None,
    ),
    (
        "SetteeNodeDown",
        "up{job=\"settee\"} == 0",
        "1m",
        "critical",
        "Prometheus does not reach {{ $labels.instance }}",
        Some(&alerts::NODE_DOWN),
    ),
    (
        "SetteeReplicasCutOff",
        "sum by (bucket, instance) (settee_replicas_cut_off) > 0",
        "2m",
        "warning",
        "Replicas of {{ $labels.bucket }} on {{ $labels.instance }} do not follow",
        Some(&alerts::REPLICA_LAG),
    ),
    (
        "SetteeWritesRefused",
        "sum by (bucket) (rate(kv_ep_tmp_oom_errors[5m])) > 0",
        "1m",
        "critical",
        "Writes of {{ $labels.bucket }} are refused for want of memory",
        Some(&alerts::WRITES_REFUSED),
    ),
];

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn rules() -> String {
    let mut file = "# Made from crates/daemon/src/statistics/monitoring.rs. `settee slo export` has the rules of objectives.\n\
                    groups:\n  - name: settee\n    rules:\n"
        .to_owned();
    for (name, condition, lasting, severity, summary, about) in RULES {
        let runbook = about.map_or_else(alerts::runbook_of_instance, alerts::runbook_of_any_instance);
        file += &format!(
            "      - alert: {name}\n        expr: {}\n        for: {lasting}\n        labels: {{severity: {}}}\n        annotations:\n          \
             summary: {}\n          runbook_url: {}\n",
            quoted(condition),
            quoted(severity),
            quoted(summary),
            quoted(&runbook),
        );
    }
    file
}

fn dashboard() -> String {
    let mut panels = Vec::new();
    let (mut id, mut y) = (0, 0);
    for (title, row) in ROWS {
        id += 1;
        panels.push(json!({ "id": id, "type": "row", "title": title, "gridPos": { "h": 1, "w": 24, "x": 0, "y": y } }));
        y += 1;
        for (at, (title, unit, drawn)) in row.iter().enumerate() {
            id += 1;
            let targets: Vec<_> = drawn
                .iter()
                .zip('A'..)
                .map(|((expression, legend), name)| {
                    json!({ "refId": name.to_string(), "expr": expression, "legendFormat": legend })
                })
                .collect();
            panels.push(json!({
                "id": id, "type": "timeseries", "title": title, "targets": targets,
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
                "fieldConfig": { "defaults": { "unit": unit, "custom": { "axisSoftMin": 0 } }, "overrides": [] },
                "gridPos": { "h": 8, "w": 12, "x": at % 2 * 12, "y": y + at / 2 * 8 },
            }));
        }
        y += row.len().div_ceil(2) * 8;
    }
    let variables = json!([
        { "name": "datasource", "type": "datasource", "query": "prometheus" },
        {
            "name": "bucket", "type": "query", "query": "label_values(kv_curr_items, bucket)", "includeAll": true, "multi": true,
            "datasource": { "type": "prometheus", "uid": "${datasource}" }, "refresh": 2,
        },
    ]);
    let dashboard = json!({
        "title": "Settee", "uid": "settee", "schemaVersion": 39, "version": 1, "refresh": "10s", "editable": true,
        "time": { "from": "now-1h", "to": "now" }, "templating": { "list": variables }, "panels": panels,
    });
    format!("{dashboard:#}\n")
}

/// Names of series in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words
        .filter(|word| {
            ["kv_", "settee_", "sys_", "sdk_", "cm_", "couch_"].iter().any(|begin| word.starts_with(begin))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn dashboard_and_rules_are_what_the_table_says() {
    for (name, made) in [("settee.rules.yaml", rules()), ("grafana.json", dashboard())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/monitoring").join(name);
        if std::env::var_os("SETTEE_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &made).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap_or_default(),
            made,
            "write {name} anew: docs/statistics.md says how"
        );
    }
}

#[test]
fn every_series_in_dashboard_and_rules_is_declared() {
    let mut declared = BTreeSet::new();
    for about in sections().into_iter().flat_map(|(_, statistics)| statistics) {
        for metric in about.metrics {
            let parts: &[&str] =
                if about.kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            declared.extend(parts.iter().map(|part| format!("{}{part}", metric.family)));
        }
    }
    let drawn = ROWS
        .iter()
        .flat_map(|(_, row)| *row)
        .flat_map(|(_, _, drawn)| *drawn)
        .map(|(expression, _)| *expression);
    let conditions = RULES.iter().map(|(_, condition, ..)| *condition);
    let named: BTreeSet<String> = drawn.chain(conditions).flat_map(names).collect();
    assert!(named.len() > 15, "{named:?}");
    let unknown: Vec<_> = named.difference(&declared).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
