//! Making changes of names last.

use std::{fs, io, path::Path};

/// Syncs what a file or folder is called.
pub(crate) fn sync_parent(folder: &Path) -> io::Result<()> {
    match folder.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// What is not there need not be removed.
pub(crate) fn ignore_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
