//! A `settee serve` process on free ports of loopback, killed when dropped.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

pub(crate) const USERNAME: &str = "admin";
pub(crate) const PASSWORD: &str = "secret-password";

const START_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    process: Child,
    ports: Value,
}

/// The binary under test.
pub(crate) fn settee() -> Command {
    Command::new(env!("CARGO_BIN_EXE_settee"))
}

/// `settee serve` on free ports; the ports file lies beside the data.
pub(crate) fn serve(dir: &Path) -> Command {
    serve_on(dir, &Value::Null, "error")
}

/// What a node says that refuses to start. A node that serves says so on its standard output, and is ended with the test.
pub(crate) fn refused_start(mut serve: Command) -> String {
    let mut process = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    if !ready.is_empty() {
        process.kill().unwrap();
    }
    let ended = process.wait_with_output().unwrap();
    assert!(ready.is_empty() && !ended.status.success(), "it serves: {ready}");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

/// The same on the ports that an earlier start reported, as far as it did.
pub(crate) fn serve_on(dir: &Path, ports: &Value, log_level: &str) -> Command {
    let mut command = settee();
    command.args(["serve", "--listen", "127.0.0.1", "--log-level", log_level, "--memory-quota-mb", "512"]);
    for port in ["mgmt", "mgmt-tls", "kv", "kv-tls", "capi", "capi-tls", "memcached"] {
        let number = ports[port.replace('-', "_")].as_u64().unwrap_or(0);
        command.args([format!("--port-{port}"), number.to_string()]);
    }
    command.arg("--data-dir").arg(dir.join("data")).arg("--ports-file").arg(dir.join("ports.json"));
    command
}

impl Node {
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        Self::start_with(dir, serve(dir), more)
    }

    /// Starts a node whose warnings and errors go into a file.
    pub(crate) fn start_with_log(dir: &Path, log: &Path, more: &[&str]) -> Self {
        let mut command = serve_on(dir, &Value::Null, "warn");
        command.stderr(std::fs::File::create(log).unwrap());
        Self::start_with(dir, command, more)
    }

    /// Starts a node again that was stopped or killed, on the ports that it had.
    pub(crate) fn restart(&mut self, dir: &Path) {
        *self = Self::start_with(dir, serve_on(dir, &self.ports, "error"), &[]);
    }

    pub(crate) fn start_with(dir: &Path, mut command: Command, more: &[&str]) -> Self {
        let file = dir.join("ports.json");
        let _ = std::fs::remove_file(&file);
        if more.contains(&"--init-username") {
            command.env("SETTEE_INIT_PASSWORD", PASSWORD);
        }
        let mut process = command.args(more).stdout(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        loop {
            if let Ok(text) = std::fs::read(&file) {
                return Self { process, ports: serde_json::from_slice(&text).unwrap() };
            }
            assert!(process.try_wait().unwrap().is_none(), "the node ended while starting");
            assert!(started.elapsed() < START_WITHIN, "the node is not ready");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn kv(&self) -> String {
        format!("127.0.0.1:{}", self.ports["kv"])
    }

    pub(crate) fn rest(&self) -> String {
        format!("127.0.0.1:{}", self.ports["mgmt"])
    }

    /// The number of one of its ports, as the ports file calls it.
    pub(crate) fn port(&self, name: &str) -> u16 {
        self.ports[name].as_u64().and_then(|port| port.try_into().ok()).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGTERM, and how the process ended.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal("-TERM");
        self.process.wait().unwrap()
    }

    /// SIGSTOP: the process does nothing from now on.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
