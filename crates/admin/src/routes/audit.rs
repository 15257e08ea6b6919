//! `/settee/audit`: the audit trails of all nodes, newest first. Of Settee alone.
//!
//! Each node reads its own trail backwards, from a place that the request names. What they tell is put together by time, as far as no
//! node could have told of something newer. So somebody who goes through all pages misses no event, and sees none twice.

use std::collections::{BTreeMap, VecDeque};

use axum::http::StatusCode;
use base::NodeId;
use cluster::{NodeInfo, config};
use http::reply::{self, Outcome, Refusal, json_ok};
use serde_json::{Value, json};

use super::nodes;
use crate::{
    node::audit::{TrailEvent, TrailPage, TrailPlace, TrailQuestion},
    request::{Call, asking},
};

/// Where nodes tell the others.
const PATH: &str = "/_settee/audit";
/// Events of an answer where a request does not say, and most of them.
const EVENTS: usize = 100;
const EVENTS_MAX: usize = 500;
/// Characters of what a request may look for.
const WORD_MAX: usize = 256;

/// How far somebody has read the trail of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    To(TrailPlace),
    All,
}

/// `GET /settee/audit`.
pub(super) async fn show(call: &Call) -> Outcome {
    let limit = match call.query.get("limit").map(str::parse::<u64>) {
        None => EVENTS,
        Some(Ok(0) | Err(_)) => {
            return Err(reply::invalid_field("limit", "The value must be a positive integer"));
        }
        Some(Ok(limit)) => usize::try_from(limit).unwrap_or(usize::MAX).min(EVENTS_MAX),
    };
    let read = call.query.get("before").map_or_else(|| Ok(BTreeMap::new()), |text| parsed(text).ok_or(()));
    let read =
        read.map_err(|()| reply::invalid_field("before", "The value must be what an answer had in before"))?;
    let question = TrailQuestion {
        user: word(call, "user")?,
        event: word(call, "event")?,
        limit,
        before: places(&read),
    };
    let asked: Vec<&NodeInfo> = config::shown_nodes(&call.meta)
        .into_iter()
        .filter(|node| read.get(&node.id) != Some(&Read::All))
        .collect();
    let body = serde_json::to_vec(&question).unwrap_or_default();
    let own = call.api.control.trail(question).await;
    let cannot_read = own.is_none();
    let (told, mut missing) = asking::these_about(call, PATH, body, &asked, || own).await;
    let this = call.api.control.this_node();
    missing.extend(asked.iter().filter(|node| cannot_read && node.uuid == this).map(|node| node.id));
    let unreadable: u64 = told.iter().map(|(_, page)| page.unreadable).sum();
    let (events, read) = merged(told, limit, read);
    let is_over = asked.iter().all(|node| read.get(&node.id) == Some(&Read::All));
    let name = |node| call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
    let shown = events.into_iter().map(|(node, mut event)| {
        event["node"] = name(node).into();
        event
    });
    Ok(json_ok(&json!({
        "events": shown.collect::<Vec<_>>(), "before": (!is_over).then(|| written(&read)), "unreadable": unreadable,
        "missingNodes": missing.into_iter().filter_map(name).collect::<Vec<_>>(),
    })))
}

/// `POST /_settee/audit`: what this node's trail has.
pub(super) async fn answer(call: &Call) -> Outcome {
    let Ok(question) = serde_json::from_slice::<TrailQuestion>(&call.body) else {
        return Err(reply::bad_request("the question is no JSON of a question"));
    };
    let limit = question.limit.min(EVENTS_MAX);
    match call.api.control.trail(TrailQuestion { limit, ..question }).await {
        Some(page) => Ok(json_ok(&serde_json::to_value(page).unwrap_or_default())),
        None => Ok(reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the audit trail cannot be read")),
    }
}

fn word(call: &Call, name: &str) -> Result<Option<String>, Refusal> {
    let word = call.query.get(name).filter(|word| !word.is_empty());
    match word.is_some_and(|word| word.chars().nth(WORD_MAX).is_some()) {
        true => Err(reply::invalid_field(name, format!("The value must have at most {WORD_MAX} characters"))),
        false => Ok(word.map(str::to_owned)),
    }
}

fn places(read: &BTreeMap<NodeId, Read>) -> BTreeMap<NodeId, TrailPlace> {
    let place = |(node, read): (&NodeId, &Read)| match read {
        Read::To(place) => Some((*node, *place)),
        Read::All => None,
    };
    read.iter().filter_map(place).collect()
}

/// What nodes have told by time, newest first; and how far each was read by that.
///
/// Where a node may know of something older that it has not told, nothing is taken that could be older than that.
fn merged(
    told: Vec<(NodeId, TrailPage)>,
    limit: usize,
    mut read: BTreeMap<NodeId, Read>,
) -> (Vec<(NodeId, Value)>, BTreeMap<NodeId, Read>) {
    struct Left {
        node: NodeId,
        events: VecDeque<TrailEvent>,
        further: Option<TrailPlace>,
    }
    let mut left: Vec<Left> = Vec::new();
    for (node, page) in told {
        if let Some(first) = page.events.first() {
            // A node of which nothing is taken tells this event again.
            let behind = TrailPlace { at: first.place.at.saturating_add(1), ..first.place };
            read.entry(node).or_insert(Read::To(behind));
        }
        left.push(Left { node, events: page.events.into(), further: page.further });
    }
    let mut taken = Vec::new();
    while taken.len() < limit && !left.iter().any(|one| one.events.is_empty() && one.further.is_some()) {
        let at = |one: &Left| {
            one.events.front().map(|event| event.event["timestamp_ms"].as_u64().unwrap_or_default())
        };
        let newest = left.iter_mut().filter(|one| !one.events.is_empty()).max_by_key(|one| at(one));
        let Some((one, event)) = newest.and_then(|one| one.events.pop_front().map(|event| (one, event)))
        else {
            break;
        };
        read.insert(one.node, Read::To(event.place));
        taken.push((one.node, event.event));
    }
    for one in left.into_iter().filter(|one| one.events.is_empty()) {
        read.insert(one.node, one.further.map_or(Read::All, Read::To));
    }
    (taken, read)
}

/// How far nodes were read, as a request names it: `NODE-FILE-AT` or `NODE-end`, between commas.
fn written(read: &BTreeMap<NodeId, Read>) -> String {
    let one = |(node, read): (&NodeId, &Read)| match read {
        Read::To(TrailPlace { file, at }) => format!("{}-{file:016x}-{at}", node.0),
        Read::All => format!("{}-end", node.0),
    };
    read.iter().map(one).collect::<Vec<_>>().join(",")
}

fn parsed(text: &str) -> Option<BTreeMap<NodeId, Read>> {
    let one = |part: &str| {
        let mut parts = part.split('-');
        let node = NodeId(parts.next()?.parse().ok()?);
        let read = match (parts.next()?, parts.next()) {
            ("end", None) => Read::All,
            (file, Some(at)) => {
                Read::To(TrailPlace { file: u64::from_str_radix(file, 16).ok()?, at: at.parse().ok()? })
            }
            _ => return None,
        };
        parts.next().is_none().then_some((node, read))
    };
    text.split(',').filter(|part| !part.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trail of events at these times, the oldest first, as its node tells it in pages.
    fn page(times: &[u64], question: usize, before: Option<TrailPlace>) -> TrailPage {
        let end = before.map_or(times.len() as u64 * 10, |place| place.at);
        let lines = times.iter().enumerate().map(|(number, ms)| (number as u64 * 10, ms));
        let mut older: Vec<_> = lines.filter(|(at, _)| *at < end).collect();
        older.reverse();
        let events: Vec<_> = older
            .iter()
            .take(question)
            .map(|(at, ms)| TrailEvent {
                place: TrailPlace { file: 7, at: *at },
                event: json!({ "timestamp_ms": ms }),
            })
            .collect();
        let further = (older.len() > question)
            .then(|| events.last().map_or(TrailPlace { file: 7, at: end }, |one| one.place));
        TrailPage { events, further, unreadable: 0 }
    }

    #[test]
    fn somebody_who_goes_through_all_pages_sees_each_event_of_each_node_once_and_in_order() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let trails: Vec<Vec<u64>> = (0..3)
                .map(|_| {
                    let mut times: Vec<u64> = (0..random.usize(..40)).map(|_| random.u64(..60)).collect();
                    times.sort_unstable();
                    times
                })
                .collect();
            let limit = random.usize(1..8);
            let (mut read, mut seen) = (BTreeMap::new(), Vec::new());
            for turn in 0.. {
                assert!(turn < 50_000, "seed {seed}");
                let places = places(&read);
                let told = (0..3_u16)
                    .map(NodeId)
                    .filter(|node| read.get(node) != Some(&Read::All))
                    // A node may tell less than it is asked for, even nothing.
                    .map(|node| {
                        (
                            node,
                            page(
                                &trails[usize::from(node.0)],
                                random.usize(..=limit),
                                places.get(&node).copied(),
                            ),
                        )
                    })
                    .collect();
                let (events, next) = merged(told, limit, read);
                assert!(events.len() <= limit, "seed {seed}");
                seen.extend(events.into_iter().map(|(_, event)| event["timestamp_ms"].as_u64().unwrap()));
                read = parsed(&written(&next)).unwrap();
                assert_eq!(read, next, "seed {seed}");
                if read.len() == 3 && read.values().all(|one| *one == Read::All) {
                    break;
                }
            }
            let mut expected = trails.concat();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(seen, expected, "seed {seed}");
        }
    }

    #[test]
    fn a_place_that_no_answer_had_is_none() {
        for text in [
            "x",
            "1",
            "1-2",
            "1-x-3",
            "1-2-x",
            "1--1",
            "1-2-3-4",
            "70000-end",
            "-1-2-3",
            "1-2-99999999999999999999",
            "1-end-2",
            "é",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(parsed(""), Some(BTreeMap::new()));
    }
}
