//! Why a node could not be started, or has not stopped cleanly.

use std::{io, path::PathBuf};

use cluster::{ClusterError, consensus::LogError};
use dataplane::tls::TlsError;

use crate::{
    files::data_dir::DataDirError,
    setup::{closing::NotClosed, listeners::ListenError},
};

/// Open files that a node needs at the least: some sixty without buckets, and more for each bucket, connection and node.
pub(crate) const FILES_MIN: u64 = 256;

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// See [`DataDirError`].
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// See [`ListenError`].
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The metadata of an earlier version cannot be read.
    #[error(transparent)]
    MetadataFile(#[from] cluster::MetadataFileError),
    /// The log of the metadata cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The certificate cannot be read or made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Unattended initialisation was refused.
    #[error("the node cannot be initialised as asked: {0}")]
    Init(#[from] ClusterError),
    /// This process may open only so many files.
    #[error(
        "this process may open {0} files, and a node needs {FILES_MIN} or more: raise the limit ({RAISE_FILES})"
    )]
    FewFiles(u64),
    /// What the node was started with is not possible here.
    #[error("{0}")]
    Refused(String),
    /// The ports file cannot be written.
    #[error("cannot write the ports file {path}: {source}")]
    PortsFile {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The node has served and stopped, but not cleanly.
    #[error(transparent)]
    NotClosed(#[from] NotClosed),
    /// Threads or sockets could not be had.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// What raises the limit of open files.
const RAISE_FILES: &str = "`ulimit -n` in a shell, `LimitNOFILE=` in a unit of systemd";

impl ServeError {
    /// The error in words, with what to do about it where no file was left to be opened.
    #[must_use]
    pub fn told(&self) -> String {
        let (text, no_file_left) = (self.to_string(), format!("(os error {})", libc::EMFILE));
        if text.contains(&no_file_left) {
            format!("{text}. Raise the limit of open files ({RAISE_FILES})")
        } else {
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_open_files_is_named_with_what_raises_it() {
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        let wrapped = io::Error::new(error.kind(), format!("audit.log cannot be opened: {error}"));
        for error in [ServeError::Io(error), ServeError::Io(wrapped), ServeError::FewFiles(26)] {
            let told = error.told();
            assert!(told.contains("LimitNOFILE=") && told.contains("ulimit -n"), "{told}");
        }
        let other = ServeError::Io(io::Error::from_raw_os_error(libc::EACCES)).told();
        assert!(!other.contains("LimitNOFILE"), "{other}");
    }
}
