//! Changes on their way into the trees.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use base::{Seqno, VbId, VbUuid};

use super::{
    DIRTY_PART, Index, SPILLED_PART,
    bytes::Input,
    documents::{DocumentChanges, JoinedRows, RowChanges, put_rows},
    error::IndexError,
    functions::Functions,
    head::VbState,
    node::{Content, Shape},
    runs::{Scratch, Sorted, Sorter},
    tree::Editor,
};
use crate::{
    collation::{KEY_TEXT_MAX, check_bounded},
    js::Row,
    json,
};

/// Documents of a forgotten vBucket that are removed by a publication, by a commit, and when the vBucket comes back.
const LEAVING_AT_PUBLICATION: usize = 256;
pub(super) const LEAVING_AT_COMMIT: usize = 8 << 10;
const LEAVING_AT_ONCE: usize = 64 << 10;
/// Of each map function so many rows are told whose values are no numbers.
const VALUES_TOLD: usize = 20;

/// Changes of a vBucket, in the order of their seqnos.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The vBucket.
    pub vb: VbId,
    /// The branch of its history that the changes are on.
    pub branch: VbUuid,
    /// With them everything up to here is indexed, also what has no rows.
    pub seqno: Seqno,
    /// What became of documents; of two changes of one document the later one counts.
    pub documents: Vec<DocumentRows>,
}

/// The rows that a document has from now on.
#[derive(Clone, Debug)]
pub struct DocumentRows {
    /// The document.
    pub docid: String,
    /// For each map function its rows; nothing at all where the document is gone.
    pub rows: Vec<Vec<Row>>,
}

/// How far changes of a vBucket lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaches {
    /// The vBucket.
    pub vb: VbId,
    /// The branch of its history that the changes are on.
    pub branch: VbUuid,
    /// With them everything up to here is indexed, also what has no rows.
    pub seqno: Seqno,
}

/// The rows that a document has from now on.
#[derive(Debug)]
pub enum GivenRows<'a> {
    /// For each map function its rows; nothing at all where the document is gone.
    Texts(Vec<Vec<Row>>),
    /// What map functions joined, and where.
    Joined(&'a JoinedRows, Range<usize>),
}

/// Places that are used for one document after the other.
#[derive(Default)]
struct Places {
    key: Vec<u8>,
    value: Vec<u8>,
    refused: Refused,
}

/// The rows of a document by one map function that were left out, since one of their keys is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRows {
    /// The document.
    pub docid: String,
    /// The number of the map function.
    pub map: usize,
    /// What is wrong with the key.
    pub reason: String,
}

/// A row that `_sum` or `_stats` leaves out, since its value is no number. Without a reduction queries have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedValue {
    /// The document.
    pub docid: String,
    /// The text of the row's key.
    pub key: String,
}

/// What an index left out of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Rows that it does not have.
    pub rows: Vec<RefusedRows>,
    /// By the number of the map function the last rows that a reduction leaves out, one of each document.
    pub values: BTreeMap<usize, VecDeque<RefusedValue>>,
}

impl Refused {
    /// Looks at a row whose value has to be a number. Says whether it is one.
    fn look(&mut self, docid: &str, map: usize, key: &str, value: &str) -> bool {
        if json::as_number(value).is_some() {
            return true;
        }
        let of_map = self.values.entry(map).or_default();
        if of_map.len() >= VALUES_TOLD {
            of_map.pop_front();
        }
        of_map.push_back(RefusedValue { docid: docid.to_owned(), key: key.to_owned() });
        false
    }
}

/// What waits to be made in the trees.
pub(super) struct Waiting {
    scratch: Arc<Scratch>,
    /// The rows of documents, by vBucket and id.
    documents: Sorter,
    pub(super) states: BTreeMap<VbId, (VbUuid, Seqno)>,
}

impl Waiting {
    pub(super) fn new(scratch: Arc<Scratch>) -> Self {
        Self { documents: Sorter::new(&scratch), scratch, states: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Bytes of it on the disk.
    pub(super) fn spilled(&self) -> u64 {
        self.documents.spilled()
    }

    pub(super) fn forget(&mut self, vb: VbId) {
        if self.states.remove(&vb).is_some() {
            self.documents.forget(vb.get().to_be_bytes());
        }
    }
}

/// A document's place in the order of documents.
fn document_key(vb: VbId, docid: &str, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(&vb.get().to_be_bytes());
    key.extend_from_slice(docid.as_bytes());
}

impl Index {
    /// Takes changes of a vBucket. They are seen after [`Index::publish`]. Says which rows were left out.
    ///
    /// What memory has no room for is sorted into files. They become part of the trees with the next [`Index::publish`], or when
    /// they are as large as the index. A publication goes through all of the tree that changes touch, so a large index is built the
    /// fastest with few of them.
    ///
    /// # Errors
    /// They do not follow what is indexed; or the disk's, after which the index has to be opened again.
    pub fn apply(&mut self, batch: Batch, functions: &mut dyn Functions) -> Result<Refused, IndexError> {
        let Batch { vb, branch, seqno, documents } = batch;
        let documents = documents.into_iter().map(|one| (one.docid, GivenRows::Texts(one.rows)));
        self.apply_each(Reaches { vb, branch, seqno }, documents, functions)
    }

    /// As [`Index::apply`], of documents that are given one by one.
    ///
    /// # Errors
    /// Those of [`Index::apply`].
    pub fn apply_each<'a, D: AsRef<str>>(
        &mut self,
        reaches: Reaches,
        documents: impl Iterator<Item = (D, GivenRows<'a>)>,
        functions: &mut dyn Functions,
    ) -> Result<Refused, IndexError> {
        let Reaches { vb, branch, seqno } = reaches;
        self.check_usable()?;
        self.check_order(vb, seqno)?;
        let mut places = Places::default();
        let numbers = self.definition.maps_of_numbers();
        for (docid, rows) in documents {
            let docid = docid.as_ref();
            document_key(vb, docid, &mut places.key);
            let taken = match rows {
                GivenRows::Texts(rows) => self.take_texts(docid, rows, &numbers, &mut places),
                GivenRows::Joined(joined, range) => match joined.of(&range) {
                    Some(rows) => {
                        if numbers.contains(&true) {
                            look_at_joined(docid, rows, &numbers, &mut places.refused);
                        }
                        self.waiting.documents.push(&places.key, (!rows.is_empty()).then_some(rows))
                    }
                    None => {
                        let rows = joined.texts(&range, self.definition.maps.len());
                        self.take_texts(docid, rows.unwrap_or_default(), &numbers, &mut places)
                    }
                },
            };
            self.usable &= taken.is_ok();
            taken?;
        }
        self.waiting.states.insert(vb, (branch, seqno));
        let memory_part = self.store.reader.memory.limit() as u64 / SPILLED_PART;
        if self.waiting.spilled() > self.store.bytes().1.max(memory_part) {
            self.publish(functions)?;
            if self.needs_commit() {
                self.commit(functions)?;
            }
        }
        Ok(places.refused)
    }

    /// Takes the rows of the document whose place is that key, without those of functions that emitted a key that is none.
    fn take_texts(
        &mut self,
        docid: &str,
        mut rows: Vec<Vec<Row>>,
        numbers: &[bool],
        places: &mut Places,
    ) -> std::io::Result<()> {
        rows.truncate(self.definition.maps.len());
        for (map, rows) in rows.iter_mut().enumerate() {
            if let Some(reason) = wrong_key(rows) {
                rows.clear();
                places.refused.rows.push(RefusedRows { docid: docid.to_owned(), map, reason });
            } else if numbers.get(map) == Some(&true) {
                let mut looked = rows.iter();
                while looked.next().is_some_and(|row| places.refused.look(docid, map, &row.key, &row.value)) {
                }
            }
        }
        places.value.clear();
        put_rows(&rows, &mut places.value);
        let value = (!places.value.is_empty()).then_some(places.value.as_slice());
        self.waiting.documents.push(&places.key, value)
    }

    /// Lets queries see everything that was applied.
    ///
    /// # Errors
    /// The disk's, after which the index has to be opened again.
    pub fn publish(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        self.check_usable()?;
        let done = self.update(LEAVING_AT_PUBLICATION, functions);
        self.usable &= done.is_ok();
        done?;
        self.show();
        Ok(())
    }

    /// Makes what waits in the trees, and removes so many documents of a forgotten vBucket.
    pub(super) fn update(&mut self, leaving: usize, functions: &mut dyn Functions) -> Result<(), IndexError> {
        let coming: Vec<VbId> = self.waiting.states.keys().copied().collect();
        for vb in coming {
            // A vBucket that comes back begins without what it had.
            while self.head.leaving.contains(&vb) {
                self.remove_leaving(vb, LEAVING_AT_ONCE, functions)?;
            }
        }
        let scratch = self.waiting.scratch.clone();
        let waiting = std::mem::replace(&mut self.waiting, Waiting::new(scratch));
        self.changed |= !waiting.is_empty();
        for (vb, (branch, seqno)) in waiting.states {
            let none = VbState { rows: vec![0; self.definition.maps.len()], ..VbState::default() };
            let state = self.head.states.entry(vb).or_insert(none);
            (state.branch, state.seqno) = (branch, seqno);
        }
        self.change(waiting.documents.sorted()?, functions)?;
        if let Some(vb) = self.head.leaving.first().copied() {
            self.remove_leaving(vb, leaving, functions)?;
        }
        self.store.flush()
    }

    /// Removes some documents of a vBucket that was forgotten.
    fn remove_leaving(
        &mut self,
        vb: VbId,
        most: usize,
        functions: &mut dyn Functions,
    ) -> Result<(), IndexError> {
        self.changed = true;
        let found = self.documents_of(vb, most)?;
        if found.is_empty() {
            self.head.leaving.remove(&vb);
            return Ok(());
        }
        let mut gone = Sorter::new(&self.waiting.scratch);
        let mut key = Vec::new();
        for docid in found {
            document_key(vb, &docid, &mut key);
            gone.push(&key, None)?;
        }
        self.change(gone.sorted()?, functions)
    }

    /// The first documents of a vBucket.
    fn documents_of(&mut self, vb: VbId, count: usize) -> Result<Vec<String>, IndexError> {
        let prefix = vb.get().to_be_bytes();
        let mut found = Vec::new();
        let mut below: Vec<_> = self.head.documents.iter().cloned().collect();
        while let Some(child) = below.pop() {
            let node = self.store.node(&child, &Shape::Documents)?;
            match &node.content {
                Content::Inner(children) => {
                    // Children from the last one that begins before the vBucket to the last one that begins in it.
                    let from = children.partition_point(|child| *child.first < prefix[..]).saturating_sub(1);
                    let inside = children.iter().skip(from);
                    let inside = inside.take_while(|child| child.first.get(..2) <= Some(&prefix[..]));
                    let chosen: Vec<_> = inside.cloned().collect();
                    below.extend(chosen.into_iter().rev());
                }
                Content::Leaf(leaf) => {
                    for (key, _) in leaf.rows().skip(leaf.before(&prefix)) {
                        let (of, docid) = key.split_at_checked(2).unwrap_or_default();
                        if of != prefix || found.len() >= count {
                            return Ok(found);
                        }
                        let docid = std::str::from_utf8(docid);
                        found.push(docid.map_err(|_| IndexError::Damaged("an id is no text"))?.to_owned());
                    }
                }
            }
        }
        Ok(found)
    }

    /// Makes changes of documents in all trees: first in that of the documents, which tells the rows that they had before.
    fn change(&mut self, documents: Sorted, functions: &mut dyn Functions) -> Result<(), IndexError> {
        let mut editor = Editor {
            dirty_max: self.store.reader.memory.share(DIRTY_PART),
            node_bytes: self.options.node_bytes,
            store: &mut self.store,
            dirty: &mut self.dirty,
            functions,
        };
        let rows = Sorter::new(&self.waiting.scratch);
        let mut changes = DocumentChanges::new(documents, &mut self.head.states, rows, self.shapes.len());
        self.head.documents = editor.apply(self.head.documents.as_ref(), &mut changes, &Shape::Documents)?;
        let mut changes = RowChanges::new(changes.rows().sorted()?);
        for (root, shape) in self.head.maps.iter_mut().zip(self.shapes.iter()) {
            *root = editor.apply(root.as_ref(), &mut changes, shape)?;
            changes.next_map();
        }
        Ok(())
    }
}

/// Looks at the rows of map functions whose values have to be numbers, as [`JoinedRows::of`] has them.
fn look_at_joined(docid: &str, rows: &[u8], numbers: &[bool], refused: &mut Refused) {
    let mut input = Input(rows);
    while let Some((map, count)) = input.length().zip(input.length()) {
        let mut looks = numbers.get(map) == Some(&true);
        for _ in 0..count {
            let Some((key, value)) = input.text().zip(input.text()) else { return };
            looks = looks && refused.look(docid, map, key, value);
        }
    }
}

/// What is wrong with a key of these rows, or with their number.
fn wrong_key(rows: &[Row]) -> Option<String> {
    if rows.len() > crate::js::ROWS_MAX {
        return Some(format!("Too many ({}) keys emitted", rows.len()));
    }
    rows.iter().find_map(|row| check_bounded(&row.key, KEY_TEXT_MAX).err()).map(|error| error.to_string())
}
