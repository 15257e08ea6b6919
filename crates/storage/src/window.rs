//! A piece of a segment that was read ahead for a reader of known places in rising order.
//!
//! It grows as far as the next places lie behind the first and close together. So records that follow each other cost
//! one read, and scattered ones no more than themselves.

use crate::{error::StoreError, segment::Segment};

/// A place in a segment: at least the bytes of one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Extent {
    fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Makes the window hold `place`, as far as the segment has it. `next` are places that will be asked for later;
    /// unless one place alone is larger, no more than `most` bytes are held.
    pub(crate) fn hold(
        &mut self,
        segment: &Segment,
        place: Extent,
        next: impl Iterator<Item = Extent>,
        most: u64,
    ) -> Result<(), StoreError> {
        let wanted = place.end().min(segment.data_end());
        if place.offset >= self.start && wanted <= self.start + self.bytes.len() as u64 {
            return Ok(());
        }
        let end = reach(place, next, most).min(segment.data_end());
        let length = end.saturating_sub(place.offset) as usize;
        let capacity = self.bytes.capacity();
        if capacity as u64 > 2 * most || length > capacity {
            // One huge document must not keep its memory for ever; and what grows would grow to twice what is needed.
            self.bytes = Vec::new();
        }
        self.start = place.offset;
        self.bytes.resize(length, 0);
        let count = segment.read(&mut self.bytes, place.offset)?;
        self.bytes.truncate(count);
        Ok(())
    }

    /// What is held from `offset` on.
    pub(crate) fn from(&self, offset: u64) -> &[u8] {
        let start = offset.checked_sub(self.start).unwrap_or(u64::MAX);
        self.bytes.get(start as usize..).unwrap_or_default()
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// How far to read at once. (Places may claim more than their record has, and so overlap.)
fn reach(place: Extent, next: impl Iterator<Item = Extent>, most: u64) -> u64 {
    let (mut last, mut end) = (place.offset, place.end());
    for following in next {
        let close = following.offset > last
            && following.offset < end + most / 16
            && following.end() - place.offset <= most;
        if !close {
            break;
        }
        (last, end) = (following.offset, end.max(following.end()));
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64, length: u64) -> Extent {
        Extent { offset, length }
    }

    #[test]
    fn a_read_reaches_over_close_neighbours_and_no_further() {
        let neighbours = [at(150, 100), at(240, 60), at(350, 10)];
        assert_eq!(reach(at(100, 60), neighbours.into_iter(), 1600), 360);
        assert_eq!(reach(at(100, 60), neighbours.into_iter(), 210), 300, "bounded");
        assert_eq!(
            reach(at(100, 60), [at(260, 10), at(50, 10)].into_iter(), 1600),
            160,
            "too far, and behind"
        );
        assert_eq!(reach(at(100, 5000), [].into_iter(), 1600), 5100, "one place may be larger");
    }
}
