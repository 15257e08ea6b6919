//! A node as a child process: the same binary, everything it writes below one directory, its ports the same after every
//! start. It ends with this value, and with this process.

use crate::TortureError;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take to serve; it waits for no warm-up.
const START: Duration = Duration::from_secs(120);
/// Between two looks for its ports.
const LOOK: Duration = Duration::from_millis(20);

/// What a node listens on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Management.
    pub mgmt: u16,
    /// Data.
    pub kv: u16,
}

/// A node's process, running or not.
pub struct NodeProcess {
    binary: PathBuf,
    dir: PathBuf,
    /// Flags of `settee serve`, beyond where its data and its ports file are.
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    /// Network namespace that it lives in.
    namespace: Option<String>,
    process: Option<Child>,
}

impl NodeProcess {
    /// A node of `binary` with everything in `dir`; it does not run yet.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(binary: &Path, dir: &Path, flags: Vec<String>) -> Result<NodeProcess, TortureError> {
        fs::create_dir_all(dir)?;
        Ok(NodeProcess {
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            flags,
            environment: Vec::new(),
            namespace: None,
            process: None,
        })
    }

    /// With a variable in its environment.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> NodeProcess {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// In a network namespace.
    #[must_use]
    pub fn within(mut self, namespace: Option<String>) -> NodeProcess {
        self.namespace = namespace;
        self
    }

    /// Where its log goes.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Its process, if it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Starts it with `more` flags; returns when it serves.
    ///
    /// # Errors
    /// It ends, or takes too long.
    pub fn start(&mut self, more: &[String]) -> Result<Ports, TortureError> {
        let ports_file = self.dir.join("ports.json");
        // One of an earlier run says nothing about this one.
        let _ = fs::remove_file(&ports_file);
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = self.command();
        command.arg("serve").arg("--data-dir").arg(self.dir.join("data"));
        command.arg("--ports-file").arg(&ports_file).args(&self.flags).args(more);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_parent(&mut command);
        self.process = Some(command.spawn()?);
        self.wait_for_ports(&ports_file)
    }

    /// The binary, where the node lives.
    fn command(&self) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new(&self.binary) };
        // It becomes the program, so that the process that is killed is the node.
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(&self.binary);
        command
    }

    /// Runs another of the binary's commands where the node lives; what it says and how it ends is its own affair.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run_beside(&self, words: &[&str], variable: (&str, &str)) -> Result<(), TortureError> {
        let mut command = self.command();
        command.args(words).env(variable.0, variable.1).stdin(Stdio::null());
        command.output()?;
        Ok(())
    }

    fn wait_for_ports(&mut self, file: &Path) -> Result<Ports, TortureError> {
        let log = self.log();
        let failed =
            |what: &str| TortureError::Node(format!("the node {what}; its log is {}", log.display()));
        let began = Instant::now();
        while began.elapsed() < START {
            if let Ok(text) = fs::read(file) {
                let ports: serde_json::Value =
                    serde_json::from_slice(&text).map_err(|_| failed("reported no ports"))?;
                let port = |name: &str| ports[name].as_u64().and_then(|port| u16::try_from(port).ok());
                let ports = port("mgmt").zip(port("kv")).map(|(mgmt, kv)| Ports { mgmt, kv });
                return ports.ok_or_else(|| failed("reported no ports"));
            }
            if let Some(status) = self.process.as_mut().map(Child::try_wait).transpose()?.flatten() {
                return Err(failed(&format!("ended at once ({status})")));
            }
            std::thread::sleep(LOOK);
        }
        Err(failed("did not start"))
    }

    /// kill -9; returns when it has ended. One that does not run stays so.
    ///
    /// # Errors
    /// It cannot be killed.
    pub fn kill(&mut self) -> Result<(), TortureError> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Whether it runs; one that was stopped does.
    ///
    /// # Errors
    /// The system does not say.
    pub fn runs(&mut self) -> Result<bool, TortureError> {
        let ended = self.process.as_mut().map(Child::try_wait).transpose()?.flatten();
        Ok(self.process.is_some() && ended.is_none())
    }

    /// SIGSTOP, or SIGCONT.
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self, frozen: bool) -> Result<(), TortureError> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let pid = self.pid().and_then(|pid| libc::pid_t::try_from(pid).ok()).ok_or_else(gone)?;
        // SAFETY: takes numbers only; the process is a child of ours that was not waited for, so the number is still its.
        let sent = unsafe { libc::kill(pid, if frozen { libc::SIGSTOP } else { libc::SIGCONT }) };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
    }
}

/// Whatever ends this process, kill -9 included, is to end the child as well.
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: two plain system calls, which may be made between fork and exec.
        let (asked, is_orphan) = unsafe {
            let asked = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            (asked, u32::try_from(libc::getppid()) != Ok(parent))
        };
        // Should the parent have ended before the child asked, nobody would tell it.
        if asked == 0 && !is_orphan { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: the closure neither allocates nor takes a lock.
    unsafe { command.pre_exec(ask) };
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.kill();
    }
}
