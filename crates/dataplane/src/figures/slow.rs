//! Operations that took long, with what they waited for: the last of them, for operators who ask why something was slow.
//!
//! One is noted where its latency is counted, so the path of fast operations pays a comparison a batch. No key and no value is kept.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use stats::SlowOperation;

use crate::figures::{meter::OpKind, phases::Phase};

/// What takes this long is slow.
pub(crate) const SLOW: Duration = Duration::from_millis(500);
/// Operations that are kept; the oldest go.
pub const KEPT: usize = 500;
/// What one of them takes in memory, about: names of a user, a bucket and a client, and three phases.
pub const KEPT_BYTES: usize = 1_024;
/// Bytes of a client's name for itself.
const AGENT_BYTES_MAX: usize = 100;

/// How long a batch of requests took, and what with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlowBatch {
    pub(crate) kinds: Vec<(OpKind, u64)>,
    pub(crate) micros: u64,
    /// Nanoseconds until it was the requests' turn, where they did not wait for something else.
    pub(crate) queued: Option<u64>,
    /// Nanoseconds for the execution of one of them.
    pub(crate) executed: u64,
    /// What a parked request waited for last, and for how many nanoseconds.
    pub(crate) waited: Option<(Phase, u64)>,
}

/// The user that has asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    pub(crate) bucket: String,
    pub(crate) user: String,
    pub(crate) peer: Option<std::net::SocketAddr>,
    pub(crate) agent: String,
}

/// The last of them.
#[derive(Debug, Default)]
pub struct SlowLog(Mutex<VecDeque<SlowOperation>>);

impl SlowLog {
    /// Notes each kind of operation of a batch.
    pub(crate) fn note(&self, batch: &SlowBatch, asker: &Asker) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = |nanos: u64| nanos / 1000;
        let named =
            |phase: Phase| Phase::ALL.iter().find(|(known, _)| *known == phase).map_or("", |(_, name)| name);
        let mut phases = vec![("execute".to_owned(), micros(batch.executed))];
        phases.extend(batch.queued.map(|queued| ("queue".to_owned(), micros(queued))));
        phases.extend(batch.waited.map(|(phase, waited)| (named(phase).to_owned(), micros(waited))));
        phases.sort_by_key(|(_, micros)| std::cmp::Reverse(*micros));
        let agent: String = asker.agent.chars().filter(|one| !one.is_control()).collect();
        let mut kept = self.0.lock();
        for (kind, count) in &batch.kinds {
            let operation =
                OpKind::ALL.iter().find(|(known, _)| known == kind).map_or("other", |(_, name)| name);
            if kept.len() >= KEPT {
                kept.pop_front();
            }
            kept.push_back(SlowOperation {
                at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
                bucket: asker.bucket.clone(),
                operation: operation.to_owned(),
                count: *count,
                took_us: batch.micros,
                phases: phases.clone(),
                user: asker.user.clone(),
                client: asker.peer.map(|peer| peer.to_string()).unwrap_or_default(),
                agent: agent.get(..agent.floor_char_boundary(AGENT_BYTES_MAX)).unwrap_or_default().to_owned(),
            });
        }
    }

    /// All that are kept, the oldest first.
    pub fn all(&self) -> Vec<SlowOperation> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_operation_says_what_it_waited_for_most_and_the_oldest_go() {
        let log = SlowLog::default();
        let batch = SlowBatch {
            kinds: vec![(OpKind::Get, 2), (OpKind::Set, 1)],
            micros: 900_000,
            queued: None,
            executed: 40_000,
            waited: Some((Phase::Fetch, 890_000_000)),
        };
        let asker =
            Asker { bucket: "b".into(), user: "ann".into(), agent: "é".repeat(200), ..Asker::default() };
        log.note(&batch, &asker);
        let all = log.all();
        let told: Vec<_> = all.iter().map(|one| (one.operation.as_str(), one.count, one.took_us)).collect();
        assert_eq!(told, [("get", 2, 900_000), ("set", 1, 900_000)]);
        assert_eq!(all[0].phases, [("fetch".to_owned(), 890_000), ("execute".to_owned(), 40)]);
        assert_eq!(
            (all[0].bucket.as_str(), all[0].user.as_str(), all[0].agent.len()),
            ("b", "ann", AGENT_BYTES_MAX)
        );
        (0..KEPT).for_each(|_| log.note(&batch, &asker));
        assert_eq!(log.all().len(), KEPT);
    }
}
