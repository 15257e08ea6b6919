//! `settee serve`: runs a node. Flags win over environment variables, those over the configuration file, that over
//! the defaults.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use daemon::{DiskFreeMin, DiskLimits, DiskOptions, InitBucket, InitOptions, PortOptions, ServeOptions};
use serde::Deserialize;

use super::Failure;
use crate::log::{Log, LogFile};

/// Share of the machine's memory that all buckets together may use unless told otherwise.
const MEMORY_SHARE_PERCENT: u64 = 60;

/// Size of a file of the log, in MiB, and how many of them there are, unless told otherwise.
const LOG_FILE_MB: u64 = 32;
const LOG_FILES: u32 = 8;

/// Connections accepted at most unless told otherwise.
pub(crate) const CONNECTIONS_MAX_DEFAULT: usize = 30_000;

const EXAMPLES: &str = "\
EXAMPLES
  An empty node on this machine, standard ports:
      settee serve --data-dir ./data
  Two nodes side by side:
      settee serve --data-dir ./a --listen 127.0.0.1
      settee serve --data-dir ./b --listen 127.0.0.2
  Any free ports, reported in a file:
      settee serve --data-dir ./data --port-mgmt 0 --port-mgmt-tls 0 --port-kv 0 --port-kv-tls 0 \\
                   --port-capi 0 --port-capi-tls 0 --port-memcached 0 --ports-file ports.json
  Unattended, with an administrator and a first bucket:
      SETTEE_INIT_PASSWORD=secret settee serve --data-dir ./data --init-username admin --init-bucket songs

CONFIGURATION FILE (TOML; keys are the long flags with underscores)
      data_dir = \"/var/lib/settee\"
      listen = \"10.0.0.7\"
      memory_quota_mb = 16384

A new node waits to be initialised: `settee init`, `couchbase-cli cluster-init`, or the --init-* flags.
The ports in use are printed on standard output as one line of JSON when the node is ready.";

/// Runs a node until SIGTERM or SIGINT.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(after_help = EXAMPLES)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long, env = "SETTEE_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Directory for all state; created if missing [default: ./settee-data].
    #[arg(long, env = "SETTEE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Address to listen on and to be known by [default: 127.0.0.1].
    #[arg(long, env = "SETTEE_LISTEN", value_name = "ADDR")]
    listen: Option<IpAddr>,

    /// REST port; 0 for any [default: 8091].
    #[arg(long, env = "SETTEE_PORT_MGMT", value_name = "PORT")]
    port_mgmt: Option<u16>,

    /// REST port over TLS; 0 for any [default: 18091].
    #[arg(long, env = "SETTEE_PORT_MGMT_TLS", value_name = "PORT")]
    port_mgmt_tls: Option<u16>,

    /// Document port; 0 for any [default: 11210].
    #[arg(long, env = "SETTEE_PORT_KV", value_name = "PORT")]
    port_kv: Option<u16>,

    /// Document port over TLS; 0 for any [default: 11207].
    #[arg(long, env = "SETTEE_PORT_KV_TLS", value_name = "PORT")]
    port_kv_tls: Option<u16>,

    /// View port; 0 for any [default: 8092].
    #[arg(long, env = "SETTEE_PORT_CAPI", value_name = "PORT")]
    port_capi: Option<u16>,

    /// View port over TLS; 0 for any [default: 18092].
    #[arg(long, env = "SETTEE_PORT_CAPI_TLS", value_name = "PORT")]
    port_capi_tls: Option<u16>,

    /// Plain memcached port; 0 for any. It serves nobody until a bucket opts in [default: 11211].
    #[arg(long, env = "SETTEE_PORT_MEMCACHED", value_name = "PORT")]
    port_memcached: Option<u16>,

    /// Write the ports in use to this file (JSON) when ready.
    #[arg(long, env = "SETTEE_PORTS_FILE", value_name = "FILE")]
    ports_file: Option<PathBuf>,

    /// Data workers [default: one per core].
    #[arg(long, env = "SETTEE_WORKERS", value_name = "N")]
    workers: Option<usize>,

    /// Client connections at most; lowered to what the file limit allows [default: 30000].
    #[arg(long, env = "SETTEE_CONNECTIONS_MAX", value_name = "N")]
    connections_max: Option<usize>,

    /// Memory for all buckets together, in MiB [default: 60 % of the machine's].
    #[arg(long, env = "SETTEE_MEMORY_QUOTA_MB", value_name = "MIB")]
    memory_quota_mb: Option<u64>,

    /// Bytes per second that all buckets together read and write at most [default: as many as the disk can].
    #[arg(long, env = "SETTEE_DISK_BYTES_PER_SEC", value_name = "BYTES")]
    disk_bytes_per_sec: Option<u64>,

    /// Reads, writes (each of 256 KiB at most) and syncs per second of all buckets together at most [default: as many
    /// as the disk can].
    #[arg(long, env = "SETTEE_DISK_IOPS", value_name = "N")]
    disk_iops: Option<u64>,

    /// Space that stays free on the disk, in bytes or as a percentage (10%). With less than that, only deletions are
    /// accepted [default: 1 GiB, or 4% of a smaller disk].
    #[arg(long, env = "SETTEE_DISK_FREE_MIN", value_name = "BYTES|PERCENT")]
    disk_free_min: Option<String>,

    /// Certificate chain for the TLS ports (PEM) [default: a self-signed one, made once].
    #[arg(long, env = "SETTEE_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert (PEM).
    #[arg(long, env = "SETTEE_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// What to log: error, warn, info, debug or trace [default: info].
    #[arg(long, env = "SETTEE_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<LogLevel>,

    /// How lines of the log look: text, or a JSON object each [default: text].
    #[arg(long, env = "SETTEE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// Log to this file instead of standard error. It is put aside as FILE.1 where it gets too long.
    #[arg(long, env = "SETTEE_LOG_FILE", value_name = "FILE")]
    log_file: Option<PathBuf>,

    /// Size of --log-file, in MiB, from which on it is put aside [default: 32].
    #[arg(long, env = "SETTEE_LOG_FILE_MB", value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    log_file_mb: Option<u64>,

    /// Files of the log that are kept, --log-file among them [default: 8].
    #[arg(long, env = "SETTEE_LOG_FILES", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    log_files: Option<u32>,

    /// Initialise a new node with this administrator.
    #[arg(long, env = "SETTEE_INIT_USERNAME", value_name = "NAME")]
    init_username: Option<String>,

    /// Password of --init-username; the environment keeps it out of the process list.
    #[arg(long, env = "SETTEE_INIT_PASSWORD", value_name = "PASSWORD", hide_env_values = true)]
    init_password: Option<String>,

    /// Name of the cluster.
    #[arg(long, env = "SETTEE_INIT_CLUSTER_NAME", value_name = "NAME")]
    init_cluster_name: Option<String>,

    /// Create this bucket when the node has none.
    #[arg(long, env = "SETTEE_INIT_BUCKET", value_name = "NAME")]
    init_bucket: Option<String>,

    /// Memory quota of --init-bucket in MiB [default: half of the memory quota].
    #[arg(long, env = "SETTEE_INIT_BUCKET_QUOTA_MB", value_name = "MIB")]
    init_bucket_quota_mb: Option<u64>,

    /// Let clients that cannot authenticate use --init-bucket: passwordless attachment and the memcached port.
    #[arg(long, env = "SETTEE_INIT_BUCKET_LEGACY")]
    init_bucket_legacy: bool,
}

/// Data workers beyond this are a mistake: each is a thread with buffers of its own.
const WORKERS_MAX: usize = 1024;

/// Merges the sources and runs the node.
pub(crate) fn run(args: ServeArgs) -> Result<(), Failure> {
    let args = args.merged()?;
    let is_json = matches!(args.log_format, Some(LogFormat::Json));
    let _log = start_log(args.log_level.unwrap_or(LogLevel::Info), is_json, args.log_file())?;
    let options = args.into_options()?;
    daemon::serve(options).map_err(|error| Failure(error.told()))
}

impl ServeArgs {
    /// These flags over the configuration file, when there is one.
    fn merged(self) -> Result<ServeArgs, Failure> {
        match &self.config {
            Some(path) => {
                let file = read_config(path)?;
                Ok(self.over(file))
            }
            None => Ok(self),
        }
    }

    fn into_options(self) -> Result<ServeOptions, Failure> {
        let args = self;
        let standard = PortOptions::default();
        let memory_quota_mb = args.memory_quota_mb.unwrap_or_else(default_memory_quota_mb);
        let (init, workers) = (args.init(memory_quota_mb)?, args.workers()?);
        Ok(ServeOptions {
            data_dir: args.data_dir.unwrap_or_else(|| PathBuf::from("settee-data")),
            listen: args.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            ports: PortOptions {
                mgmt: args.port_mgmt.unwrap_or(standard.mgmt),
                mgmt_tls: args.port_mgmt_tls.unwrap_or(standard.mgmt_tls),
                kv: args.port_kv.unwrap_or(standard.kv),
                kv_tls: args.port_kv_tls.unwrap_or(standard.kv_tls),
                capi: args.port_capi.unwrap_or(standard.capi),
                capi_tls: args.port_capi_tls.unwrap_or(standard.capi_tls),
                memcached: args.port_memcached.or(standard.memcached),
            },
            ports_file: args.ports_file,
            workers,
            connections_max: args.connections_max.unwrap_or(CONNECTIONS_MAX_DEFAULT),
            memory_quota_mb,
            disk: DiskOptions {
                limits: DiskLimits {
                    bytes_per_sec: args.disk_bytes_per_sec.unwrap_or(0),
                    iops: args.disk_iops.unwrap_or(0),
                },
                free_min: match &args.disk_free_min {
                    Some(text) => text.parse().map_err(|error| Failure::doing("--disk-free-min", error))?,
                    None => DiskFreeMin::default(),
                },
            },
            tls: args.tls_cert.zip(args.tls_key),
            init,
            functions: super::functions::program(),
        })
    }

    fn log_file(&self) -> Option<LogFile> {
        let path = self.log_file.clone()?;
        let bytes_max = self.log_file_mb.unwrap_or(LOG_FILE_MB).max(1) << 20;
        Some(LogFile { path, bytes_max, count: self.log_files.unwrap_or(LOG_FILES).max(1) })
    }

    fn workers(&self) -> Result<usize, Failure> {
        match self.workers {
            None => Ok(default_workers()),
            Some(workers) if (1..=WORKERS_MAX).contains(&workers) => Ok(workers),
            Some(workers) => Err(Failure(format!(
                "--workers is {workers}; it is a number of threads from 1 to {WORKERS_MAX}, best the number of cores"
            ))),
        }
    }

    fn init(&self, memory_quota_mb: u64) -> Result<Option<InitOptions>, Failure> {
        let (username, password) = match (&self.init_username, &self.init_password) {
            (Some(username), Some(password)) => (username.clone(), password.clone()),
            (None, None) => {
                return match self.init_bucket {
                    Some(_) => Err(Failure("--init-bucket needs --init-username and --init-password".into())),
                    None => Ok(None),
                };
            }
            _ => {
                return Err(Failure(
                    "--init-username and --init-password go together; one of them is missing".into(),
                ));
            }
        };
        let bucket = self.init_bucket.clone().map(|name| InitBucket {
            name,
            quota_mb: self.init_bucket_quota_mb.unwrap_or(memory_quota_mb / 2),
            legacy_access: self.init_bucket_legacy,
        });
        let cluster_name = self.init_cluster_name.clone().unwrap_or_default();
        Ok(Some(InitOptions { username, password, cluster_name, bucket }))
    }

    /// These values where given, those of `file` elsewhere.
    fn over(self, file: ServeArgs) -> ServeArgs {
        ServeArgs {
            config: self.config,
            data_dir: self.data_dir.or(file.data_dir),
            listen: self.listen.or(file.listen),
            port_mgmt: self.port_mgmt.or(file.port_mgmt),
            port_mgmt_tls: self.port_mgmt_tls.or(file.port_mgmt_tls),
            port_kv: self.port_kv.or(file.port_kv),
            port_kv_tls: self.port_kv_tls.or(file.port_kv_tls),
            port_capi: self.port_capi.or(file.port_capi),
            port_capi_tls: self.port_capi_tls.or(file.port_capi_tls),
            port_memcached: self.port_memcached.or(file.port_memcached),
            ports_file: self.ports_file.or(file.ports_file),
            workers: self.workers.or(file.workers),
            connections_max: self.connections_max.or(file.connections_max),
            memory_quota_mb: self.memory_quota_mb.or(file.memory_quota_mb),
            disk_bytes_per_sec: self.disk_bytes_per_sec.or(file.disk_bytes_per_sec),
            disk_iops: self.disk_iops.or(file.disk_iops),
            disk_free_min: self.disk_free_min.or(file.disk_free_min),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            log_level: self.log_level.or(file.log_level),
            log_format: self.log_format.or(file.log_format),
            log_file: self.log_file.or(file.log_file),
            log_file_mb: self.log_file_mb.or(file.log_file_mb),
            log_files: self.log_files.or(file.log_files),
            init_username: self.init_username.or(file.init_username),
            init_password: self.init_password.or(file.init_password),
            init_cluster_name: self.init_cluster_name.or(file.init_cluster_name),
            init_bucket: self.init_bucket.or(file.init_bucket),
            init_bucket_quota_mb: self.init_bucket_quota_mb.or(file.init_bucket_quota_mb),
            init_bucket_legacy: self.init_bucket_legacy || file.init_bucket_legacy,
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Logs to this file, or to standard error, for as long as what is returned lives.
pub(crate) fn start_log(level: LogLevel, json: bool, file: Option<LogFile>) -> Result<Log, Failure> {
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let path = file.as_ref().map(|file| file.path.display().to_string()).unwrap_or_default();
    let cannot = |error| Failure::doing(format_args!("cannot start the log {path}"), error);
    Log::start(level, json, file).map_err(cannot)
}

fn read_config(path: &Path) -> Result<ServeArgs, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::doing(format_args!("cannot read the configuration file {}", path.display()), error)
    })?;
    toml::from_str(&text).map_err(|error| {
        Failure::doing(format_args!("{} is not a valid configuration file", path.display()), error)
    })
}

pub(crate) fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn default_memory_quota_mb() -> u64 {
    daemon::machine_memory_bytes() * MEMORY_SHARE_PERCENT / 100 / (1024 * 1024)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn options(flags: &[&str]) -> Result<ServeOptions, Failure> {
        Cli::parse_from([&["settee"], flags].concat()).serve.merged()?.into_options()
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settee.toml");
        std::fs::write(&file, "port_kv = 1\nport_mgmt = 2\nlisten = \"127.0.0.9\"\n").unwrap();
        let options = options(&["--config", file.to_str().unwrap(), "--port-kv", "0"]).unwrap();
        assert_eq!((options.ports.kv, options.ports.mgmt, options.ports.capi), (0, 2, 8092));
        assert_eq!(options.listen.to_string(), "127.0.0.9");
    }

    #[test]
    fn a_mistyped_key_in_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settee.toml");
        std::fs::write(&file, "prot_kv = 1\n").unwrap();
        let error = options(&["--config", file.to_str().unwrap()]).unwrap_err();
        assert!(error.to_string().contains("prot_kv"), "{error}");
    }

    #[test]
    fn half_of_an_administrator_is_refused() {
        assert!(options(&["--init-username", "a"]).is_err());
        assert!(options(&["--init-bucket", "b"]).is_err());
    }
}
