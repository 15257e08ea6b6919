//! A bucket, its indexer and real processes that run functions: an index is what a map over the bucket's documents is, whatever
//! happened. The processes are this program again. `INDEXING_SEED` chooses what random tests do, and `INDEXING_SEEDS` has them do it for so
//! many seeds from there on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod alarms;
mod cases;
mod following;
mod world;

use std::{io, process::ExitCode};

use views::worker::{confine, serve};

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        Some("worker") => {
            confine(4 << 30).expect("the limits of a worker");
            let served = serve(&mut io::stdin().lock(), &mut io::stdout().lock());
            if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some("--list") => ExitCode::SUCCESS,
        _ => {
            let wanted = std::env::args().skip(1).find(|name| !name.starts_with('-')).unwrap_or_default();
            let mut count = 0;
            for seed in world::seeds() {
                world::set_seed(seed);
                for (name, case) in cases::ALL.iter().filter(|(name, _)| name.contains(&wanted)) {
                    println!("{name}");
                    case();
                    count += 1;
                }
            }
            println!("tests of indexing: {count} passed");
            ExitCode::SUCCESS
        }
    }
}
