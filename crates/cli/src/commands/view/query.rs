//! `settee view query`: asks a view and prints its rows.

use std::{
    io::{self, Read as _, Write as _},
    time::Duration,
};

use clap::{Args as ClapArgs, ValueEnum};
use client::rest::{form_encoded, percent};
use views::json;

use super::{
    place::{Bucket, Place, Told, view_name},
    rows::{Part, Parts},
    text::cell,
};
use crate::{commands::Failure, table::table};

/// Rows in a table that was given no limit.
const TABLE_LIMIT: u64 = 100;
/// Most characters of a cell.
const CELL_CHARACTERS: usize = 60;
/// Most bytes of a refusal that are looked at.
const REFUSAL_BYTES: u64 = 64 << 10;

/// Query a view
#[derive(ClapArgs)]
#[command(after_help = "\
Keys are JSON, and a shell takes the quotes off strings: write --key '\"rock\"', --key 7, --start-key '[\"rock\",2008]'. Ids of
documents are plain text.

A query waits until the index has all that was written before (--stale false). Applications that say nothing get what the
index has, and have it brought up to date afterwards (--stale update_after).

A table has 100 rows unless --limit says otherwise, and cells are cut at 60 characters. --json prints all rows, one a line, as
the node sent them. Where a node's rows are missing, standard error says so and the exit code is 1.

EXAMPLES
  settee view query tags/electronic -b songs -u admin
  settee view query tags/electronic --reduce false --start-key '\"TRA\"' --end-key '\"TRB\"' --exclusive-end -b songs -u admin
  settee view query sales/by_day --group-level 2 -b orders -u admin
  settee view query sales/by_day --keys '[[2026,11,1],[2026,11,2]]' --group --json -b orders -u admin
  The page behind a row that was seen last:
  settee view query sales/by_day --reduce false --start-key '[2026,11,2]' --start-docid order-17 --skip 1 -b orders -u admin")]
pub(crate) struct Args {
    /// The view
    #[arg(value_name = "DESIGN-DOCUMENT/VIEW")]
    view: String,

    #[command(flatten)]
    rows: RowArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    place: Place,

    /// Print rows as JSON, one a line
    #[arg(long)]
    json: bool,
}

/// Which rows.
#[derive(ClapArgs)]
#[command(next_help_heading = "Rows")]
struct RowArgs {
    /// Rows with this key
    #[arg(long, value_name = "JSON", value_parser = json_text)]
    key: Option<String>,

    /// Rows with these keys, in this order: an array
    #[arg(long, value_name = "JSON", value_parser = json_text)]
    keys: Option<String>,

    /// Rows from this key on
    #[arg(long, visible_alias = "startkey", value_name = "JSON", value_parser = json_text)]
    start_key: Option<String>,

    /// Rows up to this key
    #[arg(long, visible_alias = "endkey", value_name = "JSON", value_parser = json_text)]
    end_key: Option<String>,

    /// Of rows with the start key, those from this document on
    #[arg(long, value_name = "ID")]
    start_docid: Option<String>,

    /// Of rows with the end key, those up to this document
    #[arg(long, value_name = "ID")]
    end_docid: Option<String>,

    /// Leave out the end key itself
    #[arg(long)]
    exclusive_end: bool,

    /// From the last row to the first; start and end key change places
    #[arg(long)]
    descending: bool,

    /// At most so many rows
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Leave out so many rows first
    #[arg(long, value_name = "N")]
    skip: Option<u64>,
}

/// How they are made.
#[derive(ClapArgs)]
#[command(next_help_heading = "Reduction and freshness")]
struct HowArgs {
    /// Whether rows are reduced [default: true where the view has a reduction]
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    reduce: Option<bool>,

    /// Reduce the rows of each key by themselves
    #[arg(long)]
    group: bool,

    /// Reduce together rows whose array keys begin with the same N elements
    #[arg(long, value_name = "N", conflicts_with = "group")]
    group_level: Option<u64>,

    /// How old the index may be
    #[arg(long, value_enum, default_value = "false")]
    stale: Stale,

    /// What an error of one node does
    #[arg(long, value_enum, default_value = "continue")]
    on_error: OnError,

    /// Ask a view under development over all documents
    #[arg(long)]
    full_set: bool,

    /// Have rows say where they come from, and print what the node says of the query to standard error
    #[arg(long)]
    debug: bool,

    /// How long another node may take
    #[arg(long, value_name = "MS")]
    connection_timeout: Option<u64>,

    /// How long an answer is waited for, a first build of the index included
    #[arg(long, default_value_t = 75, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    wait: u64,

    /// Another parameter of the query
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    parameter: Vec<(String, String)>,
}

/// How old an index may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Stale {
    /// It has all that was written before the query
    False,
    /// It is brought up to date after the answer
    UpdateAfter,
    /// As it is
    Ok,
}

/// What an error of one node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnError {
    /// Rows of other nodes come all the same
    Continue,
    /// The answer ends there
    Stop,
}

fn json_text(text: &str) -> Result<String, String> {
    match json::check(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => Err(format!("keys are JSON ({error}); for the string {text} write '\"{text}\"'")),
    }
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Args {
    /// The query string, without keys: there may be more of them than a URL can have.
    fn parameters(&self) -> String {
        let (rows, how) = (&self.rows, &self.how);
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let yes = |is: bool| is.then(|| "true".to_owned());
        let stale = match how.stale {
            Stale::False => "false",
            Stale::UpdateAfter => "update_after",
            Stale::Ok => "ok",
        };
        let limit = rows.limit.or((!self.json).then_some(TABLE_LIMIT));
        let all = [
            ("stale", Some(stale.to_owned())),
            ("key", rows.key.clone()),
            ("startkey", rows.start_key.clone()),
            ("endkey", rows.end_key.clone()),
            ("startkey_docid", rows.start_docid.clone()),
            ("endkey_docid", rows.end_docid.clone()),
            ("inclusive_end", rows.exclusive_end.then(|| "false".to_owned())),
            ("descending", yes(rows.descending)),
            ("limit", number(limit)),
            ("skip", number(rows.skip)),
            ("reduce", how.reduce.map(|reduce| reduce.to_string())),
            ("group", yes(how.group)),
            ("group_level", number(how.group_level)),
            ("on_error", (how.on_error == OnError::Stop).then(|| "stop".to_owned())),
            ("full_set", yes(how.full_set)),
            ("debug", yes(how.debug)),
            ("connection_timeout", number(how.connection_timeout)),
        ];
        let given = all.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        let more = how.parameter.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        form_encoded(&given.chain(more).collect::<Vec<_>>())
    }

    /// The body of the request, where it has one.
    fn body(&self) -> Option<String> {
        self.rows.keys.as_ref().map(|keys| format!("{{\"keys\":{keys}}}"))
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (document, view) = view_name(&args.view)?;
    let bucket = args.place.open()?;
    let doing = format!("cannot query {document}/{view}");
    let path = format!("/_design/{}/_view/{}?{}", percent(document), percent(view), args.parameters());
    let opened = open(&bucket, args, &path, &doing)?;
    if opened.code != 200 {
        let mut body = Vec::new();
        let read = opened.body.take(REFUSAL_BYTES).read_to_end(&mut body);
        read.map_err(|error| Failure::doing(&doing, error))?;
        let told = Told { code: opened.code, body: String::from_utf8_lossy(&body).into_owned() };
        return Err(told.refused(&doing));
    }
    let mut printer =
        Printer { json: args.json, rows: Vec::new(), count: 0, total: None, errors: Vec::new() };
    let mut parts = Parts::new(opened.body);
    loop {
        match parts.next() {
            Ok(Some(part)) => printer.take(part)?,
            Ok(None) => break,
            Err(error) => {
                printer.finish(args)?;
                return Err(Failure(format!(
                    "the answer is not whole, it had {} rows: {error}; ask again",
                    printer.count
                )));
            }
        }
    }
    printer.finish(args)?;
    match printer.errors.as_slice() {
        [] => Ok(()),
        errors => Err(Failure(format!("rows are missing, since nodes failed: {}", errors.join("; ")))),
    }
}

fn open(bucket: &Bucket, args: &Args, path: &str, doing: &str) -> Result<client::rest::Opened, Failure> {
    let body = args.body();
    let method = if body.is_some() { "POST" } else { "GET" };
    let wait = Duration::from_secs(args.how.wait);
    let ask = |rest: &client::Rest, base: &str| {
        rest.within(wait).open(method, &format!("{base}{path}"), body.as_deref())
    };
    let late = "no answer came in time: --wait waits longer, as for the first build of an index; --stale ok does not wait";
    bucket.ask(doing, late, ask, |opened| opened.code == 302)
}

struct Printer {
    json: bool,
    rows: Vec<Vec<String>>,
    count: u64,
    total: Option<u64>,
    errors: Vec<String>,
}

impl Printer {
    fn take(&mut self, part: Part) -> Result<(), Failure> {
        match part {
            Part::Head(head) => {
                self.total = head["total_rows"].as_u64();
                if let Some(info) = head.get("debug_info") {
                    eprintln!("debug_info: {info}");
                }
            }
            Part::Row(text) => {
                self.count += 1;
                match self.json {
                    true => writeln!(io::stdout(), "{text}").map_err(unwritten)?,
                    false => self.rows.push(cells(&text)),
                }
            }
            Part::Error(error) => {
                let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
                self.errors.push(cell(&format!("{} says {}", text("from"), text("reason")), 500));
            }
        }
        Ok(())
    }

    fn finish(&mut self, args: &Args) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let columns: &[&str] = if self.total.is_some() { &["KEY", "VALUE", "ID"] } else { &["KEY", "VALUE"] };
        let mut text = table(columns, std::mem::take(&mut self.rows));
        text += &format!("\n{} row{}", self.count, if self.count == 1 { "" } else { "s" });
        if let Some(total) = self.total {
            text += &format!("; the index of the view has {total}");
        }
        if args.rows.limit.is_none() && self.count == TABLE_LIMIT {
            text += "; --limit shows more";
        }
        writeln!(io::stdout(), "{text}").map_err(unwritten)
    }
}

fn unwritten(error: io::Error) -> Failure {
    Failure::doing("cannot print the rows", error)
}

/// Key, value and, where it has one, document of a row. Numbers keep the form that they came in.
fn cells(text: &str) -> Vec<String> {
    let members = json::members(text).unwrap_or_default();
    let of = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, value)| *value);
    let mut cells: Vec<String> =
        ["key", "value"].iter().map(|name| cell(of(name).unwrap_or("-"), CELL_CHARACTERS)).collect();
    let id = of("id").map(|id| json::as_string(id).unwrap_or_else(|| id.to_owned()));
    cells.extend(id.map(|id| cell(&id, CELL_CHARACTERS)));
    if let Some(partition) = of("partition") {
        let node = of("node").map(|node| format!(" of {node}")).unwrap_or_default();
        cells.extend([format!("vBucket {partition}{node}")].map(|origin| cell(&origin, CELL_CHARACTERS)));
    }
    cells
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(flags: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["x", "d/v"], flags].concat()).map(|line| line.args)
    }

    #[test]
    fn every_parameter_of_a_query_has_a_flag() {
        let flags = [
            "--start-key",
            "[1,\"a b\"]",
            "--endkey",
            "\"z\"",
            "--start-docid",
            "a&b",
            "--end-docid",
            "c",
            "--exclusive-end",
            "--descending",
            "--limit",
            "5",
            "--skip",
            "2",
            "--reduce",
            "false",
            "--group-level",
            "1",
            "--stale",
            "update_after",
            "--on-error",
            "stop",
            "--full-set",
            "--debug",
            "--connection-timeout",
            "9",
            "--parameter",
            "include_docs=true",
        ];
        let args = parsed(&flags).unwrap();
        let expected = "stale=update_after&startkey=%5B1%2C%22a%20b%22%5D&endkey=%22z%22&startkey_docid=a%26b&endkey_docid=c\
                        &inclusive_end=false&descending=true&limit=5&skip=2&reduce=false&group_level=1&on_error=stop\
                        &full_set=true&debug=true&connection_timeout=9&include_docs=true";
        assert_eq!(args.parameters(), expected);
        assert!(views::query::Parameters::parse(&args.parameters(), None).is_ok());
        let args = parsed(&["--key", "7", "--group", "--json"]).unwrap();
        assert_eq!(args.parameters(), "stale=false&key=7&group=true");
        let args = parsed(&["--keys", "[1,2]"]).unwrap();
        assert_eq!(args.parameters(), format!("stale=false&limit={TABLE_LIMIT}"));
        assert_eq!(args.body().as_deref(), Some("{\"keys\":[1,2]}"));
        let error = parsed(&["--key", "rock"]).err().unwrap().to_string();
        assert!(error.contains("'\"rock\"'"), "{error}");
    }

    #[test]
    fn cells_show_what_the_node_sent() {
        assert_eq!(
            cells("{\"id\":\"a\\nb\",\"key\":[1.0,\"x\"],\"value\":null}"),
            ["[1.0,\"x\"]", "null", "a b"]
        );
        assert_eq!(cells("{\"key\":null,\"value\":7}"), ["null", "7"]);
    }
}
