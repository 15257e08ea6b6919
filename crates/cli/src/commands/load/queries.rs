//! The third phase of the scaling run: all songs that carry the tag "electronic", by the published view, and checked.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use client::Rest;
use views::json;

use super::super::{
    Failure,
    songs_load::SEED_DEFAULT,
    view::rows::{Part, Parts},
};
use crate::songs::{Songs, view};

/// How long the index took to have all songs, and then the query.
pub(super) struct Queried {
    pub(super) indexed: Duration,
    pub(super) query: Duration,
    pub(super) rows: usize,
    /// Until the first row came.
    pub(super) first: Duration,
}

/// Waits until the index of the view has all songs, asks for all rows, and holds their number and each of them against the generator.
/// `port` is a port of views.
pub(super) fn run(port: &Rest, bucket: &str, records: u64) -> Result<Queried, Failure> {
    let failed = |error| Failure::doing("phase query has failed", error);
    let began = Instant::now();
    let count = view::count(port, bucket).map_err(failed)?;
    let indexed = began.elapsed();
    let songs = Songs::new(SEED_DEFAULT);
    let electronic = (0..records).filter(|&number| songs.is_electronic(number));
    let mut missing: HashSet<Vec<u8>> = electronic.map(|number| songs.key(number).to_vec()).collect();
    let expected = missing.len();
    if count != expected as u64 {
        return Err(Failure(format!(
            "phase query has failed: the view counts {count} electronic songs, and the generator has made {expected}"
        )));
    }

    let began = Instant::now();
    let opened = view::rows(port, bucket).map_err(failed)?;
    if opened.code != 200 {
        return Err(Failure(format!("phase query has failed: the node answered {}", opened.code)));
    }
    let (mut parts, mut rows, mut first) = (Parts::new(opened.body), 0, Duration::ZERO);
    let wrong = |what: String| Failure(format!("phase query has failed: {what}"));
    while let Some(part) = parts.next().map_err(|error| wrong(format!("row {rows}: {error}")))? {
        match part {
            Part::Head(_) => {}
            Part::Error(error) => return Err(wrong(format!("rows are missing: {error}"))),
            Part::Row(text) => {
                if rows == 0 {
                    first = began.elapsed();
                }
                rows += 1;
                let id =
                    id_of(&text).ok_or_else(|| wrong(format!("row {rows} has another song than its id")))?;
                if !missing.remove(id.as_bytes()) {
                    return Err(wrong(format!("{id} came twice, or is not electronic")));
                }
            }
        }
    }
    if !missing.is_empty() {
        return Err(wrong(format!("{} of {expected} songs are missing", missing.len())));
    }
    Ok(Queried { indexed, query: began.elapsed(), rows, first })
}

/// The id of a row, where the row has the song of that id.
fn id_of(row: &str) -> Option<String> {
    let members = json::members(row)?;
    let of = |name: &str| members.iter().find(|(member, _)| member == name).map(|(_, value)| *value);
    let id = json::as_string(of("id")?)?;
    let song = json::members(of("value")?)?;
    let track =
        song.iter().find(|(member, _)| member == "track_id").and_then(|(_, value)| json::as_string(value))?;
    (track == id).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_song_of_its_id() {
        let row = |id: &str, track: &str| {
            format!("{{\"id\":\"{id}\",\"key\":\"{id}\",\"value\":{{\"a\":1,\"track_id\":\"{track}\"}}}}")
        };
        assert_eq!(id_of(&row("x", "x")).as_deref(), Some("x"));
        assert_eq!(id_of(&row("x", "y")), None);
        assert_eq!(id_of("{\"id\":\"x\",\"value\":null}"), None);
    }
}
