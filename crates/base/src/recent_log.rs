//! The last lines of the process's log, for readers who cannot see its standard error. The thread that writes the log adds them; REST
//! shows them.
//!
//! Bounded by [`BYTES_MAX`]: the oldest lines go first. Lines have numbers, so that a reader can go on where it was.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// Bytes of all lines that are kept.
pub const BYTES_MAX: usize = 4 << 20;
/// Bytes of a line. The rest of a longer one is left out.
const LINE_BYTES_MAX: usize = 8 << 10;
/// What a line takes beside its text, about.
const LINE_BYTES: usize = 40;

/// That of this process.
pub static OF_PROCESS: RecentLog = RecentLog::new(BYTES_MAX);

/// The last lines of a log.
#[derive(Debug)]
pub struct RecentLog {
    inner: Mutex<Inner>,
    bytes_max: usize,
}

#[derive(Debug)]
struct Inner {
    /// The number of the oldest line that is kept.
    first: u64,
    lines: VecDeque<Box<str>>,
    bytes: usize,
}

impl RecentLog {
    /// An empty one.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { inner: Mutex::new(Inner { first: 1, lines: VecDeque::new(), bytes: 0 }), bytes_max }
    }

    /// Adds a line. Control characters, those of colours among them, are left out.
    pub fn add(&self, line: &str) {
        let line = plain(line);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.bytes += line.len() + LINE_BYTES;
        inner.lines.push_back(line);
        while inner.bytes > self.bytes_max {
            let Some(gone) = inner.lines.pop_front() else { break };
            inner.bytes -= gone.len() + LINE_BYTES;
            inner.first += 1;
        }
    }

    /// The number of the oldest line that is kept.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).first
    }

    /// The lines behind number `after` for which `wanted` holds, at most the last `most` of them, and the number of the newest line of
    /// all. A line whose number is 1 is the first of the process.
    #[must_use]
    pub fn behind(
        &self,
        after: u64,
        most: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> (Vec<(u64, String)>, u64) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = inner.first + inner.lines.len() as u64 - 1;
        let numbered = (inner.first..=newest).rev().zip(inner.lines.iter().rev());
        let behind = numbered.take_while(|(number, _)| *number > after).filter(|(_, line)| wanted(line));
        let mut lines: Vec<_> = behind.take(most).map(|(number, line)| (number, line.to_string())).collect();
        lines.reverse();
        (lines, newest)
    }
}

/// A line without control characters, and without what stands between an escape character and the letter that ends its sequence.
fn plain(line: &str) -> Box<str> {
    let (mut kept, mut in_sequence) = (String::with_capacity(line.len().min(LINE_BYTES_MAX)), false);
    for character in line.trim_end().chars() {
        if character == '\x1b' {
            in_sequence = true;
        } else if in_sequence {
            in_sequence = !character.is_ascii_alphabetic();
        } else if !character.is_control() {
            if kept.len() + character.len_utf8() > LINE_BYTES_MAX {
                break;
            }
            kept.push(character);
        }
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_goes_on_where_it_was() {
        let log = RecentLog::new(BYTES_MAX);
        assert_eq!(log.behind(0, 10, |_| true), (vec![], 0));
        ["one\n", "two\n", "\x1b[2m2026\x1b[0m \x1b[33m WARN\x1b[0m three\n"]
            .iter()
            .for_each(|line| log.add(line));
        let (lines, newest) = log.behind(1, 10, |_| true);
        assert_eq!(lines, [(2, "two".to_owned()), (3, "2026  WARN three".to_owned())]);
        assert_eq!(newest, 3);
        assert_eq!(
            log.behind(0, 1, |line| line.contains('o')).0,
            [(2, "two".to_owned())],
            "the last of them"
        );
        assert_eq!(log.behind(3, 10, |_| true), (vec![], 3));
    }

    #[test]
    fn the_oldest_lines_go_and_long_ones_are_cut() {
        let log = RecentLog::new(1000);
        (0..100).for_each(|number| log.add(&format!("line {number}")));
        let (lines, newest) = log.behind(0, 1000, |_| true);
        assert!((10..30).contains(&lines.len()), "{}", lines.len());
        assert_eq!((newest, lines.last()), (100, Some(&(100, "line 99".to_owned()))));
        assert_eq!(Some(log.oldest()), lines.first().map(|(number, _)| *number));
        let log = RecentLog::new(BYTES_MAX);
        log.add(&"é".repeat(LINE_BYTES_MAX));
        assert_eq!(log.behind(0, 1, |_| true).0.first().map(|(_, line)| line.len()), Some(LINE_BYTES_MAX));
    }
}
