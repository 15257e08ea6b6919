//! `settee songs`: writes the song data set, or loads and verifies it through the network.

use super::Failure;
use crate::songs::{COUNT_MAX, FULL_SET, Songs};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// Generate the song data set: one JSON document a line, the same for the same seed everywhere
#[derive(clap::Args)]
#[command(long_about = "Generate the song data set: one JSON document a line, the same for the same seed \
everywhere.\n\nRecords have the schema and the statistics of the Last.fm / Million Song data set (943,347 \
tracks, 8.6 M track-tag pairs, 56.5 M track-similar pairs, ~2.2 GB). Each document's key is its track_id. \
The exact number of documents tagged \"electronic\" is reported on standard error.")]
#[command(after_help = "\
Examples:
  settee songs --count 1000                         a thousand documents on standard output
  settee songs --out songs.json                     the full set (~2.2 GB)
  settee songs --keys --out keys.csv                the full set's keys, one a line, in the same order")]
pub(crate) struct Args {
    /// How many documents
    #[arg(long, short = 'n', default_value_t = FULL_SET, value_parser = clap::value_parser!(u64).range(..=COUNT_MAX))]
    count: u64,
    /// Which set: documents are a pure function of seed and number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write only the keys, one a line
    #[arg(long)]
    keys: bool,
    /// Write to this file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let songs = Songs::new(args.seed);
    let written = match &args.out {
        Some(path) => {
            let file = File::create(path)
                .map_err(|e| Failure::doing(format_args!("cannot create {}", path.display()), e))?;
            write_all(&songs, &args, file)
        }
        None => write_all(&songs, &args, io::stdout().lock()),
    };
    match written {
        Ok(bytes) => {
            let electronic = songs.count_electronic(args.count);
            eprintln!("{} documents, {bytes} bytes, exactly {electronic} tagged \"electronic\"", args.count);
            Ok(())
        }
        // The reader has seen enough (`settee songs | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::doing("cannot write the documents", error)),
    }
}

fn write_all(songs: &Songs, args: &Args, out: impl Write) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let (mut line, mut bytes) = (Vec::new(), 0);
    for i in 0..args.count {
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
