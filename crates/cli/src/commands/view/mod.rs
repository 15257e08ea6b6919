//! `settee view`: design documents and views of a bucket, over REST and the ports of views, through any node of the cluster.
//! `try` runs a function against live documents before anybody depends on it.

mod change;
mod documents;
mod errors;
pub(super) mod place;
mod query;
pub(super) mod rows;
mod text;
mod trial;

use clap::Subcommand;

use super::Failure;

const EXAMPLES: &str = "\
A view is a map function in a design document. It is asked for as DESIGN-DOCUMENT/VIEW; what is behind the last slash is
the view. A design document whose name begins with dev_ is under development: publishing copies it to the name without
that, where applications ask it.

EXAMPLES
  The design documents and views of a bucket, and the functions of one:
      export SETTEE_USERNAME=admin SETTEE_PASSWORD=secret
      settee view list -b songs
      settee view show tags -b songs
  A new view: try its function on 200 documents, store it under development, ask it, publish it:
      settee view try map.js --sample 200 -b songs
      settee view create tags/electronic --map map.js --reduce _count -b songs
      settee view query dev_tags/electronic --reduce false --limit 10 -b songs
      settee view publish tags -b songs
  Rows of one key, as JSON, one row a line:
      settee view query tags/electronic --key '\"TRAAAAW128F429D538\"' --reduce false --json -b songs
  Documents that views leave out, and why:
      settee view errors tags -b songs
  Away with it:
      settee view drop tags/electronic -b songs
      settee view drop dev_tags -b songs

EXIT CODES
  0  done
  1  it failed, the answer is not whole, or `try` met documents that make the function fail; standard error says why
  2  wrong usage";

/// List, make, try, publish and query views
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    List(documents::ListArgs),
    Show(documents::ShowArgs),
    Try(trial::Args),
    Create(change::CreateArgs),
    Publish(change::PublishArgs),
    Drop(change::DropArgs),
    Query(query::Args),
    Errors(errors::Args),
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => documents::list(&args),
        Command::Show(args) => documents::show(&args),
        Command::Try(args) => trial::run(&args),
        Command::Create(args) => change::create(&args),
        Command::Publish(args) => change::publish(&args),
        Command::Drop(args) => change::drop(&args),
        Command::Query(args) => query::run(&args),
        Command::Errors(args) => errors::run(&args),
    }
}
