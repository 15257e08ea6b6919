//! Why a node could not be started, or has not stopped cleanly.

use std::{io, path::PathBuf};

use cluster::{ClusterError, consensus::LogError};
use dataplane::tls::TlsError;

use crate::{
    files::data_dir::DataDirError,
    setup::{closing::NotClosed, listeners::ListenError},
};

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
