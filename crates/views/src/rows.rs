//! The bytes of an answer, written as its rows come.
//!
//! Keys and values are passed through. The order of members and the ends of lines are Couchbase's: clients parse answers
//! line by line.

use crate::{collation::RowKey, json::write_string};

/// Where a row comes from, told when a query is debugged.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The vBucket.
    pub partition: u16,
    /// The node: `local`, or an address.
    pub node: &'a str,
}

/// A row of a view that is not reduced.
#[derive(Clone, Copy, Debug)]
pub struct MapRow<'a> {
    /// The document.
    pub docid: &'a str,
    /// The text of its key.
    pub key: &'a [u8],
    /// The text of its value.
    pub value: &'a [u8],
    /// Where it comes from.
    pub origin: Option<Origin<'a>>,
}

/// An error of a node, told at the end.
#[derive(Clone, Copy, Debug)]
pub struct NodeError<'a> {
    /// The node: `local`, an address, or a URL.
    pub from: &'a str,
    /// What happened.
    pub reason: &'a str,
}

/// Writes one answer into buffers that the caller sends and empties as it likes.
#[derive(Debug, Default)]
pub struct Writer {
    has_rows: bool,
}

impl Writer {
    /// Writes what comes before the rows. `total_rows` is told for every query that does not reduce, `debug_info` is the
    /// text of an object.
    pub fn begin(total_rows: Option<u64>, debug_info: Option<&str>, out: &mut Vec<u8>) -> Self {
        head(total_rows, debug_info, out);
        out.extend_from_slice(b"\r\n");
        Self::default()
    }

    /// Writes a whole answer that has nothing but errors, since the query stops at the first.
    pub fn only_errors(total_rows: Option<u64>, errors: &[NodeError<'_>], out: &mut Vec<u8>) {
        head(total_rows, None, out);
        out.extend_from_slice(b"]\r\n");
        self::errors(errors, out);
        out.extend_from_slice(b"\r\n}\n");
    }

    /// Writes a row.
    pub fn map_row(&mut self, row: &MapRow<'_>, out: &mut Vec<u8>) {
        self.separate(out);
        out.extend_from_slice(b"{\"id\":");
        write_string(row.docid, out);
        out.extend_from_slice(b",\"key\":");
        out.extend_from_slice(row.key);
        if let Some(origin) = row.origin {
            out.extend_from_slice(format!(",\"partition\":{},\"node\":", origin.partition).as_bytes());
            write_string(origin.node, out);
        }
        end_row(row.value, out);
    }

    /// Writes the reduction of a group; the key of one that has all rows is `null`.
    pub fn reduced_row(&mut self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.separate(out);
        out.extend_from_slice(b"{\"key\":");
        out.extend_from_slice(key);
        end_row(value, out);
    }

    /// Writes what comes behind the rows.
    pub fn end(self, errors: &[NodeError<'_>], out: &mut Vec<u8>) {
        out.extend_from_slice(if self.has_rows { b"\r\n]" } else { b"]" });
        self::errors(errors, out);
        out.extend_from_slice(b"\r\n}\n");
    }

    fn separate(&mut self, out: &mut Vec<u8>) {
        if self.has_rows {
            out.extend_from_slice(b",\r\n");
        }
        self.has_rows = true;
    }
}

fn head(total_rows: Option<u64>, debug_info: Option<&str>, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(info) = debug_info {
        out.extend_from_slice(b"\"debug_info\":");
        out.extend_from_slice(info.as_bytes());
        out.push(b',');
    }
    if let Some(total) = total_rows {
        out.extend_from_slice(format!("\"total_rows\":{total},").as_bytes());
    }
    out.extend_from_slice(b"\"rows\":[");
}

fn end_row(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"value\":");
    out.extend_from_slice(value);
    out.push(b'}');
}

fn errors(errors: &[NodeError<'_>], out: &mut Vec<u8>) {
    if errors.is_empty() {
        return;
    }
    out.extend_from_slice(b",\r\n\"errors\":[\r\n");
    for (at, error) in errors.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b",\r\n");
        }
        out.extend_from_slice(b"{\"from\":");
        write_string(error.from, out);
        out.extend_from_slice(b",\"reason\":");
        write_string(error.reason, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"\r\n]");
}

impl<'a> MapRow<'a> {
    /// The row with these bytes in the index, and these texts.
    #[must_use]
    pub fn new(row: &'a RowKey<'_>, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { docid: &row.docid, key, value, origin: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(docid: &'a str, key: &'a str, value: &'a str) -> MapRow<'a> {
        MapRow { docid, key: key.as_bytes(), value: value.as_bytes(), origin: None }
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn answers_have_the_documented_bytes() {
        let mut out = Vec::new();
        Writer::begin(Some(0), None, &mut out).end(&[], &mut out);
        assert_eq!(text(&out), "{\"total_rows\":0,\"rows\":[\r\n]\r\n}\n");

        out.clear();
        let mut writer = Writer::begin(Some(7), None, &mut out);
        writer.map_row(&row("a\"b\n", "[1.0,\"x\"]", "null"), &mut out);
        writer.map_row(&row("é", "2", "{\"a\":1}"), &mut out);
        writer.end(&[], &mut out);
        let rows = "{\"id\":\"a\\\"b\\n\",\"key\":[1.0,\"x\"],\"value\":null},\r\n{\"id\":\"é\",\"key\":2,\"value\":{\"a\":1}}";
        assert_eq!(text(&out), format!("{{\"total_rows\":7,\"rows\":[\r\n{rows}\r\n]\r\n}}\n"));

        out.clear();
        let mut writer = Writer::begin(None, None, &mut out);
        writer.reduced_row(b"null", b"3", &mut out);
        writer.end(&[], &mut out);
        assert_eq!(text(&out), "{\"rows\":[\r\n{\"key\":null,\"value\":3}\r\n]\r\n}\n");
    }

    #[test]
    fn rows_tell_where_they_come_from() {
        let mut out = Vec::new();
        let mut writer = Writer::begin(Some(1), Some("{\"local\":{}}"), &mut out);
        let origin = Some(Origin { partition: 7, node: "local" });
        writer.map_row(&MapRow { origin, ..row("a", "1", "2") }, &mut out);
        writer.end(&[], &mut out);
        let row = "{\"id\":\"a\",\"key\":1,\"partition\":7,\"node\":\"local\",\"value\":2}";
        let head = "{\"debug_info\":{\"local\":{}},\"total_rows\":1,\"rows\":[\r\n";
        assert_eq!(text(&out), format!("{head}{row}\r\n]\r\n}}\n"));
    }

    #[test]
    fn errors_come_at_the_end() {
        let errors = [
            NodeError { from: "h:8092", reason: "econnrefused" },
            NodeError { from: "local", reason: "a \"b\"" },
        ];
        let told = "\"errors\":[\r\n{\"from\":\"h:8092\",\"reason\":\"econnrefused\"},\r\n{\"from\":\"local\",\"reason\":\"a \\\"b\\\"\"}\r\n]\r\n}\n";
        let mut out = Vec::new();
        let mut writer = Writer::begin(Some(1), None, &mut out);
        writer.map_row(&row("a", "1", "2"), &mut out);
        writer.end(&errors, &mut out);
        let rows = "{\"total_rows\":1,\"rows\":[\r\n{\"id\":\"a\",\"key\":1,\"value\":2}\r\n],\r\n";
        assert_eq!(text(&out), format!("{rows}{told}"));

        out.clear();
        Writer::only_errors(Some(0), &errors, &mut out);
        assert_eq!(text(&out), format!("{{\"total_rows\":0,\"rows\":[]\r\n,\r\n{told}"));
    }
}
