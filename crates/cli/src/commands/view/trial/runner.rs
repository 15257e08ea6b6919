//! The process that runs the functions, and what it is asked.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use views::{
    design::Invalid,
    js::{Failure as Wrong, Mapped, Row, Sources},
    reduce::{Native, State},
    worker::{Host, Job, OwnedDocument, Report, Settings},
};

use crate::commands::{Failure, functions};

/// The functions' number for the process; there are no others.
const CONTEXT: u32 = 0;
/// A process says something about a document after ten seconds at the latest, or is ended.
const TURN: Duration = Duration::from_secs(1);
/// Most rows of one reduction, and most bytes of their texts. Nodes reduce fewer at a time.
const ROWS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;

/// How rows are reduced.
enum Reduction {
    None,
    Native(Native),
    Function,
}

/// Runs the functions.
pub(super) struct Runner {
    host: Host,
    reduction: Reduction,
}

/// What became of a document, and how long that took.
pub(super) struct Tried {
    pub(super) mapped: Mapped,
    pub(super) time: Duration,
}

impl Runner {
    /// Checks the functions and loads them.
    pub(super) fn start(map: String, reduce: Option<String>) -> Result<Self, Failure> {
        let program = functions::program();
        let host = Host::new(Settings::default(), move || {
            let mut command = Command::new(&program.path);
            command.args(&program.arguments);
            command
        });
        let mut runner = Self { host, reduction: Reduction::None };
        runner.check("map", &map)?;
        let mut sources = Sources { maps: vec![map], reduces: Vec::new() };
        runner.reduction = match reduce.as_deref() {
            None => Reduction::None,
            Some("_count") => Reduction::Native(Native::Count),
            Some("_sum") => Reduction::Native(Native::Sum),
            Some("_stats") => Reduction::Native(Native::Stats),
            Some(name) if name.starts_with('_') => {
                return Err(Failure(format!(
                    "{name} is no reduction: those that are built in are _count, _sum and _stats"
                )));
            }
            Some(function) => {
                runner.check("reduce", function)?;
                sources.reduces.push(function.to_owned());
                Reduction::Function
            }
        };
        runner.host.define(CONTEXT, sources, true);
        Ok(runner)
    }

    /// Has a job done.
    fn ask(&mut self, job: Job) -> Result<Report, Failure> {
        self.host.submit(job);
        loop {
            let told = self.host.turn(TURN);
            let told = told.map_err(|error| Failure::doing("the functions' process does not run", error))?;
            if let Some((_, report)) = told.into_iter().next() {
                return Ok(report);
            }
        }
    }

    fn check(&mut self, which: &str, function: &str) -> Result<(), Failure> {
        let why = match self.ask(Job::Check { source: function.to_owned() })? {
            Report::Checked(Ok(())) => return Ok(()),
            Report::Checked(Err(Invalid::Syntax(text))) => text,
            Report::Checked(Err(Invalid::NotAFunction)) => {
                "it is no function: write function (doc, meta) { ... }".to_owned()
            }
            other => failure_of(other).text,
        };
        Err(Failure(format!("the {which} function cannot be used: {why}")))
    }

    /// Asks the map function about one document.
    pub(super) fn map(&mut self, document: OwnedDocument) -> Result<Tried, Failure> {
        let began = Instant::now();
        let report = self.ask(Job::Map { context: CONTEXT, documents: vec![document] })?;
        let time = began.elapsed();
        let mapped = match report {
            Report::Mapped { mut documents, .. } if !documents.is_empty() => documents.swap_remove(0),
            other => Mapped { rows: Err(failure_of(other)), logs: Vec::new() },
        };
        Ok(Tried { mapped, time })
    }

    /// What the rows are reduced to, in words; `None` where they are not.
    pub(super) fn reduced(&mut self, rows: &[(String, Row)]) -> Result<Option<String>, Failure> {
        match self.reduction {
            Reduction::None => Ok(None),
            Reduction::Native(native) => Ok(Some(built_in(native, rows))),
            Reduction::Function => self.reduced_by_function(rows).map(Some),
        }
    }

    fn reduced_by_function(&mut self, rows: &[(String, Row)]) -> Result<String, Failure> {
        let mut bytes = 0;
        let fit = rows.iter().take(ROWS_MAX).take_while(|(_, row)| {
            bytes += row.key.len() + row.value.len();
            bytes <= BYTES_MAX
        });
        let rows = &rows[..fit.count()];
        if rows.is_empty() {
            return Ok("there are no rows to reduce".to_owned());
        }
        let all = self.reduce(Some(rows), Vec::new())?;
        let (first, second) = rows.split_at(rows.len() / 2);
        let halves = [first, second].into_iter().filter(|half| !half.is_empty());
        let halves = halves.map(|half| self.reduce(Some(half), Vec::new())).collect::<Result<_, _>>()?;
        let again = self.reduce(None, halves)?;
        if all == again {
            return Ok(format!("{} rows are reduced to {all}", rows.len()));
        }
        Err(Failure(format!(
            "the reduce function gives two results for the same {} rows: {all} for all of them at once, {again} for two halves \
             that it reduces again (rereduce is true then, and values are its own results)",
            rows.len()
        )))
    }

    /// Rows, or else results, reduced.
    fn reduce(&mut self, rows: Option<&[(String, Row)]>, results: Vec<String>) -> Result<String, Failure> {
        let keys = rows.map(|rows| rows.iter().map(|(_, row)| row.key.clone()).collect());
        let values = rows.map(|rows| rows.iter().map(|(_, row)| row.value.clone()).collect());
        let job = Job::Reduce { context: CONTEXT, function: 0, keys, values: values.unwrap_or(results) };
        match self.ask(job)? {
            Report::Reduced(Ok(text)) => Ok(text),
            Report::Reduced(Err(failure)) => Err(Failure::doing("the reduce function failed", failure.text)),
            other => Err(Failure::doing("the reduce function failed", failure_of(other).text)),
        }
    }
}

/// What a report that is no result says.
fn failure_of(report: Report) -> Wrong {
    match report {
        Report::Failed(failure) => failure,
        _ => Wrong::new(views::js::FailureKind::Ended, "the functions' process answered something else"),
    }
}

fn built_in(native: Native, rows: &[(String, Row)]) -> String {
    let mut state = State::new(native);
    let left_out = rows.iter().filter(|(_, row)| state.add(&row.value).is_err()).count();
    let text = state.text().unwrap_or_else(|| "nothing".to_owned());
    let mut out = format!("{} rows are reduced to {text}", rows.len() - left_out);
    if left_out > 0 {
        out += &format!("; {left_out} are left out, since their values are no numbers");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_reductions_say_what_they_leave_out() {
        let row = |value: &str| (String::new(), Row { key: "1".to_owned(), value: value.to_owned() });
        let rows = [row("1"), row("2.5"), row("null")];
        assert_eq!(built_in(Native::Count, &rows), "3 rows are reduced to 3");
        let sum = "2 rows are reduced to 3.5; 1 are left out, since their values are no numbers";
        assert_eq!(built_in(Native::Sum, &rows), sum);
    }
}
