//! One JSON object: for scripts.

use super::{Moment, Report};
use crate::doctor::{Agreement, Side};
use crate::tally::{Latencies, OpTally};
use serde_json::{Map, Value, json};

/// The whole report.
#[must_use]
pub fn json(report: &Report) -> Value {
    let tally = &report.tally;
    let mut ops = Map::new();
    for (op, one) in tally.ops() {
        ops.insert(op.name().to_owned(), operation(one));
    }
    let split = &tally.split;
    let figures = report.server_figures.iter().map(|(name, figure)| (name.clone(), json!(figure)));
    json!({
        "title": report.title,
        "rate": report.rate,
        "seconds": tally.elapsed.as_secs_f64(),
        "ops": tally.done(),
        "ops_per_sec": tally.ops_per_sec(),
        "hits": tally.ok_of(true),
        "misses": tally.misses(),
        "stored": tally.ok_of(false),
        "keys_found": tally.keys_found,
        "keys_missed": tally.keys_missed,
        "temporary_failures": tally.temporary,
        "temporary_failure_reasons": tally.reasons,
        "not_my_vbucket": tally.moved,
        "errors": tally.failed(),
        "failures": tally.failures,
        "unsent": tally.unsent,
        "reconnects": tally.reconnects,
        "overstated_by_server": tally.overstated,
        "corrupt": report.corrupt(),
        "violations": report.violations(),
        "histories": report.histories(),
        "bytes": tally.bytes,
        "read_us": latencies(&tally.latencies(Some(true))),
        "write_us": latencies(&tally.latencies(Some(false))),
        "operations": ops,
        "split_us": {
            "queue": latencies(&split.queue), "service": latencies(&split.service),
            "server": latencies(&split.server), "receive": latencies(&split.receive), "beside": latencies(&split.beside),
        },
        "server_cpu_us_per_op": report.server_us_per_op(),
        "server_cpu_seconds": report.server.map(|(before, after)| after.cpu_seconds - before.cpu_seconds),
        "server_rss_bytes": report.server.map(|(_, after)| after.rss_bytes),
        "client_cpu_us_per_op": report.client_us_per_op(),
        "server_figures": figures.collect::<Map<_, _>>(),
        "findings": report.findings,
        "server_agreement": report.agreement.as_ref().map(agreement),
        "steps": report.steps,
        "best_rate": report.best_step().map(|step| step.rate),
        "verified": report.verified.as_ref().map(|tally| json!({"hits": tally.ok(), "misses": tally.misses()})),
        "intervals": report.moments.iter().map(|moment| interval(moment, report.interval)).collect::<Vec<_>>(),
    })
}

fn agreement(found: &Agreement) -> Value {
    let side = |side: &Side| {
        let [p50, p90, p99] = side.percentiles_us;
        let [within_50, within_90, within_99] = side.within_us;
        json!({
            "count": side.count, "p50_us": p50, "p90_us": p90, "p99_us": p99,
            "p50_within_us": within_50, "p90_within_us": within_90, "p99_within_us": within_99,
        })
    };
    json!({ "told": side(&found.told), "counted": side(&found.counted) })
}

fn interval(moment: &Moment, seconds: f64) -> Value {
    let [p50, p99, p999, max] = moment.latency.map(|nanos| nanos as f64 / 1e3);
    json!({
        "second": moment.index as f64 * seconds, "ops": moment.done, "misses": moment.misses, "errors": moment.failed,
        "p50_us": p50, "p99_us": p99, "p99.9_us": p999, "max_us": max,
    })
}

fn operation(one: &OpTally) -> Value {
    json!({
        "ok": one.ok.count(), "misses": one.miss.count(), "errors": one.failed.count(),
        "ok_us": latencies(&one.ok), "miss_us": latencies(&one.miss), "error_us": latencies(&one.failed),
    })
}

fn latencies(latencies: &Latencies) -> Value {
    json!({
        "count": latencies.count(), "mean": latencies.mean_us(), "min": latencies.min_us(),
        "p50": latencies.percentile_us(50.0), "p90": latencies.percentile_us(90.0),
        "p95": latencies.percentile_us(95.0), "p99": latencies.percentile_us(99.0),
        "p99.9": latencies.percentile_us(99.9), "p99.99": latencies.percentile_us(99.99), "max": latencies.max_us(),
    })
}
