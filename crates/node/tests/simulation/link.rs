//! A node's links to those that it follows: what is followed by each, and when one is dialled.

use std::collections::BTreeMap;

use base::VbId;
use replication::consumer::StreamWish;

/// Pauses of a link that cannot be dialled, or does not hold.
const PAUSE_MILLIS_MIN: u64 = 50;
const PAUSE_MILLIS_MAX: u64 = 2_000;
const SUCCESS_MILLIS: u64 = 3_000;

/// What is to be followed of one bucket on one node.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) streams: Vec<StreamWish>,
    /// The connection has not been told of them.
    pub(crate) has_news: bool,
    pub(crate) connection: Option<u64>,
    /// When it is dialled next.
    pub(crate) dial_at: u64,
    since: u64,
    pause: u64,
    /// The terms at which vBuckets are being followed.
    pub(crate) terms: BTreeMap<VbId, u64>,
}

impl Link {
    /// It has a connection now.
    pub(crate) fn connected(&mut self, connection: u64, now: u64) {
        (self.connection, self.since) = (Some(connection), now);
    }

    /// It could not be dialled, or has none any more.
    pub(crate) fn lost(&mut self, now: u64) {
        if self.connection.take().is_some() && now >= self.since + SUCCESS_MILLIS {
            self.pause = 0;
        }
        self.terms.clear();
        self.pause = self.pause.clamp(PAUSE_MILLIS_MIN, PAUSE_MILLIS_MAX);
        self.dial_at = now + self.pause;
        self.pause *= 2;
    }
}
