//! The answer to a query, row by row as it comes. Nodes send one row a line, so an answer is never whole in memory.

use std::io::{BufRead, BufReader, ErrorKind, Read};

use serde_json::Value;

/// A longer line is no row of a node's: values have at most 16 MiB.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands) enum Part {
    /// What comes before the rows: `total_rows` where the query does not reduce, `debug_info` where it was asked for.
    Head(Value),
    /// The text of a row.
    Row(String),
    /// What went wrong on a node: `from` and `reason`.
    Error(Value),
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    Rows,
    Behind,
    Errors,
    End,
}

/// Reads an answer.
pub(in crate::commands) struct Parts<R> {
    lines: BufReader<R>,
    at: At,
}

/// Why an answer cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(in crate::commands) enum Broken {
    #[error("it breaks off")]
    Off,
    #[error("its next row did not come in time")]
    Late,
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    #[error("it is no answer to a query: {0:?}")]
    Other(String),
}

impl<R: Read> Parts<R> {
    pub(in crate::commands) fn new(body: R) -> Self {
        Self { lines: BufReader::new(body), at: At::Head }
    }

    fn line(&mut self) -> Result<String, Broken> {
        let mut line = String::new();
        match self.lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
            // The length of the body is known: it ends early where the node gave up.
            Ok(_) => Err(Broken::Off),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Broken::Late),
            Err(error) => Err(error.into()),
        }
    }

    /// The next part; `None` behind the last one.
    pub(in crate::commands) fn next(&mut self) -> Result<Option<Part>, Broken> {
        while self.at != At::End {
            let line = self.line()?;
            if let Some(part) = self.take(&line)? {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    fn take(&mut self, line: &str) -> Result<Option<Part>, Broken> {
        let other = || Broken::Other(line.chars().take(200).collect());
        let object = line.strip_suffix(',').unwrap_or(line);
        let is_object = object.starts_with('{') && object.ends_with('}');
        match self.at {
            At::Head => {
                let (rest, at) = match line.strip_suffix(']') {
                    Some(rest) => (rest, At::Behind),
                    None => (line, At::Rows),
                };
                let head = serde_json::from_str(&format!("{rest}]}}")).map_err(|_| other())?;
                self.at = at;
                Ok(Some(Part::Head(head)))
            }
            At::Rows if is_object => Ok(Some(Part::Row(object.to_owned()))),
            At::Errors if is_object => {
                Ok(Some(Part::Error(serde_json::from_str(object).map_err(|_| other())?)))
            }
            At::Rows | At::Errors if object == "]" => {
                self.at = At::Behind;
                Ok(None)
            }
            At::Behind => {
                match line {
                    "}" => self.at = At::End,
                    "\"errors\":[" => self.at = At::Errors,
                    "," => {}
                    _ => return Err(other()),
                }
                Ok(None)
            }
            _ => Err(other()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use views::rows::{MapRow, NodeError, Writer};

    use super::*;

    fn parts(text: &[u8]) -> Result<Vec<Part>, Broken> {
        let mut parts = Parts::new(text);
        let mut all = Vec::new();
        while let Some(part) = parts.next()? {
            all.push(part);
        }
        Ok(all)
    }

    /// An answer as a node writes it.
    fn answer(errors: &[NodeError<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::begin(Some(2), Some("{\"local\":{}}"), &mut out);
        for docid in ["a", "b"] {
            writer.map_row(&MapRow { docid, key: b"[1,\"]\"]", value: b"1.0", origin: None }, &mut out);
        }
        writer.end(errors, &mut out);
        out
    }

    #[test]
    fn rows_and_errors_come_as_the_node_wrote_them() {
        let head = Part::Head(json!({"debug_info": {"local": {}}, "total_rows": 2, "rows": []}));
        let row = |id: &str| Part::Row(format!("{{\"id\":\"{id}\",\"key\":[1,\"]\"],\"value\":1.0}}"));
        assert_eq!(parts(&answer(&[])).unwrap(), [head.clone(), row("a"), row("b")]);
        let errors = [NodeError { from: "local", reason: "x" }, NodeError { from: "h:8092", reason: "y" }];
        let error = |from: &str, reason: &str| Part::Error(json!({"from": from, "reason": reason}));
        let told = [error("local", "x"), error("h:8092", "y")];
        assert_eq!(
            parts(&answer(&errors)).unwrap(),
            [head, row("a"), row("b"), told[0].clone(), told[1].clone()]
        );
        let mut out = Vec::new();
        Writer::only_errors(None, &errors, &mut out);
        assert_eq!(parts(&out).unwrap(), [Part::Head(json!({"rows": []})), told[0].clone(), told[1].clone()]);
        out.clear();
        Writer::begin(None, None, &mut out).end(&[], &mut out);
        assert_eq!(parts(&out).unwrap(), [Part::Head(json!({"rows": []}))]);
    }

    #[test]
    fn an_answer_that_breaks_off_is_told_from_a_whole_one() {
        let whole = answer(&[NodeError { from: "local", reason: "x" }]);
        for length in 0..whole.len() {
            assert!(parts(&whole[..length]).is_err(), "{}", String::from_utf8_lossy(&whole[..length]));
        }
        assert!(matches!(parts(b"{\"error\":\"x\"}\n"), Err(Broken::Other(_))));
    }
}
