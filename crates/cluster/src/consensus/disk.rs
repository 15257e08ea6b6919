//! The log in one `redb` file: every write a transaction that is synced.
//!
//! At a start the file is read into memory whole and verified there, every page's checksum: what is damaged is reported
//! instead of met later, and a start waits for no sync, which verifying in place would do several times. The file itself
//! is opened with the first write, and anew after a write that failed (a full disk, most likely).

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, StorageBackend as _, TableDefinition,
    backends::{FileBackend, InMemoryBackend},
};

use super::{Batch, LogError, LogStore, Record, Stored};

/// Version of what the tables hold; a file of another one is refused.
const FORMAT: u64 = 1;
const FORMAT_KEY: &str = "format";
/// Memory for pages: the whole file is a few megabytes and hardly ever read.
const CACHE_BYTES: usize = 1024 * 1024;

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");

/// See the module.
#[derive(Debug)]
pub struct DiskLog {
    path: PathBuf,
    /// `None` before the first write, and after one that failed.
    database: Option<Database>,
}

impl DiskLog {
    /// The log in that file; it comes into being with the first write.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), database: None }
    }
}

impl LogStore for DiskLog {
    fn load(&mut self) -> Result<Stored, LogError> {
        // What was written is in the file, and nobody else has it open.
        self.database = None;
        match fs::read(&self.path) {
            Ok(bytes) if bytes.is_empty() => Ok(Stored::default()),
            Ok(bytes) => read_verified(&bytes).map_err(|error| failed(&self.path, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stored::default()),
            Err(error) => Err(failed(&self.path, error.into())),
        }
    }

    fn write(&mut self, batches: &[Batch]) -> Result<(), LogError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => open(&self.path).map_err(|error| failed(&self.path, error))?,
        };
        write(&database, batches).map_err(|error| failed(&self.path, error))?;
        self.database = Some(database);
        Ok(())
    }
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

fn open(path: &Path) -> Result<Database, Failure> {
    let is_new = !path.try_exists()?;
    // Verifiers of passwords are inside: nobody else reads it.
    let file =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let backend = FileBackend::new(file)?;
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
    if let Some(folder) = path.parent().filter(|_| is_new) {
        File::open(folder)?.sync_all()?;
    }
    Ok(database)
}

fn write(database: &Database, batches: &[Batch]) -> Result<(), Failure> {
    let transaction = database.begin_write()?;
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

fn failed(path: &Path, failure: Failure) -> LogError {
    let reason = match failure {
        Failure::Redb(error) => match *error {
            redb::Error::Corrupted(what) => format!(
                "the file is damaged ({what}); restore it, or remove the node \
                from its cluster and add it again"
            ),
            error => error.to_string(),
        },
        Failure::Text(text) => text,
    };
    LogError::Store { path: path.into(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(entries: std::ops::Range<u64>) -> Batch {
        Batch {
            records: vec![(Record::HardState, vec![1, 2, 3])],
            entries: entries.map(|index| (index, vec![index as u8; 100])).collect(),
            ..Batch::default()
        }
    }

    #[test]
    fn what_was_written_is_there_after_a_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.redb");
        let mut log = DiskLog::new(&path);
        assert!(log.load().unwrap().is_empty());
        let tail = Batch {
            drop_below: Some(3),
            drop_from: Some(8),
            entries: vec![(8, vec![9])],
            ..Batch::default()
        };
        let batches = [batch(1..10), tail];
        log.write(&batches).unwrap();
        let mut expected = Stored::default();
        batches.iter().for_each(|batch| expected.apply(batch));
        drop(log);
        let mut log = DiskLog::new(&path);
        assert_eq!(log.load().unwrap(), expected);
        assert_eq!(expected.entries.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8]);
        log.write(&[Batch { clear: true, ..Batch::default() }]).unwrap();
        assert!(log.load().unwrap().is_empty());
        assert!(log.load().unwrap().entries.is_empty());
    }

    #[test]
    fn a_damaged_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.redb");
        let mut log = DiskLog::new(&path);
        log.write(&[batch(1..200)]).unwrap();
        drop(log);
        let whole = fs::read(&path).unwrap();
        let mut refused = 0;
        for page in (0..whole.len() / 4096).step_by(3) {
            let mut damaged = whole.clone();
            damaged[page * 4096..][..64].iter_mut().for_each(|byte| *byte ^= 0x5a);
            fs::write(&path, &damaged).unwrap();
            match DiskLog::new(&path).load() {
                Ok(stored) => assert_eq!(stored.entries.len(), 199, "a page that holds nothing"),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("log.redb"), "{error}");
                }
            }
        }
        assert!(refused > 0);
        fs::write(&path, b"{ \"format\": 2 }").unwrap();
        assert!(DiskLog::new(&path).load().is_err(), "another kind of file");
    }
}
