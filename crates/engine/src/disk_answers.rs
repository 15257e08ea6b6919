//! What the disk said about keys that are not in a vBucket's table: a small, bounded memory between a fetch and the
//! request that asked for it and is about to be executed again.
//!
//! An answer is dropped when its key is mutated, and all of them when anything happens that could make one wrong.
//! Losing an answer is harmless: the request asks for another fetch.

use std::collections::VecDeque;

use base::Status;

use crate::doc::DocMeta;

/// Most answers kept per vBucket.
const ANSWERS_MAX: usize = 32;

/// What became of looking a key up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskAnswer {
    /// There is no version of it.
    Absent,
    /// Its newest version is this tombstone.
    Tombstone(DocMeta),
    /// It could not be read: the status to answer, this many times.
    Unreadable(Status, u32),
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct DiskAnswers {
    answers: VecDeque<(u64, Box<[u8]>, DiskAnswer)>,
}

impl DiskAnswers {
    pub(crate) fn note(&mut self, hash: u64, key: &[u8], answer: DiskAnswer) {
        self.forget(hash, key);
        if self.answers.len() >= ANSWERS_MAX {
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
        let answer = self.answers.get(index)?.2;
        if let DiskAnswer::Unreadable(status, left) = answer {
            if left <= 1 {
                self.answers.remove(index);
            } else if let Some(entry) = self.answers.get_mut(index) {
                entry.2 = DiskAnswer::Unreadable(status, left - 1);
            }
        }
        Some(answer)
    }

    #[inline]
    pub(crate) fn forget(&mut self, hash: u64, key: &[u8]) {
        if !self.answers.is_empty()
            && let Some(index) = self.position(hash, key)
        {
            self.answers.remove(index);
        }
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
        answers.note(1, b"k", DiskAnswer::Unreadable(Status::Internal, 2));
        assert!(answers.recall(1, b"k").is_some());
        assert!(answers.recall(1, b"other").is_none());
        assert!(answers.recall(1, b"k").is_some());
        assert!(answers.recall(1, b"k").is_none());
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
