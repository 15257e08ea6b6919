//! Changes on their way into the trees.

use std::collections::BTreeMap;

use base::{Seqno, VbId, VbUuid};

use super::{
    DIRTY_PART, Index, WAITING_PART,
    bytes::{Input, put_sized, put_varint},
    error::IndexError,
    functions::Functions,
    head::VbState,
    node::{Content, RowValue, Shape},
    tree::{Change, Editor},
    vbs::VbSet,
};
use crate::{
    collation::{KEY_TEXT_MAX, encode_bounded, row_key},
    js::Row,
    json::write_string,
};

/// Documents whose earlier rows are looked up together, and about how many bytes of their keys.
const DOCUMENTS_MAX: usize = 4096;
const KEYS_BYTES_MAX: usize = 8 << 20;
/// Documents of forgotten vBuckets that are removed beside other changes.
const LEAVING_DOCUMENTS: usize = 1024;
/// Bytes that a document takes while it waits, beside its own.
const WAITING_BYTES: usize = 128;

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

/// What waits to be made in the trees.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    documents: BTreeMap<(VbId, String), Vec<Vec<Row>>>,
    pub(super) states: BTreeMap<VbId, (VbUuid, Seqno)>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    pub(super) fn forget(&mut self, vb: VbId) {
        if self.states.remove(&vb).is_some() {
            self.documents.retain(|(of, _), rows| {
                if *of == vb {
                    self.bytes = self.bytes.saturating_sub(size(rows));
                }
                *of != vb
            });
        }
    }
}

/// About how many bytes a document that waits takes.
fn size(rows: &[Vec<Row>]) -> usize {
    let rows = rows.iter().flatten();
    rows.map(|row| row.key.len() + row.value.len() + size_of::<Row>()).sum::<usize>() + WAITING_BYTES
}

/// A document with the rows that it had before.
struct Known {
    key: Vec<u8>,
    docid: String,
    rows: Option<Vec<Vec<Row>>>,
    before: Option<Vec<u8>>,
}

impl Index {
    /// Takes changes of a vBucket. They are seen after [`Index::publish`]. Says which rows were left out.
    ///
    /// # Errors
    /// They do not follow what is indexed; or the disk's, after which the index has to be opened again.
    pub fn apply(
        &mut self,
        batch: Batch,
        functions: &mut dyn Functions,
    ) -> Result<Vec<RefusedRows>, IndexError> {
        self.check_usable()?;
        self.check_order(batch.vb, batch.seqno)?;
        let mut refused = Vec::new();
        for DocumentRows { docid, mut rows } in batch.documents {
            rows.truncate(self.definition.maps.len());
            for (map, rows) in rows.iter_mut().enumerate() {
                if let Some(reason) = wrong_key(rows) {
                    rows.clear();
                    refused.push(RefusedRows { docid: docid.clone(), map, reason });
                }
            }
            self.waiting.bytes += size(&rows);
            if let Some(earlier) = self.waiting.documents.insert((batch.vb, docid), rows) {
                self.waiting.bytes = self.waiting.bytes.saturating_sub(size(&earlier));
            }
        }
        self.waiting.states.insert(batch.vb, (batch.branch, batch.seqno));
        self.charge.set(self.waiting.bytes);
        if self.waiting.bytes > self.store.reader.memory.limit() / WAITING_PART {
            self.publish(functions)?;
            if self.needs_commit() {
                self.commit(functions)?;
            }
        }
        Ok(refused)
    }

    /// Lets queries see everything that was applied.
    ///
    /// # Errors
    /// The disk's, after which the index has to be opened again.
    pub fn publish(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        self.check_usable()?;
        let done = self.update(functions);
        self.usable &= done.is_ok();
        done?;
        self.show();
        Ok(())
    }

    /// Makes what waits in the trees.
    pub(super) fn update(&mut self, functions: &mut dyn Functions) -> Result<(), IndexError> {
        let coming: Vec<VbId> = self.waiting.states.keys().copied().collect();
        for vb in coming {
            // A vBucket that comes back begins without what it had.
            while self.head.leaving.contains(&vb) {
                self.remove_leaving(vb, functions)?;
            }
        }
        let documents = std::mem::take(&mut self.waiting.documents);
        let states = std::mem::take(&mut self.waiting.states);
        self.waiting.bytes = 0;
        self.changed |= !states.is_empty();
        for (vb, (branch, seqno)) in states {
            let none = VbState { rows: vec![0; self.definition.maps.len()], ..VbState::default() };
            let state = self.head.states.entry(vb).or_insert(none);
            (state.branch, state.seqno) = (branch, seqno);
        }
        let without: VbSet =
            self.head.states.iter().filter(|(_, state)| state.documents == 0).map(|(vb, _)| *vb).collect();
        let mut documents = documents.into_iter().map(|((vb, docid), rows)| (vb, docid, Some(rows)));
        while self.update_some(&mut documents, &without, functions)? {}
        if let Some(vb) = self.head.leaving.first().copied() {
            self.remove_leaving(vb, functions)?;
        }
        self.charge.set(0);
        self.store.flush()
    }

    /// Removes some documents of a vBucket that was forgotten.
    fn remove_leaving(&mut self, vb: VbId, functions: &mut dyn Functions) -> Result<(), IndexError> {
        self.changed = true;
        let found = self.documents_of(vb, LEAVING_DOCUMENTS)?;
        if found.is_empty() {
            self.head.leaving.remove(&vb);
            return Ok(());
        }
        let mut gone = found.into_iter().map(|docid| (vb, docid, None));
        while self.update_some(&mut gone, &VbSet::default(), functions)? {}
        Ok(())
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

    /// Makes some changes; says whether there were any. Of vBuckets `without` documents nothing has to be looked up.
    fn update_some(
        &mut self,
        documents: &mut dyn Iterator<Item = (VbId, String, Option<Vec<Vec<Row>>>)>,
        without: &VbSet,
        functions: &mut dyn Functions,
    ) -> Result<bool, IndexError> {
        let (mut known, mut bytes) = (Vec::new(), 0);
        while known.len() < DOCUMENTS_MAX && bytes < KEYS_BYTES_MAX {
            let Some((vb, docid, rows)) = documents.next() else { break };
            let mut key = vb.get().to_be_bytes().to_vec();
            key.extend_from_slice(docid.as_bytes());
            let before = if without.contains(vb) { None } else { self.find(&key)? };
            bytes += before.as_ref().map_or(0, Vec::len) + rows.as_deref().map_or(0, size);
            known.push((vb, Known { key, docid, rows, before }));
        }
        if known.is_empty() {
            return Ok(false);
        }
        let maps = self.definition.maps.len();
        let mut documents = Vec::with_capacity(known.len());
        let mut changes: Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>> = vec![BTreeMap::new(); maps];
        for (vb, known) in known {
            self.one(vb, known, &mut documents, &mut changes)?;
        }
        let mut editor = Editor {
            dirty_max: self.store.reader.memory.limit() / DIRTY_PART,
            node_bytes: self.options.node_bytes,
            store: &mut self.store,
            dirty: &mut self.dirty,
            functions,
        };
        self.head.documents = editor.apply(self.head.documents.as_ref(), &documents, &Shape::Documents)?;
        for ((root, shape), changes) in self.head.maps.iter_mut().zip(self.shapes.iter()).zip(changes) {
            if changes.is_empty() {
                continue;
            }
            let changes: Vec<Change> =
                changes.into_iter().map(|(key, value)| Change { key, value }).collect();
            *root = editor.apply(root.as_ref(), &changes, shape)?;
        }
        Ok(true)
    }

    /// What one document changes in all trees.
    fn one(
        &mut self,
        vb: VbId,
        known: Known,
        documents: &mut Vec<Change>,
        changes: &mut [BTreeMap<Vec<u8>, Option<Vec<u8>>>],
    ) -> Result<(), IndexError> {
        let Known { key, docid, rows, before } = known;
        let mut state = self.head.states.get_mut(&vb);
        if let Some(before) = &before {
            for (map, ordinal, text) in earlier_keys(before, &docid)? {
                let key = row_bytes(&text, &docid, ordinal)?;
                let changes =
                    changes.get_mut(map).ok_or(IndexError::Damaged("a row is of no map function"))?;
                changes.insert(key, None);
                if let Some(rows) = state.as_mut().and_then(|state| state.rows.get_mut(map)) {
                    *rows = rows.saturating_sub(1);
                }
            }
        }
        let rows = rows.unwrap_or_default();
        let has_rows = rows.iter().any(|rows| !rows.is_empty());
        for (map, rows) in rows.iter().enumerate() {
            for (ordinal, row) in rows.iter().enumerate() {
                let key = row_bytes(&row.key, &docid, ordinal as u16)?;
                let mut value = Vec::with_capacity(row.key.len() + row.value.len() + 8);
                RowValue { vb, key: &row.key, value: &row.value }.put(&mut value);
                if let Some(changes) = changes.get_mut(map) {
                    changes.insert(key, Some(value));
                }
            }
            if let Some(count) = state.as_mut().and_then(|state| state.rows.get_mut(map)) {
                *count += rows.len() as u64;
            }
        }
        if let Some(state) = state {
            state.documents += u64::from(has_rows);
            state.documents = state.documents.saturating_sub(u64::from(before.is_some()));
        }
        if has_rows || before.is_some() {
            documents.push(Change { key, value: has_rows.then(|| keys_of(&rows, &docid)) });
        }
        Ok(())
    }

    /// The keys of the rows that a document has.
    fn find(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        let Some(mut child) = self.head.documents.clone() else { return Ok(None) };
        loop {
            let node = self.store.node(&child, &Shape::Documents)?;
            match &node.content {
                Content::Leaf(leaf) => {
                    let row = leaf.row(leaf.before(key)).filter(|(known, _)| *known == key);
                    return Ok(row.map(|(_, value)| value.to_vec()));
                }
                Content::Inner(children) => {
                    let at = children.partition_point(|child| &*child.first <= key).saturating_sub(1);
                    let Some(next) = children.get(at) else { return Ok(None) };
                    child = next.clone();
                }
            }
        }
    }
}

/// What is wrong with a key of these rows, or with their number.
fn wrong_key(rows: &[Row]) -> Option<String> {
    if rows.len() > crate::js::ROWS_MAX {
        return Some(format!("Too many ({}) keys emitted", rows.len()));
    }
    let mut encoded = Vec::new();
    rows.iter().find_map(|row| {
        encoded.clear();
        encode_bounded(&row.key, KEY_TEXT_MAX, &mut encoded).err().map(|error| error.to_string())
    })
}

fn row_bytes(key: &str, docid: &str, ordinal: u16) -> Result<Vec<u8>, IndexError> {
    let (mut encoded, mut bytes) = (Vec::new(), Vec::new());
    encode_bounded(key, KEY_TEXT_MAX, &mut encoded)
        .map_err(|_| IndexError::Damaged("a key of a document is none"))?;
    row_key(&encoded, docid, ordinal, &mut bytes);
    Ok(bytes)
}

/// The keys of a document's rows as they are written: per map function its number and how many, then their texts, where an
/// empty one stands for the document's own id.
fn keys_of(rows: &[Vec<Row>], docid: &str) -> Vec<u8> {
    let mut own = Vec::new();
    write_string(docid, &mut own);
    let mut out = Vec::new();
    for (map, rows) in rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
        put_varint(map as u64, &mut out);
        put_varint(rows.len() as u64, &mut out);
        for row in rows {
            let key = if row.key.as_bytes() == own { &[] } else { row.key.as_bytes() };
            put_sized(key, &mut out);
        }
    }
    out
}

/// The map function, ordinal and key of each row.
fn earlier_keys(bytes: &[u8], docid: &str) -> Result<Vec<(usize, u16, String)>, IndexError> {
    let mut own = Vec::new();
    write_string(docid, &mut own);
    let own = String::from_utf8(own).unwrap_or_default();
    let mut input = Input(bytes);
    let mut read = || {
        let mut keys = Vec::new();
        while !input.is_empty() {
            let map = input.length()?;
            for ordinal in 0..input.varint()? {
                let text = input.text()?;
                let text = if text.is_empty() { &own } else { text };
                keys.push((map, u16::try_from(ordinal).ok()?, text.to_owned()));
            }
        }
        Some(keys)
    };
    read().ok_or(IndexError::Damaged("the keys of a document cannot be read"))
}
