//! What this node's probes have found, by bucket and node.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use admin::{Probed, ProbedOperation};
use base::NodeId;
use cluster::Metadata;
use parking_lot::Mutex;
use stats::Reading;
use watch::{
    alerts::{self, Holds},
    probe::{Known, Probes, TIMEOUT_MICROS},
};

use crate::statistics::{ProbeFacts, of_probe, of_target};

/// An operation that takes longer is not answered.
pub(crate) const TIMEOUT: Duration = Duration::from_micros(TIMEOUT_MICROS as u64);
/// Rounds in a row without an answer that are told.
const SILENT_ROUNDS: u32 = 2;

/// A bucket on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Target {
    pub(crate) bucket: String,
    pub(crate) node: NodeId,
}

/// What this node's probes have found.
pub(crate) struct Probing {
    pub(crate) probes: Mutex<Probes<Target>>,
    begun: Instant,
}

impl Default for Probing {
    fn default() -> Self {
        Self { probes: Mutex::default(), begun: Instant::now() }
    }
}

impl Probing {
    /// On the clock of the probes.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// For other nodes and REST.
    pub(crate) fn probed(&self) -> Vec<Probed> {
        let now = self.millis();
        let of = |known: &Known| {
            let [answered, refused, unanswered] = known.ended;
            ProbedOperation {
                answered,
                refused,
                unanswered,
                total_us: known.micros,
                last_us: known.last.map(|(_, micros)| micros),
                quantiles_us: [0.5, 0.9, 0.99].map(|share| known.quantile(now, share)),
            }
        };
        let probes = self.probes.lock();
        let shown = probes.known().map(|(target, known, silent)| Probed {
            bucket: target.bucket.clone(),
            to: target.node,
            silent_rounds: silent,
            operations: known.iter().map(|(what, known)| (what.name().to_owned(), of(known))).collect(),
        });
        shown.collect()
    }

    /// The statistics of a bucket's probes.
    pub(crate) fn readings(&self, metadata: &Metadata, bucket: &str) -> Vec<Reading> {
        let probes = self.probes.lock();
        let mut readings = Vec::new();
        for (target, known, silent) in
            probes.known().filter(|(target, known, _)| target.bucket == bucket && !known.is_empty())
        {
            let Some(node) = metadata.node_by_id(target.node) else { continue };
            let to = format!("{}:{}", node.host, node.ports.mgmt);
            readings.extend(of_target(&to, silent == 0));
            for (what, known) in known {
                let facts = ProbeFacts { ended: known.ended, micros: known.micros, steps: known.steps() };
                readings.extend(of_probe(&to, *what, &facts));
            }
        }
        readings
    }

    /// Nodes that do not answer.
    pub(crate) fn silent(&self, metadata: &Metadata) -> Vec<Holds> {
        let holds = silences(&self.probes.lock()).into_iter().filter_map(|(id, silence)| {
            let node = metadata.node_by_id(id)?;
            let to = admin::name_in_alerts(node);
            let Silence { buckets, of, rounds } = silence;
            let text = format!(
                "Node {to} has not answered {rounds} probes in a row within {} s, on {buckets} of {of} buckets.",
                TIMEOUT.as_secs_f64()
            );
            Some(Holds::new(&alerts::PROBE_SILENT, to, text))
        });
        holds.collect()
    }
}

/// What a node has not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Silence {
    /// Buckets without an answer, of so many.
    buckets: usize,
    of: usize,
    /// Most rounds in a row.
    rounds: u32,
}

/// One for each node with a bucket that does not answer, however many of them it has.
fn silences(probes: &Probes<Target>) -> BTreeMap<NodeId, Silence> {
    let mut silences = BTreeMap::<NodeId, Silence>::new();
    for (target, _, rounds) in probes.known() {
        let silence = silences.entry(target.node).or_default();
        silence.of += 1;
        if rounds >= SILENT_ROUNDS {
            silence.buckets += 1;
            silence.rounds = silence.rounds.max(rounds);
        }
    }
    silences.retain(|_, silence| silence.buckets > 0);
    silences
}

#[cfg(test)]
mod tests {
    use watch::probe::{Ended, Tried, Try};

    use super::*;

    #[test]
    fn a_node_without_an_answer_is_one_silence_with_all_of_its_buckets() {
        let on = |bucket: &str, node| Target { bucket: bucket.into(), node: NodeId(node) };
        let all = [on("a", 1), on("a", 2), on("b", 1), on("b", 2), on("c", 2)];
        let mut probes = Probes::default();
        probes.want(0, 1_000, all.clone());
        let get = Tried { what: Try::Get, ended: Ended::Answered, micros: 5 };
        for _ in 0..SILENT_ROUNDS {
            assert_eq!(silences(&probes), BTreeMap::new());
            for target in &all {
                let is_silent = target.node == NodeId(2) && target.bucket != "c";
                probes.end(0, target, &[if is_silent { Tried::unanswered(Try::Get) } else { get }]);
            }
        }
        let expected = Silence { buckets: 2, of: 3, rounds: SILENT_ROUNDS };
        assert_eq!(silences(&probes), [(NodeId(2), expected)].into());
    }
}
