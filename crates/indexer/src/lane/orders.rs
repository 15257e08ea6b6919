//! Orders that come while a lane is in the middle of a batch.

use std::collections::{BTreeSet, VecDeque};

use base::VbId;
use views::design::Signature;

use super::{Member, Part, Runner};

impl Runner {
    pub(super) fn has_orders(&self) -> bool {
        self.generation != Some(self.shared.state.lock().desk.generation())
    }

    /// Gives up what is left of a batch, as far as feeds that are opened again tell it once more. Returns what is still to be done: a copy
    /// that follows would be begun anew inside of a snapshot, by each order. Indexes that are to go are not kept for that.
    pub(super) fn leave_batch(&mut self, left: VecDeque<Vec<Part>>) -> VecDeque<Vec<Part>> {
        self.let_go_of_removed();
        let (copies, members, streams) = (&self.copies, &self.members, &mut self.streams);
        let is_inside = |member: &Member, vb| member.wants_more(vb) && member.position(vb).is_inside();
        let stays = |vb: VbId| {
            let follows = copies.get(&vb).is_some_and(|copy| copy.follows);
            follows && members.values().any(|member| is_inside(member, vb))
        };
        let groups = left.into_iter().map(|group| {
            let (kept, given_up): (Vec<_>, Vec<_>) = group.into_iter().partition(|part| stays(part.vb));
            given_up.iter().for_each(|part| streams.close(part.vb));
            kept
        });
        groups.filter(|group| !group.is_empty()).collect()
    }

    fn let_go_of_removed(&mut self) {
        let known: BTreeSet<Signature> = {
            let state = self.shared.state.lock();
            let known =
                state.desk.of_lane(self.lane).filter(|(_, entry)| !entry.is_removed() && !entry.rebuild);
            known.map(|(signature, _)| *signature).collect()
        };
        let gone = self.members.keys().filter(|signature| !known.contains(*signature));
        for signature in gone.copied().collect::<Vec<_>>() {
            self.let_go(&signature);
        }
    }
}
