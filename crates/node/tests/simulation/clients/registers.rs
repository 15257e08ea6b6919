//! What operations do to the registers of a key: its number, and its mark.

use base::BucketUuid;

use super::Pending;
use crate::{
    invariants::{
        Invariants,
        histories::{Did, Moment},
    },
    operation::Operation,
    parts::{Looked, Part},
};

/// What a write has done to its key, if it has done anything to the document's number.
fn did_write(operation: &Operation) -> Option<Did> {
    match *operation {
        Operation::Write { value, over: Some((before, _)), .. } => Some(Did::Swapped(before, value)),
        Operation::Write { value, over: None, .. } => Some(Did::Wrote(value)),
        Operation::Part { part: Part::Number | Part::Both, value, .. } => Some(Did::Wrote(value)),
        Operation::Foreign { value, deletes: false, .. } => Some(Did::Wrote(value)),
        Operation::Foreign { deletes: true, .. } | Operation::Remove { .. } => Some(Did::Removed),
        Operation::Part { part: Part::Mark | Part::Staged, .. } => None,
        Operation::Read | Operation::Touch | Operation::Lock | Operation::Look => None,
    }
}

/// Takes note of an operation that was answered at that moment, if it was.
pub(super) fn note(pending: &Pending, returned: Option<Moment>, did: Did, invariants: &mut Invariants) {
    let place = (&pending.request.bucket, &pending.request.key[..], pending.level);
    invariants.histories.note(place, (pending.called, returned), did);
}

/// Takes note of what a mark was, or has become.
fn note_mark(pending: &Pending, returned: Option<Moment>, did: Did, invariants: &mut Invariants) {
    let register = mark_of(&pending.request.key);
    let place = (&pending.request.bucket, &register[..], pending.level);
    invariants.histories.note(place, (pending.called, returned), did);
}

/// What the name of a key's second register ends with.
pub(crate) const MARK_SUFFIX: &[u8] = b"#mark";

/// The name of a key's second register.
pub(crate) fn mark_of(key: &[u8]) -> Vec<u8> {
    [key, MARK_SUFFIX].concat()
}

/// Takes note of a write that was acknowledged at that moment, if it was.
pub(super) fn note_write(pending: &Pending, returned: Option<Moment>, invariants: &mut Invariants) {
    let operation = &pending.request.operation;
    if let Some(did) = did_write(operation) {
        note(pending, returned, did, invariants);
    }
    if let Operation::Part { part: Part::Mark | Part::Both | Part::Staged, value, .. } = *operation {
        note_mark(pending, returned, Did::Wrote(value), invariants);
    }
    match operation {
        Operation::Part { part: Part::Staged, .. } => {
            if returned.is_some() {
                note(pending, returned, Did::Read(None), invariants);
            }
            note_mark(pending, None, Did::Removed, invariants);
        }
        // It goes by itself, at some moment: dates jump.
        Operation::Write { secs: 1.., .. } => {
            note(pending, None, Did::Removed, invariants);
            note_mark(pending, None, Did::Removed, invariants);
        }
        // A document that is damaged on disk is replaced as a whole.
        Operation::Write { .. } if invariants.damage.may_be_met((pending.called, returned)) => {
            note_mark(pending, None, Did::Removed, invariants);
        }
        // The mark goes with the tombstone, at some moment, or when a document comes in its place.
        Operation::Remove { .. } => {
            let did = if invariants.tombstones_go { Did::Buried } else { Did::Removed };
            note_mark(pending, None, did, invariants);
        }
        Operation::Foreign { value, .. } => {
            if let Some(returned) = returned {
                invariants.resolution.wrote(&place_of(pending), *value, (pending.called, returned));
            }
        }
        _ => {}
    }
}

pub(super) fn note_looked(
    pending: &Pending,
    moment: Moment,
    (value, mark): Looked,
    invariants: &mut Invariants,
) {
    note(pending, Some(moment), Did::Read(value), invariants);
    note_mark(pending, Some(moment), Did::Read(mark), invariants);
}

pub(super) fn place_of(pending: &Pending) -> (BucketUuid, Vec<u8>) {
    (pending.request.bucket.clone(), pending.request.key.clone())
}
