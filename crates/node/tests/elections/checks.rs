//! What has to hold (`docs/promises.md`): within a term one node is active. Of those that hear the leader one serves,
//! and none beside one that has a lease, wherever that is. No acknowledged write, of any level, is passed over by an
//! election or destroyed by another copy. That holds as long as a copy has it that nobody has failed over. No durable one
//! is lost with one copy. No copy serves without one that a node has which was failed over gracefully just before. A copy
//! that is built counts once it is whole. A stream leaves a copy as its active copy is. Once faults end somebody serves.

use std::{collections::HashSet, sync::Arc};

use base::{NodeId, VbRole};
use cluster::{NodeInfo, Recovery, VbPhase, VbPlan};

use super::{
    canon::fingerprint,
    world::{Leash, Link, Node, World, id, index},
};

/// Rounds after which somebody has to serve.
const ROUNDS: usize = 60;

impl World {
    /// The node that serves by the plan, and knows it.
    pub(crate) fn serving(&self) -> Option<usize> {
        let at = index(self.plan().active()?);
        let held = &self.nodes[at].held;
        (held.role == VbRole::Active && held.term == self.plan().term).then_some(at)
    }

    /// Writes that a copy has which nobody has decided to do without, as bits. A copy that is being built is promised nothing of.
    fn held_writes(&self) -> u64 {
        self.writes_of(&|_| true)
    }

    /// The same without copies of nodes that were stuck and did not say so. They are there and do not answer: an election waits for
    /// them for ten seconds, and then only for durable writes.
    fn answered_writes(&self) -> u64 {
        self.writes_of(&|node| !node.was_mute)
    }

    fn writes_of(&self, asks: &dyn Fn(&Node) -> bool) -> u64 {
        let plan = self.plan();
        let is_in = |at: usize| plan.chain.contains(&id(at)) || plan.counted().contains(&id(at));
        let is_left = |at: usize| !self.nodes[at].is_failed && !self.has_failed(at);
        let counts = |at: &usize| is_in(*at) && is_left(*at) && asks(&self.nodes[*at]);
        let of = |at: usize| {
            let held = &self.nodes[at].held;
            (0..self.writes).filter(|&write| held.has(write)).fold(0, |bits, write| bits | 1 << write)
        };
        (0..self.nodes.len()).filter(counts).fold(0, |bits, at| bits | of(at))
    }

    /// The same with what nodes have that were failed over gracefully, as long as no copy serves all of that.
    fn kept_writes(&self) -> u64 {
        self.held_writes() | self.left_writes()
    }

    /// Of those only what nodes have that were failed over gracefully.
    fn left_writes(&self) -> u64 {
        let left = self.nodes.iter().filter(|node| node.has_left);
        let of = |node: &Arc<Node>| {
            (0..self.writes).filter(|&write| node.held.has(write)).fold(0, |bits, write| bits | 1 << write)
        };
        left.map(of).fold(0, |bits, held| bits | held)
    }

    /// Nobody has the vBucket any more, and an operator has to say whether what is left will do.
    fn is_given_up(&self) -> bool {
        self.plan().chain.is_empty() && self.plan().phase == VbPhase::Settled
    }

    /// One that nobody has failed over: a plan in an election names for the record those that were. A copy of which nothing was found
    /// after a restart is none.
    fn had_whole_copy(&self) -> bool {
        let is_failed = |at: usize| self.nodes[at].is_failed || self.has_failed(at);
        let is_whole = |at: usize| {
            let held = &self.nodes[at].held;
            !held.is_partial && !held.facts().is_blank()
        };
        self.plan().nodes().into_iter().map(index).any(|at| !is_failed(at) && is_whole(at))
    }

    /// Whether the rebalance under way brings back a node with a whole copy that was failed over.
    fn recovers_whole_copy(&self) -> bool {
        let returns = |node: &NodeInfo| {
            let is_held = self.meta.buckets["b"].former.get(&node.id).is_some_and(|vbs| vbs.contains(&0));
            is_held && node.recovery == Some(Recovery::Delta) && !self.nodes[index(node.id)].held.is_partial
        };
        self.meta.rebalance.is_some() && self.meta.active_nodes().any(returns)
    }

    /// What is wrong with this state, which came of another one.
    pub(crate) fn fault(&self, before: &Self) -> Option<String> {
        let terms: Vec<u64> = self.active_terms(false).collect();
        if terms.iter().enumerate().any(|(at, term)| terms[..at].contains(term)) {
            return Some("two are active in one term".into());
        }
        if self.serve_beside_a_lease() {
            return Some("another one serves beside one that has a lease".into());
        }
        if self.active_terms(true).count() > 1 {
            return Some("two serve that hear the leader".into());
        }
        if self.is_given_up() && !before.is_given_up() && before.had_whole_copy() {
            return Some("it is given up, though there is a whole copy".into());
        }
        if let Some(at) = self.first_astray() {
            return Some(format!("what node {at} has is not what its active copy has"));
        }
        if let Some(at) = self.first_counted_part(before) {
            return Some(format!("node {at} counts, and its copy is not whole"));
        }
        // What a majority has survives that one copy is lost, or is done without, wherever copies are on their way.
        let lost = self.durable & !self.kept_writes();
        if self.losses < 2 && lost != 0 {
            return Some(format!("the durable writes {lost:b} are lost with one copy"));
        }
        // The leader's own steps never give up a durable write: somebody else has it just then.
        let is_step = self.faults == before.faults;
        let lost = self.durable & before.kept_writes() & !self.kept_writes();
        if is_step && lost != 0 {
            return Some(format!("the durable writes {lost:b} are with nobody any more"));
        }
        let at = self.serving()?;
        let log = self.nodes[at].held.log.iter().fold(0, |bits, &write| bits | 1 << write);
        let left = self.durable & self.left_writes() & !self.excused & !log;
        if left != 0 {
            return Some(format!(
                "node {at} serves, and only one that has left has the durable writes {left:b}"
            ));
        }
        let (had, have) = (before.held_writes(), self.held_writes());
        // A fault may take the last copy of a write with it; nothing else may, and no copy that has it is passed over.
        let (answered, answer) = (before.answered_writes(), self.answered_writes());
        let lost = (self.durable & had & have | self.acknowledged & answered & answer) & !log;
        (lost != 0)
            .then(|| format!("the acknowledged writes {lost:b} are passed over or destroyed by node {at}"))
    }

    /// Whether a copy serves under a lease, wherever its node is, and another one that hears the leader serves as well.
    fn serve_beside_a_lease(&self) -> bool {
        let active = || self.nodes.iter().filter(|node| node.held.role == VbRole::Active);
        let may_serve = |node: &Node| match node.leash {
            Leash::Held => true,
            Leash::Loose { .. } => node.hears(),
            Leash::RunOut => false,
        };
        active().any(|node| node.leash == Leash::Held) && active().filter(|node| may_serve(node)).count() > 1
    }

    /// A node that has begun to count, though its copy is not whole: one that was built, not one that was elected.
    fn first_counted_part(&self, before: &Self) -> Option<usize> {
        let is_new =
            |node: &NodeId| !before.plan().nodes().contains(node) || before.plan().building.contains(node);
        let may_count = |plan: &VbPlan| !before.plan().chain.is_empty() && plan.phase == VbPhase::Settled;
        let counted = self.plan().counted().iter().filter(|node| may_count(self.plan()) && is_new(node));
        counted.copied().map(index).find(|&at| self.nodes[at].held.is_partial)
    }

    /// A node with an open stream whose copy has what its active copy has not.
    fn first_astray(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|&at| {
            let held = &self.nodes[at].held;
            let source = self.source(at).filter(|_| held.following == Some(held.term));
            source.is_some_and(|from| !self.nodes[from].held.log.starts_with(&held.log))
        })
    }

    fn active_terms(&self, hears: bool) -> impl Iterator<Item = u64> {
        let active = self
            .nodes
            .iter()
            .filter(move |node| node.held.role == VbRole::Active && (!hears || node.hears()));
        active.map(|node| node.held.term)
    }

    /// What is wrong once everybody is back and nothing happens any more. `fine`: states from which it is known that
    /// somebody serves in the end.
    pub(crate) fn fault_after_quiet(&self, fine: &mut HashSet<u128>) -> Option<String> {
        let mut world = self.clone();
        world.faults = world.bounds.faults;
        world.changes = world.bounds.changes;
        for at in (0..world.nodes.len()).filter(|&at| self.nodes[at].stuck.is_some()) {
            world = world.after(super::events::Event::Heal(at));
        }
        let away = |at: &usize| self.nodes[*at].link == Link::Cut;
        for at in (0..world.nodes.len()).filter(away) {
            world = world.after(super::events::Event::Resume(at));
        }
        let mut seen = Vec::new();
        for _ in 0..ROUNDS {
            let print = fingerprint(&world);
            if fine.contains(&print) {
                fine.extend(seen);
                return None;
            }
            // Nothing is new any more.
            if seen.contains(&print) {
                break;
            }
            seen.push(print);
            let before = world.clone();
            world.lead();
            if let Some(fault) = world.fault(&before) {
                return Some(format!("{fault}, once everybody is back"));
            }
            for at in 0..world.nodes.len() {
                world.feed(at, true);
                if world.nodes[at].link == Link::Up {
                    world = world.after(super::events::Event::Sync(at));
                }
            }
        }
        if world.is_given_up() && self.recovers_whole_copy() {
            return Some("nobody serves in the end, though a whole copy is recovered".into());
        }
        let serves = |at: usize| world.nodes[at].leash != Leash::RunOut;
        if !world.serving().is_some_and(serves) && !world.is_given_up() {
            return Some(format!("nobody serves in the end: {:?}", world.plan()));
        }
        fine.extend(seen);
        None
    }
}
