//! Notes of segments that were synced while the disk had no room for a manifest that lists them.
//!
//! A note is an empty file whose name says what a manifest would. That is the segment's number, its salt, and where its data ended
//! when it was first synced. A name takes no block of its own on most file systems. So the loss of such a segment, or of its
//! header, is noticed as that of any other. The next manifest lists the segment, and the notes go. Where there is no room even for
//! a note, the sync is not acknowledged.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    durability::Snapshot,
    error::{StoreError, io_error},
    format::{
        DATA_START, UNIT,
        header::Origin,
        manifest::{Manifest, SegmentEntry},
    },
    position::Position,
    segment::Segment,
    state::Core,
};

const SUFFIX: &str = ".synced";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    segment: u32,
    salt: u32,
    /// Where the data ended that was synced.
    end: u64,
}

impl Note {
    fn name(&self) -> String {
        format!("{:08}-{:08x}-{:08x}{SUFFIX}", self.segment, self.salt, self.end / UNIT)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(SUFFIX)?.split('-');
        let (segment, salt, units) = (parts.next()?, parts.next()?, parts.next()?);
        let end = u64::from(u32::from_str_radix(units, 16).ok()?) * UNIT;
        let salt = u32::from_str_radix(salt, 16).ok()?;
        let note = Self { segment: segment.parse().ok()?, salt, end };
        // Nothing else has such a name.
        (note.name() == name && end > DATA_START).then_some(note)
    }

    fn entry(&self) -> SegmentEntry {
        let units = (self.end - DATA_START) / UNIT;
        SegmentEntry {
            id: self.segment,
            data_end: self.end,
            units,
            live_units: units,
            identity: Some((Origin::Appended, self.salt)),
            ..SegmentEntry::default()
        }
    }
}

/// Notes every segment that was synced up to `snapshot` and that no manifest lists. The caller holds the manifest's lock.
///
/// # Errors
/// [`StoreError::NoSpace`] where there is none even for that: then nothing of those segments may be acknowledged.
pub(crate) fn put(core: &Core, snapshot: &Snapshot) -> Result<(), StoreError> {
    let set = core.segments();
    let unlisted = |segment: &&Arc<Segment>| {
        segment.origin == Origin::Appended
            && !core.is_listed(Position { segment: segment.id, offset: DATA_START })
    };
    let mut made = false;
    for segment in set.values().filter(unlisted) {
        let end = match segment.id.cmp(&snapshot.end.segment) {
            std::cmp::Ordering::Less => segment.data_end(),
            std::cmp::Ordering::Equal => snapshot.end.offset,
            std::cmp::Ordering::Greater => continue,
        };
        if end > DATA_START {
            let name = Note { segment: segment.id, salt: segment.salt, end }.name();
            match core.fs.create(&core.dir.join(&name)).map_err(|source| io_error("create", &name, source)) {
                Ok(_) => core.notes.lock().push(name),
                Err(cause) => {
                    if !matches!(cause, StoreError::NoSpace) {
                        core.counters.poison(&cause);
                    }
                    return Err(cause);
                }
            }
            made = true;
        }
    }
    if made { core.sync_dir() } else { Ok(()) }
}

/// A manifest with its name lists whatever was noted.
pub(crate) fn clear(core: &Core) {
    let names = std::mem::take(&mut *core.notes.lock());
    names.iter().for_each(|name| core.remove_file(name));
}

/// Adds to a manifest the segments that it ought to list. Returns up to where notes say that the log was synced.
pub(crate) fn add_to(manifest: &mut Manifest, names: &[String]) -> Position {
    let mut synced = Position::default();
    // Of several notes of a segment the last tells the most.
    let notes: BTreeMap<u32, Note> = {
        let mut notes: Vec<Note> = names.iter().filter_map(|name| Note::parse(name)).collect();
        notes.sort_unstable_by_key(|note| note.end);
        notes.into_iter().map(|note| (note.segment, note)).collect()
    };
    for note in notes.into_values() {
        let listed = manifest.segments.iter_mut().find(|entry| entry.id == note.segment);
        match listed {
            Some(entry) if entry.sealed || entry.lost || entry.units > 0 => continue,
            // It was made, and had no records yet.
            Some(entry) => *entry = note.entry(),
            None if note.segment < manifest.next_segment => {
                // That manifest is newer than the note: compaction has removed the segment.
                continue;
            }
            None => manifest.segments.push(note.entry()),
        }
        manifest.next_segment = manifest.next_segment.max(note.segment + 1);
        synced = synced.max(Position { segment: note.segment, offset: note.end });
    }
    synced
}

/// The notes in a directory.
pub(crate) fn among(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| Note::parse(name).is_some()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_it_all_and_no_other_name_does() {
        let note = Note { segment: 123_456_789, salt: 0xf, end: 4096 + 16 };
        assert_eq!(note.name(), "123456789-0000000f-00000101.synced");
        assert_eq!(Note::parse(&note.name()), Some(note));
        for name in
            ["1-0000000f-00000101.synced", "00000001-f-00000101.synced", "00000001.synced", "x.synced", ""]
        {
            assert_eq!(Note::parse(name), None);
        }
        assert_eq!(Note::parse("00000001-0000000f-00000100.synced"), None, "of nothing there is no note");
        assert_eq!(Note::parse("00000001-0000000f-00000101-0.synced"), None);
    }

    #[test]
    fn a_note_counts_unless_the_manifest_is_newer() {
        let entry = |id, units| SegmentEntry { id, units, ..SegmentEntry::default() };
        let mut manifest =
            Manifest { next_segment: 6, segments: vec![entry(4, 9), entry(5, 0)], ..Manifest::default() };
        let note = |segment| Note { segment, salt: 7, end: 8192 };
        let mut names: Vec<String> = [3, 4, 5, 8].map(|segment| note(segment).name()).into();
        names.push(Note { end: 4112, ..note(8) }.name());
        assert_eq!(among(&names), names);
        let synced = add_to(&mut manifest, &names);
        assert_eq!(synced, Position { segment: 8, offset: 8192 });
        assert_eq!(manifest.segments, [entry(4, 9), note(5).entry(), note(8).entry()]);
        assert_eq!(manifest.next_segment, 9);
    }
}
