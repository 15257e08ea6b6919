//! The log in one `redb` file: every write a transaction that is synced.
//!
//! Every page's checksum is verified when the file is opened, so that what is read later can be trusted and damage is
//! reported instead of met. After a failed write (a full disk, most likely) the file is opened anew with the next one.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, backends::FileBackend};

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
    /// `None` after a write that failed.
    database: Option<Database>,
}

impl DiskLog {
    /// Opens the file, which is created if need be, and checks it.
    ///
    /// # Errors
    /// [`LogError`] when it cannot be had, is damaged, or of another format.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let log =
            Self { path: path.into(), database: Some(open(path).map_err(|error| failed(path, error))?) };
        match log.format()? {
            None | Some(FORMAT) => Ok(log),
            Some(other) => {
                let text = format!("format {other} is not known to this version, which reads {FORMAT}");
                Err(failed(path, Failure::Text(text)))
            }
        }
    }

    fn format(&self) -> Result<Option<u64>, LogError> {
        let stored = self.read(|table| {
            let value = table.get(FORMAT_KEY)?;
            Ok(value.and_then(|value| value.value().try_into().ok().map(u64::from_le_bytes)))
        })?;
        Ok(stored.flatten())
    }

    /// What `read` finds in the table of records; `None` when there is no table yet.
    fn read<T>(
        &self,
        read: impl FnOnce(&redb::ReadOnlyTable<&'static str, &'static [u8]>) -> Result<T, Failure>,
    ) -> Result<Option<T>, LogError> {
        let attempt = || {
            let Some(database) = &self.database else { return Err(Failure::Text("closed".into())) };
            match database.begin_read()?.open_table(RECORDS) {
                Ok(table) => read(&table).map(Some),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        attempt().map_err(|error| failed(&self.path, error))
    }
}

impl LogStore for DiskLog {
    fn load(&self) -> Result<Stored, LogError> {
        let records = self.read(|table| {
            let mut records = Vec::new();
            for record in Record::ALL {
                if let Some(value) = table.get(record.name())? {
                    records.push((record, value.value().to_vec()));
                }
            }
            Ok(records)
        })?;
        let Some(records) = records else { return Ok(Stored::default()) };
        let entries = || -> Result<_, Failure> {
            let Some(database) = &self.database else { return Err(Failure::Text("closed".into())) };
            let table = database.begin_read()?.open_table(ENTRIES)?;
            let all =
                table.iter()?.map(|item| item.map(|(index, entry)| (index.value(), entry.value().to_vec())));
            Ok(all.collect::<Result<_, _>>()?)
        };
        let entries = entries().map_err(|error| failed(&self.path, error))?;
        Ok(Stored { records: records.into_iter().collect(), entries })
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

fn open(path: &Path) -> Result<Database, Failure> {
    let is_new = !path.try_exists()?;
    // Verifiers of passwords are inside: nobody else reads it.
    let file =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create_with_backend(FileBackend::new(file)?)?;
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
        let mut log = DiskLog::open(&path).unwrap();
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
        let mut log = DiskLog::open(&path).unwrap();
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
        let mut log = DiskLog::open(&path).unwrap();
        log.write(&[batch(1..200)]).unwrap();
        drop(log);
        let whole = fs::read(&path).unwrap();
        let mut refused = 0;
        for page in 0..whole.len() / 4096 {
            let mut damaged = whole.clone();
            damaged[page * 4096..][..64].iter_mut().for_each(|byte| *byte ^= 0x5a);
            fs::write(&path, &damaged).unwrap();
            match DiskLog::open(&path).and_then(|log| log.load()) {
                Ok(stored) => assert_eq!(stored.entries.len(), 199, "a page that holds nothing"),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("log.redb"), "{error}");
                }
            }
        }
        assert!(refused > 0);
        fs::write(&path, b"{ \"format\": 2 }").unwrap();
        assert!(DiskLog::open(&path).is_err(), "another kind of file");
    }
}
