//! One node of a local cluster: a `settee serve` process, its ports file, its log.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use super::{layout::Place, signals};
use crate::commands::Failure;

/// How long a node may take to start; one with much data takes a while.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long it may take to write what is dirty and stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A node's process. It is killed if it is still there when this is dropped.
pub(super) struct Child {
    process: process::Child,
    address: String,
    ports_file: PathBuf,
    log: PathBuf,
    /// Whether its end has been told.
    ended: bool,
}

impl Child {
    /// Starts a node on `place` with everything it has in `directory`.
    pub(super) fn start(place: &Place, directory: &Path, memory_quota_mb: u64) -> Result<Self, Failure> {
        let failed = |error| Failure::doing(format_args!("cannot start the node at {}", place.rest()), error);
        fs::create_dir_all(directory).map_err(failed)?;
        let (ports_file, log) = (directory.join("ports.json"), directory.join("server.log"));
        // One of an earlier run says nothing about this one.
        let _ = fs::remove_file(&ports_file);
        let written = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["serve", "--listen", &place.ip.to_string()]);
        command.args(["--memory-quota-mb", &memory_quota_mb.to_string()]);
        command.arg("--data-dir").arg(directory.join("data")).arg("--ports-file").arg(&ports_file);
        command.args(place.flags().flat_map(|(flag, port)| [flag, port]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(written);
        let process = command.spawn().map_err(failed)?;
        Ok(Self { process, address: place.rest(), ports_file, log, ended: false })
    }

    /// The node's REST address.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Where it writes what it does.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Waits until it serves, or until the user wants to stop.
    pub(super) fn wait_until_ready(&mut self, stop: &signals::Stop) -> Result<(), Failure> {
        let began = Instant::now();
        while !self.ports_file.exists() && !stop.is_wanted() {
            let trouble = match self.has_ended() {
                Some(how) => Some(format!("ended while starting ({how})")),
                None => (began.elapsed() > READY_WITHIN).then(|| "does not start".to_owned()),
            };
            if let Some(trouble) = trouble {
                let (address, log) = (&self.address, self.log.display());
                return Err(Failure(format!("the node at {address} {trouble}; its log is {log}")));
            }
            stop.wait(LOOK_EVERY);
        }
        Ok(())
    }

    /// How it ended; told once.
    pub(super) fn has_ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.try_wait().ok().flatten().filter(|_| !self.ended)?;
        self.ended = true;
        Some(status)
    }

    /// SIGTERM.
    pub(super) fn ask_to_stop(&self) {
        if !self.ended {
            signals::terminate(self.process.id());
        }
    }

    /// Waits for its end, and brings it about when it takes too long.
    pub(super) fn wait(&mut self) {
        let began = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if began.elapsed() > STOP_WITHIN {
                eprintln!("settee: {} does not stop; its log is {}", self.address, self.log.display());
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail when it has ended, as it should have.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
