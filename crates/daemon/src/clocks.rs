//! Compares this node's clock with that of the node that leads, and remembers by how much they differ. Conflict resolution by time,
//! expiry and what logs say are as good as the clocks of nodes. What counts as a difference is decided by [`watch::skew`].

use std::{sync::Arc, time::Duration};

use base::NodeId;
use cluster::ClusterError;
use parking_lot::Mutex;
use tokio::sync::watch as flags;
use watch::{
    alerts::{self, Holds},
    skew::{SKEW_MAX_MILLIS, ahead},
};

use super::control::Control;

/// The question what time it is.
const CLOCK: &str = "clock";
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_secs(20);

/// The node that led when clocks were compared last, and by how many milliseconds its clock was ahead of this node's.
#[derive(Default)]
pub(crate) struct Clocks(Mutex<Option<(NodeId, i64)>>);

/// What is known once `leader` was asked, which may not have answered. What was known of another leader says nothing of this one. A
/// node without another one that leads has nothing to compare with.
fn known_after(
    known: Option<(NodeId, i64)>,
    leader: Option<NodeId>,
    told: Option<i64>,
) -> Option<(NodeId, i64)> {
    let leader = leader?;
    told.map(|difference| (leader, difference)).or(known.filter(|(of, _)| *of == leader))
}

impl Control {
    fn unix_millis(&self) -> u64 {
        self.loops().0.now().wall_nanos / 1_000_000
    }

    async fn compare_clocks(&self) {
        let leader = self.leader().filter(|leader| *leader != self.this_id());
        let difference = match leader {
            None => None,
            Some(leader) => {
                let asked = self.unix_millis();
                let told = self.peers().post(leader, CLOCK, Vec::new()).await;
                let theirs = told.ok().and_then(|body| Some(u64::from_be_bytes(body.try_into().ok()?)));
                theirs.map(|theirs| ahead(asked, self.unix_millis(), theirs))
            }
        };
        let mut known = self.clocks().0.lock();
        *known = known_after(*known, leader, difference);
    }

    /// Whether the clocks are too far apart.
    pub(super) fn clock_skew(&self) -> Option<Holds> {
        let (_, difference) = (*self.clocks().0.lock())?;
        skewed(difference, &self.address().to_string())
    }
}

fn skewed(difference: i64, node: &str) -> Option<Holds> {
    let seconds = difference.unsigned_abs() as f64 / 1_000.0;
    let way = if difference > 0 { "behind" } else { "ahead of" };
    let text =
        format!("The clock of node {node} is {seconds:.1} s {way} that of the node that leads the cluster.");
    (difference.unsigned_abs() > SKEW_MAX_MILLIS).then(|| Holds::new(&alerts::CLOCK_SKEW, "", text))
}

/// Answers other nodes.
pub(super) fn answer(control: &Arc<Control>) {
    let me = Arc::downgrade(control);
    control.routes().add(CLOCK, move |_| {
        let control = me.upgrade();
        async move {
            let control = control.ok_or_else(|| ClusterError::Failed("the node is stopping".into()))?;
            Ok(control.unix_millis().to_be_bytes().to_vec())
        }
    });
}

/// Compares until `ended`.
pub(super) async fn run(control: Arc<Control>, mut ended: flags::Receiver<bool>) {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        tokio::select! {
            _ = ended.wait_for(|stop| *stop) => return,
            () = control.compare_clocks() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_forgotten_with_the_leader_it_was_measured_to() {
        let known = Some((NodeId(1), 7_340));
        assert_eq!(known_after(None, Some(NodeId(1)), Some(7_340)), known);
        assert_eq!(
            known_after(known, Some(NodeId(1)), None),
            known,
            "one answer that is lost changes nothing"
        );
        assert_eq!(known_after(known, Some(NodeId(2)), None), None);
        assert_eq!(known_after(known, Some(NodeId(2)), Some(3)), Some((NodeId(2), 3)));
        assert_eq!(known_after(known, None, None), None);
    }

    #[test]
    fn a_difference_that_matters_is_told_with_its_direction() {
        assert_eq!(skewed(5_000, "n"), None);
        assert_eq!(skewed(-5_000, "n"), None);
        let text = |difference| skewed(difference, "n").unwrap().text;
        assert!(text(7_340).contains("7.3 s behind"), "{}", text(7_340));
        assert!(text(-7_340).contains("7.3 s ahead of"), "{}", text(-7_340));
    }
}
