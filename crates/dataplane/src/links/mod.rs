//! Replication links: outgoing connections to the nodes whose vBuckets this node follows, one per bucket and node.
//!
//! What is wished for is said as a whole, as often as one likes; links compare it with what they have. A link is dialled by a
//! task of the control plane ([`dial`]), which makes the whole handshake. It then belongs to a data-plane loop like any
//! connection (`connection::link`), until it breaks or is not wanted any more. The task waits for that and dials again, after a
//! pause that grows while nothing works, for as long as the link is wished for. Nothing here decides what is followed.
//!
//! How a link fares can be seen from outside at any time ([`LinkList::views`]), most of all when it does not. For a replica that
//! is not fed looks like one to which nothing is written.

mod dial;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use base::NodeId;
use replication::Redial;
use tokio::{runtime::Handle, time};

pub use crate::{
    net::peer::PeerAddress,
    state::link::{LinkList, LinkWish, Reason},
};
pub use dial::log_in;

use crate::{
    loops::workers::Workers,
    state::{link::Link, mailbox::Mailbox, shared::Shared},
};

/// A dialling that has not ended by then has failed.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// See the module header.
pub struct Links {
    shared: Arc<Shared>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    runtime: Handle,
    on_change: Arc<dyn Fn() + Send + Sync>,
    list: Arc<LinkList>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("links", &self.list.links.lock().len()).finish_non_exhaustive()
    }
}

impl Links {
    /// No links yet. `on_change` is called, on any thread, when a vBucket has begun to be followed or is followed no
    /// longer; it must not block.
    #[must_use]
    pub fn start(
        shared: Arc<Shared>,
        workers: &Workers,
        runtime: Handle,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let links = Arc::new(Self {
            shared: Arc::clone(&shared),
            mailboxes: workers.mailboxes(),
            runtime,
            on_change: Arc::new(on_change),
            list: Arc::default(),
        });
        shared.show_links(&links.list);
        links
    }

    /// This is wished for, and nothing else. `me` is this node.
    pub fn want(&self, me: NodeId, wishes: Vec<LinkWish>) {
        let mut links = self.list.links.lock();
        let mut wanted: BTreeMap<_, _> =
            wishes.into_iter().map(|wish| ((wish.bucket.clone(), wish.peer.node), wish)).collect();
        links.retain(|key, link| {
            let stays = wanted.contains_key(key) && link.me == me;
            if !stays {
                link.end();
                let ended = link.view();
                self.shared.dcp.note_end(&key.0.0, |totals| totals.add_ended_link(&ended));
            }
            stays
        });
        // Buckets come and go, and a flush gives a bucket another uuid.
        let open = self.shared.snapshot();
        self.shared.dcp.keep_ended(|uuid| open.buckets.values().any(|bucket| bucket.uuid.0 == uuid));
        for (key, link) in links.iter() {
            if let Some(wish) = wanted.remove(key) {
                link.follow(wish);
            }
        }
        for (key, wish) in wanted {
            let created = self.shared.now().unix_secs();
            let (mailboxes, on_change) = (Arc::clone(&self.mailboxes), Arc::clone(&self.on_change));
            let link = Arc::new(Link::new(me, wish, created, mailboxes, on_change));
            self.runtime.spawn(keep(Arc::clone(&link), Arc::clone(&self.shared)));
            links.insert(key, link);
        }
    }

    /// What is followed, and how that fares.
    #[must_use]
    pub fn list(&self) -> &LinkList {
        &self.list
    }

    /// Ends every link.
    pub fn stop(&self) {
        for link in std::mem::take(&mut *self.list.links.lock()).into_values() {
            link.end();
        }
    }
}

/// Keeps a link up until it is over.
async fn keep(link: Arc<Link>, shared: Arc<Shared>) {
    let (began, mut redial) = (time::Instant::now(), Redial::default());
    let millis = |at: time::Instant| (at - began).as_millis() as u64;
    while !link.is_over() {
        let wish = link.wish();
        let mut since = time::Instant::now();
        let dialled = time::timeout(DIAL_TIMEOUT, dial::dial(&link, &wish, &shared)).await;
        match dialled.unwrap_or_else(|_| Err("it did not answer in time".into())) {
            Ok(transport) => {
                tracing::info!(bucket = wish.name, node = %wish.peer, "following a node");
                link.dials.lock().succeed();
                redial.connected(millis(time::Instant::now()));
                // Ends when the holder of the connection has dropped it.
                let _ = link.hand_over(transport, wish).await;
                since = time::Instant::now();
            }
            Err(reason) => {
                // Once per reason: it is tried again every second for as long as it takes.
                let before = link.dials.lock().failure.replace(reason.clone());
                if before.as_ref() != Some(&reason) {
                    tracing::warn!(bucket = wish.name, node = %wish.peer, %reason, "cannot follow a node");
                }
            }
        }
        if !link.is_over() {
            let pause = Duration::from_millis(redial.lost(millis(since)));
            // An address that changes is tried at once.
            let _ = time::timeout_at(since + pause, link.news.notified()).await;
        }
    }
}
