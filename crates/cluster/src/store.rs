//! The metadata file: one JSON object with a format number, replaced whole.
//!
//! A save writes a new file, syncs it, renames it over the old one and syncs the folder, in this order: after a crash
//! the file is either the old one or the new one, and a save that returned survives. One process at a time: the data
//! directory's lock belongs to `server`.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Metadata, migration};

/// Version of the file's layout. Older ones are read, newer ones refused.
const FORMAT: u32 = 2;
/// The layout of versions that knew a single node.
const FORMAT_ONE_NODE: u32 = 1;
const FILE_NAME: &str = "metadata.json";
const NEW_FILE_NAME: &str = "metadata.json.new";

/// Why metadata could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    #[allow(missing_docs, reason = "names say it")]
    Io { path: PathBuf, source: io::Error },
    /// The file is not metadata this version can read.
    #[error("{path}: {reason}")]
    #[allow(missing_docs, reason = "names say it")]
    Unreadable { path: PathBuf, reason: String },
}

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    metadata: &'a Metadata,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Read<T> {
    metadata: T,
}

/// The metadata file of one data directory.
#[derive(Debug)]
pub struct MetadataStore {
    dir: PathBuf,
}

impl MetadataStore {
    /// The store in `dir`, which is created if need be, and what it holds.
    ///
    /// # Errors
    /// [`StoreError`] when the directory cannot be made or a file is there that cannot be read.
    pub fn open(dir: &Path) -> Result<(Self, Option<Metadata>), StoreError> {
        fs::create_dir_all(dir).map_err(|source| StoreError::Io { path: dir.into(), source })?;
        let path = dir.join(FILE_NAME);
        let metadata = match fs::read(&path) {
            Ok(bytes) => Some(parse(&bytes).map_err(|reason| StoreError::Unreadable { path, reason })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(StoreError::Io { path, source }),
        };
        Ok((Self { dir: dir.into() }, metadata))
    }

    /// Replaces what the store holds; durable when it returns.
    ///
    /// # Errors
    /// [`StoreError::Io`]; the file then holds either state.
    pub fn save(&self, metadata: &Metadata) -> Result<(), StoreError> {
        let new = self.dir.join(NEW_FILE_NAME);
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| StoreError::Io { path, source }
        };
        let bytes = serde_json::to_vec_pretty(&Written { format: FORMAT, metadata })
            .map_err(io::Error::other)
            .map_err(failed(&new))?;
        write_synced(&new, &bytes).map_err(failed(&new))?;
        // Order matters: the rename must not reach the disk before the contents, nor the answer before the rename.
        fs::rename(&new, self.dir.join(FILE_NAME)).map_err(failed(&new))?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed(&self.dir))
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Verifiers of passwords are inside: nobody else reads it.
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn parse(bytes: &[u8]) -> Result<Metadata, String> {
    let text = |error: serde_json::Error| error.to_string();
    let format: Format = serde_json::from_slice(bytes).map_err(text)?;
    match format.format {
        FORMAT => Ok(serde_json::from_slice::<Read<Metadata>>(bytes).map_err(text)?.metadata),
        FORMAT_ONE_NODE => {
            let old = serde_json::from_slice::<Read<Value>>(bytes).map_err(text)?.metadata;
            serde_json::from_value(migration::from_format_1(old)).map_err(text)
        }
        newer => Err(format!("format {newer} is not known to this version, which reads up to {FORMAT}")),
    }
}
