//! The keys that are used most, as a list on disk has them, and where the walk is that makes one.

use base::VbId;

use crate::{memory::hash_table::ScanPosition, vbucket::version::FREQUENCY_INITIAL};

/// Bytes of one shard's list.
const LIST_BYTES_MAX: usize = 4 << 20;

/// Bytes in front of each key: vBucket u16, frequency u8, length of the key u8.
pub(crate) const ENTRY_BYTES: usize = 4;

/// The first byte.
const FORMAT: u8 = 1;

/// Where the walk is.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    /// When the next one begins (monotonic milliseconds); `None` before the first look.
    pub(crate) due: Option<u64>,
    /// Under way.
    pub(crate) walk: Option<Walk>,
}

#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) shard: usize,
    /// Of the shard's vBuckets, the next.
    pub(crate) vb: usize,
    pub(crate) position: ScanPosition,
    pub(crate) list: List,
}

/// A list in the making.
#[derive(Debug)]
pub(crate) struct List {
    /// What is less frequent is not listed.
    pub(crate) floor: u8,
    pub(crate) entries: Vec<(u8, VbId, Box<[u8]>)>,
    /// Entries that are more frequent than that: counted, since a full list is asked with every document.
    pub(crate) above: usize,
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
}

impl List {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { floor: FREQUENCY_INITIAL + 1, entries: Vec::new(), above: 0, bytes: 1, bytes_max }
    }

    pub(crate) fn takes(&self, frequency: u8) -> bool {
        frequency >= self.floor
    }

    pub(crate) fn add(&mut self, vb: VbId, frequency: u8, key: Box<[u8]>) {
        if !self.takes(frequency) {
            return;
        }
        self.bytes += ENTRY_BYTES + key.len();
        self.above += usize::from(frequency > self.floor);
        self.entries.push((frequency, vb, key));
        while self.bytes > self.bytes_max && self.above > 0 {
            self.floor += 1;
            let floor = self.floor;
            self.entries.retain(|entry| entry.0 >= floor);
            self.above = self.entries.iter().filter(|entry| entry.0 > floor).count();
            self.bytes = 1 + self.entries.iter().map(|entry| ENTRY_BYTES + entry.2.len()).sum::<usize>();
        }
        // All that is left is equally frequent.
        if self.bytes > self.bytes_max
            && let Some(last) = self.entries.pop()
        {
            self.bytes -= ENTRY_BYTES + last.2.len();
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.bytes + self.entries.capacity() * size_of::<(u8, VbId, Box<[u8]>)>()) as u64
    }

    /// Most frequent first.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.0));
        let mut bytes = Vec::with_capacity(self.bytes);
        bytes.push(FORMAT);
        for (frequency, vb, key) in &self.entries {
            let Ok(length) = u8::try_from(key.len()) else { continue };
            bytes.extend_from_slice(&vb.get().to_le_bytes());
            bytes.extend_from_slice(&[*frequency, length]);
            bytes.extend_from_slice(key);
        }
        bytes
    }
}

/// The entries of a list; ends at the first that makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> impl Iterator<Item = (VbId, u8, &[u8])> {
    let mut rest =
        bytes.split_first().filter(|(format, _)| **format == FORMAT).map_or(&[][..], |split| split.1);
    std::iter::from_fn(move || {
        let (head, tail) = rest.split_first_chunk::<ENTRY_BYTES>()?;
        let [low, high, frequency, length] = *head;
        let (key, tail) = tail.split_at_checked(usize::from(length))?;
        rest = tail;
        Some((VbId(u16::from_le_bytes([low, high])), frequency, key))
    })
}

impl Walk {
    pub(crate) fn of(shard: usize) -> Self {
        Self { shard, vb: 0, position: ScanPosition::default(), list: List::new(LIST_BYTES_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_keeps_the_most_frequent() {
        let mut list = List::new(1 + 100 * (ENTRY_BYTES + 4));
        for number in 0..10_000_u32 {
            list.add(VbId(7), (number % 60) as u8, number.to_be_bytes().into());
            assert!(list.bytes <= list.bytes_max);
            assert_eq!(list.above, list.entries.iter().filter(|entry| entry.0 > list.floor).count());
        }
        let bytes = list.encode();
        assert!(bytes.len() <= 1 + 100 * (ENTRY_BYTES + 4));
        let frequencies: Vec<u8> = decode(&bytes).map(|entry| entry.1).collect();
        assert!(frequencies.len() > 50 && frequencies.is_sorted_by(|a, b| a >= b));
        assert!(frequencies.iter().all(|&frequency| frequency >= 58), "{frequencies:?}");
        assert!(decode(&bytes).all(|(vb, frequency, key)| {
            let number = u32::from_be_bytes(key.try_into().unwrap());
            vb == VbId(7) && u32::from(frequency) == number % 60
        }));
    }

    #[test]
    fn a_list_full_of_equals_stays_as_it_is() {
        let mut list = List::new(1 + 100 * (ENTRY_BYTES + 4));
        (0..1_000_u32).for_each(|number| list.add(VbId(7), 9, number.to_be_bytes().into()));
        let numbers: Vec<_> =
            list.entries.iter().map(|entry| u32::from_be_bytes((*entry.2).try_into().unwrap())).collect();
        assert!(numbers.iter().copied().eq(0..100), "{numbers:?}");
    }

    #[test]
    fn what_was_hardly_used_is_not_listed() {
        let mut list = List::new(LIST_BYTES_MAX);
        list.add(VbId(1), FREQUENCY_INITIAL, (*b"\0cold").into());
        list.add(VbId(1), FREQUENCY_INITIAL + 1, (*b"\0warm").into());
        let bytes = list.encode();
        assert_eq!(decode(&bytes).collect::<Vec<_>>(), [(VbId(1), FREQUENCY_INITIAL + 1, &b"\0warm"[..])]);
    }

    #[test]
    fn damage_ends_a_list() {
        let mut list = List::new(LIST_BYTES_MAX);
        list.add(VbId(1), 9, (*b"\0one").into());
        list.add(VbId(1), 9, (*b"\0two").into());
        let bytes = list.encode();
        assert_eq!(decode(&bytes[..bytes.len() - 1]).count(), 1);
        assert_eq!(decode(&[]).count(), 0);
        assert_eq!(decode(&[FORMAT + 1, 1, 0, 9, 1, 0]).count(), 0, "a format of the future");
    }
}
