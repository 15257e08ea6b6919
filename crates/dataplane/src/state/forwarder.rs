//! Links by which requests are forwarded to other nodes, made when they are first needed.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use base::Status;
use cluster::Metadata;
use engine::Waiter;
use parking_lot::Mutex;

use crate::{
    net::node_tls::NodeTls,
    state::{
        asking::{Job, Lane, Link, Peer},
        completion::Completion,
        mailbox::Wakes,
    },
};

/// Connections to each peer, for each bucket and lane. A client's requests of a lane always take the same one.
const LINKS_PER_LANE: u64 = 2;

/// Links to the other nodes, made when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct Forwarder {
    reach: OnceLock<(Wakes, Arc<NodeTls>)>,
    links: Mutex<HashMap<(Peer, Lane, u64), Arc<Link>>>,
}

impl Forwarder {
    /// From now on the workers can be reached, and other nodes under TLS.
    pub(crate) fn reach(&self, wakes: Wakes, node_tls: Arc<NodeTls>) {
        // Set once, before the first connection.
        let _ = self.reach.set((wakes, node_tls));
    }

    /// Has a peer of these metadata asked for a client's connection; answers come as completions.
    pub(crate) fn submit(
        &self,
        peer: Peer,
        connection: u64,
        job: Job,
        metadata: &Metadata,
    ) -> Result<(), Status> {
        let Some((wakes, node_tls)) = self.reach.get() else { return Err(Status::TemporaryFailure) };
        let place = (peer, job.lane, connection % LINKS_PER_LANE);
        let mut links = self.links.lock();
        let link = match links.get(&place) {
            Some(link) => Arc::clone(link),
            None => {
                // A node with another password or address is another peer: what is left of the old one ends. So do links to nodes
                // and buckets that are gone, each of which has a thread and a connection.
                links.retain(|(known, ..), _| known.is_of(metadata) && !known.is_replaced_by(&place.0));
                let link = Arc::new(Link::start(place.0.clone(), wakes.clone(), Arc::clone(node_tls))?);
                links.insert(place, Arc::clone(&link));
                link
            }
        };
        drop(links);
        link.submit(job)
    }

    /// How many links there are.
    #[cfg(test)]
    pub(crate) fn links(&self) -> usize {
        self.links.lock().len()
    }

    /// Tells the asking connection, if one is left.
    pub(crate) fn complete(&self, told: Option<(Waiter, Completion)>) {
        if let (Some((wakes, _)), Some((waiter, completion))) = (self.reach.get(), told) {
            wakes.complete(waiter, completion);
        }
    }
}
