//! How record numbers become keys, by rule or from a file of real keys.

use crate::records::mix;
use memmap2::Mmap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Hexadecimal keys begin with the record's number, mixed: 16 digits.
pub const HEX_BYTES_MIN: usize = 16;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A rule for keys; every rule but [`KeyForm::Historic`] gives distinct keys.
#[derive(Clone, Debug)]
pub enum KeyForm {
    /// This many hexadecimal digits, of which the first 16 are the number, mixed: spread over all vBuckets.
    Hex(usize),
    /// The number in decimal digits, padded with zeros to this width.
    Decimal(usize),
    /// YCSB's hashed order: FNV-1a 64 of the number's little-endian bytes, as a positive decimal.
    Fnv64,
    /// The historical generator's hashed order: FNV-1a 32 of the four little-endian bytes, made positive. Different
    /// numbers may share a key, as they do there.
    Historic,
    /// 36 characters as a UUID is written.
    Uuid,
    /// 38 characters: a UUID in braces.
    Guid,
    /// Lines of a file.
    File(Arc<KeyFile>),
}

impl KeyForm {
    /// Appends the key of record `index`.
    pub fn append(&self, index: u64, out: &mut Vec<u8>) {
        match self {
            KeyForm::Hex(bytes) => hex(index, (*bytes).max(HEX_BYTES_MIN), out),
            KeyForm::Decimal(width) => decimal(index, *width, out),
            KeyForm::Fnv64 => decimal((fnv64(index) as i64).unsigned_abs(), 0, out),
            KeyForm::Historic => decimal(u64::from((fnv32(index as u32) as i32).unsigned_abs()), 0, out),
            KeyForm::Uuid => uuid(index, out),
            KeyForm::Guid => {
                out.push(b'{');
                uuid(index, out);
                out.push(b'}');
            }
            KeyForm::File(file) => out.extend_from_slice(file.key(index)),
        }
    }
}

/// The first word is a bijection of the number, so keys are distinct; the others only fill.
fn hex(index: u64, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    let mut word = mix(index);
    loop {
        for digit in (0..16).rev() {
            out.push(HEX[(word >> (4 * digit) & 15) as usize]);
            if out.len() == end {
                return;
            }
        }
        word = mix(word.wrapping_add(index));
    }
}

fn decimal(number: u64, width: usize, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{number:0width$}");
}

fn uuid(index: u64, out: &mut Vec<u8>) {
    let (high, low) = (mix(index), mix(mix(index) ^ 0x7575_6964));
    let _ = write!(
        out,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        // Four bits of `high` have no place in a version 4 UUID; here they keep keys distinct.
        low & 0x0fff_ffff_ffff | (high >> 12 & 0xf) << 44
    );
}

/// FNV-1a over the eight little-endian bytes.
#[must_use]
pub fn fnv64(number: u64) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// FNV-1a over the four little-endian bytes.
#[must_use]
pub fn fnv32(number: u32) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    number.to_le_bytes().into_iter().fold(0x811c_9dc5, step)
}

/// A file of keys, one a line, mapped into memory: millions of keys cost page cache and an offset each.
pub struct KeyFile {
    map: Mmap,
    /// Where each line begins, and the end of the last one.
    starts: Vec<u64>,
}

impl KeyFile {
    /// Maps a file and finds its lines; empty lines are skipped at the end only.
    ///
    /// # Errors
    /// It cannot be read, has no line, or has a line that is no key (empty or longer than 250 bytes).
    pub fn open(path: &Path) -> io::Result<KeyFile> {
        let file = File::open(path)?;
        // SAFETY: the mapping is read only and lives as long as `map`. Should someone truncate the file meanwhile, the
        // process ends with SIGBUS: for a load generator's own input that is acceptable and documented.
        let map = unsafe { Mmap::map(&file)? };
        let bad = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let mut starts = vec![0];
        for (at, _) in map.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            starts.push(at as u64 + 1);
        }
        if starts.last() != Some(&(map.len() as u64)) {
            starts.push(map.len() as u64 + 1);
        }
        let keys = KeyFile { map, starts };
        if keys.is_empty() {
            return Err(bad("the file has no keys".to_owned()));
        }
        let odd = (0..keys.len()).find(|&line| !(1..=250).contains(&keys.key(line).len()));
        match odd {
            Some(line) => {
                Err(bad(format!("line {} has {} bytes: keys have 1 to 250", line + 1, keys.key(line).len())))
            }
            None => Ok(keys),
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key on a line; numbers beyond the end start over.
    #[must_use]
    pub fn key(&self, index: u64) -> &[u8] {
        let line = (index % self.len().max(1)) as usize;
        let (start, end) = (self.starts[line] as usize, self.starts[line + 1] as usize - 1);
        let key = &self.map[start..end];
        key.strip_suffix(b"\r").unwrap_or(key)
    }
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyFile({} keys)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key(form: &KeyForm, index: u64) -> Vec<u8> {
        let mut out = Vec::new();
        form.append(index, &mut out);
        out
    }

    #[test]
    fn keys_are_distinct_and_have_their_length() {
        for (form, length) in
            [(KeyForm::Hex(36), 36), (KeyForm::Decimal(12), 12), (KeyForm::Uuid, 36), (KeyForm::Guid, 38)]
        {
            let mut keys = HashSet::new();
            for index in 0..20_000 {
                let key = key(&form, index);
                assert_eq!(key.len(), length);
                assert!(keys.insert(key));
            }
        }
    }

    #[test]
    fn keys_reach_every_vbucket() {
        let mut per_vb = vec![0u32; 1024];
        for index in 0..100_000 {
            per_vb[usize::from(base::hash::vbucket_of(&key(&KeyForm::Hex(36), index), 1024).get())] += 1;
        }
        let (min, max) = (per_vb.iter().min(), per_vb.iter().max());
        // 98 expected; six standard deviations either way.
        assert!(min > Some(&38) && max < Some(&158), "{min:?} {max:?}");
    }

    #[test]
    fn hashes_are_fnv_1a() {
        // Published vectors hash strings; these are the same function over the bytes of small numbers.
        assert_eq!(fnv64(0), 0xa8c7_f832_281a_39c5);
        assert_eq!(fnv32(0), 0x4b95_f515);
        assert_eq!(key(&KeyForm::Historic, 0), b"1268118805");
    }

    #[test]
    fn a_file_of_keys_is_read_by_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        for (text, expected) in [("a\nbb\nccc\n", 3), ("a\r\nbb\r\nccc", 3), ("one", 1)] {
            std::fs::write(&path, text).expect("written");
            let file = KeyFile::open(&path).expect("keys");
            assert_eq!(file.len(), expected, "{text:?}");
            assert_eq!(file.key(expected), file.key(0), "starts over");
            assert!(!file.key(0).contains(&b'\r'));
        }
        for text in ["", "\n", "a\n\nb\n"] {
            std::fs::write(&path, text).expect("written");
            assert!(KeyFile::open(&path).is_err(), "{text:?}");
        }
    }
}
