//! Carries out what a [`Supervisor`] decides: starts the process, ends it, and moves bytes, in the thread that asks.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsRawFd, RawFd},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{Action, Job, JobId, Report, Supervisor, supervisor::Settings};
use crate::js::Sources;

/// As much as the kernel gives to those without rights.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// One worker and what it is asked.
pub struct Host {
    supervisor: Supervisor,
    command: Box<dyn FnMut() -> Command + Send>,
    process: Option<Child>,
    unsent: Vec<u8>,
    sent: usize,
    begin: Instant,
    told: Vec<(JobId, Report)>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end_process();
    }
}

impl Host {
    /// A worker that `command` starts when it is needed. Its input and output belong to the host. It gets no environment but
    /// the time zone UTC, so that dates are the same on every node.
    pub fn new(settings: Settings, command: impl FnMut() -> Command + Send + 'static) -> Self {
        Self {
            supervisor: Supervisor::new(settings),
            command: Box::new(command),
            process: None,
            unsent: Vec::new(),
            sent: 0,
            begin: Instant::now(),
            told: Vec::new(),
        }
    }

    /// Names functions, for jobs that come later.
    pub fn define(&mut self, context: u32, sources: Sources, analysed: bool) {
        self.supervisor.define(context, sources, analysed);
    }

    /// Forgets functions.
    pub fn forget(&mut self, context: u32) {
        self.supervisor.forget(context);
    }

    /// Takes a job.
    pub fn submit(&mut self, job: Job) -> JobId {
        self.supervisor.submit(job)
    }

    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.supervisor.is_idle()
    }

    /// The number of the process, where there is one.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Moves what can be moved, waits for the process for at most `patience`, and tells what became of jobs.
    ///
    /// # Errors
    /// No process could be started, or the kernel refused to wait for one.
    pub fn turn(&mut self, patience: Duration) -> io::Result<Vec<(JobId, Report)>> {
        let is_late = self.supervisor.deadline().is_some_and(|deadline| self.begin.elapsed() >= deadline);
        if is_late {
            // What the process said in time counts, however late it is read.
            self.exchange(Duration::ZERO)?;
        }
        self.act()?;
        if self.told.is_empty() && self.process.is_some() {
            self.exchange(patience)?;
            self.act()?;
        }
        Ok(std::mem::take(&mut self.told))
    }

    fn act(&mut self) -> io::Result<()> {
        loop {
            let actions = self.supervisor.turn(self.begin.elapsed());
            if actions.is_empty() {
                return Ok(());
            }
            for action in actions {
                match action {
                    Action::Start => self.start()?,
                    Action::Send(bytes) if self.unsent.is_empty() => self.unsent = bytes,
                    Action::Send(bytes) => self.unsent.extend_from_slice(&bytes),
                    Action::Kill => self.end_process(),
                    Action::Tell(id, report) => self.told.push((id, report)),
                }
            }
        }
    }

    fn start(&mut self) -> io::Result<()> {
        let mut command = (self.command)();
        command.env_clear().env("TZ", "UTC0").stdin(Stdio::piped()).stdout(Stdio::piped());
        match command.spawn() {
            Ok(process) => {
                for pipe in pipes(&process).into_iter().flatten() {
                    unblock(pipe)?;
                    enlarge(pipe);
                }
                self.process = Some(process);
                Ok(())
            }
            Err(error) => {
                self.supervisor.ended();
                Err(error)
            }
        }
    }

    /// Ends the process, if it has not, and forgets what was to be sent.
    fn end_process(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        // Either it runs and is ended, or it has ended already; both are waited for.
        let _ = process.kill();
        let _ = process.wait();
        self.unsent.clear();
        self.sent = 0;
        self.supervisor.ended();
    }

    fn exchange(&mut self, patience: Duration) -> io::Result<()> {
        let Some([input, output]) = self.process.as_ref().map(pipes) else { return Ok(()) };
        let until_deadline =
            self.supervisor.deadline().map(|deadline| deadline.saturating_sub(self.begin.elapsed()));
        let wait = until_deadline.map_or(patience, |until| until.min(patience));
        let is_unsent = self.sent < self.unsent.len();
        wait_for(output, input.filter(|_| is_unsent), wait)?;
        let alive = self.write().and_then(|()| self.read());
        if !matches!(alive, Ok(true)) {
            self.end_process();
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let Some(input) = self.process.as_mut().and_then(|process| process.stdin.as_mut()) else {
            return Ok(());
        };
        while let Some(rest) = self.unsent.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match input.write(rest) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what is there; says whether the process may say more.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 64 << 10];
        loop {
            let Some(output) = self.process.as_mut().and_then(|process| process.stdout.as_mut()) else {
                return Ok(false);
            };
            match output.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    let now = self.begin.elapsed();
                    self.supervisor.received(buffer.get(..count).unwrap_or_default(), now);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn pipes(process: &Child) -> [Option<RawFd>; 2] {
    [process.stdin.as_ref().map(AsRawFd::as_raw_fd), process.stdout.as_ref().map(AsRawFd::as_raw_fd)]
}

fn unblock(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and both calls take numbers only.
    let done = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has a pipe hold a batch of documents, or most of one, so that the two processes take turns less often.
fn enlarge(pipe: RawFd) {
    // SAFETY: the call takes numbers only. Where it is refused, the pipe is as large as others.
    let _ = unsafe { libc::fcntl(pipe, libc::F_SETPIPE_SZ, PIPE_BYTES) };
}

/// Waits until `output` can be read, or `input` written.
fn wait_for(output: Option<RawFd>, input: Option<RawFd>, patience: Duration) -> io::Result<()> {
    // A negative descriptor is passed over.
    let entry =
        |descriptor: Option<RawFd>, events| libc::pollfd { fd: descriptor.unwrap_or(-1), events, revents: 0 };
    let mut entries = [entry(output, libc::POLLIN), entry(input, libc::POLLOUT)];
    let milliseconds = i32::try_from(patience.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
    // SAFETY: the array lives through the call and has as many entries as are told.
    let found = unsafe { libc::poll(entries.as_mut_ptr(), 2, milliseconds) };
    match found {
        -1 if io::Error::last_os_error().kind() != ErrorKind::Interrupted => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
