//! The places of one listener, with what ends a connection that has to go ([`base::places`]).

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use axum::http::{HeaderValue, header};
use base::places::{Holder, Places, TooMany};
use cluster::{
    Metadata,
    auth::{Domain, Identity},
};
use tokio::sync::Notify;

use crate::reply::Refusal;

/// Logins that may fail on one connection; the last of them ends it.
const FAILURES_MAX: u32 = 5;

/// See the module.
#[derive(Debug)]
pub(crate) struct ListenerPlaces {
    places: Mutex<Places<Arc<Notify>>>,
    /// Told whenever a connection has left.
    left: Notify,
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    all: Arc<ListenerPlaces>,
    number: u64,
    holder: Mutex<Holder>,
    failures: AtomicU32,
    go: Arc<Notify>,
}

impl ListenerPlaces {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { places: Mutex::new(Places::new(limit, limit / 2)), left: Notify::new() })
    }

    /// A place for a connection from `address`. An older stranger's connection may be ended for it.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Place {
        let go = Arc::new(Notify::new());
        let admitted = self.places().admit(address, Arc::clone(&go));
        if let Some((_, go)) = admitted.ended {
            go.notify_one();
        }
        Place {
            all: Arc::clone(self),
            number: admitted.number,
            holder: Mutex::default(),
            failures: AtomicU32::new(0),
            go,
        }
    }

    /// Waits until every connection has left.
    pub(crate) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            if self.places().is_empty() {
                return;
            }
            left.await;
        }
    }

    fn places(&self) -> MutexGuard<'_, Places<Arc<Notify>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A login on this connection holds: from now on it is that identity's. Anonymous requests change nothing.
    ///
    /// # Errors
    /// The user has as many connections as one user may have.
    pub(crate) fn belong_to(&self, identity: &Identity, meta: &Metadata) -> Result<(), TooMany> {
        if identity.domain == Domain::Anonymous {
            return Ok(());
        }
        let wanted = identity.holder_by(meta);
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        self.all.places().belong(self.number, &holder, &wanted)?;
        *holder = wanted;
        Ok(())
    }

    /// The answer to a login that failed; with the last one that may, the connection ends.
    pub(crate) fn refused(&self, mut refusal: Refusal) -> Refusal {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            refusal.0.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        refusal
    }

    /// Whether a member of the cluster has logged in on this connection.
    pub(crate) fn is_of_member(&self) -> bool {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) == Holder::Member
    }

    /// Resolves when the connection has to go for another one.
    pub(crate) async fn ended(&self) {
        self.go.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        self.all.places().leave(self.number, &holder);
        self.all.left.notify_waiters();
    }
}
