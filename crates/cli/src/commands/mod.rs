//! One module per subcommand: its arguments (the manual is in their doc comments), and a `run` that carries it
//! out. What several commands share but is no command itself lives beside this folder.

pub(crate) mod cluster;
pub(crate) mod collect;
pub(crate) mod doctor;
pub(crate) mod documents;
pub(crate) mod functions;
pub(crate) mod init;
pub(crate) mod load;
pub(crate) mod logs;
pub(crate) mod manual;
pub(crate) mod plan;
pub(crate) mod quickstart;
pub(crate) mod serve;
pub(crate) mod slo;
pub(crate) mod songs;
pub(crate) mod songs_load;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod torture;
pub(crate) mod view;

/// Why a command failed, in words that say what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// The usual form: what was being done, and the error that stopped it.
    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Failure {
        Failure(format!("{what}: {error}"))
    }
}
