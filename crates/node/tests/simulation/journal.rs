//! What happened, for the search into a failure, and a number that stands for all of it.

use std::{
    collections::VecDeque,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// Lines that are kept.
const TAIL_LINES: usize = 300;

/// See the module.
pub(crate) struct Journal {
    /// Milliseconds since the world began.
    pub(crate) now: u64,
    tail: VecDeque<String>,
    trace: DefaultHasher,
    /// Everything is printed as it happens.
    is_loud: bool,
}

impl Journal {
    pub(crate) fn new() -> Self {
        let is_loud = std::env::var_os("CLUSTER_LOG").is_some();
        Self { now: 0, tail: VecDeque::new(), trace: DefaultHasher::new(), is_loud }
    }

    pub(crate) fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{:>7} {what}", self.now);
        line.hash(&mut self.trace);
        if self.is_loud {
            println!("{line}");
        }
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// The same for the same history, and for hardly any other.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// The last lines.
    pub(crate) fn tail(&self) -> String {
        self.tail.iter().map(|line| format!("{line}\n")).collect()
    }
}
