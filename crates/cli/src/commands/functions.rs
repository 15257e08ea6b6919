//! The process that runs functions of views. A node starts it from its own binary; it is no command for people.

use std::{io, path::PathBuf};

use daemon::Program;
use views::worker::{confine, serve};

use super::Failure;

/// What the process may map, in bytes: a few heaps of full size. Functions of each index have a heap of their own, and a bucket may have
/// hundreds of indexes.
const ADDRESS_SPACE: u64 = 1 << 30;

/// How a node starts it. The kernel knows the binary that runs, whatever has become of its file since.
pub(crate) fn program() -> Program {
    Program { path: PathBuf::from("/proc/self/exe"), arguments: vec!["run-functions".into()] }
}

/// Answers what comes in, once nothing else is left to do.
pub(crate) fn run() -> Result<(), Failure> {
    // Where memory runs out, the kernel ends this process before the node. A kernel that refuses this ends what it likes.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let confined = confine(ADDRESS_SPACE).map_err(|error| Failure::doing("cannot be confined", error))?;
    if !confined.system_calls {
        let why = "functions of views do not run here: this kernel does not restrict system calls (seccomp)";
        return Err(Failure(why.to_owned()));
    }
    let served = serve(&mut io::stdin().lock(), &mut io::stdout().lock());
    served.map_err(|error| Failure::doing("cannot go on running functions", error))
}
