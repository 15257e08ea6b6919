//! What the connections of a worker do, for readers: those with the most load.
//!
//! A look compares with the look before, so a reader looks twice. It goes through all connections of its worker: nothing that runs
//! unless somebody with the right asks. The daemon lets readers take turns.

use std::{cmp::Reverse, collections::BinaryHeap};

use stats::{ConnectionLoad, ConnectionsReport};

use super::{
    live::{Live, Traffic},
    slab::Slab,
};
use crate::request::located::ConnectionId;

/// Connections that are told of each worker.
const BUSIEST: usize = 100;
/// So many bytes weigh as much as an operation where the busiest are chosen.
const BYTES_OF_AN_OPERATION: u64 = 1_024;

/// What the busiest connections have done in `millis`, the time since the look before.
pub(super) fn look(connections: &mut Slab<Live>, now_millis: u64, millis: u64) -> ConnectionsReport {
    let mut busiest: BinaryHeap<Reverse<(u64, u64, ConnectionId)>> = BinaryHeap::with_capacity(BUSIEST + 1);
    let mut open = 0;
    for live in connections.iter_mut() {
        live.traffic.answered = live.connection.answered();
        if live.connection.is_link() {
            live.looked_at = live.traffic;
            continue;
        }
        open += 1;
        let done = since(live.traffic, live.looked_at);
        let weight = done.answered.saturating_add((done.read + done.written) / BYTES_OF_AN_OPERATION);
        // Of those that do nothing, the newest to have done something come first.
        busiest.push(Reverse((weight, live.read_at, live.id)));
        if busiest.len() > BUSIEST {
            busiest.pop();
        }
    }
    let chosen = busiest.into_sorted_vec();
    let told = chosen
        .into_iter()
        .filter_map(|Reverse((_, _, id))| connections.get_mut(id).map(|live| told(live, now_millis, millis)));
    let busiest = told.collect();
    connections.iter_mut().for_each(|live| live.looked_at = live.traffic);
    ConnectionsReport { open, busiest, clients: Vec::new() }
}

fn since(now: Traffic, before: Traffic) -> Traffic {
    Traffic {
        answered: now.answered.wrapping_sub(before.answered),
        read: now.read.wrapping_sub(before.read),
        written: now.written.wrapping_sub(before.written),
    }
}

fn told(live: &Live, now_millis: u64, millis: u64) -> ConnectionLoad {
    let session = &live.connection.session;
    let done = since(live.traffic, live.looked_at);
    let per_second = |count: u64| count as f64 * 1_000.0 / millis.max(1) as f64;
    ConnectionLoad {
        client: session.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        user: session.identity.name.clone(),
        bucket: session.attached().map(|bucket| bucket.name.to_string()).unwrap_or_default(),
        agent: session.agent.as_deref().unwrap_or_default().to_owned(),
        per_second: per_second(done.answered),
        read_per_second: per_second(done.read),
        written_per_second: per_second(done.written),
        idle_ms: now_millis.saturating_sub(live.read_at),
        is_tls: live.transport.is_tls(),
        is_stream: live.connection.has_streams(),
        is_internal: session.identity.is_internal(),
    }
}
