//! What a backfill remembers of a record between looking at its key and delivering it: 24 bytes.

use base::Seqno;

use crate::{
    api::RecordMeta,
    format::UNIT,
    index::{class_units, length_class},
    window::Extent,
};

/// Most segments that can be told apart.
pub(super) const SEGMENTS_MAX: usize = 1 << 16;

/// Fingerprint 95, prepare or abort 1 | seqno 48, segment's number in the pin 16, offset in units 24, length class 8.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// In an order that means nothing but that a key's version comes right before its prepare.
    pub(super) print: [u32; 3],
    place: [u32; 3],
}

impl Found {
    pub(super) fn new(
        fingerprint: u128,
        meta: &RecordMeta,
        segment: usize,
        offset: u64,
        length: u32,
    ) -> Self {
        let seqno = meta.seqno.get();
        let fingerprint = fingerprint << 1 | u128::from(meta.kind.is_prepared());
        let extent = ((offset / UNIT) as u32) << 8 | length_class(length.div_ceil(UNIT as u32));
        Self {
            print: [(fingerprint >> 64) as u32, (fingerprint >> 32) as u32, fingerprint as u32],
            place: [(seqno >> 16) as u32, (seqno as u32) << 16 | (segment as u32 & 0xffff), extent],
        }
    }

    /// The key's print, whether of a version or of a prepare.
    fn key_print(&self) -> [u32; 3] {
        [self.print[0], self.print[1], self.print[2] & !1]
    }

    #[inline]
    pub(super) fn seqno(&self) -> Seqno {
        Seqno(u64::from(self.place[0]) << 16 | u64::from(self.place[1] >> 16))
    }

    #[inline]
    pub(super) fn segment(&self) -> usize {
        (self.place[1] & 0xffff) as usize
    }

    /// Where it lies; the length is rounded up to its class.
    #[inline]
    pub(super) fn extent(&self) -> Extent {
        let length = u64::from(class_units(self.place[2] & 0xff)) * UNIT;
        Extent { offset: u64::from(self.place[2] >> 8) * UNIT, length }
    }
}

/// Keeps the newest version of every key, and its newest prepare or abort if that is newer still; in seqno order or by
/// place.
pub(super) fn newest(mut found: Vec<Found>, unordered: bool) -> Vec<Found> {
    found.sort_unstable_by(|a, b| a.print.cmp(&b.print).then_with(|| b.seqno().cmp(&a.seqno())));
    // Copies of one version, as repeated commits and compaction leave them, are alike: any will do.
    found.dedup_by_key(|record| record.print);
    // A version sorts right before the prepare of its key, and says what became of it.
    found.dedup_by(|prepared, version| {
        prepared.key_print() == version.key_print() && prepared.seqno() < version.seqno()
    });
    if unordered {
        found.sort_unstable_by_key(|record| (record.segment(), record.place[2]));
    } else {
        found.sort_unstable_by_key(Found::seqno);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RecordKind;

    fn record(print: u128, seqno: u64, segment: usize, offset: u64) -> Found {
        of_kind(RecordKind::Document, print, seqno, segment, offset)
    }

    fn of_kind(kind: RecordKind, print: u128, seqno: u64, segment: usize, offset: u64) -> Found {
        let meta = RecordMeta {
            kind,
            seqno: Seqno(seqno),
            cas: base::Cas(1),
            rev: 1,
            flags: 0,
            expiry: 0,
            datatype: base::Datatype::RAW,
        };
        Found::new(print, &meta, segment, offset, 100)
    }

    #[test]
    fn a_prepare_is_kept_beside_its_keys_version_until_that_is_newer() {
        use RecordKind::Abort;
        const PREPARE: RecordKind = RecordKind::Prepare(base::bucket::DurabilityLevel::Majority);
        let seqnos =
            |found: Vec<Found>| newest(found, false).iter().map(|f| f.seqno().get()).collect::<Vec<_>>();
        let of = |kind, seqno| of_kind(kind, 7, seqno, 0, 4096);
        assert_eq!(seqnos(vec![record(7, 1, 0, 4096), of(PREPARE, 2)]), [1, 2]);
        assert_eq!(seqnos(vec![of(PREPARE, 2), record(7, 3, 0, 4096)]), [3]);
        assert_eq!(seqnos(vec![of(PREPARE, 2), of(Abort, 4), record(7, 1, 0, 4096)]), [1, 4]);
        assert_eq!(seqnos(vec![of(PREPARE, 2), of(PREPARE, 5), record(7, 3, 0, 4096)]), [3, 5]);
        assert_eq!(seqnos(vec![of(PREPARE, 2), record(9, 3, 0, 4096)]), [2, 3]);
    }

    #[test]
    fn a_note_keeps_what_it_was_told() {
        for (seqno, segment, offset) in [(1, 0, 4096), ((1 << 48) - 1, SEGMENTS_MAX - 1, (UNIT << 24) - UNIT)]
        {
            let found = record(u128::MAX << 3, seqno, segment, offset);
            let extent = found.extent();
            assert_eq!((found.seqno(), found.segment()), (Seqno(seqno), segment));
            assert_eq!((extent.offset, extent.length), (offset, 112));
        }
        assert_eq!(size_of::<Found>(), 24);
    }

    #[test]
    fn prints_that_share_any_64_of_their_bits_are_different_keys() {
        let prints = [0, 1, 1 << 40, 1 << 80, 1 << 40 | 1, 1 << 80 | 1, 1 << 80 | 1 << 40];
        let found: Vec<Found> =
            (1u64..).zip(prints).map(|(seqno, print)| record(print, seqno, 0, 4096)).collect();
        assert_eq!(newest(found, false).len(), prints.len());
    }

    #[test]
    fn the_newest_of_a_key_is_kept_once_in_the_order_asked_for() {
        let found =
            vec![record(7, 5, 3, 4096), record(7, 2, 0, 4096), record(9, 3, 2, 8192), record(7, 5, 1, 6400)];
        let seqnos = |found: Vec<Found>| found.iter().map(|record| record.seqno().get()).collect::<Vec<_>>();
        assert_eq!(seqnos(newest(found.clone(), false)), [3, 5]);
        let places: Vec<usize> = newest(found, true).iter().map(Found::segment).collect();
        assert!(places.is_sorted());
    }
}
