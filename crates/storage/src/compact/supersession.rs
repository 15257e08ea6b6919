//! Records of which memory cannot tell whether they are the newest of their keys. These are documents of keys that it has
//! forgotten, tombstones, and versions behind one that is not synced. The index on disk can.
//!
//! All those of a step are asked about together, in the order of the index, so that each of its blocks is read once.
//! Of most the entries alone tell. Only where an entry says that something newer exists are the two records read: what
//! has the same fingerprint need not be the same key.

use std::sync::Arc;

use super::{Kept, effort::Effort};
use crate::{
    error::StoreError,
    format::header::Origin,
    index::{Entry, fingerprint},
    lookup::Candidates,
    segment::Segment,
    state::Core,
};

/// What looking one key up is counted as when effort is.
const LOOKUP_BYTES: u64 = 512;

/// Removes from `kept` records that may be superseded and are, by something synced.
pub(super) fn settle(
    core: &Core,
    inputs: &[Arc<Segment>],
    kept: &mut Vec<Kept>,
    effort: &mut Effort<'_>,
) -> Result<(), StoreError> {
    let mut maybe_superseded: Vec<(u32, u32)> = (0..)
        .zip(kept.iter())
        .filter(|(_, record)| record.maybe_superseded)
        .map(|(number, record)| (fingerprint(record.hash), number))
        .collect();
    maybe_superseded.sort_unstable();
    let memory = super::memory_of(kept) + (maybe_superseded.capacity() * size_of::<(u32, u32)>()) as u64;
    let set = core.segments();
    let mut candidates = Candidates::new(core, &set);
    for (_, number) in maybe_superseded {
        effort.spend(LOOKUP_BYTES, || memory)?;
        let Some(record) = kept.get_mut(number as usize) else { continue };
        let found = candidates.versions_of(record.vb, record.hash)?;
        record.maybe_superseded = is_superseded(core, inputs, record, &found)?;
    }
    kept.retain(|record| !record.maybe_superseded);
    Ok(())
}

/// Whether one of these, newest first, is a newer version of the record's key, and synced. What cannot be read is no
/// reason to drop anything.
fn is_superseded(
    core: &Core,
    inputs: &[Arc<Segment>],
    record: &Kept,
    candidates: &[(&Arc<Segment>, Entry)],
) -> Result<bool, StoreError> {
    let synced = core.synced.load();
    let is_synced = |segment: &Segment, entry: Entry| {
        // Outputs of compaction are synced before they join the set.
        segment.id < synced.segment
            || segment.id == synced.segment && entry.offset() < synced.offset
            || segment.origin == Origin::Compacted
    };
    let newer = candidates.iter().take_while(|(_, entry)| entry.seqno() > record.seqno);
    let mut key = None;
    for &(segment, entry) in newer.filter(|&&(segment, entry)| is_synced(segment, entry)) {
        let key = match &key {
            Some(key) => key,
            None => match key_of(inputs, record)? {
                Some(read) => key.insert(read),
                None => return Ok(false),
            },
        };
        let same = segment.record_at(entry.offset(), entry.length_max(), |stored| {
            *stored.key == **key && core.is_current(record.vb, stored.incarnation)
        });
        if unless_damaged(same)? == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The key of a record that is to be kept; none if it is damaged, which the second pass sees to.
fn key_of(inputs: &[Arc<Segment>], record: &Kept) -> Result<Option<Box<[u8]>>, StoreError> {
    let Some(victim) = inputs.get(record.victim as usize) else { return Ok(None) };
    let length = u64::from(record.length);
    unless_damaged(victim.record_at(record.offset, length, |stored| stored.key.into()))
}

fn unless_damaged<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(cause) => Err(cause),
    }
}
