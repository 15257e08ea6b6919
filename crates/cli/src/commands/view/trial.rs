//! `settee view try`: runs functions against live documents before anybody depends on them.
//!
//! Documents are read as any client of the user's could read them. Functions run in the process that a node runs them in: with the same
//! engine, limits and confinement, and beside the same `meta`. Nothing is stored.

mod outcome;
mod runner;

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::Args as ClapArgs;
use client::{Client, Login};
use views::{
    meta::Meta,
    worker::{OwnedBody, OwnedDocument},
};

use super::{
    change::{reduction, source},
    place::{Bucket, Place},
};
use crate::commands::Failure;
use outcome::Outcome;
use runner::Runner;

/// Documents with longer bodies are in no view.
const BODY_BYTES_MAX: usize = 20 << 20;
/// After so many picks in a row that found nothing new, the bucket is taken to have no other documents. With many
/// documents found, it takes four times their number.
const PICKS_IN_VAIN: usize = 500;

/// Run a map function against live documents, without storing anything
#[derive(ClapArgs)]
#[command(after_help = "\
Documents are picked at random from the default collection on all nodes, and read with the user's own rights (data_reader is
enough). The function runs on this machine as it would on a node: the same engine, limits of time, memory and rows, and the same
meta. Nothing is stored. What is told: rows in the order of a query, errors with the first document that had each, what the
function logged, and the time that a document took, with the way to the function's process and back.

With --reduce the rows are reduced as well: all together, and in two halves that are reduced again, as nodes may do. A function
that gives two results is told.

The exit code is 1 where the function fails on a document, so that a build can check functions.

EXAMPLES
  settee view try map.js -b songs -u admin
  settee view try map.js --reduce _count --sample 2000 --rows 5 -b songs -u admin
  settee view try map.js --id TRAAAAW128F429D538 --id TRAAABD128F429CF47 -b songs -u admin")]
pub(crate) struct Args {
    /// File with the map function; - reads standard input
    #[arg(value_name = "FILE")]
    map: PathBuf,

    /// _count, _sum, _stats, or a file with a reduce function
    #[arg(long, value_name = "BUILT-IN|FILE")]
    reduce: Option<String>,

    /// How many documents to pick
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sample: u32,

    /// Try this document instead; may be given several times
    #[arg(long, value_name = "ID", conflicts_with = "sample")]
    id: Vec<String>,

    /// How many rows to print
    #[arg(long, default_value_t = 20, value_name = "N")]
    rows: usize,

    /// Stop after so long; what was done until then is told
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    #[command(flatten)]
    place: Place,
}

/// A document with its id.
struct Picked {
    id: String,
    document: OwnedDocument,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let map = source(&args.map)?;
    let reduce = args.reduce.as_deref().map(reduction).transpose()?;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let mut runner = Runner::start(map, reduce)?;
    let bucket = args.place.open()?;
    let mut client = connect(&bucket)?;
    let mut outcome = Outcome::default();
    for key in keys(args, &mut client, until)? {
        if Instant::now() >= until {
            outcome.stopped = true;
            break;
        }
        match read(&mut client, &key)? {
            Ok(picked) => outcome.take(picked.id, runner.map(picked.document)?),
            Err(why) => outcome.leave_out(why),
        }
    }
    if outcome.documents() == 0 {
        let text = "has no document that could be tried, or none of these ids, in its default collection";
        return Err(Failure(format!("bucket {} {text}", bucket.name())));
    }
    outcome.sort();
    print!("{}", outcome.report(args.rows));
    if let Some(text) = runner.reduced(outcome.rows())? {
        println!("{text}");
    }
    match outcome.failed() {
        0 => Ok(()),
        failed => {
            Err(Failure(format!("the function failed on {failed} of {} documents", outcome.documents())))
        }
    }
}

/// The node that was asked by REST gives the map of the others.
fn connect(bucket: &Bucket) -> Result<Client, Failure> {
    let (user, password) = bucket.access().login();
    let login = Login {
        user: Some((user.to_owned(), password.to_owned())),
        bucket: Some(bucket.name().to_owned()),
        collections: false,
    };
    Client::connect(bucket.documents()?, &login)
        .map_err(|error| Failure::doing("cannot read documents", error))
}

/// The ids that were given, or picked ones.
fn keys(args: &Args, client: &mut Client, until: Instant) -> Result<Vec<Vec<u8>>, Failure> {
    if !args.id.is_empty() {
        return Ok(args.id.iter().map(|id| id.as_bytes().to_vec()).collect());
    }
    let (wanted, nodes) = (args.sample as usize, client.map().nodes.len());
    let (mut found, mut seen, mut in_vain) = (Vec::new(), HashSet::new(), 0);
    let mut node = 0;
    while found.len() < wanted && in_vain < PICKS_IN_VAIN.max(4 * found.len()) && Instant::now() < until {
        node = (node + 1) % nodes;
        let key = client.random_key(node).map_err(|error| Failure::doing("cannot pick documents", error))?;
        match key.filter(|key| !seen.contains(key)) {
            Some(key) => {
                seen.insert(key.clone());
                found.push(key);
                in_vain = 0;
            }
            None => in_vain += 1,
        }
    }
    Ok(found)
}

/// A document as functions are given it, or why no view has it.
fn read(client: &mut Client, key: &[u8]) -> Result<Result<Picked, &'static str>, Failure> {
    let Ok(id) = std::str::from_utf8(key) else { return Ok(Err("their ids are not UTF-8")) };
    let sampled = client.sample(key);
    let sampled =
        sampled.map_err(|error| Failure::doing(format_args!("cannot read document {id:?}"), error))?;
    let Some(sampled) = sampled else { return Ok(Err("they are not there")) };
    if sampled.body.len() > BODY_BYTES_MAX {
        return Ok(Err("their bodies are longer than 20 MiB"));
    }
    let facts = sampled.facts;
    let meta = Meta {
        id,
        rev: facts.rev,
        cas: facts.cas,
        expiry: facts.expiry,
        flags: facts.flags,
        seqno: facts.seqno,
        vb: facts.vb.get(),
        is_json: facts.is_json,
        deleted: false,
    };
    let attributes = sampled.attributes.iter().map(|(name, text)| (name.as_bytes(), text.as_slice()));
    let meta = meta.text(attributes);
    let body = match facts.is_json {
        false => OwnedBody::Binary(sampled.body),
        true => match String::from_utf8(sampled.body) {
            Ok(text) => OwnedBody::Json(text),
            Err(_) => return Ok(Err("they are no JSON, though they say so")),
        },
    };
    Ok(Ok(Picked { id: id.to_owned(), document: OwnedDocument { meta, body } }))
}
