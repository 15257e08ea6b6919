//! A node's links to those that it follows: what is followed by each, and when one is dialled.

use std::collections::BTreeMap;

use base::VbId;
use replication::Redial;
use replication::consumer::StreamWish;

/// What is to be followed of one bucket on one node.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) streams: Vec<StreamWish>,
    /// The connection has not been told of them.
    pub(crate) has_news: bool,
    pub(crate) connection: Option<u64>,
    /// When it is dialled next.
    pub(crate) dial_at: u64,
    redial: Redial,
    /// The terms at which vBuckets are being followed.
    pub(crate) terms: BTreeMap<VbId, u64>,
}

impl Link {
    /// It has a connection now.
    pub(crate) fn connected(&mut self, connection: u64, now: u64) {
        self.connection = Some(connection);
        self.redial.connected(now);
    }

    /// It could not be dialled, or has none any more.
    pub(crate) fn lost(&mut self, now: u64) {
        self.connection = None;
        self.terms.clear();
        self.dial_at = now + self.redial.lost(now);
    }
}
