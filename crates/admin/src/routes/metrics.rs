//! `/metrics`: this node in Prometheus' text format. Names are Couchbase's where it has the same figure.

use std::fmt::Write as _;

use axum::http::StatusCode;

use http::reply::{self, Outcome};

use crate::{
    call::Call,
    control::{BucketStatsView, PhaseView, SystemStats},
};

type BucketFigure = (&'static str, &'static str, fn(&BucketStatsView) -> f64);
type SystemFigure = (&'static str, &'static str, fn(&SystemStats) -> f64);

#[allow(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
const fn float(number: u64) -> f64 {
    number as f64
}

const BUCKET_FIGURES: &[BucketFigure] = &[
    ("kv_curr_items", "gauge", |stats| float(stats.items)),
    ("kv_mem_used_bytes", "gauge", |stats| float(stats.mem_used)),
    ("kv_ep_db_file_size_bytes", "gauge", |stats| float(stats.disk_used)),
    ("kv_ep_db_data_size_bytes", "gauge", |stats| float(stats.data_used)),
    ("kv_ep_diskqueue_items", "gauge", |stats| float(stats.disk_queue)),
    ("kv_vb_perc_mem_resident_ratio", "gauge", |stats| stats.resident_percent / 100.0),
    ("kv_curr_bucket_connections", "gauge", |stats| float(stats.connections)),
    ("kv_cmd_get_total", "counter", |stats| float(stats.gets)),
    ("kv_get_hits_total", "counter", |stats| float(stats.get_hits)),
    ("kv_cmd_set_total", "counter", |stats| float(stats.sets)),
    ("kv_cmd_delete_total", "counter", |stats| float(stats.deletes)),
    ("kv_dcp_producer_count", "gauge", |stats| float(stats.dcp_producers)),
    ("kv_dcp_items_sent", "gauge", |stats| float(stats.dcp_items_sent)),
    ("kv_dcp_items_remaining", "gauge", |stats| float(stats.dcp_items_remaining)),
    ("kv_dcp_total_data_size_bytes", "gauge", |stats| float(stats.dcp_bytes_sent)),
    ("kv_ep_dcp_replica_count", "gauge", |stats| float(stats.links)),
    ("kv_ep_dcp_replica_items_sent", "gauge", |stats| float(stats.links_items_sent)),
    ("kv_ep_dcp_replica_items_remaining", "gauge", |stats| float(stats.links_items_remaining)),
    ("kv_ep_dcp_replica_total_bytes", "gauge", |stats| float(stats.links_bytes_sent)),
    ("kv_ep_dcp_replica_total_uncompressed_data_size", "gauge", |stats| {
        float(stats.links_inflated_bytes_sent)
    }),
    ("kv_vb_replica_curr_items", "gauge", |stats| float(stats.replica_items)),
    ("settee_replicas_cut_off", "gauge", |stats| float(stats.replicas_cut_off)),
    ("settee_bucket_ops_per_second", "gauge", |stats| stats.ops_per_sec),
];

const SYSTEM_FIGURES: &[SystemFigure] = &[
    ("sys_mem_total", "gauge", |system| float(system.memory_total)),
    ("sys_mem_free", "gauge", |system| float(system.memory_free)),
    ("sys_swap_total", "gauge", |system| float(system.swap_total)),
    ("sys_swap_used", "gauge", |system| float(system.swap_used)),
    ("sys_cpu_cores_available", "gauge", |system| float(system.cpu_cores)),
    ("sys_cpu_utilization_rate", "gauge", |system| system.cpu_utilization_percent),
    ("sysproc_mem_resident", "gauge", |system| float(system.process_resident)),
    ("kv_curr_connections", "gauge", |system| float(system.connections)),
    ("settee_uptime_seconds", "counter", |system| float(system.uptime_secs)),
    ("settee_disk_total_bytes", "gauge", |system| float(system.disk_total)),
    ("settee_disk_used_bytes", "gauge", |system| float(system.disk_used)),
];

/// Figures that are statistics of the bucket already: the metric, its kind, the statistic's name.
const STATISTICS: &[(&str, &str, &str)] = &[
    ("kv_mem_used_estimate_bytes", "gauge", "mem_used_estimate"),
    ("kv_ep_max_size", "gauge", "ep_max_size"),
    ("kv_ep_mem_high_wat", "gauge", "ep_mem_high_wat"),
    ("kv_ep_mem_low_wat", "gauge", "ep_mem_low_wat"),
    ("kv_ep_key_value_size_bytes", "gauge", "ep_kv_size"),
    ("kv_ep_value_size_bytes", "gauge", "ep_value_size"),
    ("kv_ep_meta_data_memory_bytes", "gauge", "ep_meta_data_memory"),
    ("kv_total_memory_overhead_bytes", "gauge", "ep_overhead"),
    ("kv_ep_checkpoint_memory_bytes", "gauge", "ep_checkpoint_memory"),
    ("kv_ep_queue_size", "gauge", "ep_queue_size"),
    ("kv_ep_flusher_todo", "gauge", "ep_flusher_todo"),
    ("kv_ep_diskqueue_memory_bytes", "gauge", "ep_diskqueue_memory"),
    ("kv_ep_diskqueue_fill", "counter", "ep_diskqueue_fill"),
    ("kv_ep_diskqueue_drain", "counter", "ep_diskqueue_drain"),
    ("kv_ep_tmp_oom_errors", "counter", "ep_tmp_oom_errors"),
    ("kv_ep_oom_errors", "counter", "ep_oom_errors"),
    ("settee_refused_no_space_total", "counter", "settee_refused_no_space"),
    ("settee_refused_disk_broken_total", "counter", "settee_refused_disk_broken"),
    ("settee_refused_cas_ceiling_total", "counter", "settee_refused_cas_ceiling"),
    ("kv_ep_num_value_ejects", "counter", "ep_num_value_ejects"),
    ("kv_ep_num_non_resident", "gauge", "ep_num_non_resident"),
    ("kv_ep_bg_fetched", "counter", "ep_bg_fetched"),
    ("kv_ep_cursors_dropped", "counter", "ep_cursors_dropped"),
    ("settee_pressure_step", "gauge", "ep_pressure_step"),
    ("settee_paced_waiting", "gauge", "settee_paced_waiting"),
    ("settee_paced_total", "counter", "settee_paced_total"),
    ("settee_paced_refused_total", "counter", "settee_paced_refused"),
    ("settee_drain_bytes_per_second", "gauge", "settee_drain_bytes_per_sec"),
    ("settee_reclaim_bytes_per_second", "gauge", "settee_reclaim_bytes_per_sec"),
    ("settee_followers_behind_seconds", "gauge", "settee_followers_behind_seconds"),
    ("settee_intake_bytes_per_second", "gauge", "settee_intake_bytes_per_sec"),
];
/// How the statistics of pools begin, which are one metric with labels.
const POOL_PREFIX: &str = "settee_mem_";

/// Upper bounds of what is shown of the phases' histograms, in microseconds; bounds of their own steps too.
const PHASE_BOUNDS: [u64; 13] =
    [1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];

pub(super) fn show(call: &Call) -> Outcome {
    let names = call.meta.buckets.keys();
    let buckets: Vec<_> =
        names.filter_map(|name| Some((name, call.api.control.bucket_stats(name)?))).collect();
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (metric, kind, figure) in BUCKET_FIGURES {
        let _ = writeln!(text, "# TYPE {metric} {kind}");
        for (name, stats) in &buckets {
            let _ = writeln!(text, "{metric}{{bucket=\"{name}\"}} {}", figure(stats));
        }
    }
    let names = buckets.iter().map(|(name, _)| *name);
    write_statistics(&mut text, names.map(|name| (name, call.api.control.raw_stats(name, ""))).collect());
    let _ = writeln!(text, "# TYPE settee_phase_seconds histogram");
    for (name, _) in &buckets {
        for phase in call.api.control.bucket_phases(name) {
            write_phase(&mut text, name, &phase);
        }
    }
    let system = call.api.control.system();
    for (metric, kind, figure) in SYSTEM_FIGURES {
        let _ = writeln!(text, "# TYPE {metric} {kind}\n{metric} {}", figure(&system));
    }
    let _ = writeln!(text, "# TYPE settee_node_memory_bytes gauge");
    for (pool, bytes) in system.memory.pools() {
        let _ = writeln!(text, "settee_node_memory_bytes{{pool=\"{pool}\"}} {bytes}");
    }
    Ok(reply::with_body(StatusCode::OK, "text/plain; version=0.0.4", text.into()))
}

fn write_statistics(text: &mut String, buckets: Vec<(&String, Vec<(String, String)>)>) {
    for (metric, kind, wanted) in STATISTICS {
        let _ = writeln!(text, "# TYPE {metric} {kind}");
        for (bucket, pairs) in &buckets {
            for (_, value) in pairs.iter().filter(|(name, _)| name == wanted) {
                let _ = writeln!(text, "{metric}{{bucket=\"{bucket}\"}} {value}");
            }
        }
    }
    let _ = writeln!(text, "# TYPE settee_memory_bytes gauge");
    for (bucket, pairs) in &buckets {
        for (name, value) in pairs {
            if let Some(pool) = name.strip_prefix(POOL_PREFIX) {
                let _ = writeln!(text, "settee_memory_bytes{{bucket=\"{bucket}\",pool=\"{pool}\"}} {value}");
            }
        }
    }
}

fn write_phase(text: &mut String, bucket: &str, phase: &PhaseView) {
    let labels = format!("bucket=\"{bucket}\",phase=\"{}\"", phase.name);
    let below =
        |bound: u64| phase.steps.iter().filter(|(to, _)| *to <= bound).map(|(_, count)| count).sum::<u64>();
    for bound in PHASE_BOUNDS {
        let seconds = float(bound) / 1e6;
        let _ = writeln!(text, "settee_phase_seconds_bucket{{{labels},le=\"{seconds}\"}} {}", below(bound));
    }
    let count = below(u64::MAX);
    let _ = writeln!(text, "settee_phase_seconds_bucket{{{labels},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "settee_phase_seconds_sum{{{labels}}} {}", float(phase.micros) / 1e6);
    let _ = writeln!(text, "settee_phase_seconds_count{{{labels}}} {count}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_a_cumulative_histogram_in_seconds() {
        let phase =
            PhaseView { name: "fetch", micros: 1_500_120, steps: vec![(64, 2), (72, 1), (1 << 25, 1)] };
        let mut text = String::new();
        write_phase(&mut text, "b", &phase);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), PHASE_BOUNDS.len() + 3);
        for line in [
            "settee_phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"0.000016\"} 0",
            "settee_phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"0.000064\"} 2",
            "settee_phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"0.000256\"} 3",
            "settee_phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"16.777216\"} 3",
            "settee_phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"+Inf\"} 4",
            "settee_phase_seconds_sum{bucket=\"b\",phase=\"fetch\"} 1.50012",
            "settee_phase_seconds_count{bucket=\"b\",phase=\"fetch\"} 4",
        ] {
            assert!(lines.contains(&line), "{line}: {text}");
        }
    }
}
