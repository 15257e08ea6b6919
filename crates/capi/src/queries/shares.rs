//! How many queries are answered at the same time, and how many of one user.
//!
//! A query has a place from its begin until its client has the last byte. It has one answer of each other node under way, with rare
//! exceptions. A node gives this one a limited number of answers at once, so the places are fewer than those. A user has a part of the
//! places. A limited number of the user's further queries wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use cluster::auth::Identity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use views::refusal::Refusal;

use crate::answer::failed;

/// Queries of all users.
const ALL: usize = 96;
/// Queries of one user. A query may have two answers of a node under way for a moment, and a user has 32 of them.
const OF_USER: usize = 24;
/// Queries of one user that wait.
const WAITING: usize = 512;
/// So many wait before one whose body is longer than this, which stays in memory meanwhile.
const WAITING_BEFORE_LONG: usize = 8;
const LONG_BYTES: usize = 64 << 10;

/// The places.
pub(crate) struct Shares {
    all: Arc<Semaphore>,
    /// Users with queries.
    users: Mutex<HashMap<Identity, Arc<Semaphore>>>,
}

/// A place; dropping it gives it back.
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_user: OwnedSemaphorePermit,
}

impl Shares {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL)), users: Mutex::default() }
    }

    /// Waits for a place for a query of this user, whose body has so many bytes.
    ///
    /// # Errors
    /// Too many of the user's wait.
    pub(crate) async fn place(&self, user: &Identity, body_bytes: usize) -> Result<Place, Refusal> {
        let own = {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            // Each place and each query that waits holds the user's semaphore as well.
            users.retain(|_, own| Arc::strong_count(own) > 1);
            let user = Identity::unproved(&user.name, user.domain);
            let own = users.entry(user).or_insert_with(|| Arc::new(Semaphore::new(OF_USER)));
            let waiting = if body_bytes > LONG_BYTES { WAITING_BEFORE_LONG } else { WAITING };
            if Arc::strong_count(own) > OF_USER + waiting {
                let reason = "Too many queries of this user wait. Try again later.";
                return Err(Refusal { status: 503, error: "error", reason: reason.into() });
            }
            Arc::clone(own)
        };
        let closed = |error: tokio::sync::AcquireError| failed(error.to_string());
        let of_user = own.acquire_owned().await.map_err(closed)?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.map_err(closed)?;
        Ok(Place { _of_all: of_all, _of_user: of_user })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use cluster::auth::Domain;

    use super::*;

    fn is_ready<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_user_has_a_part_of_the_places_and_a_limited_queue() {
        let shares = Shares::new();
        let [a, b] = ["a", "b"].map(|name| Identity::unproved(name, Domain::Local));
        let mut queries: Vec<_> = (0..OF_USER + WAITING).map(|_| Box::pin(shares.place(&a, 0))).collect();
        let mut places: Vec<_> =
            queries.iter_mut().filter_map(|query| is_ready(query.as_mut())).map(Result::ok).collect();
        assert_eq!(places.len(), OF_USER);
        let mut refused = Box::pin(shares.place(&a, 0));
        let refused = is_ready(refused.as_mut()).expect("it is told at once").err();
        assert_eq!(refused.map(|refused| refused.status), Some(503));
        let mut long = Box::pin(shares.place(&a, LONG_BYTES + 1));
        assert!(
            is_ready(long.as_mut()).is_some_and(|refused| refused.is_err()),
            "so many bodies would stay in memory"
        );
        let mut other = Box::pin(shares.place(&b, 0));
        assert!(is_ready(other.as_mut()).is_some_and(|place| place.is_ok()), "another user has its part");
        places.pop();
        let next = queries.get_mut(OF_USER).and_then(|query| is_ready(query.as_mut()));
        assert!(next.is_some_and(|place| place.is_ok()), "the next one of the queue");
    }
}
