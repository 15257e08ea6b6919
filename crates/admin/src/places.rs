//! The places of one listener: which connections it holds, for whom, and which one goes when another has to come in.
//!
//! A connection is a *stranger's* until a login on it holds. Strangers share the places with users; where none is free,
//! the oldest stranger goes, first one of the newcomer's own address. So idle sockets never keep a user out. One user has at
//! most half of the places. Members of the cluster have places of their own: their login takes a connection out of
//! the count, and nobody else can have those.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use axum::http::{HeaderValue, header};
use cluster::auth::{Domain, Identity};
use tokio::sync::Notify;

use crate::reply::Refusal;

/// Share of the places that strangers of one address have.
const STRANGERS_PER_ADDRESS: usize = 4;
/// Share of the places that one user has.
const PER_USER: usize = 2;
/// Logins that may fail on one connection; the last of them ends it.
const FAILURES_MAX: u32 = 5;

/// See the module.
#[derive(Debug)]
pub(crate) struct Places {
    limit: usize,
    state: Mutex<State>,
    /// Told whenever a connection has left.
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    users: HashMap<String, usize>,
    members: usize,
}

#[derive(Debug)]
struct Stranger {
    address: IpAddr,
    /// Told when it has to go.
    go: Arc<Notify>,
}

/// Whom a connection belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    Stranger,
    User(String),
    Member,
}

/// A connection's place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    holder: Mutex<Holder>,
    failures: AtomicU32,
    go: Arc<Notify>,
}

/// One user has all the places that one user may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Places {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), left: Notify::new() })
    }

    /// A place for a connection from `address`, for which an older stranger's may have been ended. `None` where all places
    /// are users'.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let mut state = self.state();
        let own = state.strangers.values().filter(|stranger| stranger.address == address).count();
        if own >= (self.limit / STRANGERS_PER_ADDRESS).max(1) {
            state.end_oldest(|stranger| stranger.address == address);
        } else if state.strangers.len() + state.users.values().sum::<usize>() >= self.limit {
            let has_made_room =
                state.end_oldest(|stranger| stranger.address == address) || state.end_oldest(|_| true);
            if !has_made_room {
                return None;
            }
        }
        let (number, go) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.strangers.insert(number, Stranger { address, go: Arc::clone(&go) });
        drop(state);
        let (holder, failures) = (Mutex::new(Holder::Stranger), AtomicU32::new(0));
        Some(Place { places: Arc::clone(self), number, holder, failures, go })
    }

    /// Waits until every connection has left.
    pub(crate) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            if self.state().is_empty() {
                return;
            }
            left.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has the oldest of these strangers go; false without one. Its place counts as free at once.
    fn end_oldest(&mut self, is_one: impl Fn(&Stranger) -> bool) -> bool {
        let oldest = self.strangers.iter().find(|(_, stranger)| is_one(stranger)).map(|(number, _)| *number);
        let ended = oldest.and_then(|number| self.strangers.remove(&number));
        ended.iter().for_each(|stranger| stranger.go.notify_one());
        ended.is_some()
    }

    fn is_empty(&self) -> bool {
        self.strangers.is_empty() && self.users.is_empty() && self.members == 0
    }

    fn leave(&mut self, holder: &Holder, number: u64) {
        match holder {
            Holder::Stranger => drop(self.strangers.remove(&number)),
            Holder::Member => self.members = self.members.saturating_sub(1),
            Holder::User(name) => {
                if let Some(count) = self.users.get_mut(name) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        self.users.remove(name);
                    }
                }
            }
        }
    }
}

impl Place {
    /// A login on this connection holds: from now on it is that identity's. Anonymous requests change nothing.
    ///
    /// # Errors
    /// The user has as many places as one user may have.
    pub(crate) fn belong_to(&self, identity: &Identity) -> Result<(), TooMany> {
        let wanted = match identity.domain {
            Domain::Anonymous => return Ok(()),
            Domain::Internal => Holder::Member,
            _ => Holder::User(identity.name.clone()),
        };
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        if *holder == wanted {
            return Ok(());
        }
        let mut state = self.places.state();
        if let Holder::User(name) = &wanted {
            let count = state.users.get(name).copied().unwrap_or_default();
            if count >= (self.places.limit / PER_USER).max(1) {
                return Err(TooMany);
            }
            state.users.insert(name.clone(), count + 1);
        } else {
            state.members += 1;
        }
        state.leave(&holder, self.number);
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

    /// Resolves when the connection has to go for another one.
    pub(crate) async fn ended(&self) {
        self.go.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        self.places.state().leave(&holder, self.number);
        self.places.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn identity(domain: Domain, name: &str) -> Identity {
        Identity { name: name.into(), domain }
    }

    /// Whether the connection was told to go.
    fn has_to_go(place: &Place) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(std::time::Duration::ZERO, place.ended()).await.is_ok() })
    }

    #[test]
    fn the_oldest_stranger_goes_first_and_users_stay() {
        let places = Places::new(8);
        let user = places.enter(address(1)).unwrap();
        user.belong_to(&identity(Domain::Local, "ann")).unwrap();
        let strangers: Vec<Place> = (1..8).map(|number| places.enter(address(number)).unwrap()).collect();
        let newcomer = places.enter(address(99)).unwrap();
        assert!(has_to_go(&strangers[0]));
        assert!(!has_to_go(&strangers[1]) && !has_to_go(&user) && !has_to_go(&newcomer));
    }

    #[test]
    fn a_flood_from_one_address_ends_its_own_connections() {
        let places = Places::new(8);
        let other = places.enter(address(1)).unwrap();
        let flood: Vec<Place> = (0..100).filter_map(|_| places.enter(address(2))).collect();
        assert_eq!((flood.len(), places.state().strangers.len()), (100, 3), "two of one address at a time");
        assert!(!has_to_go(&other));
    }

    #[test]
    fn members_have_places_of_their_own() {
        let places = Places::new(2);
        let users: Vec<Place> = ["ann", "bob"]
            .map(|name| {
                let place = places.enter(address(1)).unwrap();
                place.belong_to(&identity(Domain::Local, name)).unwrap();
                place
            })
            .into();
        assert!(places.enter(address(3)).is_none(), "all places are users'");
        drop(users);
        let members: Vec<Place> = (0..10)
            .map(|_| {
                let place = places.enter(address(4)).unwrap();
                place.belong_to(&identity(Domain::Internal, "@settee")).unwrap();
                place
            })
            .collect();
        assert!(places.enter(address(1)).is_some(), "members take no other places");
        assert!(members.iter().all(|member| !has_to_go(member)));
    }

    #[test]
    fn one_user_has_half_of_the_places() {
        let places = Places::new(4);
        let held: Vec<_> = (0..3).map(|_| places.enter(address(1)).unwrap()).collect();
        let ann = identity(Domain::Local, "ann");
        let logins: Vec<_> = held.iter().map(|place| place.belong_to(&ann)).collect();
        assert_eq!(logins, [Ok(()), Ok(()), Err(TooMany)]);
        drop(held);
        assert!(places.state().is_empty());
    }

    #[test]
    fn a_stranger_that_was_told_to_go_leaves_nothing_behind() {
        let places = Places::new(1);
        let (first, second) = (places.enter(address(1)).unwrap(), places.enter(address(2)).unwrap());
        drop((first, second));
        assert!(places.state().is_empty());
    }
}
