//! What a member does because time goes by. It holds elections, sends heartbeats, and repeats what may have been lost. A leader also
//! takes steps towards the group that the metadata ask for.

use std::sync::Arc;

use raft::{ProgressState, SnapshotStatus, StateRole};

use super::{Consensus, KEEP_ENTRIES};
use crate::consensus::members::{self, Members, NextStep};

/// Ticks after which a snapshot on its way counts as lost.
const SNAPSHOT_TICKS: u32 = 50;
/// Ticks without a word after which a member says to all nodes it knows that it is there. It may have been removed: one that
/// does not vote asks nobody for anything, and those whom one that votes asks may be gone themselves.
const SILENCE_TICKS: u32 = 30;
/// Ticks after which a leader that waits for its disk lets somebody else lead.
const STALLED_TICKS: u32 = 30;

impl Consensus {
    /// Time goes by: a tenth of a second, say.
    pub fn tick(&mut self) {
        if self.broken.is_some() {
            // The cure is to remove it, and it has to hear of that.
            self.break_silence();
            return;
        }
        // A member that waits for its own disk would campaign with a log that it may not have.
        if !self.leads() && !self.pending.is_empty() {
            return;
        }
        self.hand_over_if_stalled();
        self.with_raft(|raw| {
            raw.tick();
        });
        self.look_for_a_leader();
        let raft = &self.raw.raft;
        let asks_for_votes = matches!(raft.state, StateRole::PreCandidate | StateRole::Candidate);
        if asks_for_votes && raft.election_elapsed == 0 {
            self.elections += 1;
            self.draw_timeout();
        }
        self.give_up_lost_snapshots();
        self.repeat_questions();
        self.break_silence();
        self.adjust_members();
        self.marks.rested(&self.state, self.applied);
    }

    /// As the leader: takes the next step towards the group that the metadata asks for.
    pub(super) fn adjust_members(&mut self) {
        let raft = &self.raw.raft;
        let can = self.leads() && raft.apply_to_current_term() && !raft.has_pending_conf();
        if !can || raft.lead_transferee.is_some() {
            return;
        }
        let conf = raft.prs().conf().to_conf_state();
        let (voters, learners) = (conf.voters.into_iter().collect(), conf.learners.into_iter().collect());
        let members = Members { voters: &voters, learners: &learners, leader: raft.id };
        let last = raft.raft_log.last_index();
        let has_caught_up = |id| {
            // One that is behind but has something is at most a message away; an idle log would never show more.
            let at = raft.prs().get(id).filter(|at| at.recent_active && at.matched > 0);
            at.is_some_and(|at| at.matched + KEEP_ENTRIES >= last)
        };
        match members::next_step(&self.state.metadata, &members, has_caught_up) {
            None => {}
            Some(NextStep::HandOver) => {
                self.hand_over();
            }
            Some(NextStep::Change(change)) => {
                let Ok(context) = serde_json::to_vec(&change) else { return };
                // Refused while another change is under way; the next tick tries again.
                let _ = self.with_raft(|raw| raw.propose_conf_change(context, change.conf_change()));
            }
        }
    }

    /// Raft waits for a snapshot to arrive without looking at the clock; one that was lost is sent again.
    fn give_up_lost_snapshots(&mut self) {
        if !self.leads() {
            self.snapshots.clear();
            return;
        }
        let sent = self.raw.raft.prs().iter().filter(|(_, at)| at.state == ProgressState::Snapshot);
        let sent: Vec<u64> = sent.map(|(id, _)| *id).collect();
        self.snapshots.retain(|id, _| sent.contains(id));
        let mut lost = Vec::new();
        for id in sent {
            let ticks = self.snapshots.entry(id).or_default();
            *ticks += 1;
            if *ticks > SNAPSHOT_TICKS {
                lost.push(id);
            }
        }
        for id in lost {
            self.snapshots.remove(&id);
            self.with_raft(|raw| raw.report_snapshot(id, SnapshotStatus::Failure));
        }
    }

    /// A leader that waits for its disk for long applies nothing meanwhile; the others may be luckier. One whose disk is
    /// busy all the time but gets on is not meant.
    fn hand_over_if_stalled(&mut self) {
        let first = self.pending.front().map_or(0, |first| first.number);
        let ticks = if first == self.stalled.0 { self.stalled.1.saturating_add(1) } else { 0 };
        self.stalled = (first, ticks);
        if first > 0 && ticks > 0 && ticks.is_multiple_of(STALLED_TICKS) {
            self.hand_over();
        }
    }

    pub(super) fn break_silence(&mut self) {
        self.silence = self.silence.saturating_add(1);
        // A leader that cannot go on has a successor by now, and hears nothing of him.
        let is_heard = self.leads() && self.broken.is_none();
        if is_heard || !self.silence.is_multiple_of(SILENCE_TICKS) {
            return;
        }
        let (metadata, me) = (Arc::clone(&self.state.metadata), self.member.node);
        metadata.nodes.iter().filter(|node| node.id != me).for_each(|node| self.say_hello(node.id));
    }
}
