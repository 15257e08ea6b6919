//! The places of a port: for whom connections are held, and which one goes when another has to come in.
//!
//! A connection is a *stranger's* until a login on it holds. Where no place is free the oldest stranger goes, first one of
//! the newcomer's own address. So idle sockets never keep a user out. An address' strangers have a quarter of the
//! places, one user has the share that the owner chose. [`Places::reserve`] places more are strangers' only: a newcomer always has one of these for its
//! login, though users hold all others. Administrators go beyond what all users may hold together, and the cluster's members
//! are not counted.
//!
//! Pure: the owner ends the connections that have to go.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
};

/// Share of the places that strangers of one address have.
const PER_ADDRESS: usize = 4;
/// Places that are strangers' only.
const RESERVE_MAX: usize = 64;

/// See the module. `H` is what the owner needs to end a stranger's connection.
#[derive(Debug)]
pub struct Places<H> {
    limit: usize,
    per_user: usize,
    next: u64,
    /// In the order in which they came.
    strangers: BTreeMap<u64, (IpAddr, H)>,
    addresses: HashMap<IpAddr, BTreeSet<u64>>,
    users: HashMap<String, usize>,
    /// Sum over `users`.
    held_by_users: usize,
    members: usize,
}

/// Whom a connection belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// Nobody has logged in.
    #[default]
    Stranger,
    /// A user.
    User {
        /// The user's name.
        name: String,
        /// Whether the limits of ordinary users are not the user's.
        is_administrator: bool,
    },
    /// Another node of the cluster.
    Member,
}

/// A newcomer's place.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted<H> {
    /// Names the connection.
    pub number: u64,
    /// The stranger that has to go for it: number and what the owner gave with it.
    pub ended: Option<(u64, H)>,
}

/// The user, or all users together, hold as many connections as they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl<H> Places<H> {
    /// `limit` places, all free; one user has `per_user` of them.
    #[must_use]
    pub fn new(limit: usize, per_user: usize) -> Self {
        Self {
            limit,
            per_user: per_user.max(1),
            next: 0,
            strangers: BTreeMap::new(),
            addresses: HashMap::new(),
            users: HashMap::new(),
            held_by_users: 0,
            members: 0,
        }
    }

    /// Places beyond the limit that are strangers' only.
    #[must_use]
    pub fn reserve(&self) -> usize {
        (self.limit / 8).clamp(1, RESERVE_MAX)
    }

    /// Connections that are there, members' included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strangers.len() + self.held_by_users + self.members
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this stranger has neither left nor been ended.
    #[must_use]
    pub fn has_stranger(&self, number: u64) -> bool {
        self.strangers.contains_key(&number)
    }

    /// A place for a connection from `address`.
    pub fn admit(&mut self, address: IpAddr, handle: H) -> Admitted<H> {
        let network = network_of(address);
        let own = self.addresses.get(&network);
        let own_oldest = own.and_then(|numbers| numbers.first().copied());
        let is_crowd = own.map_or(0, BTreeSet::len) >= (self.limit / PER_ADDRESS).max(1);
        let is_full = self.strangers.len() >= self.reserve()
            && self.strangers.len() + self.held_by_users >= self.limit + self.reserve();
        let oldest = || self.strangers.first_key_value().map(|(number, _)| *number);
        let ended = if is_crowd || is_full { own_oldest.or_else(oldest) } else { None };
        let ended = ended.and_then(|number| Some((number, self.remove_stranger(number)?)));
        let number = self.next;
        self.next += 1;
        self.strangers.insert(number, (network, handle));
        self.addresses.entry(network).or_default().insert(number);
        Admitted { number, ended }
    }

    /// Gives a connection to somebody else.
    ///
    /// # Errors
    /// The user may hold no more; everything stays as it was.
    pub fn belong(&mut self, number: u64, from: &Holder, to: &Holder) -> Result<(), TooMany> {
        if from == to {
            return Ok(());
        }
        if let Holder::User { name, is_administrator } = to {
            let own = self.users.get(name).copied().unwrap_or_default();
            let are_too_many = self.held_by_users >= self.limit && !is_administrator;
            if are_too_many || own >= self.per_user {
                return Err(TooMany);
            }
        }
        match to {
            Holder::Stranger => {}
            Holder::Member => self.members += 1,
            Holder::User { name, .. } => {
                *self.users.entry(name.clone()).or_default() += 1;
                self.held_by_users += 1;
            }
        }
        self.leave(number, from);
        Ok(())
    }

    /// A connection has ended, or is somebody else's.
    pub fn leave(&mut self, number: u64, holder: &Holder) {
        match holder {
            Holder::Stranger => drop(self.remove_stranger(number)),
            Holder::Member => self.members = self.members.saturating_sub(1),
            Holder::User { name, .. } => {
                let Some(count) = self.users.get_mut(name) else { return };
                *count -= 1;
                self.held_by_users -= 1;
                if *count == 0 {
                    self.users.remove(name);
                }
            }
        }
    }

    fn remove_stranger(&mut self, number: u64) -> Option<H> {
        let (network, handle) = self.strangers.remove(&number)?;
        if let Some(numbers) = self.addresses.get_mut(&network) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.addresses.remove(&network);
            }
        }
        Some(handle)
    }
}

/// The part of an address that one attacker cannot vary: all of an IPv4 address, the network of an IPv6 address.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn user(name: &str) -> Holder {
        Holder::User { name: name.into(), is_administrator: false }
    }

    /// Enters and logs in.
    fn log_in(places: &mut Places<()>, holder: &Holder) -> Result<u64, TooMany> {
        let number = places.admit(address(200), ()).number;
        places.belong(number, &Holder::Stranger, holder)?;
        Ok(number)
    }

    #[test]
    fn the_oldest_stranger_goes_first_and_users_stay() {
        let mut places = Places::new(8, 4);
        log_in(&mut places, &user("ann")).unwrap();
        let strangers: Vec<u64> = (1..9).map(|number| places.admit(address(number), ()).number).collect();
        let admitted = places.admit(address(99), ());
        assert_eq!(admitted.ended, Some((strangers[0], ())));
        assert_eq!(places.len(), 9);
    }

    #[test]
    fn a_flood_from_one_address_ends_its_own_connections() {
        let mut places = Places::new(8, 4);
        let other = places.admit(address(1), ()).number;
        for _ in 0..100 {
            places.admit(address(2), ());
        }
        assert_eq!(places.len(), 3, "two of one address at a time");
        assert!(places.has_stranger(other));
    }

    #[test]
    fn one_user_has_half_of_the_places_and_all_users_leave_a_reserve() {
        let mut places = Places::new(4, 2);
        let logins: Vec<_> = (0..3).map(|_| log_in(&mut places, &user("ann")).is_ok()).collect();
        assert_eq!(logins, [true, true, false]);
        for name in ["bob", "cid"] {
            log_in(&mut places, &user(name)).unwrap();
        }
        assert_eq!(log_in(&mut places, &user("dan")), Err(TooMany), "users hold all places");
        let administrator = Holder::User { name: "root".into(), is_administrator: true };
        for holder in [&administrator, &administrator, &Holder::Member] {
            log_in(&mut places, holder).unwrap();
        }
        assert_eq!(log_in(&mut places, &administrator), Err(TooMany), "one name is one user");
    }

    #[test]
    fn members_take_nobodys_place() {
        let mut places = Places::new(2, 1);
        for _ in 0..100 {
            log_in(&mut places, &Holder::Member).unwrap();
        }
        log_in(&mut places, &user("ann")).unwrap();
        assert_eq!(places.len(), 101);
    }

    #[test]
    fn connections_that_end_leave_nothing_behind() {
        let mut places = Places::new(1, 1);
        let first = places.admit(address(1), ()).number;
        let _second = places.admit(address(2), ());
        let third = places.admit(address(3), ());
        assert_eq!(third.ended, Some((first, ())));
        places.leave(first, &Holder::Stranger);
        let ann = log_in(&mut places, &user("ann")).unwrap();
        places.leave(ann, &user("ann"));
        for number in 0..places.next {
            places.leave(number, &Holder::Stranger);
        }
        assert!(places.is_empty() && places.addresses.is_empty() && places.users.is_empty());
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), address(1));
    }
}
