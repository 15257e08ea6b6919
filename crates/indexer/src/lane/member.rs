//! An index in the hands of a lane.

use std::collections::{BTreeMap, BTreeSet};

use base::{Seqno, VbId, VbUuid};
use engine::VbHistory;
use storage::Fs;
use views::{
    analysis::{Need, meta_need_of_all, need_of_all},
    index::{self, Compaction, Functions, Index, IndexError, NoFunctions},
    native::Programs,
};

use crate::{
    course::{Position, resume},
    desk::Entry,
    pace::Pace,
    shared::Setup,
};

/// See the module.
pub(crate) struct Member {
    pub(super) index: Index,
    pub(super) entry: Entry,
    /// What functions look at of bodies.
    pub(super) need: Need,
    /// Of `meta` functions look at the id and nothing else.
    pub(super) sees_id_alone: bool,
    /// Its map functions, where they can be run without a process.
    pub(super) programs: Option<Programs>,
    /// Values of documents have something that functions see, or that says whether they are asked: the body, or extended attributes.
    pub(super) needs_values: bool,
    /// How far it is in each vBucket that a feed was opened of, and on which branch that was found to be good.
    pub(super) positions: BTreeMap<VbId, (VbUuid, Position)>,
    /// vBuckets that were changed since the last commit.
    pub(super) touched: BTreeSet<VbId>,
    pub(super) pace: Pace,
    /// vBuckets that it is to be fed with from their beginning, though they have something. A feed that is opened again before it brought
    /// anything begins no other time.
    pub(super) begun: BTreeSet<VbId>,
    /// It failed before and has not been durable since.
    pub(super) recovers: bool,
    /// What is left of a compaction that somebody asked for.
    pub(super) compaction: Option<Compaction>,
}

impl Member {
    /// Opens an index; one that is of no use is built anew.
    pub(super) fn open(setup: &Setup, entry: &Entry) -> Result<Self, IndexError> {
        let dir = setup.dir.join(entry.definition.signature().to_string());
        let open =
            || Index::open(setup.fs.clone(), &dir, entry.definition.clone(), &setup.memory, setup.index);
        if entry.rebuild {
            index::remove(&*setup.fs, &dir)?;
        }
        let index = match open() {
            Err(error) if error.needs_rebuild() => {
                index::remove(&*setup.fs, &dir)?;
                open()?
            }
            other => other?,
        };
        let maps = &entry.definition.sources().maps;
        let need = need_of_all(maps);
        let meta_need = meta_need_of_all(maps);
        let sees_attributes = meta_need.as_ref().is_none_or(|names| names.contains("xattrs"));
        let sees_id_alone = meta_need.is_some_and(|names| names.iter().all(|name| name == "id"));
        Ok(Self {
            index,
            needs_values: need != Need::Nothing || sees_attributes || entry.maps_deleted,
            need,
            sees_id_alone,
            programs: Programs::of(entry.definition.sources()),
            positions: BTreeMap::new(),
            touched: BTreeSet::new(),
            pace: Pace::default(),
            begun: BTreeSet::new(),
            recovers: entry.failure.is_some(),
            compaction: None,
            entry: entry.clone(),
        })
    }

    /// Makes durable what it has, where no functions run any more.
    pub(crate) fn commit_without_functions(&mut self) -> Result<(), IndexError> {
        if self.index.has_changes() { self.index.commit(&mut NoFunctions) } else { Ok(()) }
    }

    /// Does a part of the compaction that was asked for, which is a commit as well.
    pub(super) fn compact(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        let mut compaction = match self.compaction.take() {
            Some(compaction) => compaction,
            None => self.index.begin_compaction()?,
        };
        let done = self.index.compact(&mut compaction, functions);
        self.compaction = Some(compaction);
        done
    }

    /// Removes the files of an index.
    pub(super) fn remove(setup: &Setup, name: &str) -> std::io::Result<()> {
        let dir = setup.dir.join(name);
        index::remove(&*setup.fs, &dir)?;
        setup.fs.remove_dir(&dir)?;
        setup.fs.sync_dir(&setup.dir)
    }

    /// Whether it is to be fed with more of a vBucket.
    pub(super) fn wants_more(&self, vb: VbId) -> bool {
        let (branch, position) =
            self.positions.get(&vb).map(|(branch, position)| (*branch, *position)).unzip();
        self.entry.wants_more(vb, branch, position.unwrap_or_default().whole)
    }

    /// How far it is in a vBucket.
    pub(super) fn position(&self, vb: VbId) -> Position {
        self.positions.get(&vb).map(|(_, position)| *position).unwrap_or_default()
    }

    /// Finds out from where to feed it. Of a copy that `follows` another node's, a part of a snapshot is of no use. The copy may
    /// have been begun anew since, and end before that snapshot does.
    pub(super) fn resume(&mut self, vb: VbId, history: &VbHistory, follows: bool) -> Position {
        let mut found = resume(&mut self.index, vb, &history.log, history.purge_seqno);
        if found.seqno > history.told_to || follows && found.is_inside() {
            // Or it has more than the vBucket: whatever that was is gone.
            self.index.reset(vb);
            found = Position::default();
        }
        if let Some((branch, known)) = self.positions.get(&vb)
            && (*branch, known.seqno) == (history.uuid, found.seqno)
        {
            found = *known;
        }
        if found.seqno == Seqno(0) && history.told_to > Seqno(0) {
            self.begun.insert(vb);
        } else {
            self.begun.remove(&vb);
        }
        self.positions.insert(vb, (history.uuid, found));
        found
    }

    /// Forgets a vBucket; says whether it had something of it.
    pub(super) fn forget(&mut self, vb: VbId) -> bool {
        self.touched.remove(&vb);
        self.begun.remove(&vb);
        let is_known = self.positions.remove(&vb).is_some() || self.index.seqno(vb).is_some();
        if is_known {
            self.index.reset(vb);
        }
        is_known
    }
}

/// The names in the folder of indexes that are those of indexes.
pub(super) fn found(fs: &dyn Fs, setup: &Setup) -> std::io::Result<Vec<String>> {
    let names = fs.list(&setup.dir)?.into_iter();
    Ok(names.filter(|name| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())).collect())
}
