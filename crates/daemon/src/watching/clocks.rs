//! By how much this node's clock differs from that of the node that leads. What counts as a difference is decided by
//! [`watch::skew`].

use base::NodeId;
use parking_lot::Mutex;
use watch::{
    alerts::{self, Holds},
    skew::SKEW_MAX_MILLIS,
};

/// The node that led when clocks were compared last, and by how many milliseconds its clock was ahead of this node's.
#[derive(Default)]
pub(crate) struct Clocks(Mutex<Option<(NodeId, i64)>>);

impl Clocks {
    /// `leader` was asked, which may not have answered.
    pub(crate) fn note(&self, leader: Option<NodeId>, told: Option<i64>) {
        let mut known = self.0.lock();
        *known = known_after(*known, leader, told);
    }

    /// Whether the clocks are too far apart, in words about `node`.
    pub(crate) fn skew(&self, node: &str) -> Option<Holds> {
        let (_, difference) = (*self.0.lock())?;
        skewed(difference, node)
    }
}

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

fn skewed(difference: i64, node: &str) -> Option<Holds> {
    let seconds = difference.unsigned_abs() as f64 / 1_000.0;
    let way = if difference > 0 { "behind" } else { "ahead of" };
    let text =
        format!("The clock of node {node} is {seconds:.1} s {way} that of the node that leads the cluster.");
    (difference.unsigned_abs() > SKEW_MAX_MILLIS).then(|| Holds::new(&alerts::CLOCK_SKEW, "", text))
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
