//! A lane: a thread that carries out what the desk says, for the indexes that the lane has.
//!
//! It reads the feeds, has a process run map functions over what came, changes the indexes, and shows and commits them. An
//! index that fails is let go of, and opened again later, from where its last commit was.

mod mapping;
mod member;
mod orders;
mod rest;
mod room;
mod showing;
mod streams;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base::{Seqno, VbId, VbUuid};
use views::{
    analysis::Need,
    design::Signature,
    index::{Functions, NoFunctions, VbSet},
    worker::Host,
};

pub(crate) use self::member::Member;
use self::{
    mapping::{Applied, Finished, Reducer, Turn, Work, finish, groups},
    rest::Rest,
    room::Room,
    showing::show,
    streams::{Part, Streams},
};
use crate::{
    alarm::{Alarm, COMMAND},
    desk::{Copy, Entry, Lane},
    pace::Pacing,
    places::Place,
    shared::{Setup, Shared},
};

/// A lane keeps its process for so long though another one waits, so that starting processes costs little beside their work.
const PLACE_HELD: Duration = Duration::from_millis(500);
/// A lane looks after itself so often, though nobody wakes it.
const LOOKS: Duration = Duration::from_secs(1);
/// So often where a commit waits for the bucket's disk.
const LOOKS_HOLDING: Duration = Duration::from_millis(20);
/// How often it is looked how far indexes are behind that are built.
const BEHIND_LOOKS: Duration = Duration::from_millis(200);

/// See the module.
pub(crate) struct Runner {
    lane: Lane,
    shared: Arc<Shared>,
    setup: Arc<Setup>,
    pacing: Pacing,
    alarm: Box<dyn Alarm>,
    host: Option<Host>,
    /// The host's place, and since when the lane has it.
    place: Option<(Place, Duration)>,
    /// What the host knows the functions of an index by.
    contexts: BTreeMap<Signature, u32>,
    members: BTreeMap<Signature, Member>,
    copies: BTreeMap<VbId, Copy>,
    streams: Streams,
    generation: Option<u64>,
    /// When an index that rests is to be opened again.
    wakes: Option<Duration>,
    /// Nothing more is read before commits that are due are made.
    holds: bool,
    looked: Duration,
    /// When indexes forget vBuckets that nobody has told of.
    strays_go: Option<Duration>,
    room: Room,
    rest: Rest,
    has_cleared: bool,
    /// So many documents are mapped at once.
    at_once: usize,
    /// Indexes whose reductions held others up.
    held_up: BTreeSet<Signature>,
}

impl Runner {
    pub(crate) fn new(lane: Lane, shared: Arc<Shared>, setup: Arc<Setup>) -> Self {
        let alarm = setup.alarms.alarm();
        shared.state.lock().lanes.insert(lane, alarm.waiter(COMMAND));
        let at_once = setup.batches.documents;
        let pacing = if lane == Lane::Build { setup.pacing.of_builds() } else { setup.pacing };
        Self {
            lane,
            pacing,
            shared,
            setup,
            alarm,
            host: None,
            place: None,
            contexts: BTreeMap::new(),
            members: BTreeMap::new(),
            copies: BTreeMap::new(),
            streams: Streams::default(),
            generation: None,
            wakes: None,
            holds: false,
            looked: Duration::ZERO,
            strays_go: None,
            room: Room::default(),
            rest: Rest::default(),
            has_cleared: false,
            at_once,
            held_up: BTreeSet::new(),
        }
    }

    /// Goes on until the node stops.
    pub(crate) fn run(mut self) {
        while !self.shared.is_stopping() {
            let patience = self.turn();
            self.wait(patience);
        }
        self.end();
    }

    /// Does what is due. Says for how long there is nothing to do then, unless the lane is woken.
    pub(crate) fn turn(&mut self) -> Duration {
        let now = self.shared.now();
        self.take_orders(now);
        self.arrange(now);
        let worked = self.work(now);
        self.tend(now);
        self.give_away_slow();
        self.look_around(now);
        self.give_place(worked);
        if worked { Duration::ZERO } else { self.patience() }
    }

    /// Waits until the lane is woken, or for so long. Says whether it was woken.
    pub(crate) fn wait(&mut self, patience: Duration) -> bool {
        let woken = self.alarm.wait(patience);
        self.streams.wake(&woken);
        !woken.is_empty()
    }

    /// Makes durable what its indexes have.
    pub(crate) fn end(&mut self) {
        for signature in self.members.keys().copied().collect::<Vec<_>>() {
            let Some(member) = self.members.get_mut(&signature).filter(|member| member.index.has_changes())
            else {
                continue;
            };
            if self.host.is_some() {
                self.commit(&signature);
            } else {
                // Nobody waits for a process now. Reductions that are lacking are made by queries, and what cannot be made durable is fed
                // again after the next start.
                let _ = member.commit_without_functions();
            }
        }
    }

    // ---- what the desk says ---------------------------------------------------------------------------------------

    fn take_orders(&mut self, now: Duration) {
        let orders = {
            let mut state = self.shared.state.lock();
            let is_due = self.wakes.is_some_and(|at| now >= at);
            if self.generation == Some(state.desk.generation()) && !is_due {
                return;
            }
            self.generation = Some(state.desk.generation());
            self.streams.look_again();
            self.copies.clone_from(state.desk.copies());
            let entries: Vec<(Signature, Entry)> =
                state.desk.of_lane(self.lane).map(|(signature, entry)| (*signature, entry.clone())).collect();
            for (signature, _) in &entries {
                if let Some(member) = state.parked.remove(signature) {
                    // A feed that is open need not reach the end of the snapshot that it is inside of.
                    let inside = member.positions.iter().filter(|(_, (_, position))| position.is_inside());
                    inside.for_each(|(vb, _)| self.streams.close(*vb));
                    self.members.insert(*signature, member);
                }
            }
            entries
        };
        if self.copies.values().any(Copy::is_fed) {
            self.strays_go.get_or_insert(now + self.setup.strays_kept);
        }
        let known: BTreeSet<Signature> = orders.iter().map(|(signature, _)| *signature).collect();
        self.members.retain(|signature, _| known.contains(signature));
        self.forget_functions();
        let rests = orders.iter().filter_map(|(_, entry)| entry.rests_until);
        self.wakes = rests.chain(self.strays_go).filter(|at| *at > now).min();
        for (signature, entry) in orders {
            self.carry_out(signature, entry, now);
        }
        self.forget_copies(now);
        if self.members.is_empty() {
            self.streams = Streams::default();
            self.end_host();
            self.tell_of_room(true);
        }
        self.clear_strays();
    }

    fn carry_out(&mut self, signature: Signature, entry: Entry, now: Duration) {
        if entry.is_removed() || entry.rebuild {
            self.let_go(&signature);
        }
        if let Some(member) = self.members.get_mut(&signature) {
            if !entry.compacts {
                member.compaction = None;
            }
            member.entry = entry;
            return;
        }
        if entry.rests_until.is_some_and(|at| now < at) {
            return;
        }
        if entry.is_removed() {
            self.remove(&signature, now);
            return;
        }
        match Member::open(&self.setup, &entry) {
            Ok(member) => {
                let mut state = self.shared.state.lock();
                if entry.rebuild {
                    // Otherwise damage that was reported while the index was opened would be forgotten.
                    state.desk.cleared(&signature);
                }
                let outlet = state.outlets.entry(signature).or_default();
                let before = outlet.snapshot.replace(member.index.snapshot());
                outlet.disk = member.index.disk_bytes();
                outlet.whole.clear();
                outlet.begun_whole = VbSet::default();
                outlet.applied.clear();
                outlet.compaction = None;
                drop(state);
                drop(before);
                self.members.insert(signature, member);
            }
            Err(error) => self.fail(&signature, &error.to_string(), error.needs_rebuild()),
        }
    }

    fn let_go(&mut self, signature: &Signature) {
        self.members.remove(signature);
        self.streams.look_again();
        self.forget_functions();
    }

    /// Has the process let go of functions of indexes that are elsewhere or gone.
    fn forget_functions(&mut self) {
        let (members, host) = (&self.members, &mut self.host);
        self.contexts.retain(|signature, context| {
            let is_here = members.contains_key(signature);
            if !is_here && let Some(host) = host {
                host.forget(*context);
            }
            is_here
        });
    }

    fn remove(&mut self, signature: &Signature, now: Duration) {
        let removed = Member::remove(&self.setup, &signature.to_string());
        let mut state = self.shared.state.lock();
        let mut gone = None;
        match removed {
            Ok(()) => {
                if state.desk.removed(signature) {
                    gone = state.outlets.remove(signature);
                }
            }
            Err(error) => state.desk.failed(signature, now, error.to_string(), true),
        }
        drop(state);
        drop(gone);
        self.shared.shown.notify_all();
    }

    /// An index failed: it is opened again after a pause.
    fn fail(&mut self, signature: &Signature, why: &str, rebuild: bool) {
        self.let_go(signature);
        let now = self.shared.now();
        self.shared.state.lock().desk.failed(signature, now, why.to_owned(), rebuild);
        self.shared.call(&[Lane::Build]);
    }

    /// Removes what indexes of an earlier start are of no design document any more.
    fn clear_strays(&mut self) {
        if self.lane != Lane::Build || self.has_cleared || !self.shared.state.lock().desk.is_told() {
            return;
        }
        let Ok(names) = member::found(&*self.setup.fs, &self.setup) else { return };
        let known: BTreeSet<String> = {
            let state = self.shared.state.lock();
            state.desk.entries().keys().map(Signature::to_string).collect()
        };
        let strays = names.iter().filter(|name| !known.contains(*name));
        self.has_cleared =
            strays.map(|name| Member::remove(&self.setup, name)).all(|removed| removed.is_ok());
    }

    /// Has indexes forget vBuckets that are not indexed here.
    fn forget_copies(&mut self, now: Duration) {
        let strays_go = self.strays_go.is_some_and(|at| now >= at);
        let mut changed = Vec::new();
        for (signature, member) in &mut self.members {
            let known = member.index.states().keys().chain(member.positions.keys());
            let gone: BTreeSet<VbId> = known
                .copied()
                .filter(|vb| self.copies.get(vb).map_or(strays_go, |copy| !copy.is_fed()))
                .collect();
            if gone.into_iter().filter(|vb| member.forget(*vb)).count() > 0 {
                member.pace.applied(now);
                changed.push(*signature);
            }
        }
        for signature in changed {
            self.publish(&signature);
        }
    }

    fn arrange(&mut self, now: Duration) {
        let with = (&*self.setup, &*self.alarm);
        if !self.streams.arrange(&self.copies, &mut self.members, with, now) {
            return;
        }
        for (signature, member) in &self.members {
            if !member.pace.is_unseen() {
                let before = show(&mut self.shared.state.lock(), signature, member);
                drop(before);
            }
        }
        self.shared.shown.notify_all();
    }

    // ---- batches --------------------------------------------------------------------------------------------------

    /// Carries out one batch; says whether there was something to do.
    fn work(&mut self, now: Duration) -> bool {
        let rests = self.rest.goes_on(now, || (self.setup.gives_way)());
        if self.members.is_empty() || self.holds || rests || !self.look_for_room(now) {
            return false;
        }
        let looks = self.members.values().any(|member| member.need != Need::Nothing);
        let (parts, ended) = self.streams.read(&self.setup, now, looks);
        if parts.is_empty() {
            return ended;
        }
        self.change(parts, now);
        let gives_way = self.lane != Lane::Front && (self.setup.gives_way)();
        self.rest.after(now, self.shared.now(), gives_way);
        true
    }

    /// The number of an index's functions, which the host knows from then on.
    ///
    /// Nothing where the node stops before there is a place for a process.
    fn context(&mut self, signature: &Signature) -> Option<u32> {
        if self.place.is_none() {
            self.place = Some((self.take_place()?, self.shared.now()));
        }
        let command = self.setup.command.clone();
        let settings = self.setup.worker;
        let host = self.host.get_or_insert_with(|| Host::new(settings, move || command()));
        if let Some(context) = self.contexts.get(signature) {
            return Some(*context);
        }
        let context = self.contexts.values().max().map_or(0, |last| last + 1);
        if let Some(member) = self.members.get(signature) {
            host.define(context, member.entry.definition.sources().clone(), true);
        }
        self.contexts.insert(*signature, context);
        Some(context)
    }

    fn take_place(&self) -> Option<Place> {
        let (alarms, waiter) = (self.setup.alarms.clone(), self.alarm.waiter(COMMAND));
        let ask = Arc::new(move || alarms.wake(waiter));
        self.setup.places.take(self.lane == Lane::Slow, ask, &|| !self.shared.is_stopping())
    }

    /// Ends the process where another lane waits for its place, and this one has nothing to do or has had it for a while.
    fn give_place(&mut self, worked: bool) {
        let Some((_, since)) = &self.place else { return };
        let has_had_it = self.shared.now().saturating_sub(*since) >= PLACE_HELD;
        if (!worked || has_had_it) && self.setup.places.is_awaited(self.lane == Lane::Slow) {
            self.end_host();
        }
    }

    fn change(&mut self, parts: Vec<Part>, now: Duration) {
        let mut left = groups(parts, self.at_once);
        loop {
            if self.shared.now().saturating_sub(now) >= LOOKS && self.has_orders() {
                left = self.leave_batch(left);
            }
            let Some(group) = left.pop_front() else { return };
            let documents: usize = group.iter().map(|part| part.documents.len()).sum();
            let bytes_max = if documents > 1 { self.setup.batches.rows_bytes } else { usize::MAX };
            match self.change_all(&group, bytes_max, now) {
                Finished::All => {
                    let most = self.setup.batches.documents.max(1);
                    self.at_once = self.at_once.saturating_mul(2).min(most);
                }
                Finished::TooMuch => {
                    // Indexes that have some of it already leave that out.
                    self.at_once = (documents / 2).max(1);
                    for part in groups(group, self.at_once).into_iter().rev() {
                        left.push_front(part);
                    }
                }
                Finished::HeldUp => {
                    self.at_once = 1;
                    for part in groups(group, 1).into_iter().rev() {
                        left.push_front(part);
                    }
                }
                // Nothing more is applied.
                Finished::Stops => return,
            }
        }
    }

    /// Has each index changed by a group of parts, one after the other, so that no more than the rows of one are in memory.
    fn change_all(&mut self, parts: &[Part], bytes_max: usize, now: Duration) -> Finished {
        for signature in self.members.keys().copied().collect::<Vec<_>>() {
            let Some(member) = self.members.get(&signature) else { continue };
            let mut work = Work::begin(member, parts, (&self.setup, &self.shared), bytes_max);
            if self.shared.is_stopping() {
                return Finished::Stops;
            }
            if work.is_empty() {
                continue;
            }
            if work.is_too_much(bytes_max) {
                return Finished::TooMuch;
            }
            if !work.needs_process() {
                self.apply(signature, work, parts, now);
                continue;
            }
            let Some(context) = self.context(&signature) else { return Finished::Stops };
            let Some(host) = self.host.as_mut() else { continue };
            work.send(context, host);
            match finish(host, &mut work, &self.shared, bytes_max) {
                Ok(Finished::All) => self.apply(signature, work, parts, now),
                Ok(unfinished) => {
                    self.end_host();
                    return unfinished;
                }
                Err(error) => {
                    // What the host was asked is of no use.
                    self.end_host();
                    self.fail(&signature, &error.to_string(), false);
                }
            }
        }
        Finished::All
    }

    fn end_host(&mut self) {
        self.host = None;
        self.place = None;
        self.contexts.clear();
    }

    fn apply(&mut self, signature: Signature, work: Work<'_>, parts: &[Part], now: Duration) {
        if let Some(failure) = work.failure() {
            return self.fail(&signature, &failure, false);
        }
        let done = self.with_functions(&signature, |member, functions| work.apply(member, parts, functions));
        match done {
            None => {}
            Some(Err(error)) => self.fail(&signature, &error.to_string(), error.needs_rebuild()),
            Some(Ok(applied)) => {
                if let Some(member) = self.members.get_mut(&signature) {
                    member.pace.applied(now);
                    if applied.needs_whole {
                        // Otherwise they are asked about most documents twice.
                        member.need = Need::Whole;
                    }
                }
                self.note(&signature, applied);
            }
        }
    }

    /// Calls something with an index and what runs its reductions. Where these are all built in, no process is needed, nor its place.
    fn with_functions<T>(
        &mut self,
        signature: &Signature,
        call: impl FnOnce(&mut Member, &mut dyn Functions) -> T,
    ) -> Option<T> {
        let member = self.members.get_mut(signature)?;
        if member.entry.definition.sources().reduces.is_empty() {
            return Some(call(member, &mut NoFunctions));
        }
        let context = self.context(signature)?;
        let host = self.host.as_mut()?;
        let mut reducer = Reducer { host, context, shared: &self.shared, turn: Turn::default() };
        let done = call(self.members.get_mut(signature)?, &mut reducer);
        if reducer.turn.has_held_up() {
            self.held_up.insert(*signature);
        }
        Some(done)
    }

    fn note(&mut self, signature: &Signature, applied: Applied) {
        let mut state = self.shared.state.lock();
        if let Some(outlet) = state.outlets.get_mut(signature) {
            outlet.begun += applied.begun;
            outlet.applied.extend(applied.whole);
            for (map, docid, text) in &applied.mistakes {
                outlet.mistakes.note(*map, docid, text);
            }
            applied.values.iter().for_each(|(map, value)| outlet.mistakes.note_value(*map, value));
        }
        let goes_to = state.desk.mapped(signature, applied.documents, applied.held_up);
        drop(state);
        // Also where no other index is here: at most half of all processes are for those that hold others up.
        if let Some(lane) = goes_to {
            self.hand_over(signature, lane);
        }
    }

    /// Indexes whose reductions held others up go where they hold up their like.
    fn give_away_slow(&mut self) {
        for signature in std::mem::take(&mut self.held_up) {
            let goes_to = self.shared.state.lock().desk.mapped(&signature, 0, true);
            if let Some(lane) = goes_to {
                self.hand_over(&signature, lane);
            }
        }
    }

    /// Gives an index to another lane.
    fn hand_over(&mut self, signature: &Signature, lane: Lane) {
        let Some(member) = self.members.remove(signature) else { return };
        self.streams.look_again();
        {
            let mut state = self.shared.state.lock();
            state.parked.insert(*signature, member);
            state.desk.hand_over(signature, lane);
        }
        self.shared.call(&[lane]);
    }

    // ---- looking around -------------------------------------------------------------------------------------------

    /// Indexes go to the lane where they belong by how far behind they are, and what failed before and works is told to work.
    fn look_around(&mut self, now: Duration) {
        let pause = if self.lane == Lane::Front { LOOKS } else { BEHIND_LOOKS };
        if self.members.is_empty() || now.saturating_sub(self.looked) < pause {
            return;
        }
        self.looked = now;
        let fed = self.copies.iter().filter(|(_, copy)| copy.is_fed());
        let bucket = &self.setup.bucket;
        let newest = |(vb, copy): (&VbId, &Copy)| match copy.served {
            true => Some((*vb, bucket.vb_newest(*vb).ok()?)),
            false => bucket.vb_history(*vb).ok().map(|history| (*vb, (history.uuid, history.told_to))),
        };
        let high: BTreeMap<VbId, (VbUuid, Seqno)> = fed.filter_map(newest).collect();
        if high.is_empty() {
            return;
        }
        self.streams.close_where_begun_anew(&high);
        let behind = self.members.iter().map(|(signature, member)| (*signature, behind(member, &high)));
        let behind: Vec<(Signature, u64)> = behind.collect();
        let least = behind.iter().map(|(_, behind)| *behind).min().unwrap_or_default();
        for (signature, behind) in behind {
            let Some(member) = self.members.get_mut(&signature) else { continue };
            let has_recovered = member.recovers && behind == 0 && !member.index.has_changes();
            member.recovers &= !has_recovered;
            let mut state = self.shared.state.lock();
            if has_recovered {
                state.desk.worked(&signature);
            }
            let goes_to = state.desk.place(&signature, behind, least);
            drop(state);
            if let Some(lane) = goes_to {
                self.hand_over(&signature, lane);
            }
        }
    }

    fn patience(&self) -> Duration {
        if self.holds || self.members.values().any(|member| member.entry.compacts) {
            return LOOKS_HOLDING;
        }
        let paces = self.members.values().filter_map(|member| member.pace.next(self.pacing_of(member)));
        let next = paces.chain(self.wakes).chain(self.streams.next()).chain(self.rest.until()).min();
        let now = self.shared.now();
        let until = next.map_or(LOOKS, |next| next.saturating_sub(now)).min(LOOKS);
        let is_catching_up = self.lane != Lane::Front && !self.members.is_empty();
        // A clock that stands on the moment that something is due must not keep the thread from waiting.
        until.min(if is_catching_up { BEHIND_LOOKS } else { LOOKS }).max(Duration::from_millis(1))
    }
}

/// How many changes an index does not have, at most.
fn behind(member: &Member, high: &BTreeMap<VbId, (VbUuid, Seqno)>) -> u64 {
    let of = |(vb, (_, high)): (&VbId, &(VbUuid, Seqno))| {
        high.get().saturating_sub(member.position(*vb).seqno.get())
    };
    high.iter().map(of).sum()
}

impl Drop for Runner {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.lanes.remove(&self.lane);
    }
}
