//! What became of all documents, in words.

use std::{collections::BTreeMap, time::Duration};

use views::{collation, js::Row};

use super::{
    super::text::{cell, printable},
    runner::Tried,
};
use crate::table::table;

/// Most characters of a cell.
const CELL_CHARACTERS: usize = 60;
/// Most different texts of one kind that are told.
const TEXTS: usize = 10;
/// Most different texts of one kind that are kept: a text may name its document.
const TEXTS_KEPT: usize = 1000;

/// How often a text came, and with which document first.
type Texts = BTreeMap<String, (usize, String)>;

/// What became of all documents.
#[derive(Default)]
pub(super) struct Outcome {
    /// The document of each row, and the row.
    rows: Vec<(String, Row)>,
    /// Documents by how many rows they have: none, some.
    without: usize,
    with: usize,
    failed: usize,
    errors: Texts,
    logs: Texts,
    left_out: BTreeMap<&'static str, usize>,
    times: Vec<Duration>,
    /// Time was over before all documents were tried.
    pub(super) stopped: bool,
}

impl Outcome {
    /// Takes what became of a document.
    pub(super) fn take(&mut self, id: String, tried: Tried) {
        self.times.push(tried.time);
        for text in tried.mapped.logs {
            count(&mut self.logs, text, &id);
        }
        // One function was asked.
        let rows = tried.mapped.rows.and_then(|views| views.into_iter().next().unwrap_or(Ok(Vec::new())));
        match rows {
            Ok(rows) if rows.is_empty() => self.without += 1,
            Ok(rows) => {
                self.with += 1;
                self.rows.extend(rows.into_iter().map(|row| (id.clone(), row)));
            }
            Err(failure) => {
                self.failed += 1;
                count(&mut self.errors, failure.text, &id);
            }
        }
    }

    /// Counts a document that no view has, for this reason.
    pub(super) fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    pub(super) fn documents(&self) -> usize {
        self.with + self.without + self.failed
    }

    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    pub(super) fn rows(&self) -> &[(String, Row)] {
        &self.rows
    }

    /// Puts the rows into the order of a query.
    pub(super) fn sort(&mut self) {
        self.rows.sort_by_cached_key(|(id, row)| {
            let mut key = Vec::new();
            // What is no key was emitted by nobody: it would come first.
            let _ = collation::encode(&row.key, &mut key);
            (key, id.clone())
        });
    }

    pub(super) fn report(&self, rows: usize) -> String {
        let shown = self.rows.iter().take(rows).map(|(id, row)| {
            [&row.key, &row.value, id].iter().map(|text| cell(text, CELL_CHARACTERS)).collect()
        });
        let mut out = String::new();
        if !self.rows.is_empty() && rows > 0 {
            out += &table(&["KEY", "VALUE", "ID"], shown.collect());
            if self.rows.len() > rows {
                out += &format!("({} more rows; --rows shows more)\n", self.rows.len() - rows);
            }
            out.push('\n');
        }
        let bytes: usize = self.rows.iter().map(|(_, row)| row.key.len() + row.value.len()).sum();
        out += &format!(
            "{} documents: {} with rows ({} rows, {bytes} bytes of keys and values), {} without, {} failed\n",
            self.documents(),
            self.with,
            self.rows.len(),
            self.without,
            self.failed
        );
        for (why, count) in &self.left_out {
            out += &format!("{count} documents are in no view: {why}\n");
        }
        if self.stopped {
            out += "time was over before all were tried; --seconds gives more\n";
        }
        out += &self.time();
        out += &told("errors", &self.errors);
        out + &told("logged", &self.logs)
    }

    /// The first document waits for the process to load the functions, so it is left out where there are others.
    fn time(&self) -> String {
        let mut times: Vec<Duration> =
            self.times.iter().skip(usize::from(self.times.len() > 1)).copied().collect();
        times.sort_unstable();
        let micros = |at: usize| times.get(at).copied().unwrap_or_default().as_micros();
        let last = times.len().saturating_sub(1);
        format!(
            "time per document: {} us in the middle, {} us at most\n",
            micros(times.len() / 2),
            micros(last)
        )
    }
}

fn count(texts: &mut Texts, text: String, id: &str) {
    if texts.len() < TEXTS_KEPT || texts.contains_key(&text) {
        texts.entry(text).or_insert_with(|| (0, id.to_owned())).0 += 1;
    }
}

fn told(what: &str, texts: &Texts) -> String {
    if texts.is_empty() {
        return String::new();
    }
    let mut all: Vec<_> = texts.iter().collect();
    all.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let lines = all.iter().take(TEXTS).map(|(text, (count, id))| {
        format!("  {count} x {}   first with document {}\n", printable(text), cell(id, CELL_CHARACTERS))
    });
    let more = all.len().saturating_sub(TEXTS);
    let rest = if more > 0 { format!("  and {more} other texts\n") } else { String::new() };
    format!("{what}:\n{}{rest}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use views::js::{Failure, FailureKind, Mapped};

    use super::*;

    #[test]
    fn rows_come_in_the_order_of_a_query_and_errors_are_counted() {
        let mut outcome = Outcome::default();
        let row = |key: &str| Row { key: key.to_owned(), value: "null".to_owned() };
        let tried = |rows: Result<Vec<Row>, Failure>, time: u64| Tried {
            mapped: Mapped { rows: Ok(vec![rows]), logs: vec!["said".to_owned()] },
            time: Duration::from_micros(time),
        };
        outcome.take("b".to_owned(), tried(Ok(vec![row("\"x\""), row("2")]), 900));
        outcome.take("a".to_owned(), tried(Ok(vec![row("2")]), 5));
        outcome.take("c".to_owned(), tried(Ok(Vec::new()), 7));
        for id in ["d", "e"] {
            outcome.take(id.to_owned(), tried(Err(Failure::new(FailureKind::Thrown, "wrong")), 6));
        }
        outcome.leave_out("they are not there");
        outcome.sort();
        let expected = "KEY  VALUE  ID\n2    null   a\n2    null   b\n(1 more rows; --rows shows more)\n\n\
                        5 documents: 2 with rows (3 rows, 17 bytes of keys and values), 1 without, 2 failed\n\
                        1 documents are in no view: they are not there\n\
                        time per document: 6 us in the middle, 7 us at most\n\
                        errors:\n  2 x wrong   first with document d\n\
                        logged:\n  5 x said   first with document b\n";
        assert_eq!(outcome.report(2), expected);
        assert_eq!((outcome.documents(), outcome.failed(), outcome.rows().len()), (5, 2, 3));
    }
}
