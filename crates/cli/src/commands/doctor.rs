//! `settee doctor`: looks at this machine as a client or server of a database would.

use super::Failure;
use load::doctor::{Verdict, checks};

/// Check this machine for what makes databases and their clients slow
#[derive(clap::Args)]
#[command(after_help = "\
Run it on the client's machine and on the server's. What a machine hides, as containers do, is \"not available\".
`settee load --explain` says for one run where its time went.")]
pub(crate) struct Args {
    /// Report as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let checks = checks();
    if args.json {
        let rows = checks.iter().map(|check| {
            let verdict = match check.verdict {
                Verdict::Good => "good",
                Verdict::Warning => "warning",
                Verdict::NotAvailable => "not available",
            };
            serde_json::json!({"check": check.name, "found": check.found, "verdict": verdict, "advice": check.advice})
        });
        println!("{}", serde_json::Value::from_iter(rows));
        return Ok(());
    }
    for check in &checks {
        let mark = if check.verdict == Verdict::Warning { "!" } else { " " };
        println!("{mark} {:<26} {}", check.name, check.found);
        if !check.advice.is_empty() {
            println!("      {}", check.advice);
        }
    }
    Ok(())
}
