//! Which indexes of a bucket there are, which copies of vBuckets are indexed here, and which lane feeds which index.
//!
//! Equal definitions share one index, whatever their design documents are called. A lane is one pass over the feeds for all
//! of its indexes, so its slowest index holds it up. Therefore:
//!
//! - An index begins in the lane [`Lane::Build`]. Once it has caught up with the bucket it goes to [`Lane::Front`], which so
//!   stays up to date while others are built.
//! - An index that fell far behind, since vBuckets came, goes back to the lane `Build`.
//! - An index whose functions ran out of time, or ended their process, goes to [`Lane::Slow`], until a number of documents
//!   went well.
//! - An index that failed rests for a while and goes on in the lane `Build`, from where its last commit was.
//!
//! An index moves when the lane that has it gives it up, between two batches. So it is fed by one lane at a time.
//!
//! An index of development documents alone is fed as far as a query asked for, and rests otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base::{Seqno, VbId, VbUuid};
use views::{
    design::{DesignDocument, Signature, is_development},
    index::Definition,
};

use crate::pause::Pause;

/// Documents that have to go well in a row before an index leaves the lane of the slow ones.
const GOOD_DOCUMENTS: u64 = 256;
/// An index that is behind by so few changes is up to date.
pub(crate) const BEHIND_FEW: u64 = 1000;
/// One that is behind by more keeps others from being up to date.
const BEHIND_MANY: u64 = 50_000;

/// One pass over the feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Of indexes that are up to date.
    Front,
    /// Of those that are built or catch up.
    Build,
    /// Of those whose functions hold others up.
    Slow,
}

impl Lane {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Front, Self::Build, Self::Slow];
}

/// What has become of a copy of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is served here, or was until a moment ago: it has feeds.
    Served,
    /// It follows another node's, and is indexed all the same: it is to be served here soon, or may have to be.
    Following,
    /// It is not indexed here. Indexes forget it.
    Gone,
    /// Its history is another one than before.
    Reset,
}

/// A copy of a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// It is served here.
    pub served: bool,
    /// It follows another node's, and is indexed all the same. No query counts it.
    pub follows: bool,
    /// Grows with each change: a feed of an earlier turn is opened again.
    pub turn: u64,
}

impl Copy {
    /// Whether indexes are fed with it.
    #[must_use]
    pub fn is_fed(&self) -> bool {
        self.served || self.follows
    }
}

/// How far a query asks for an index: branch and seqno.
pub type Wants = BTreeMap<VbId, (VbUuid, Seqno)>;

/// An index.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is of.
    pub definition: Arc<Definition>,
    /// Tombstones with extended attributes are mapped too.
    pub maps_deleted: bool,
    /// The design documents that it serves; none once it is to be removed.
    pub names: BTreeSet<String>,
    /// Which lane has it.
    pub lane: Lane,
    /// It rests until then.
    pub rests_until: Option<Duration>,
    /// Why it rests.
    pub failure: Option<String>,
    /// Its files are to be removed before it is opened.
    pub rebuild: bool,
    /// It is to be compacted.
    pub compacts: bool,
    /// How far it is to be fed, where it has development documents only.
    pub wants: Wants,
    pause: Pause,
    good: u64,
}

impl Entry {
    /// Whether it is kept up to date without being asked for.
    #[must_use]
    pub fn is_production(&self) -> bool {
        self.names.iter().any(|name| !is_development(name))
    }

    /// No design document has it any more.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether it is to be fed with more of a vBucket of which it has everything up to `whole`, on `branch`.
    #[must_use]
    pub fn wants_more(&self, vb: VbId, branch: Option<VbUuid>, whole: Seqno) -> bool {
        let asked = self.wants.get(&vb);
        self.is_production() || asked.is_some_and(|(of, seqno)| branch != Some(*of) || whole < *seqno)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Desk {
    entries: BTreeMap<Signature, Entry>,
    copies: BTreeMap<VbId, Copy>,
    generation: u64,
    is_told: bool,
}

impl Desk {
    /// Grows with each change that a lane has to look at.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the design documents are known.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.is_told
    }

    /// All indexes.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<Signature, Entry> {
        &self.entries
    }

    /// All copies that were heard of.
    #[must_use]
    pub fn copies(&self) -> &BTreeMap<VbId, Copy> {
        &self.copies
    }

    /// The indexes that a lane has, with those that rest.
    pub fn of_lane(&self, lane: Lane) -> impl Iterator<Item = (&Signature, &Entry)> {
        self.entries.iter().filter(move |(_, entry)| entry.lane == lane)
    }

    /// These are all design documents, by name without `_design/`.
    pub fn set_documents(&mut self, documents: &[(String, DesignDocument)]) {
        self.entries.values_mut().for_each(|entry| entry.names.clear());
        for (name, document) in documents {
            if document.views.is_empty() {
                continue;
            }
            let entry = self.entries.entry(document.signature()).or_insert_with(|| Entry {
                definition: Arc::new(Definition::of(document)),
                maps_deleted: document.maps_deleted,
                names: BTreeSet::new(),
                lane: Lane::Build,
                rests_until: None,
                failure: None,
                rebuild: false,
                compacts: false,
                wants: Wants::new(),
                pause: Pause::default(),
                good: 0,
            });
            entry.names.insert(name.clone());
        }
        self.is_told = true;
        self.generation += 1;
    }

    /// Something has become of a copy.
    pub fn hear(&mut self, vb: VbId, change: Change) {
        let copy = self.copies.entry(vb).or_default();
        copy.turn += 1;
        match change {
            Change::Served => (copy.served, copy.follows) = (true, false),
            Change::Following => (copy.served, copy.follows) = (false, true),
            Change::Gone => (copy.served, copy.follows) = (false, false),
            Change::Reset => {}
        }
        self.generation += 1;
    }

    /// A query asks for an index as of these seqnos. Says whether the index is known.
    pub fn ask(&mut self, signature: &Signature, wanted: &Wants) -> bool {
        let Some(entry) = self.entries.get_mut(signature).filter(|entry| !entry.is_removed()) else {
            return false;
        };
        if !entry.is_production() {
            let mut is_further = false;
            for (vb, (branch, seqno)) in wanted {
                let asked = entry.wants.get(vb);
                if asked.is_none_or(|asked| asked.0 != *branch || asked.1 < *seqno) {
                    entry.wants.insert(*vb, (*branch, *seqno));
                    is_further = true;
                }
            }
            // Queries ask for the same again and again, which gives a lane nothing to do.
            self.generation += u64::from(is_further);
        }
        true
    }

    /// The index of a design document is to be compacted, or is not to be compacted any further.
    pub fn compact(&mut self, name: &str, compacts: bool) {
        let entry = self.entries.values_mut().find(|entry| entry.names.contains(name));
        if let Some(entry) = entry.filter(|entry| entry.compacts != compacts) {
            entry.compacts = compacts;
            self.generation += 1;
        }
    }

    /// The compaction of an index has come to its end.
    pub fn compacted(&mut self, signature: &Signature) {
        if let Some(entry) = self.entries.get_mut(signature) {
            entry.compacts = false;
        }
    }

    /// The lane that has an index gives it to another one.
    pub fn hand_over(&mut self, signature: &Signature, lane: Lane) {
        if let Some(entry) = self.entries.get_mut(signature) {
            (entry.lane, entry.good) = (lane, 0);
            self.generation += 1;
        }
    }

    /// The lane that an index goes to, if it goes. The index is behind the bucket by so many changes, and the index of its lane that is
    /// nearest is behind by `least`.
    #[must_use]
    pub fn place(&self, signature: &Signature, behind: u64, least: u64) -> Option<Lane> {
        let entry = self.entries.get(signature).filter(|entry| entry.is_production())?;
        let is_up_to_date = behind <= BEHIND_FEW;
        match entry.lane {
            Lane::Build if is_up_to_date => Some(Lane::Front),
            Lane::Slow if is_up_to_date && entry.good >= GOOD_DOCUMENTS => Some(Lane::Front),
            Lane::Front if behind > BEHIND_MANY && least <= BEHIND_FEW => Some(Lane::Build),
            Lane::Front | Lane::Build | Lane::Slow => None,
        }
    }

    /// Documents were mapped for an index: how many, and whether one of them held its lane up. Tells the lane that it goes to, if it
    /// goes.
    pub fn mapped(&mut self, signature: &Signature, documents: u64, held_up: bool) -> Option<Lane> {
        let entry = self.entries.get_mut(signature)?;
        entry.good = if held_up { 0 } else { entry.good.saturating_add(documents) };
        (held_up && entry.lane != Lane::Slow).then_some(Lane::Slow)
    }

    /// What an index needed worked.
    pub fn worked(&mut self, signature: &Signature) {
        if let Some(entry) = self.entries.get_mut(signature) {
            (entry.failure, entry.rests_until) = (None, None);
            entry.pause.worked();
        }
    }

    /// An index failed, and is held by no lane until it is opened again. `rebuild`: its files are of no use.
    pub fn failed(&mut self, signature: &Signature, now: Duration, why: String, rebuild: bool) {
        let Some(entry) = self.entries.get_mut(signature) else { return };
        entry.rests_until = Some(now + entry.pause.failed());
        entry.failure = Some(why);
        entry.rebuild |= rebuild;
        // The compaction may be what failed, and would fail again and again.
        entry.compacts = false;
        (entry.lane, entry.good) = (Lane::Build, 0);
        self.generation += 1;
    }

    /// A query found that an index is damaged: the lane that has it builds it anew.
    pub fn found_damaged(&mut self, signature: &Signature) {
        if let Some(entry) = self.entries.get_mut(signature) {
            entry.rebuild = true;
            self.generation += 1;
        }
    }

    /// The files of an index that is to be built anew are gone.
    pub fn cleared(&mut self, signature: &Signature) {
        if let Some(entry) = self.entries.get_mut(signature) {
            entry.rebuild = false;
        }
    }

    /// The files of an index that no design document has are gone. Says no where one has it again.
    pub fn removed(&mut self, signature: &Signature) -> bool {
        let is_removed = self.entries.get(signature).is_none_or(Entry::is_removed);
        if is_removed {
            self.entries.remove(signature);
        }
        is_removed
    }
}

#[cfg(test)]
mod tests;
