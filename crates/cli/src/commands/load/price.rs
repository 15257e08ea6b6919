//! `settee load price`: which of several runs gives most for its money.

use super::super::Failure;
use super::outputs::cannot;
use load::{
    price::{Run, read, scores},
    report,
};
use std::path::{Path, PathBuf};

/// Score runs on different clusters by performance and price
///
/// The score is (Gmin/G + Pmin/P + Qmin/Q) / (nodes x price): durations of reading, writing and querying everything,
/// each in relation to the shortest of all runs. Queries count only if every run has them.
#[derive(clap::Args, Clone)]
#[command(after_help = "\
The file has a header and a line per run: name,nodes,price,get,put,query

Example:
  settee load price runs.csv")]
pub(super) struct PriceArgs {
    /// The runs
    file: PathBuf,
    /// Write a page with charts of durations and scores
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// Writes the page of runs.
pub(super) fn write_chart(path: &Path, runs: &[Run]) -> Result<(), Failure> {
    std::fs::write(path, report::scaling(runs)).map_err(|error| cannot(path, error))
}

pub(super) fn run(args: &PriceArgs) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Failure::doing(format_args!("cannot read {}", args.file.display()), error))?;
    let runs = read(&text).map_err(Failure)?;
    let mut scored: Vec<_> = scores(&runs).into_iter().zip(&runs).collect();
    scored.sort_by(|a, b| b.0.score.total_cmp(&a.0.score));
    for (score, run) in scored {
        println!("{:>12.6}  {} ({} nodes at {})", score.score, run.name, run.nodes, run.price);
    }
    args.chart.as_deref().map_or(Ok(()), |path| write_chart(path, &runs))
}
