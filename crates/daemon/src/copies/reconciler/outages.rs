//! Which replicas have not been fed for long.
//!
//! Links come and go, and every change of a map has streams closed and opened again: what lasts is what matters. This
//! node looks for it now and then, and tells the leader with its reports. The log says when it begins and when it is
//! over.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use base::{BucketUuid, NodeId};

/// What has lasted so long is told.
const LASTING: Duration = Duration::from_secs(10);

/// Replicas of a bucket that are not fed by a node.
#[derive(Clone, Debug)]
pub(crate) struct CutOff {
    /// How many.
    pub(crate) copies: u32,
    /// The bucket's name.
    pub(crate) bucket: String,
    /// What the log calls the node.
    pub(crate) node: String,
}

/// See the module. By bucket and the node that is followed.
#[derive(Debug, Default)]
pub(crate) struct Outages(HashMap<(BucketUuid, NodeId), Outage>);

#[derive(Debug)]
struct Outage {
    since: Instant,
    /// As it was at the last look.
    cut_off: CutOff,
    lasts: bool,
}

impl Outages {
    /// Takes note of how it is: the replicas that are not fed now. `has_actives`: whether the node still has active copies of the bucket.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        cut_off: HashMap<(BucketUuid, NodeId), CutOff>,
        has_actives: impl Fn(&BucketUuid, NodeId) -> bool,
    ) {
        self.0.retain(|key, outage| {
            let stays = cut_off.contains_key(key);
            if !stays && outage.lasts {
                let CutOff { bucket, node, .. } = &outage.cut_off;
                tracing::info!(bucket, node, "{}", over(has_actives(&key.0, key.1)));
            }
            stays
        });
        for (key, cut_off) in cut_off {
            let begun = Outage { since: now, cut_off: cut_off.clone(), lasts: false };
            let outage = self.0.entry(key).or_insert(begun);
            outage.cut_off = cut_off;
            if !outage.lasts && now.duration_since(outage.since) >= LASTING {
                outage.lasts = true;
                let CutOff { copies, bucket, node } = &outage.cut_off;
                tracing::warn!(bucket, node, copies, "replicas have not been able to follow a node for long");
            }
        }
    }

    /// By the node that a bucket follows: replicas that have not been fed for long.
    pub(crate) fn of(&self, bucket: &BucketUuid) -> BTreeMap<NodeId, u32> {
        let lasting = self.0.iter().filter(|((uuid, _), outage)| uuid == bucket && outage.lasts);
        lasting.map(|((_, node), outage)| (*node, outage.cut_off.copies)).collect()
    }
}

/// What has ended an outage.
fn over(has_actives: bool) -> &'static str {
    match has_actives {
        true => "replicas follow a node again",
        false => "replicas follow that node no longer: it has no active copies of the bucket any more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_until_it_is_over() {
        let (bucket, node) = (BucketUuid("b".into()), NodeId(3));
        let now = |copies: u32| {
            let cut_off = CutOff { copies, bucket: "app".into(), node: "10.0.0.4:8091 (3)".into() };
            HashMap::from([((bucket.clone(), node), cut_off)])
        };
        let (mut outages, start) = (Outages::default(), Instant::now());
        outages.look(start, now(7), |_, _| true);
        assert!(outages.of(&bucket).is_empty(), "it may be over in a moment");
        outages.look(start + LASTING, now(5), |_, _| true);
        assert_eq!(outages.of(&bucket), BTreeMap::from([(node, 5)]));
        assert!(outages.of(&BucketUuid("other".into())).is_empty());
        outages.look(start + 2 * LASTING, HashMap::new(), |_, _| false);
        assert!(outages.of(&bucket).is_empty());
        // It counts anew from here.
        outages.look(start + 3 * LASTING, now(1), |_, _| true);
        assert!(outages.of(&bucket).is_empty());
    }
}
