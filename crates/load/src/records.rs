//! What a set of documents is to the driver: a key and a value per record number.

use std::sync::Arc;

/// A numbered set of documents. Shared by all threads of a run.
pub trait Records: Send + Sync {
    /// Appends the key of record `index`.
    fn key(&self, index: u64, out: &mut Vec<u8>);
    /// Appends a value for record `index`; records that have one value only ignore `version`.
    fn value(&self, index: u64, version: u64, out: &mut Vec<u8>);
    /// Whether `value` is one of those that [`Records::value`] gives, as far as that can be told. `scratch` is free
    /// for use.
    fn is_value(&self, index: u64, value: &[u8], scratch: &mut Vec<u8>) -> bool;
    /// Stored with every document; SDKs read its format from it.
    fn flags(&self) -> u32;
}

/// A set whose numbers begin later: record 0 is record `first` of the other.
pub struct Shifted {
    records: Arc<dyn Records>,
    first: u64,
}

impl Shifted {
    /// The records of a set from `first` on.
    #[must_use]
    pub fn new(records: Arc<dyn Records>, first: u64) -> Shifted {
        Shifted { records, first }
    }

    fn place(&self, index: u64) -> u64 {
        self.first.saturating_add(index)
    }
}

impl Records for Shifted {
    fn key(&self, index: u64, out: &mut Vec<u8>) {
        self.records.key(self.place(index), out);
    }

    fn value(&self, index: u64, version: u64, out: &mut Vec<u8>) {
        self.records.value(self.place(index), version, out);
    }

    fn is_value(&self, index: u64, value: &[u8], scratch: &mut Vec<u8>) -> bool {
        self.records.is_value(self.place(index), value, scratch)
    }

    fn flags(&self) -> u32 {
        self.records.flags()
    }
}

/// SDKs read "this is JSON" from the top byte of the flags.
pub const JSON_FLAGS: u32 = 0x0200_0000;

/// SplitMix64's finaliser: a bijection that leaves no pattern.
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
