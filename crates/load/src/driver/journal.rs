//! A row per operation, written while a run goes on.
//!
//! Each thread writes a file of its own through a fixed buffer, so memory does not grow with the run. The first five
//! columns are those of the published samplers: milliseconds since 1970, milliseconds, operation, code, and the
//! latency in nanoseconds. Behind them: the record's number and the nanosecond of the run at which latency begins.

use crate::op::{Class, Op};
use crate::target::LoadError;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The line that a file of all parts begins with; the parts have none.
pub const COLUMNS: &str = "timeStamp,elapsed,label,responseCode,responseMessage,record,start_ns\n";
const BUFFER_BYTES: usize = 256 * 1024;

/// Where part `index` of a run writes.
#[must_use]
pub fn part_of(path: &Path, index: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{index}"));
    name.into()
}

pub(super) struct Journal {
    path: PathBuf,
    out: BufWriter<File>,
    /// When the run began, in nanoseconds since 1970.
    begun: u128,
    failure: Option<io::Error>,
}

impl Journal {
    /// Begins a file anew.
    pub(super) fn open(path: &Path, index: u64, start: Instant) -> Result<Journal, LoadError> {
        let path = part_of(path, index);
        let file = File::create(&path).map_err(|error| cannot(&path, &error))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun = now.as_nanos().saturating_sub(start.elapsed().as_nanos());
        Ok(Journal { path, out: BufWriter::with_capacity(BUFFER_BYTES, file), begun, failure: None })
    }

    /// One operation has ended. What cannot be written is told at the end: a measurement is worth more than its rows.
    pub(super) fn note(&mut self, op: Op, record: u64, class: Class, start: u64, nanos: u64) {
        let code = match class {
            Class::Success => 200,
            Class::Miss => 404,
            Class::Failure => 500,
        };
        let time = (self.begun + u128::from(start)) / 1_000_000;
        let (millis, name) = (nanos / 1_000_000, op.name());
        if self.failure.is_none() {
            let written = writeln!(self.out, "{time},{millis},{name},{code},{nanos},{record},{start}");
            self.failure = written.err();
        }
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> Result<(), LoadError> {
        let flushed = self.out.flush().err();
        self.failure.or(flushed).map_or(Ok(()), |error| Err(cannot(&self.path, &error)))
    }
}

fn cannot(path: &Path, error: &io::Error) -> LoadError {
    LoadError::Plan(format!("cannot write {}: {error}", path.display()))
}
