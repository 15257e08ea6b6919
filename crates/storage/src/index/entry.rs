//! One record as an index knows it, in 16 bytes that sort by key fingerprint, then seqno. Also what a batch adds to
//! an index at once.

use base::{Seqno, VbId};

use crate::{api::RecordKind, format::UNIT};

/// The part of a key's hash that indexes keep.
#[inline]
pub(crate) const fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// fingerprint 32 | seqno 48 | kind 6 (1 tombstone, 2 prepare or abort), vb 10 | offset 24 in units, length class 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry(pub(crate) u128);

impl Entry {
    #[inline]
    pub(crate) fn new(hash: u64, vb: VbId, seqno: Seqno, kind: RecordKind, offset: u64, length: u32) -> Self {
        let place = ((offset / UNIT) as u32) << 8 | length_class(length.div_ceil(UNIT as u32));
        let kind = u32::from(kind.is_tombstone()) | u32::from(kind.is_prepared()) << 1;
        let vb_kind = u32::from(vb.get() & 0x3ff) | kind << 10;
        Self(
            u128::from(fingerprint(hash)) << 96
                | u128::from(seqno.get()) << 48
                | u128::from(vb_kind) << 32
                | u128::from(place),
        )
    }

    #[inline]
    pub(crate) const fn fingerprint(self) -> u32 {
        (self.0 >> 96) as u32
    }

    #[inline]
    pub(crate) const fn seqno(self) -> Seqno {
        Seqno((self.0 >> 48) as u64 & 0xffff_ffff_ffff)
    }

    #[inline]
    pub(crate) const fn vb(self) -> VbId {
        VbId((self.0 >> 32) as u16 & 0x3ff)
    }

    /// Whether it is a prepare or abort.
    #[inline]
    pub(crate) const fn is_prepared(self) -> bool {
        (self.0 >> 43) as u8 & 1 != 0
    }

    #[inline]
    pub(crate) const fn offset(self) -> u64 {
        ((self.0 as u32 >> 8) as u64) * UNIT
    }

    /// At least the record's length, and little more.
    #[inline]
    pub(crate) const fn length_max(self) -> u64 {
        class_units(self.0 as u32 & 0xff) as u64 * UNIT
    }
}

/// Exact up to 128 units (2 KiB), then eight classes per doubling.
pub(crate) fn length_class(units: u32) -> u32 {
    if units <= 128 {
        return units.saturating_sub(1);
    }
    let exponent = 31 - (units - 1).leading_zeros() - 7;
    let step = 16 << exponent;
    let mantissa = (units - 1) / step - 8;
    (128 + exponent * 8 + mantissa).min(255)
}

pub(crate) const fn class_units(class: u32) -> u32 {
    if class < 128 {
        return class + 1;
    }
    let (exponent, mantissa) = ((class - 128) / 8, (class - 128) % 8);
    (8 + mantissa + 1) * (16 << exponent)
}

/// Consecutive records of one vBucket, not interrupted by other frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) vb: VbId,
    pub(crate) incarnation: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) records: u32,
    pub(crate) seqno_min: Seqno,
    pub(crate) seqno_max: Seqno,
}

/// The tombstones of a segment, as far as the choice of victims cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tombstones {
    pub(crate) units: u32,
    /// Delete times.
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
}

impl Tombstones {
    pub(crate) fn add(&mut self, other: Tombstones) {
        if other.units == 0 {
            return;
        }
        self.oldest = if self.units == 0 { other.oldest } else { self.oldest.min(other.oldest) };
        self.newest = self.newest.max(other.newest);
        self.units += other.units;
    }

    /// About how many units were deleted before a time, if deletions came evenly.
    pub(crate) fn units_before(self, time: u32) -> u64 {
        let units = u64::from(self.units);
        if self.units == 0 || self.oldest >= time {
            return 0;
        }
        let (age, span) = (u64::from(time - self.oldest), u64::from(self.newest - self.oldest) + 1);
        (units * age.min(span)).div_ceil(span)
    }
}

/// What a batch will add to an index once it is committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staged {
    pub(crate) entries: Vec<Entry>,
    pub(crate) spans: Vec<Span>,
    pub(crate) tombstones: Tombstones,
    pub(crate) units: u64,
}

impl Staged {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.spans.clear();
        self.tombstones = Tombstones::default();
        self.units = 0;
    }

    /// Adds one record that lies at `offset`.
    #[inline]
    pub(crate) fn push(
        &mut self,
        (vb, incarnation): (VbId, u32),
        meta: &crate::api::RecordMeta,
        hash: u64,
        offset: u64,
        length: u32,
    ) {
        let units = length.div_ceil(UNIT as u32);
        self.entries.push(Entry::new(hash, vb, meta.seqno, meta.kind, offset, length));
        self.units += u64::from(units);
        if meta.kind.is_tombstone() {
            self.tombstones.add(Tombstones { units, oldest: meta.expiry, newest: meta.expiry });
        }
        let end = offset + u64::from(units) * UNIT;
        match self.spans.last_mut() {
            Some(span) if span.vb == vb && span.incarnation == incarnation && span.end == offset => {
                span.end = end;
                span.records += 1;
                span.seqno_min = span.seqno_min.min(meta.seqno);
                span.seqno_max = span.seqno_max.max(meta.seqno);
            }
            _ => self.spans.push(Span {
                vb,
                incarnation,
                start: offset,
                end,
                records: 1,
                seqno_min: meta.seqno,
                seqno_max: meta.seqno,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_classes_never_fall_short_and_waste_at_most_an_eighth() {
        for units in (1..5000).chain((5000..1_600_000).step_by(997)) {
            let class = class_units(length_class(units));
            assert!(class >= units && class - units <= units / 8, "{units} became {class}");
        }
    }

    #[test]
    fn an_entry_gives_back_what_it_was_made_of() {
        let seqno = Seqno((1 << 48) - 2);
        let entry = Entry::new(u64::MAX - 5, VbId(1023), seqno, RecordKind::Deletion, (1 << 28) - 16, 1100);
        assert_eq!(entry.fingerprint(), u32::MAX);
        assert_eq!((entry.vb(), entry.seqno(), entry.offset()), (VbId(1023), seqno, (1 << 28) - 16));
        assert_eq!(entry.length_max(), 1104);
        assert!(!entry.is_prepared());
        let level = base::bucket::DurabilityLevel::Majority;
        let prepares = [RecordKind::Prepare(level), RecordKind::PreparedDeletion(level), RecordKind::Abort];
        for kind in prepares {
            let entry = Entry::new(7, VbId(1023), seqno, kind, 4096, 100);
            assert!(entry.is_prepared() && entry.vb() == VbId(1023) && entry.seqno() == seqno);
        }
    }
}
