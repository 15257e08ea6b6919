//! Sets of vBuckets.

use base::{VbId, limits::VBUCKETS_MAX};

use super::bytes::Input;

const WORDS: usize = VBUCKETS_MAX as usize / 64;
/// Sets of so many are written as a bitmap, smaller ones as a list.
const LISTED_MAX: u32 = 48;

/// A set of vBuckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VbSet([u64; WORDS]);

impl VbSet {
    /// Adds a vBucket; one that no bucket can have is left out.
    pub fn insert(&mut self, vb: VbId) {
        if let Some(word) = self.0.get_mut(usize::from(vb.get()) / 64) {
            *word |= 1 << (vb.get() % 64);
        }
    }

    /// Takes a vBucket out.
    pub fn remove(&mut self, vb: VbId) {
        if let Some(word) = self.0.get_mut(usize::from(vb.get()) / 64) {
            *word &= !(1 << (vb.get() % 64));
        }
    }

    /// Whether a vBucket is in it.
    #[must_use]
    pub fn contains(&self, vb: VbId) -> bool {
        self.0.get(usize::from(vb.get()) / 64).is_some_and(|word| word >> (vb.get() % 64) & 1 == 1)
    }

    /// Whether `other` has all of them.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, other)| mine & !other == 0)
    }

    /// Whether `other` has none of them.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, other)| mine & other == 0)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// Those of them that `other` has too.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = *self;
        for (word, other) in both.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
        both
    }

    /// Those of them that `other` has not.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = *self;
        for (word, other) in rest.0.iter_mut().zip(&other.0) {
            *word &= !other;
        }
        rest
    }

    /// The vBuckets in order.
    pub fn iter(&self) -> impl Iterator<Item = VbId> + '_ {
        (0_u16..).step_by(64).zip(self.0).flat_map(|(first, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                // All but the lowest of those that are left.
                left &= left.wrapping_sub(1);
                (bit < u64::BITS).then(|| VbId(first + bit as u16))
            })
        })
    }

    /// How many it has.
    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let count = self.len();
        if count <= LISTED_MAX {
            out.push(count as u8);
            for vb in self.iter() {
                out.extend_from_slice(&vb.get().to_be_bytes());
            }
        } else {
            out.push(u8::MAX);
            for word in self.0 {
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
    }

    pub(super) fn read(input: &mut Input<'_>) -> Option<Self> {
        let mut set = Self::default();
        match input.byte()? {
            u8::MAX => {
                for word in &mut set.0 {
                    *word = input.u64()?;
                }
            }
            count => {
                for _ in 0..count {
                    set.insert(VbId(input.u16()?));
                }
            }
        }
        Some(set)
    }
}

impl FromIterator<VbId> for VbSet {
    fn from_iter<I: IntoIterator<Item = VbId>>(vbs: I) -> Self {
        let mut set = Self::default();
        vbs.into_iter().for_each(|vb| set.insert(vb));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_those_of_the_library() {
        use std::collections::BTreeSet;
        let mut random = fastrand::Rng::with_seed(12);
        for round in 0..300 {
            let mut some = || -> BTreeSet<VbId> {
                let share = [1, 40, 1024][round % 3];
                (0..VBUCKETS_MAX).filter(|_| random.u16(..1024) < share).map(VbId).collect()
            };
            let (left, right) = (some(), some());
            let [one, other]: [VbSet; 2] = [&left, &right].map(|set| set.iter().copied().collect());
            let all = |set: VbSet| set.iter().collect::<BTreeSet<_>>();
            assert_eq!(one.iter().collect::<Vec<_>>(), left.iter().copied().collect::<Vec<_>>());
            assert_eq!(all(one.intersection(&other)), left.intersection(&right).copied().collect());
            assert_eq!(all(one.without(&other)), left.difference(&right).copied().collect());
        }
    }
}
