//! The view of the published benchmark over the song data set: the songs that carry the tag "electronic".

use std::time::Duration;

use client::{
    ClientError, Rest, Result,
    rest::{Opened, percent},
};
use serde_json::json;

/// The design document and its view.
pub(crate) const DESIGN_DOCUMENT: &str = "songs";
pub(crate) const VIEW: &str = "electronic";
/// The map function as it was published, with the variable that it does not declare.
const MAP: &str = include_str!("electronic.js");
/// The index of the full set is built within minutes on a laptop.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Stores the view, waits until all songs are in its index, and tells how many of them it has. `port` is a port of views.
///
/// # Errors
/// The node is not reached, or refuses.
pub(crate) fn publish(port: &Rest, bucket: &str) -> Result<u64> {
    store(port, bucket)?;
    count(port, bucket)
}

/// Stores the view.
///
/// # Errors
/// The node is not reached, or refuses.
pub(crate) fn store(port: &Rest, bucket: &str) -> Result<()> {
    let path = format!("/{}/_design/{DESIGN_DOCUMENT}", percent(bucket));
    let view = json!({ "views": { VIEW: { "map": MAP.trim_end(), "reduce": "_count" } } });
    port.put_json(&path, &view).map(|_| ())
}

/// Waits until all songs are in the index of the view, and tells how many of them it has.
///
/// # Errors
/// The node is not reached, or has no answer.
pub(crate) fn count(port: &Rest, bucket: &str) -> Result<u64> {
    let bucket = percent(bucket);
    let path = format!("/{bucket}/_design/{DESIGN_DOCUMENT}/_view/{VIEW}?stale=false&reduce=true");
    let answer = port.within(PATIENCE).get_json(&path)?;
    // An index without rows has no reduction.
    let count = match answer["rows"].as_array().map(Vec::as_slice) {
        Some([]) => Some(0),
        Some([row]) => row["value"].as_u64(),
        _ => None,
    };
    count
        .filter(|_| answer.get("errors").is_none())
        .ok_or_else(|| ClientError::Protocol(format!("GET {path} is not answered in full: {answer}")))
}

/// Asks for all rows of the view, with their songs.
///
/// # Errors
/// The node is not reached.
pub(crate) fn rows(port: &Rest, bucket: &str) -> Result<Opened> {
    let path =
        format!("/{}/_design/{DESIGN_DOCUMENT}/_view/{VIEW}?stale=false&reduce=false", percent(bucket));
    port.within(PATIENCE).open("GET", &path, None)
}

#[cfg(test)]
mod tests {
    use views::{
        js::{Body, Document, Functions, Limits, Sources},
        json,
    };

    use super::*;
    use crate::songs::Songs;

    #[test]
    fn the_view_has_the_songs_that_the_generator_counts() {
        let songs = Songs::new(1);
        let sources = Sources { maps: vec![MAP.trim_end().to_owned()], reduces: Vec::new() };
        let mut functions = Functions::new(sources, Limits::default(), true).expect("a function");
        let mut rows = 0;
        for number in 0..500 {
            let mut text = Vec::new();
            songs.document(number, &mut text);
            let text = String::from_utf8(text).expect("JSON");
            let mapped = functions.map(&Document { meta: "{\"id\":\"x\"}", body: Body::Json(&text) });
            let mapped = mapped.rows.expect("rows").remove(0).expect("rows");
            for row in &mapped {
                assert!(
                    json::members(&row.value).is_some_and(|members| members.len() >= 6),
                    "the whole song"
                );
            }
            rows += mapped.len() as u64;
        }
        assert!(rows > 0);
        assert_eq!(rows, songs.count_electronic(500));
    }
}
