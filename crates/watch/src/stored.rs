//! Rings as bytes, for a file.
//!
//! ```text
//! "SETTEEW1"  rings  [name length, name, minutes, hours, minutes x slot, hours x slot]...  CRC-32C of all before
//! slot: at, good, total
//! ```
//!
//! Numbers are little-endian; counts of rings and slots, lengths and times have 4 bytes, figures 8. Slots without events are left out.
//! What is not exactly this is refused as a whole: a past that is damaged is worse than none.

use std::collections::BTreeMap;

use crate::{
    burn::Counts,
    ring::{HOURS, MINUTES, Ring, Slot, Tier},
};

const MAGIC: &[u8; 8] = b"SETTEEW1";
/// Most rings in a file, and most bytes of their names.
const RINGS_MAX: u32 = 1_024;
const NAME_BYTES_MAX: u32 = 1_024;

/// Rings as bytes.
#[must_use]
pub fn encode<'a>(rings: impl ExactSizeIterator<Item = (&'a str, &'a Ring)>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put_count(&mut bytes, rings.len());
    for (name, ring) in rings {
        put_count(&mut bytes, name.len());
        bytes.extend(name.as_bytes());
        for tier in [&ring.minutes, &ring.hours] {
            put_count(&mut bytes, tier.used().count());
        }
        for Slot { at, counts } in ring.minutes.used().chain(ring.hours.used()) {
            bytes.extend(at.to_le_bytes());
            bytes.extend(counts.good.to_le_bytes());
            bytes.extend(counts.total.to_le_bytes());
        }
    }
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The rings in these bytes, by name. None: they are damaged, or of a later version.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<BTreeMap<String, Ring>> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut rest = Rest(content.strip_prefix(MAGIC)?);
    let mut rings = BTreeMap::new();
    for _ in 0..rest.count(RINGS_MAX)? {
        let bytes = rest.count(NAME_BYTES_MAX)?;
        let name = std::str::from_utf8(rest.take(bytes as usize)?).ok()?;
        rings.insert(name.to_owned(), rest.ring()?);
    }
    rest.0.is_empty().then_some(rings)
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

/// What is left to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn count(&mut self, most: u32) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?)).filter(|count| *count <= most)
    }

    fn ring(&mut self) -> Option<Ring> {
        let (minutes, hours) = (self.count(MINUTES as u32)?, self.count(HOURS as u32)?);
        let mut ring = Ring::default();
        for _ in 0..minutes {
            self.slot(&mut ring.minutes)?;
        }
        for _ in 0..hours {
            self.slot(&mut ring.hours)?;
        }
        Some(ring)
    }

    fn slot(&mut self, tier: &mut Tier) -> Option<()> {
        let at = u32::from_le_bytes(self.array()?);
        let (good, total) = (u64::from_le_bytes(self.array()?), u64::from_le_bytes(self.array()?));
        (good <= total).then(|| tier.add(at, Counts { good, total }))
    }
}
