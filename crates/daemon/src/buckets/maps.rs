//! How often clients are told of new maps while vBuckets move.
//!
//! A rebalance changes the map dozens of times a second. An SDK reads the whole of each map, on every connection that
//! tells it. With forty maps a second, Java's two event loops did nothing else for seconds, and plain writes ran into
//! their timeouts. So maps of one rebalance wait for one another.
//!
//! A client that goes by a map a moment old asks a node that gave the vBucket away. That node sends it on with the
//! newest map, as it answers a client that asks for a map ([`dataplane::BucketMaps`]). So holding maps back makes the
//! pause of a handover (`cluster::orchestrator`) no longer for clients that go on asking. Such a client gets one map
//! for one vBucket that moved, on one connection. Without the wait an SDK is told of each map on all connections.
//!
//! What happens outside of a rebalance waits for nothing. Nor do the first and the last map of a rebalance. Within one
//! everything waits, a failover too.

use std::time::{Duration, Instant};

use cluster::Metadata;

/// Maps of one rebalance are at least so far apart.
const EVERY: Duration = Duration::from_millis(200);

/// When maps are made of the metadata, and when not yet.
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    last: Option<Last>,
    /// When the map is due that was held back.
    due: Option<Instant>,
}

/// What clients were told last.
#[derive(Debug)]
struct Last {
    at: Instant,
    rebalance: Option<String>,
}

impl Cadence {
    /// Whether clients are to be told of these metadata now. If not, [`Self::due`] says when.
    pub(crate) fn admits(&mut self, metadata: &Metadata, now: Instant) -> bool {
        let rebalance = metadata.rebalance.as_ref().map(|rebalance| rebalance.id.clone());
        if let Some(last) = &self.last
            && rebalance.is_some()
            && rebalance == last.rebalance
            && now < last.at + EVERY
        {
            self.due = Some(last.at + EVERY);
            return false;
        }
        self.last = Some(Last { at: now, rebalance });
        self.due = None;
        true
    }

    /// When clients are to be told of what was held back; none if nothing was.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Rebalance, RebalanceKind};

    use super::*;

    fn during(id: Option<&str>) -> Metadata {
        let rebalance = |id: &str| Rebalance {
            id: id.into(),
            kind: RebalanceKind::Rebalance,
            keep: Vec::new(),
            eject: Vec::new(),
            started_ms: 0,
            copies: 0,
        };
        Metadata { rebalance: id.map(rebalance), ..Metadata::new(String::new(), 256) }
    }

    #[test]
    fn maps_of_one_rebalance_wait_for_one_another() {
        let (mut cadence, begin) = (Cadence::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        assert!(cadence.admits(&during(None), at(0)));
        assert!(cadence.admits(&during(Some("a")), at(1)), "the first of a rebalance");
        for millis in [2, 30, 200] {
            assert!(!cadence.admits(&during(Some("a")), at(millis)));
            assert_eq!(cadence.due(), Some(at(201)));
        }
        assert!(cadence.admits(&during(Some("a")), at(201)));
        assert_eq!(cadence.due(), None);
        assert!(!cadence.admits(&during(Some("a")), at(300)));
        assert!(cadence.admits(&during(Some("b")), at(301)), "the first of the next");
    }

    #[test]
    fn what_is_no_step_of_a_rebalance_waits_for_nothing() {
        let (mut cadence, begin) = (Cadence::default(), Instant::now());
        assert!(cadence.admits(&during(Some("a")), begin));
        assert!(!cadence.admits(&during(Some("a")), begin));
        assert!(cadence.admits(&during(None), begin), "its end");
        assert!(cadence.admits(&during(None), begin));
        assert_eq!(cadence.due(), None);
    }
}
