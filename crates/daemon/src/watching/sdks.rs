//! What clients of this node tell of their operations, by the node and the bucket that those were about.

use std::sync::atomic::{AtomicUsize, Ordering};

use cluster::Metadata;
use parking_lot::Mutex;
use stats::Reading;
use watch::sdk::{Report, Totals};

use crate::statistics::{SdkFacts, of_sdks, of_told};

/// What operations are called that were about too many nodes and buckets to be told apart.
const OTHERS: &str = "others";

/// See the module.
#[derive(Default)]
pub(crate) struct Sdks {
    totals: Mutex<Totals>,
    connected: AtomicUsize,
}

impl Sdks {
    /// Adds a report.
    pub(crate) fn told(&self, report: &Report) {
        self.totals.lock().add(report);
    }

    /// So many clients are asked.
    pub(crate) fn connected(&self, count: usize) {
        self.connected.store(count, Ordering::Relaxed);
    }

    /// Forgets nodes and buckets that are gone.
    pub(crate) fn look(&self, metadata: &Metadata) {
        self.totals.lock().keep(|node, bucket| admin::is_told_of(metadata, node, bucket));
    }

    /// The statistics of what was about a bucket; with none, of what was about no bucket, and of the telling itself.
    pub(crate) fn readings(&self, metadata: &Metadata, bucket: Option<&str>) -> Vec<Reading> {
        let totals = self.totals.lock();
        let mut readings = Vec::new();
        for (uuid, _, told) in totals.told().filter(|(_, of, _)| *of == bucket) {
            let Some(node) = metadata.node(uuid) else { continue };
            readings.extend(of_told(&format!("{}:{}", node.host, node.ports.mgmt), told));
        }
        if bucket.is_none() {
            readings.extend(totals.rest().into_iter().flat_map(|told| of_told(OTHERS, told)));
            let connected = self.connected.load(Ordering::Relaxed);
            readings.extend(of_sdks(&SdkFacts { connected, invalid: totals.invalid() }));
        }
        readings
    }
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;
    use cluster::{BucketParams, Command, NodeInfo, Ports};
    use stats::Value;

    use super::*;

    #[test]
    fn what_is_told_of_a_bucket_is_shown_with_it_and_goes_with_it() {
        let node = NodeInfo::first("n".into(), "10.0.0.1".into(), Ports { mgmt: 8091, ..Ports::default() });
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let commands = [
            Command::SetNode(node),
            Command::CreateBucket { name: "b".into(), uuid: BucketUuid("b".into()), params },
        ];
        let without = |number| {
            commands[..number]
                .iter()
                .fold(Metadata::new("c".into(), 1024), |state: Metadata, one| state.apply(one).unwrap().0)
        };
        let metadata = without(2);
        let text = "sdk_kv_retrieval_duration_milliseconds_bucket{le=\"1\",bucket=\"b\",node_uuid=\"n\"} 2\n\
                    sdk_kv_retrieval_duration_milliseconds_count{bucket=\"b\",node_uuid=\"n\"} 3\n\
                    sdk_kv_r_timedout{bucket=\"b\",node_uuid=\"n\"} 1\nsdk_other{} 1\n\
                    sdk_management_r_total{node_uuid=\"n\"} 4\n";
        let sdks = Sdks::default();
        sdks.told(&Report::read(text, |node, bucket| admin::is_told_of(&metadata, node, bucket)));
        sdks.connected(7);
        let shown = |bucket: Option<&str>| {
            let told = sdks.readings(&metadata, bucket);
            let names = told.iter().filter(|one| !matches!(one.value, Value::Absent | Value::Count(0)));
            names
                .map(|one| (one.about.metrics[0].family, one.value.clone(), one.labels.clone()))
                .collect::<Vec<_>>()
        };
        let of_node = vec![("node", "10.0.0.1:8091".to_owned())];
        let of_bucket = shown(Some("b"));
        assert_eq!(of_bucket.len(), 2);
        let (family, value, labels) = &of_bucket[0];
        assert_eq!((*family, labels), ("sdk_kv_retrieval_duration_milliseconds", &of_node));
        let Value::Told { count: 3, steps, .. } = value else { panic!("{value:?}") };
        assert_eq!(steps[0], (Some(1), 2));
        assert_eq!(of_bucket[1], ("sdk_kv_r_timedout", 1.into(), of_node.clone()));
        let others = [
            ("sdk_management_r_total", 4.into(), of_node),
            ("cm_app_telemetry_curr_connections", 7.into(), vec![]),
            ("sdk_invalid_metric_total", 1.into(), vec![]),
        ];
        assert_eq!(shown(None), others);
        sdks.look(&without(1));
        assert_eq!(shown(Some("b")), []);
    }
}
