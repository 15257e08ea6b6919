//! The log in one `redb` file: every write a transaction that is synced.
//!
//! At a start the whole file is read into memory, and the checksum of every page is verified there. So damage is
//! reported at once instead of met later. A clean start waits for no sync; verifying in place would sync several times.
//! The file itself is opened with the first write, and anew after a write that found no space. Its contents are verified again then, and stay
//! in memory: nothing is read from an open file.
//!
//! Invariants:
//! - A file is there as a whole or not at all.
//! - A commit is synced before the file says that it counts. So one that counts and does not verify is damaged, never half written, and
//!   is not passed over for the commit before. The one bit by which the file says so has no checksum: the later commit counts where it is whole.
//! - Whatever [`LogStore::load`] returns is durable. A process that was killed, or whose disk failed, may leave in the
//!   kernel's memory what never reached the disk. So a file that nobody closed is written again as a whole, and synced.
//! - Only a write that found no space is tried again. After any other failure the file takes nothing more until the process starts again.
//!   A sync that is repeated reports success for what the kernel has thrown away.
//! - Nothing that has changed on the disk is written again as if it were whole.

mod medium;

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition,
    backends::InMemoryBackend,
};

use self::medium::{Fate, Image, OnDisk, Watched, Worst};
pub use self::medium::{LogFile, Medium};
use super::{Batch, LogError, LogStore, Record, Stored};

/// Version of what the tables hold; a file of another one is refused.
const FORMAT: u64 = 1;
const FORMAT_KEY: &str = "format";
/// Memory for pages: the whole file is a few megabytes and hardly ever read.
const CACHE_BYTES: usize = 1024 * 1024;
/// Where `redb` says that a file is open: it clears that bit when it closes a file of which everything is synced.
const OPEN_FLAG: (usize, u8) = (9, 2);

/// Where `redb` says which of the two last commits counts, the second if the bit is set, and where the two have their numbers.
const PRIMARY_FLAG: (usize, u8) = (9, 1);
const COMMIT_NUMBERS: [usize; 2] = [64 + 104, 192 + 104];

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");

/// See the module.
pub struct DiskLog {
    path: PathBuf,
    medium: Box<dyn Medium>,
    /// `None` before the first write, and after one that failed.
    open: Option<Open>,
    /// Why nothing is written any more.
    dead: Option<String>,
}

struct Open {
    database: Database,
    worst: Worst,
}

impl fmt::Debug for DiskLog {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DiskLog")
            .field("path", &self.path)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

impl DiskLog {
    /// The log in that file; it comes into being with the first write.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self::on(path, Box::new(OnDisk(path.into())))
    }

    /// The log in a file elsewhere, which messages call `path`.
    #[must_use]
    pub fn on(path: &Path, medium: Box<dyn Medium>) -> Self {
        Self { path: path.into(), medium, open: None, dead: None }
    }

    fn try_load(&self) -> Result<Stored, Failure> {
        let Some(bytes) = self.medium.read()?.filter(|bytes| !bytes.is_empty()) else {
            return Ok(Stored::default());
        };
        // First: where what counts is damaged, its number may be, and then the other commit is the one before.
        let stored = read_verified(&bytes)?;
        if let Some(newer) = with_newer_commit(&bytes)
            && let Ok(stored) = read_verified(&newer)
        {
            self.medium.replace(&newer)?;
            return Ok(stored);
        }
        let (at, bit) = OPEN_FLAG;
        if bytes.get(at).is_none_or(|flags| flags & bit != 0) {
            self.medium.replace(&bytes)?;
        }
        Ok(stored)
    }

    /// Does what [`LogStore::write`] promises, or says what is known of the file now.
    fn try_write(&mut self, batches: &[Batch]) -> Result<(), (Fate, Failure)> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        match write(&open.database, batches) {
            Ok(()) => {
                self.open = Some(open);
                Ok(())
            }
            Err(failure) => {
                // Closing it changes nothing any more: whatever comes after a failure is refused.
                Err((fate_of_failure(&open.worst), failure))
            }
        }
    }

    fn open(&self) -> Result<Open, (Fate, Failure)> {
        let io = |error: io::Error| (Fate::after(&error), Failure::from(error));
        let contents = match self.medium.read().map_err(io)?.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => {
                // It may have changed on the disk since it was loaded.
                read_verified(&bytes).map_err(|failure| (Fate::Unproven, failure))?;
                bytes
            }
            None => {
                // Made as a whole: nobody could tell half a file from a damaged one.
                let empty = empty_file().map_err(|failure| (Fate::Unproven, failure))?;
                self.medium.replace(&empty).map_err(io)?;
                empty
            }
        };
        let file = self.medium.open().map_err(io)?;
        let (file, worst) = Watched::new(file, &contents).map_err(io)?;
        let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file);
        let database = database.map_err(|error| (fate_of_failure(&worst), error.into()))?;
        Ok(Open { database, worst })
    }
}

/// What is known of a file with which something went wrong, whether or not a call of it has failed.
fn fate_of_failure(worst: &Worst) -> Fate {
    match worst.fate() {
        Fate::NoSpace => Fate::NoSpace,
        Fate::Well | Fate::Unproven => Fate::Unproven,
    }
}

impl LogStore for DiskLog {
    fn load(&mut self) -> Result<Stored, LogError> {
        // What was written is in the file, and nobody else has it open.
        self.open = None;
        self.try_load().map_err(|failure| LogError::Store { path: self.path.clone(), reason: failure.text() })
    }

    fn write(&mut self, batches: &[Batch]) -> Result<(), LogError> {
        let path = self.path.clone();
        if let Some(reason) = &self.dead {
            return Err(LogError::Store { path, reason: reason.clone() });
        }
        self.try_write(batches).map_err(|(fate, failure)| {
            let reason = failure.text();
            if fate == Fate::NoSpace {
                return LogError::NoSpace { path, reason };
            }
            self.dead = Some(reason.clone());
            LogError::Store { path, reason }
        })
    }
}

/// What a file is that holds nothing yet.
fn empty_file() -> Result<Vec<u8>, Failure> {
    let image = Image::default();
    drop(Database::builder().create_with_backend(image.clone())?);
    Ok(image.contents()?)
}

/// The same file with the later of its two commits as the one that counts, where the file names the other one. A bit may have
/// flipped, or a process was killed halfway through a write.
fn with_newer_commit(bytes: &[u8]) -> Option<Vec<u8>> {
    let (at, bit) = PRIMARY_FLAG;
    let commit = |place: usize| bytes.get(place..place + 8)?.try_into().ok().map(u64::from_le_bytes);
    let [first, second] = COMMIT_NUMBERS.map(commit);
    let is_second = bytes.get(at)? & bit != 0;
    let (counts, other) = if is_second { (second?, first?) } else { (first?, second?) };
    (other > counts).then(|| {
        let mut turned = bytes.to_vec();
        turned.iter_mut().skip(at).take(1).for_each(|flags| *flags ^= bit);
        turned
    })
}

/// What a file with these contents holds.
fn read_verified(bytes: &[u8]) -> Result<Stored, Failure> {
    let copy = InMemoryBackend::new();
    copy.set_len(bytes.len() as u64)?;
    copy.write(0, bytes)?;
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create_with_backend(copy)?;
    let transaction = database.begin_read()?;
    let records = match transaction.open_table(RECORDS) {
        Ok(records) => records,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Stored::default()),
        Err(error) => return Err(error.into()),
    };
    let format = records.get(FORMAT_KEY)?.and_then(|value| value.value().try_into().ok());
    if format.map(u64::from_le_bytes) != Some(FORMAT) {
        return Err(Failure::Text(format!("another format than {FORMAT}, the one that this version reads")));
    }
    let mut stored = Stored::default();
    for record in Record::ALL {
        if let Some(value) = records.get(record.name())? {
            stored.records.insert(record, value.value().to_vec());
        }
    }
    for item in transaction.open_table(ENTRIES)?.iter()? {
        let (index, entry) = item?;
        stored.entries.insert(index.value(), entry.value().to_vec());
    }
    Ok(stored)
}

fn write(database: &Database, batches: &[Batch]) -> Result<(), Failure> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    {
        let mut records = transaction.open_table(RECORDS)?;
        let mut entries = transaction.open_table(ENTRIES)?;
        records.insert(FORMAT_KEY, FORMAT.to_le_bytes().as_slice())?;
        for batch in batches {
            if batch.clear {
                for record in Record::ALL {
                    records.remove(record.name())?;
                }
                entries.retain(|_, _| false)?;
            }
            if let Some(first) = batch.drop_below {
                entries.retain_in(..first, |_, _| false)?;
            }
            if let Some(first) = batch.drop_from {
                entries.retain_in(first.., |_, _| false)?;
            }
            for (record, value) in &batch.records {
                records.insert(record.name(), value.as_slice())?;
            }
            for (index, entry) in &batch.entries {
                entries.insert(index, entry.as_slice())?;
            }
        }
    }
    Ok(transaction.commit()?)
}

/// Anything that goes wrong with the file.
enum Failure {
    Redb(Box<redb::Error>),
    Text(String),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}

impl Failure {
    fn text(self) -> String {
        match self {
            Self::Redb(error) => match *error {
                redb::Error::Corrupted(what) => format!(
                    "the file is damaged ({what}); restore it, or remove the node \
                    from its cluster and add it again"
                ),
                error => error.to_string(),
            },
            Self::Text(text) => text,
        }
    }
}

#[cfg(test)]
mod tests;
