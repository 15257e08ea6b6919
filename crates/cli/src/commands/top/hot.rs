//! `settee top --hot`: documents, addresses and connections with the most operations.

use serde_json::Value;

use super::super::{Failure, cluster::Session};
use crate::table::table;

/// Rows of each table.
const ROWS: usize = 15;
const DOCUMENTS: [&str; 6] = ["DOCUMENT", "COLLECTION", "BUCKET", "NODE", "OF ITS BUCKET", "OPS/S"];
const ADDRESSES: [&str; 5] = ["ADDRESS", "BUCKET", "NODE", "OF ITS BUCKET", "OPS/S"];
const CONNECTIONS: [&str; 9] =
    ["CONNECTION", "USER", "BUCKET", "NODE", "OPS/S", "IN KIB/S", "OUT KIB/S", "IDLE S", "PROGRAM"];

/// The screen, with the parts that the user may see.
pub(super) fn page(session: &Session, only: (Option<&str>, Option<&str>)) -> Result<String, Failure> {
    let buckets = session.get("/pools/default/buckets?skipMap=true")?;
    let names = buckets.as_array().into_iter().flatten().filter_map(|bucket| bucket["name"].as_str());
    let mut documents = Vec::new();
    for name in names.filter(|name| only.1.is_none_or(|part| name.contains(part))) {
        // A user who may not read a bucket is shown the others.
        if let Ok(hot) = session.get(&format!("/settee/hot/{}", client::rest::percent(name))) {
            documents.push(hot);
        }
    }
    let connections = session.get("/settee/connections");
    let refused = connections.as_ref().err().map(|failure| failure.0.clone());
    Ok(shown(&documents, connections.ok().as_ref(), refused.as_deref(), only))
}

fn shown(
    documents: &[Value],
    connections: Option<&Value>,
    refused: Option<&str>,
    (node, bucket): (Option<&str>, Option<&str>),
) -> String {
    let fits = |row: &Value| {
        let has = |name: &str, part: Option<&str>| part.is_none_or(|part| text(row, name).contains(part));
        has("node", node) && has("bucket", bucket)
    };
    let mut keys: Vec<(&str, &Value)> = Vec::new();
    for hot in documents {
        let of = hot["bucket"].as_str().unwrap_or_default();
        let shown = hot["keys"].as_array().into_iter().flatten();
        keys.extend(
            shown.filter(|key| node.is_none_or(|part| text(key, "node").contains(part))).map(|key| (of, key)),
        );
    }
    keys.sort_by(|one, other| rate(other.1).total_cmp(&rate(one.1)));
    let rows = keys.iter().take(ROWS).map(|(of, key)| {
        let collection = format!("{}.{}", text(key, "scope"), text(key, "collection"));
        vec![text(key, "key"), collection, (*of).to_owned(), text(key, "node"), share(key), operations(key)]
    });
    let mut page = table(&DOCUMENTS, rows.collect());
    if keys.is_empty() {
        page += "No document that you may read takes many operations.\n";
    }
    page += "\n";
    let Some(connections) = connections else {
        page += &format!("Connections are not shown: {}\n", refused.unwrap_or_default());
        return page;
    };
    let list =
        |name: &str| connections[name].as_array().into_iter().flatten().filter(|row| fits(row)).take(ROWS);
    let rows = list("clients").map(|row| {
        vec![text(row, "address"), text(row, "bucket"), text(row, "node"), share(row), number(rate(row))]
    });
    page += &table(&ADDRESSES, rows.collect());
    page += "\n";
    let kib = |row: &Value, name: &str| number(row[name].as_f64().unwrap_or_default() / 1_024.0);
    let rows = list("connections").map(|row| {
        vec![
            text(row, "client"),
            text(row, "user"),
            text(row, "bucket"),
            text(row, "node"),
            number(rate(row)),
            kib(row, "bytesReadPerSecond"),
            kib(row, "bytesWrittenPerSecond"),
            number(row["idleMs"].as_f64().unwrap_or_default() / 1_000.0),
            text(row, "agent"),
        ]
    });
    page += &table(&CONNECTIONS, rows.collect());
    page
}

/// A text for a terminal. Clients choose keys and names: what moves a cursor is escaped.
fn text(row: &Value, name: &str) -> String {
    let mut shown = String::new();
    for one in row[name].as_str().unwrap_or_default().chars() {
        if one.is_control() {
            shown.extend(one.escape_default());
        } else {
            shown.push(one);
        }
    }
    shown
}

fn rate(row: &Value) -> f64 {
    row["operationsPerSecond"].as_f64().unwrap_or_default()
}

/// Users without the right to statistics are not told how many.
fn operations(row: &Value) -> String {
    if row["operationsPerSecond"].is_null() { "-".to_owned() } else { number(rate(row)) }
}

fn share(row: &Value) -> String {
    row["share"].as_f64().map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn number(figure: f64) -> String {
    format!("{figure:.0}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hottest_document_of_all_buckets_comes_first_and_no_key_moves_the_cursor() {
        let of = |bucket: &str, key: &str, rate: f64| {
            let key = json!({ "key": key, "scope": "_default", "collection": "c", "node": "one:8091", "share": 0.5,
                "operationsPerSecond": rate });
            json!({ "bucket": bucket, "keys": [key] })
        };
        let documents = [of("a", "cold", 10.0), of("b", "hot\u{1b}[2J", 900.0)];
        let connections = json!({
            "clients": [{ "address": "10.0.0.1", "bucket": "b", "node": "one:8091", "share": 1.0 }],
            "connections": [
                { "client": "10.0.0.1:4", "bucket": "b", "node": "one:8091", "idleMs": 2_000, "agent": "python/4" },
                { "client": "10.0.0.2:4", "bucket": "a", "node": "two:8091" },
            ],
        });
        let page = shown(&documents, Some(&connections), None, (None, None));
        let at = |text: &str| page.find(text).unwrap_or(usize::MAX);
        assert!(at("hot\\u{1b}[2J") < at("cold") && at("cold") < at("10.0.0.1"), "{page}");
        assert!(page.contains("_default.c") && page.contains("python/4"), "{page}");
        let page = shown(&documents, Some(&connections), None, (Some("one"), Some("b")));
        assert!(page.contains("10.0.0.1:4") && !page.contains("10.0.0.2"), "{page}");
        let page = shown(&[], None, Some("403"), (None, None));
        assert!(page.contains("No document") && page.ends_with("Connections are not shown: 403\n"), "{page}");
    }
}
