//! How many rows a part of a tree has of each vBucket.
//!
//! The counts stay in memory in the form in which nodes have them on the disk: mostly a byte for each vBucket.

use base::{VbId, limits::VBUCKETS_MAX};

use super::{
    bytes::{Input, put_sized, put_varint},
    vbs::VbSet,
};

/// Rows by vBucket, in the order of vBuckets: the distance to the one before, and how many where that is not one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts(Box<[u8]>);

impl Counts {
    /// The vBuckets that have rows, and how many.
    pub(super) fn iter(&self) -> impl Iterator<Item = (VbId, u64)> + '_ {
        let (mut input, mut next) = (Input(&self.0), 0_u64);
        std::iter::from_fn(move || {
            let head = input.varint()?;
            let vb = next.checked_add(head >> 1)?;
            let rows = if head & 1 == 0 { 1 } else { input.varint()?.checked_add(2)? };
            next = vb + 1;
            let vb = u16::try_from(vb).ok().filter(|vb| *vb < VBUCKETS_MAX)?;
            Some((VbId(vb), rows))
        })
    }

    /// How many rows these vBuckets have.
    pub(super) fn of(&self, vbs: &VbSet) -> u64 {
        self.iter().filter(|(vb, _)| vbs.contains(*vb)).map(|(_, rows)| rows).sum()
    }

    pub(super) fn held(&self) -> usize {
        self.0.len()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_sized(&self.0, out);
    }

    /// The counts of so many rows, and their vBuckets.
    pub(super) fn read(input: &mut Input<'_>, rows: u64) -> Option<(Self, VbSet)> {
        let counts = Self(Box::from(input.sized()?));
        let (mut vbs, mut left) = (VbSet::default(), rows);
        for (vb, rows) in counts.iter() {
            left = left.checked_sub(rows)?;
            vbs.insert(vb);
        }
        (left == 0).then_some((counts, vbs))
    }
}

/// Rows that are being counted.
pub(super) struct Tally {
    rows: Vec<u64>,
    vbs: VbSet,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { rows: vec![0; usize::from(VBUCKETS_MAX)], vbs: VbSet::default() }
    }

    pub(super) fn add(&mut self, vb: VbId, rows: u64) {
        if let Some(known) = self.rows.get_mut(usize::from(vb.get())) {
            *known = known.saturating_add(rows);
            self.vbs.insert(vb);
        }
    }

    pub(super) fn end(self) -> (Counts, VbSet) {
        let (mut bytes, mut next) = (Vec::new(), 0);
        for (vb, rows) in (0_u64..).zip(self.rows) {
            if rows == 0 {
                continue;
            }
            put_varint((vb - next) << 1 | u64::from(rows > 1), &mut bytes);
            if rows > 1 {
                put_varint(rows - 2, &mut bytes);
            }
            next = vb + 1;
        }
        (Counts(bytes.into_boxed_slice()), self.vbs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_vbucket() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut expected = std::collections::BTreeMap::new();
            let mut tally = Tally::new();
            for _ in 0..random.usize(..200) {
                let bits = random.u32(..40);
                let (vb, rows) = (VbId(random.u16(..VBUCKETS_MAX)), 1 + random.u64(..1 << bits));
                tally.add(vb, rows);
                *expected.entry(vb).or_insert(0) += rows;
            }
            let (counts, vbs) = tally.end();
            assert_eq!(counts.iter().collect::<Vec<_>>(), expected.clone().into_iter().collect::<Vec<_>>());
            assert_eq!(vbs.iter().collect::<Vec<_>>(), expected.keys().copied().collect::<Vec<_>>());
            let some: VbSet = expected.keys().copied().filter(|_| random.bool()).collect();
            let rows =
                expected.iter().filter(|(vb, _)| some.contains(**vb)).map(|(_, rows)| rows).sum::<u64>();
            assert_eq!(counts.of(&some), rows);
            let mut bytes = Vec::new();
            counts.put(&mut bytes);
            let all: u64 = expected.values().sum();
            assert_eq!(Counts::read(&mut Input(&bytes), all), Some((counts, vbs)));
            assert_eq!(Counts::read(&mut Input(&bytes), all + 1), None);
        }
    }

    #[test]
    fn bytes_that_are_no_counts_are_refused() {
        // Half a number; a vBucket that no bucket has; more rows than there can be.
        for bytes in [
            &[1, 0x80][..],
            &[2, 0x80, 0x10][..],
            &[11, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1][..],
        ] {
            for rows in 1..4 {
                assert_eq!(Counts::read(&mut Input(bytes), rows), None, "{bytes:?}");
            }
        }
    }
}
