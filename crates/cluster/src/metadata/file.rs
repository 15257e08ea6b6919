//! The metadata file of earlier versions: one JSON object with a format number. It is read once, when a node starts that
//! has no log yet ([`crate::consensus`]), and never written.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

use crate::metadata::{Metadata, migration};

/// Version of the file's layout. Older ones are read, newer ones refused.
const FORMAT: u32 = 2;
/// The layout of versions that knew a single node.
const FORMAT_ONE_NODE: u32 = 1;
/// Its name in the folder of the metadata.
pub const METADATA_FILE: &str = "metadata.json";

/// Why the file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataFileError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    #[allow(missing_docs, reason = "names say it")]
    Io { path: PathBuf, source: io::Error },
    /// The file is not metadata this version can read.
    #[error("{path}: {reason}")]
    #[allow(missing_docs, reason = "names say it")]
    Unreadable { path: PathBuf, reason: String },
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Read<T> {
    metadata: T,
}

/// What the file in that folder holds, if there is one.
///
/// # Errors
/// [`MetadataFileError`] when there is one that cannot be read.
pub fn read_metadata_file(folder: &Path) -> Result<Option<Metadata>, MetadataFileError> {
    let path = folder.join(METADATA_FILE);
    match fs::read(&path) {
        Ok(bytes) => parse(&bytes).map(Some).map_err(|reason| MetadataFileError::Unreadable { path, reason }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(MetadataFileError::Io { path, source }),
    }
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
