//! What is inside a [`Locator`]: 26 bits of segment, 24 bits of offset and 14 bits of length class. So a record is
//! read with one call of the right size. Offsets and lengths count in units of 16 bytes.

use crate::{api::Locator, format::UNIT};

/// Segment numbers stay below this.
pub(crate) const SEGMENTS_MAX: u32 = 1 << 26;
/// Segment files stay below this many bytes: the reach of 24 bits of units.
pub(crate) const SEGMENT_BYTES_MAX: u64 = UNIT << 24;
/// Up to here a length class is exact.
const EXACT_UNITS_MAX: u32 = 8191;
/// Beyond, a class spans this many units: 8,192 classes reach 25 MB, which the largest document fits.
const CLASS_STEP_UNITS: u32 = 192;
/// The longest record a locator can describe.
pub(crate) const RECORD_UNITS_MAX: u32 = EXACT_UNITS_MAX + CLASS_STEP_UNITS * 8192;

/// A locator taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which segment; never 0.
    pub(crate) segment: u32,
    /// Where the record begins.
    pub(crate) offset: u64,
    /// The record's length with padding, rounded up to its class.
    pub(crate) units: u32,
}

impl Place {
    pub(crate) fn new(segment: u32, offset: u64, length: u32) -> Self {
        Self { segment, offset, units: length.div_ceil(UNIT as u32) }
    }

    #[inline]
    pub(crate) fn pack(self) -> Locator {
        let class = if self.units <= EXACT_UNITS_MAX {
            self.units
        } else {
            EXACT_UNITS_MAX + (self.units - EXACT_UNITS_MAX).div_ceil(CLASS_STEP_UNITS)
        };
        Locator(u64::from(self.segment) << 38 | (self.offset / UNIT) << 14 | u64::from(class))
    }

    #[inline]
    pub(crate) fn unpack(locator: Locator) -> Self {
        let class = (locator.0 & 0x3fff) as u32;
        let units = if class <= EXACT_UNITS_MAX {
            class
        } else {
            EXACT_UNITS_MAX + (class - EXACT_UNITS_MAX) * CLASS_STEP_UNITS
        };
        Self { segment: (locator.0 >> 38) as u32, offset: (locator.0 >> 14 & 0xff_ffff) * UNIT, units }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_records_keep_their_exact_length_and_long_ones_round_up_a_little() {
        for (segment, offset, length) in
            [(1, 4096, 80), (SEGMENTS_MAX - 1, SEGMENT_BYTES_MAX - 16, 131_056), (7, 1 << 20, 22 << 20)]
        {
            let place = Place::new(segment, offset, length);
            let unpacked = Place::unpack(place.pack());
            assert_eq!((unpacked.segment, unpacked.offset), (segment, offset));
            assert!(unpacked.units >= place.units && unpacked.units - place.units < CLASS_STEP_UNITS);
            if length < 131_072 {
                assert_eq!(unpacked, place);
            }
        }
    }
}
