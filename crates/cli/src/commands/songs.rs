//! `settee songs`: writes the song data set, or loads and verifies it through the network.

use super::{Failure, songs_load};
use crate::songs::{COUNT_MAX, FULL_SET, Songs};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// Generate the song data set, or load it into a bucket and verify it
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(long_about = "Generate the song data set: one JSON document a line, the same for the same seed \
everywhere; or load it into a bucket and verify it there.\n\nRecords have the schema and the statistics of the \
Last.fm / Million Song data set (943,347 tracks, 8.6 M track-tag pairs, 56.5 M track-similar pairs, ~2.2 GB). Each \
document's key is its track_id. The exact number of documents tagged \"electronic\" is reported on standard error.")]
#[command(after_help = "\
Examples:
  settee songs --count 1000                         a thousand documents on standard output
  settee songs --out songs.json                     the full set (~2.2 GB)
  settee songs --keys --out keys.csv                the full set's keys, one a line, in the same order
  settee songs load -u Administrator -p password    the full set into bucket \"default\" of this machine
  settee songs verify -u Administrator -p password  reads it back and compares every byte")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Store the documents through the network
    #[command(after_help = "\
Examples:
  settee songs load -u Administrator -p password -n 100000
  settee songs load --host 10.0.0.7 -b songs        reads SETTEE_USER and SETTEE_PASSWORD")]
    Load(NetworkArgs),
    /// Read the documents back and compare every byte
    #[command(after_help = "\
Fails if any document is missing or differs.

Example:
  settee songs verify -u Administrator -p password -n 100000")]
    Verify(NetworkArgs),
}

#[derive(clap::Args)]
struct SetArgs {
    /// How many documents
    #[arg(long, short = 'n', default_value_t = FULL_SET, value_parser = clap::value_parser!(u64).range(..=COUNT_MAX))]
    count: u64,
    /// Which set: documents are a pure function of seed and number
    #[arg(long, default_value_t = songs_load::SEED_DEFAULT)]
    seed: u64,
}

#[derive(clap::Args)]
struct WriteArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Write only the keys, one a line
    #[arg(long)]
    keys: bool,
    /// Write to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(clap::Args)]
struct NetworkArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Address of one node of the cluster
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Its data port
    #[arg(long, default_value_t = 11210)]
    port: u16,
    /// Its management port, which knows memory and disk
    #[arg(long, default_value_t = 8091)]
    rest_port: u16,
    /// User name
    #[arg(long, short = 'u', env = "SETTEE_USER")]
    user: Option<String>,
    /// Password
    #[arg(long, short = 'p', env = "SETTEE_PASSWORD", hide_env_values = true, requires = "user")]
    password: Option<String>,
    /// Bucket
    #[arg(long, short = 'b', default_value = "default")]
    bucket: String,
}

impl NetworkArgs {
    fn target(&self) -> songs_load::Target {
        songs_load::Target {
            kv: format!("{}:{}", self.host, self.port),
            rest: format!("{}:{}", self.host, self.rest_port),
            bucket: self.bucket.clone(),
            username: self.user.clone().unwrap_or_default(),
            password: self.password.clone().unwrap_or_default(),
            count: self.set.count,
            seed: self.set.seed,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match &args.action {
        None => write(&args.write),
        Some(Action::Load(network)) => {
            println!("{}", songs_load::load(&network.target())?);
            Ok(())
        }
        Some(Action::Verify(network)) => {
            let summary = songs_load::verify(&network.target())?;
            println!("as generated: {summary}");
            match (summary.missing, summary.different) {
                (0, 0) => Ok(()),
                (missing, different) => Err(Failure(format!(
                    "{missing} of {} documents are missing and {different} differ from what was loaded",
                    network.set.count
                ))),
            }
        }
    }
}

fn write(args: &WriteArgs) -> Result<(), Failure> {
    let songs = Songs::new(args.set.seed);
    let written = match &args.out {
        Some(path) => {
            let file = File::create(path)
                .map_err(|e| Failure::doing(format_args!("cannot create {}", path.display()), e))?;
            write_all(&songs, args, file)
        }
        None => write_all(&songs, args, io::stdout().lock()),
    };
    match written {
        Ok(bytes) => {
            eprintln!("{} lines, {bytes} bytes", args.set.count);
            let electronic = songs.count_electronic(args.set.count);
            eprintln!("exactly {electronic} documents are tagged \"electronic\"");
            Ok(())
        }
        // The reader has seen enough (`settee songs | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::doing("cannot write the documents", error)),
    }
}

fn write_all(songs: &Songs, args: &WriteArgs, out: impl Write) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let (mut line, mut bytes) = (Vec::new(), 0);
    for i in 0..args.set.count {
        line.clear();
        if args.keys {
            line.extend_from_slice(&songs.key(i));
        } else {
            songs.document(i, &mut line);
        }
        line.push(b'\n');
        bytes += line.len() as u64;
        out.write_all(&line)?;
    }
    out.flush()?;
    Ok(bytes)
}
