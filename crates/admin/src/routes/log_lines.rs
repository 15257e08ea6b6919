//! `/settee/logs`: the last lines of this node's own log. Of Settee alone.

use std::sync::OnceLock;

use base::recent_log::OF_PROCESS;
use http::reply::{self, Outcome, Refusal, json_ok};
use serde_json::{Value, json};

use super::nodes;
use crate::{node::time::now_ms, request::Call};

/// Lines of an answer, and where a request does not say.
const LINES_MAX: usize = 10_000;
const LINES: usize = 500;
/// Levels, the gravest first, as they stand in lines.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Lines behind the one that `after` numbers, at most `limit`, of `level` and graver, with `contains` in them.
pub(super) fn show(call: &Call) -> Outcome {
    let number = |name: &str, standard: u64| match call.query.get(name).map(str::parse) {
        None => Ok(standard),
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => Err(refused(name, "The value must be a positive integer")),
    };
    let (after, limit) = (number("after", 0)?, number("limit", LINES as u64)?);
    let level = match call.query.get("level").map(|level| LEVELS.iter().position(|known| *known == level)) {
        None => LEVELS.len(),
        Some(Some(level)) => level,
        Some(None) => {
            return Err(refused(
                "level",
                "The value must be one of the following: [error,warn,info,debug,trace]",
            ));
        }
    };
    let contains = call.query.get("contains").unwrap_or_default();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(LINES_MAX);
    let (lines, newest) =
        OF_PROCESS.behind(after, limit, |line| rank(line) <= level && line.contains(contains));
    let lines: Vec<Value> =
        lines.into_iter().map(|(number, text)| json!({ "number": number, "text": text })).collect();
    let node = call.meta.node(&call.api.control.this_node()).map(|node| nodes::hostname(call, node));
    Ok(json_ok(
        &json!({ "node": node, "process": process(), "oldest": OF_PROCESS.oldest(), "newest": newest, "lines": lines }),
    ))
}

/// Tells this process from the ones before and after it on this node: their lines are numbered from the beginning, too.
fn process() -> u64 {
    static FIRST_ASKED_MS: OnceLock<u64> = OnceLock::new();
    *FIRST_ASKED_MS.get_or_init(now_ms)
}

fn refused(name: &str, text: &str) -> Refusal {
    reply::invalid_field(name, text)
}

/// How grave a line is. One without a level belongs to what the process says without the log: it is shown whatever is asked for.
fn rank(line: &str) -> usize {
    let level = line.split_whitespace().nth(1).unwrap_or_default();
    LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_level_behind_the_time() {
        assert_eq!(rank("2026-11-27T08:13:52.309293Z  WARN settee_dataplane::workers: the file limit"), 1);
        assert_eq!(rank("2026-11-27T08:13:52.309293Z  INFO a: ERROR"), 2);
        assert_eq!(rank("settee: 3 lines of the log are lost"), 0);
    }
}
