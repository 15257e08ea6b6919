//! `settee logs`: the last lines of the logs of a cluster's nodes, in order of time, and what comes.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    thread::sleep,
    time::Duration,
};

use clap::Args as ClapArgs;
use client::{Rest, rest::percent};
use serde_json::Value;

use super::{
    Failure,
    cluster::{Access, failed},
};

/// Most lines of an answer.
const LINES_MAX: usize = 10_000;
/// Between two looks for new lines.
const LOOK: Duration = Duration::from_secs(1);
/// A node that was stopped accepts connections and never answers: the others are not to wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show the logs of nodes
#[derive(ClapArgs)]
#[command(after_help = "\
Each node keeps the last lines of its log since it was started, 4 MiB at most, and shows them to administrators. Lines of several nodes
are put in order by their time; the clocks of nodes may differ. Control-C ends --follow.

EXAMPLES
  settee logs -u admin                                 warnings and worse of all nodes
  settee logs --level info --node 10.0.0.2 --lines 50 -u admin
  settee logs --follow --contains rebalance --level info -u admin")]
pub(crate) struct Args {
    /// Only nodes whose name has this in it
    #[arg(long, value_name = "TEXT")]
    node: Option<String>,

    /// Lines that are at least so grave
    #[arg(long, default_value = "warn", value_parser = ["error", "warn", "info", "debug", "trace"])]
    level: String,

    /// Only lines with this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    contains: String,

    /// Lines of each node at most
    #[arg(long, default_value_t = 200, value_name = "N")]
    lines: usize,

    /// Go on with lines that come
    #[arg(long, short)]
    follow: bool,

    /// Print one JSON object a line: node, number, text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    access: Access,
}

/// A node's log, as far as it was read.
struct Reader {
    node: String,
    rest: Rest,
    place: Place,
    /// It did not answer last time.
    is_silent: bool,
}

/// How far a log was read.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    newest: u64,
    /// Which life of the node that log is of; an older node does not say.
    process: Option<u64>,
}

impl Place {
    /// The place behind an answer to a question about what follows this one. `None` where the log has begun anew since: the answer
    /// leaves out what the new one has up to here.
    fn behind(&self, told: &Value) -> Option<Self> {
        let (newest, process) = (told["newest"].as_u64().unwrap_or(0), told["process"].as_u64());
        let is_anew = newest < self.newest || (self.newest > 0 && process != self.process);
        (!is_anew).then_some(Self { newest, process })
    }
}

/// A line, in the order in which lines are told: each begins with its time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    text: String,
    node: String,
    number: u64,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let session = args.access.open()?;
    let nodes = session.nodes()?;
    let wanted = |name: &&str| args.node.as_deref().is_none_or(|text| name.contains(text));
    let named = nodes.iter().map(|node| node.hostname()).filter(wanted);
    let mut readers: Vec<Reader> = named
        .map(|name| Reader {
            node: name.to_owned(),
            rest: args.access.rest(name).within(PATIENCE),
            place: Place::default(),
            is_silent: false,
        })
        .collect();
    if readers.is_empty() {
        return Err(Failure("no node has that in its name: `settee cluster status` shows them".to_owned()));
    }
    let width = readers.iter().map(|reader| reader.node.len()).max().unwrap_or(0);
    let mut is_first = true;
    loop {
        let mut lines = Vec::new();
        let mut last = None;
        for reader in &mut readers {
            match reader.read(args) {
                Ok(more) => lines.extend(more),
                Err(failure) => last = Some(failure),
            }
        }
        if is_first && readers.iter().all(|reader| reader.is_silent) {
            return Err(last.unwrap_or_else(|| Failure("no node answers".to_owned())));
        }
        is_first = false;
        lines.sort();
        let text: String = lines.iter().map(|line| shown(line, args.json, width, readers.len())).collect();
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() || !args.follow {
            // Nothing more is wanted, or the reader has gone.
            return Ok(());
        }
        drop(out);
        sleep(LOOK);
    }
}

impl Reader {
    /// What has come since the look before. That a node does not answer is told once.
    fn read(&mut self, args: &Args) -> Result<Vec<Line>, Failure> {
        // Lines that have come since are all wanted, however many were asked for at first.
        let limit = if self.place == Place::default() { args.lines } else { LINES_MAX };
        let mut told = self.ask(args, self.place.newest, limit)?;
        let mut next = self.place.behind(&told);
        if next.is_none() {
            eprintln!("settee: {} was started anew, and so was its log", self.node);
            self.place = Place::default();
            told = self.ask(args, 0, LINES_MAX)?;
            next = self.place.behind(&told);
        }
        if let Some(text) = gap(&told, self.place.newest) {
            eprintln!("settee: {}: {text}", self.node);
        }
        self.place = next.unwrap_or_default();
        Ok(lines_of(&told, &self.node))
    }

    fn ask(&mut self, args: &Args, after: u64, limit: usize) -> Result<Value, Failure> {
        let (level, contains) = (&args.level, percent(&args.contains));
        let path = format!("/settee/logs?after={after}&limit={limit}&level={level}&contains={contains}");
        match self.rest.get_json(&path) {
            Ok(told) => {
                self.is_silent = false;
                Ok(told)
            }
            Err(error) => {
                let failure = failed(format_args!("{} does not show its log", self.node), error);
                if !self.is_silent {
                    eprintln!("settee: {failure}");
                }
                self.is_silent = true;
                Err(failure)
            }
        }
    }
}

/// What is missing between an answer and the line that was the newest before, if anything is.
fn gap(told: &Value, newest: u64) -> Option<String> {
    let lines = told["lines"].as_array().map_or(0, Vec::len);
    let lost = told["oldest"].as_u64()?.checked_sub(newest + 1).filter(|lost| newest > 0 && *lost > 0);
    match lost {
        Some(lost) => {
            Some(format!("{lost} lines came and went between two looks; any of them may be missing here"))
        }
        None => (newest > 0 && lines >= LINES_MAX).then(|| {
            format!("more than {LINES_MAX} lines came between two looks; the first of them are missing here")
        }),
    }
}

fn lines_of(told: &Value, node: &str) -> Vec<Line> {
    let lines = told["lines"].as_array().into_iter().flatten();
    lines
        .filter_map(|line| {
            Some(Line {
                text: line["text"].as_str()?.to_owned(),
                node: node.to_owned(),
                number: line["number"].as_u64()?,
            })
        })
        .collect()
}

fn shown(line: &Line, json: bool, width: usize, nodes: usize) -> String {
    if json {
        let fields = [
            ("node", Value::from(line.node.as_str())),
            ("number", line.number.into()),
            ("text", line.text.as_str().into()),
        ];
        let object: BTreeMap<_, _> = fields.into_iter().collect();
        return serde_json::to_string(&object).unwrap_or_default() + "\n";
    }
    // What a node sends is not to move the cursor.
    let text: String = line.text.chars().filter(|one| !one.is_control()).collect();
    if nodes > 1 { format!("{:width$}  {text}\n", line.node) } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_that_are_missing_between_two_looks_are_told() {
        let told = |oldest: u64, lines: usize| json!({ "oldest": oldest, "newest": 900_000, "lines": vec![0; lines] });
        assert_eq!(gap(&told(500, 3), 0), None, "the first look");
        assert_eq!([gap(&told(1, 3), 10), gap(&told(11, 3), 10)], [None, None]);
        assert!(gap(&told(15, 3), 10).unwrap().starts_with("4 lines"));
        assert!(gap(&told(1, LINES_MAX), 10).is_some());
        assert_eq!(gap(&json!({ "lines": [] }), 10), None, "an older node does not say");
    }

    #[test]
    fn a_log_that_has_begun_anew_is_read_from_its_beginning_however_long_it_is() {
        let told = |newest: u64, process: u64| json!({ "newest": newest, "process": process, "lines": [] });
        let place = Place::default().behind(&told(40, 7)).unwrap();
        assert_eq!(place, Place { newest: 40, process: Some(7) });
        assert_eq!(place.behind(&told(45, 7)).map(|place| place.newest), Some(45));
        // It has told more since its start than before.
        assert_eq!(place.behind(&told(90, 8)), None);
        assert_eq!(place.behind(&json!({ "newest": 3 })), None, "an older node counts from the beginning");
        assert!(Place::default().behind(&told(90, 8)).is_some());
    }

    #[test]
    fn lines_of_nodes_are_told_in_order_of_time() {
        let told = |texts: &[&str], node| {
            let lines: Vec<_> =
                texts.iter().enumerate().map(|(at, text)| json!({ "number": at, "text": text })).collect();
            lines_of(&json!({ "lines": lines }), node)
        };
        let mut lines = told(&["2026-01-01T00:00:01Z  WARN b", "2026-01-01T00:00:03Z ERROR d"], "one:8091");
        lines.extend(told(&["2026-01-01T00:00:02Z  WARN c\x1b[2J"], "other:8091"));
        lines.sort();
        let text: String = lines.iter().map(|line| shown(line, false, 10, 2)).collect();
        assert_eq!(
            text,
            "one:8091    2026-01-01T00:00:01Z  WARN b\nother:8091  2026-01-01T00:00:02Z  WARN c[2J\none:8091    2026-01-01T00:00:03Z ERROR d\n"
        );
        let json = "{\"node\":\"one:8091\",\"number\":0,\"text\":\"2026-01-01T00:00:01Z  WARN b\"}\n";
        assert_eq!(lines.first().map(|line| shown(line, true, 0, 1)).as_deref(), Some(json));
    }
}
