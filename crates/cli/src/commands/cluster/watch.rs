//! Watches a rebalance (or a graceful failover, which is one) until it ends. A terminal has one line, which is rewritten. Elsewhere
//! a line is written every few seconds.

use std::{
    io::{IsTerminal, Write, stderr},
    thread::sleep,
    time::{Duration, Instant},
};

use client::ClientError;
use serde_json::Value;

use super::session::{Session, failed};
use crate::commands::Failure;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Between two lines in a log.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// How long the node that is asked may be silent: it may be the one that is being restarted.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// Waits for the end of what is running, or until nobody wants to know any more. `what` is a noun: "rebalance".
pub(super) fn until_done(session: &Session, what: &str, given_up: &dyn Fn() -> bool) -> Result<(), Failure> {
    let started = Instant::now();
    let mut line = Line::new();
    let mut heard = Instant::now();
    while !given_up() {
        match session.rest.get_json("/pools/default/tasks") {
            Ok(tasks) => {
                heard = Instant::now();
                let task = rebalance_task(&tasks);
                if task["status"] == "running" {
                    line.show(&progress(task));
                } else if task["statusIsStale"] != true {
                    line.finish();
                    return ended(task, what, started.elapsed());
                }
            }
            Err(error @ ClientError::Rest { .. }) => return Err(failed("cannot see how far it is", error)),
            Err(error) if heard.elapsed() > SILENT_MAX => {
                return Err(failed(
                    format_args!("the node does not answer; the {what} goes on without it"),
                    error,
                ));
            }
            Err(_) => line.show("the node does not answer; asking again"),
        }
        sleep(LOOK_EVERY);
    }
    line.finish();
    Ok(())
}

fn ended(task: &Value, what: &str, took: Duration) -> Result<(), Failure> {
    match (task["errorMessage"].as_str(), task["settee"]["result"].as_str()) {
        (Some(reason), _) => Err(Failure(format!("the {what} ended without success: {reason}"))),
        (None, Some("stopped")) => Err(Failure(format!("somebody stopped the {what}"))),
        (None, _) => {
            println!("{what} complete after {}", duration(took.as_secs()));
            Ok(())
        }
    }
}

/// What tasks say about a rebalance, in one line; nothing when there is nothing to say.
pub(super) fn news(tasks: &Value) -> Option<String> {
    let task = rebalance_task(tasks);
    match (task["status"].as_str(), task["errorMessage"].as_str()) {
        (Some("running"), _) => Some(progress(task)),
        (_, Some(reason)) => Some(reason.to_owned()),
        _ => None,
    }
}

fn rebalance_task(tasks: &Value) -> &Value {
    let tasks = tasks.as_array().map(Vec::as_slice).unwrap_or_default();
    tasks.iter().find(|task| task["type"] == "rebalance").unwrap_or(&Value::Null)
}

fn progress(task: &Value) -> String {
    let what = if task["subtype"] == "gracefulFailover" { "graceful failover" } else { "rebalance" };
    let mut text = format!("{what}: {:.1} %", task["progress"].as_f64().unwrap_or(0.0));
    let settee = &task["settee"];
    match (settee["movesDone"].as_u64(), settee["movesTotal"].as_u64()) {
        (_, Some(0)) => text += ", no vBucket has to be copied",
        (Some(done), Some(total)) => text += &format!(", {done} of {total} vBucket changes"),
        // The leader has yet to decide, or the node that answers has yet to hear of it.
        _ if settee.is_object() => text += ", working out which vBuckets change",
        _ => {}
    }
    if let Some(left) = settee["etaSecs"].as_u64() {
        text += &format!(", about {} left", duration(left));
    }
    if let Some(reason) = settee["waitsFor"].as_str() {
        text += &format!(" ({reason})");
    }
    text
}

fn duration(secs: u64) -> String {
    let (hours, minutes, seconds) = (secs / 3600, secs / 60 % 60, secs % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02} h")
    } else {
        format!("{minutes}:{seconds:02} min")
    }
}

/// One line that changes.
struct Line {
    terminal: bool,
    shown: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        Self { terminal: stderr().is_terminal(), shown: None }
    }

    fn show(&mut self, text: &str) {
        if self.terminal {
            // Back to the line's start, and clear to its end.
            eprint!("\r{text}\x1b[K");
            let _ = stderr().flush();
        } else if self.shown.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
            eprintln!("{text}");
        } else {
            return;
        }
        self.shown = Some(Instant::now());
    }

    fn finish(&self) {
        if self.terminal && self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_runs_is_told_with_what_is_left_and_what_failed_with_its_reason() {
        let task = |task: Value| json!([{ "type": "other" }, task]);
        let running = json!({
            "type": "rebalance", "status": "running", "progress": 42.04,
            "settee": { "movesDone": 3, "movesTotal": 7, "etaSecs": 75 },
        });
        let text = "rebalance: 42.0 %, 3 of 7 vBucket changes, about 1:15 min left";
        assert_eq!(news(&task(running)).as_deref(), Some(text));
        let begun = |moves: Value| {
            let settee = json!({ "movesDone": moves, "movesTotal": moves, "etaSecs": null });
            json!({ "type": "rebalance", "status": "running", "progress": 0.0, "settee": settee })
        };
        let text = "rebalance: 0.0 %, working out which vBuckets change";
        assert_eq!(news(&task(begun(Value::Null))).as_deref(), Some(text));
        let text = "rebalance: 0.0 %, no vBucket has to be copied";
        assert_eq!(news(&task(begun(json!(0)))).as_deref(), Some(text), "it is worked out");
        let failed = json!({ "type": "rebalance", "status": "notRunning", "errorMessage": "stopped" });
        assert_eq!(news(&task(failed)).as_deref(), Some("stopped"));
        assert_eq!(news(&task(json!({ "type": "rebalance", "status": "notRunning" }))), None);
        assert_eq!(duration(3_725), "1:02:05 h");
    }
}
