//! What the disk said about keys that are not in a vBucket's table. It is a small, bounded memory, between a fetch and
//! the request that asked for it and is about to be executed again.
//!
//! An answer is dropped when its key is mutated, and all of them when anything happens that could make one wrong.
//! Losing an answer is harmless: the request asks for another fetch.

use std::collections::VecDeque;
use std::sync::Arc;

use base::Status;

use crate::api::doc::DocMeta;

/// Most answers kept per vBucket.
const ANSWERS_MAX: usize = 32;
/// Bytes of values above which older answers give way, whatever their number.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// What became of looking a key up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskAnswer {
    /// There is no version of it.
    Absent,
    /// Its newest version is this tombstone, with extended attributes or without.
    Tombstone(DocMeta, Arc<[u8]>),
    /// It could not be read, which is told this many times.
    Unreadable(Loss, u32),
}

/// Why a key could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The disk, or memory, may have it another time.
    ForNow,
    /// What the disk holds of it is damaged. To a client it is the same, as in Couchbase: it may be healed, or served by another
    /// copy. But a request that replaces the document need not wait for that.
    Damaged,
}

impl Loss {
    /// The answer to a request that needs what was lost.
    pub(crate) const STATUS: Status = Status::TemporaryFailure;
}

impl DiskAnswer {
    fn value_bytes(&self) -> usize {
        if let Self::Tombstone(_, value) = self { value.len() } else { 0 }
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct DiskAnswers {
    answers: VecDeque<(u64, Box<[u8]>, DiskAnswer)>,
}

impl DiskAnswers {
    pub(crate) fn note(&mut self, hash: u64, key: &[u8], answer: DiskAnswer) {
        self.forget(hash, key);
        let bytes = |answers: &VecDeque<(u64, Box<[u8]>, DiskAnswer)>| {
            answers.iter().map(|entry| entry.2.value_bytes()).sum::<usize>()
        };
        while self.answers.len() >= ANSWERS_MAX
            || (!self.answers.is_empty() && bytes(&self.answers) + answer.value_bytes() > VALUE_BYTES_MAX)
        {
            self.answers.pop_front();
        }
        self.answers.push_back((hash, key.into(), answer));
    }

    fn position(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.answers.iter().position(|entry| entry.0 == hash && *entry.1 == *key)
    }

    /// The answer for a key. One that says "unreadable" is used up by the requests that waited for it.
    pub(crate) fn recall(&mut self, hash: u64, key: &[u8]) -> Option<DiskAnswer> {
        if self.answers.is_empty() {
            return None;
        }
        let index = self.position(hash, key)?;
        let answer = self.answers.get(index)?.2.clone();
        if let DiskAnswer::Unreadable(loss, left) = answer {
            if left <= 1 {
                self.answers.remove(index);
            } else if let Some(entry) = self.answers.get_mut(index) {
                entry.2 = DiskAnswer::Unreadable(loss, left - 1);
            }
        }
        Some(answer)
    }

    /// Whether the next answer for a key is that it is damaged. Uses nothing up.
    pub(crate) fn is_damaged(&self, hash: u64, key: &[u8]) -> bool {
        let answer = self.position(hash, key).and_then(|index| self.answers.get(index));
        matches!(answer, Some((_, _, DiskAnswer::Unreadable(Loss::Damaged, _))))
    }

    #[inline]
    pub(crate) fn forget(&mut self, hash: u64, key: &[u8]) {
        if !self.answers.is_empty()
            && let Some(index) = self.position(hash, key)
        {
            self.answers.remove(index);
        }
    }

    /// Forgets an answer with a large value, its reader having it now; the next has it read again.
    pub(crate) fn forget_large(&mut self, hash: u64, key: &[u8]) {
        let index = self.position(hash, key);
        let bytes = index.and_then(|index| self.answers.get(index)).map_or(0, |entry| entry.2.value_bytes());
        if bytes > VALUE_BYTES_MAX / 4 {
            self.forget(hash, key);
        }
    }

    /// Bytes of the answers.
    pub(crate) fn bytes(&self) -> usize {
        let contents = self.answers.iter().map(|entry| entry.1.len() + entry.2.value_bytes());
        self.answers.capacity() * size_of::<(u64, Box<[u8]>, DiskAnswer)>() + contents.sum::<usize>()
    }

    pub(crate) fn clear(&mut self) {
        self.answers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_to_each_who_waited() {
        let mut answers = DiskAnswers::default();
        answers.note(1, b"k", DiskAnswer::Unreadable(Loss::Damaged, 2));
        assert!(answers.recall(1, b"k").is_some());
        assert!(answers.recall(1, b"other").is_none());
        assert!(answers.recall(1, b"k").is_some());
        assert!(answers.recall(1, b"k").is_none());
    }

    #[test]
    fn large_values_do_not_add_up() {
        let meta = DocMeta {
            deleted: true,
            flags: 0,
            expiry: 0,
            rev: 1,
            cas: base::Cas(1),
            seqno: base::Seqno(1),
            datatype: base::Datatype::XATTR,
        };
        let mut answers = DiskAnswers::default();
        let large: Arc<[u8]> = vec![0; VALUE_BYTES_MAX * 2 / 3].into();
        for index in 0..3 {
            answers.note(index, b"k", DiskAnswer::Tombstone(meta, large.clone()));
        }
        assert_eq!(answers.answers.len(), 1);
        assert!(answers.recall(2, b"k").is_some());
    }

    #[test]
    fn the_oldest_answer_gives_way() {
        let mut answers = DiskAnswers::default();
        for index in 0..=ANSWERS_MAX as u64 {
            answers.note(index, b"k", DiskAnswer::Absent);
        }
        assert!(answers.recall(0, b"k").is_none());
        assert!(answers.recall(1, b"k").is_some());
        answers.forget(1, b"k");
        assert!(answers.recall(1, b"k").is_none());
    }
}
