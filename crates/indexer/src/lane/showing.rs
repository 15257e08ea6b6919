//! What a lane shows to queries and makes durable, and when.
//!
//! A lane does one thing at a time. So what queries wait for is shown before anything else, and while some wait nothing holds up the
//! reading of changes.

use std::time::Duration;

use base::Seqno;
use views::{
    design::Signature,
    index::{Compaction, IndexError, Snapshot},
};

use super::{Member, Runner};
use crate::{
    desk::Wants,
    pace::{Due, Pacing},
    shared::{Outlet, State, covers},
};

impl Runner {
    /// Shows what queries wait for first. While some wait, one thing more is done at a time: between two of them what is awaited by then is
    /// applied and shown.
    pub(super) fn tend(&mut self, now: Duration) {
        self.holds = false;
        let awaited = |signature: &Signature| (self.awaited(signature), *signature);
        let mut tended: Vec<(Awaited, Signature)> = self.members.keys().map(awaited).collect();
        let some_wait = tended.iter().any(|(awaited, _)| *awaited != Awaited::Nothing);
        if some_wait {
            self.members.values_mut().for_each(|member| member.pace.awaits(now));
        }
        tended.sort_by_key(|(awaited, _)| *awaited != Awaited::Applied);
        for (awaited, signature) in tended {
            let has_shown = self.tend_one(&signature, awaited == Awaited::Applied, some_wait, now);
            if has_shown && some_wait && awaited != Awaited::Applied {
                return;
            }
        }
    }

    /// Shows what an index has, or makes it durable, if that is due; says whether it did.
    fn tend_one(&mut self, signature: &Signature, is_awaited: bool, some_wait: bool, now: Duration) -> bool {
        let Some(member) = self.members.get(signature) else { return false };
        let pacing = self.pacing_of(member);
        let due = member.pace.due(pacing, now, is_awaited, member.index.needs_commit());
        let is_large = due != Due::Nothing && member.index.room_wanted() > 0;
        if is_large && !self.look_for_room(now) {
            // A large publication before this one was committed at once, so what it superseded is free by now.
            self.holds = true;
            return false;
        }
        let Some(member) = self.members.get(signature) else { return false };
        let is_done = match due {
            Due::Nothing => false,
            Due::Show => {
                self.publish(signature);
                true
            }
            Due::CommitOncePersisted if !self.is_persisted(member) => {
                self.holds |= !some_wait;
                false
            }
            Due::Commit | Due::CommitOncePersisted => {
                self.commit(signature);
                true
            }
        };
        self.compact(signature) || is_done
    }

    /// Does a part of the compaction of an index that somebody asked for, once the bucket's disk has what the index has. Says whether it did.
    fn compact(&mut self, signature: &Signature) -> bool {
        let is_asked = |member: &&Member| member.entry.compacts && self.is_persisted(member);
        if self.members.get(signature).filter(is_asked).is_none() {
            return false;
        }
        // What is written anew takes its room before the former is removed.
        if !self.look_for_room(self.shared.now()) {
            return false;
        }
        if !self.commit_by(signature, Way::Compacts) {
            return false;
        }
        let Some(member) = self.members.get_mut(signature) else { return true };
        if member.compaction.as_ref().is_some_and(Compaction::is_done) {
            (member.compaction, member.entry.compacts) = (None, false);
            let mut state = self.shared.state.lock();
            state.desk.compacted(signature);
            if let Some(outlet) = state.outlets.get_mut(signature) {
                outlet.compaction = None;
            }
        }
        true
    }

    /// What queries wait for that is not seen yet.
    fn awaited(&self, signature: &Signature) -> Awaited {
        let state = self.shared.state.lock();
        let Some((outlet, member)) = state.outlets.get(signature).zip(self.members.get(signature)) else {
            return Awaited::Nothing;
        };
        let mut unseen = outlet.awaited.values().filter(|wants| !covers(&outlet.whole, wants)).peekable();
        if unseen.peek().is_none() {
            return Awaited::Nothing;
        }
        let has = |wants: &Wants| {
            wants.iter().all(|(vb, (branch, seqno))| {
                let known = member.positions.get(vb);
                known.is_some_and(|(of, position)| of == branch && position.whole >= *seqno)
            })
        };
        if unseen.any(has) { Awaited::Applied } else { Awaited::More }
    }

    /// Indexes of development documents alone wait in the lane of builds to be asked for, and are shown as soon as others.
    pub(super) fn pacing_of(&self, member: &Member) -> &Pacing {
        if member.entry.is_production() { &self.pacing } else { &self.setup.pacing }
    }

    fn is_persisted(&self, member: &Member) -> bool {
        member.touched.iter().all(|vb| {
            let history = self.setup.bucket.vb_history(*vb);
            history.is_ok_and(|history| history.persisted >= member.position(*vb).seqno)
        })
    }

    pub(super) fn publish(&mut self, signature: &Signature) {
        let begin = self.shared.now();
        let done = self.with_functions(signature, |member, functions| member.index.publish(functions));
        let took = self.shared.now().saturating_sub(begin);
        self.room.has_changed();
        self.after(signature, done, |member| member.pace.shown(took));
        if self.members.get(signature).is_some_and(|member| member.index.needs_commit()) {
            // Until then it takes the disk twice, and the next publication may do the same.
            self.commit(signature);
        }
    }

    pub(super) fn commit(&mut self, signature: &Signature) {
        self.commit_by(signature, Way::Plain);
    }

    /// Has an index commit in this way; says whether it did.
    fn commit_by(&mut self, signature: &Signature, way: Way) -> bool {
        let begin = self.shared.now();
        let done = self.with_functions(signature, |member, functions| match way {
            Way::Plain => member.index.commit(functions),
            Way::Compacts => member.compact(functions),
        });
        let took = self.shared.now().saturating_sub(begin);
        self.room.has_changed();
        let is_done = self.after(signature, done, |member| {
            member.pace.committed((way == Way::Plain).then_some(took));
            member.touched.clear();
            member.recovers = false;
        });
        if is_done {
            self.shared.state.lock().desk.worked(signature);
        }
        is_done
    }

    /// Notes what was done, and shows it; or the index failed, and is let go of.
    fn after(
        &mut self,
        signature: &Signature,
        done: Option<Result<(), IndexError>>,
        note: impl FnOnce(&mut Member),
    ) -> bool {
        if let Some(Err(error)) = &done {
            self.fail(signature, &error.to_string(), error.needs_rebuild());
        }
        let Some((Some(Ok(())), member)) = Some(done).zip(self.members.get_mut(signature)) else {
            return false;
        };
        note(member);
        let before = show(&mut self.shared.state.lock(), signature, member);
        drop(before);
        self.shared.shown.notify_all();
        true
    }
}

/// How an index commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    /// With a part of a compaction.
    Compacts,
}

/// What queries wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// Nothing that is not seen.
    Nothing,
    /// Something that was applied.
    Applied,
    /// Something that was not.
    More,
}

/// From now on queries see this of an index. Tells what they saw before, which may be a large tree: it is dropped without the lock.
#[must_use]
pub(super) fn show(state: &mut State, signature: &Signature, member: &Member) -> Option<Snapshot> {
    let outlet: &mut Outlet = state.outlets.entry(*signature).or_default();
    let before = outlet.snapshot.replace(member.index.snapshot());
    outlet.disk = member.index.disk_bytes();
    outlet.compaction = member.compaction.as_ref().map(Compaction::progress);
    let positions = member.positions.iter();
    outlet.whole = positions.map(|(vb, (branch, position))| (*vb, (*branch, position.whole))).collect();
    let has_some = outlet.whole.iter().filter(|(_, (_, whole))| *whole > Seqno(0));
    outlet.begun_whole = has_some.map(|(vb, _)| *vb).collect();
    outlet.applied = outlet.whole.iter().map(|(vb, (_, whole))| (*vb, *whole)).collect();
    before
}
