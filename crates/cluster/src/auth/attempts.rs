//! How often a password may be guessed: by address and user, and by address whatever the user.
//!
//! The first failures cost nothing. Each further one doubles the time for which attempts of that kind are refused unchecked,
//! the right password's included, or guessing would go on meanwhile. An address has a few checks at a time, so that a crowd
//! of logins from one of them does not stand before another's. A user who has logged in from an address is judged by that user's
//! own failures there. So somebody who guesses passwords behind the same address does not keep that user out. Pure: time and
//! results are handed in.
//!
//! The table is bounded. Entries that have been quiet for longest go first, those that refuse anything at that moment last.

use std::{collections::HashMap, net::IpAddr};

use base::places::network_of;

/// Failures of an address with one user that cost nothing.
const FREE_PER_USER: u32 = 5;
/// Failures of an address, all users together, that cost nothing.
const FREE_PER_ADDRESS: u32 = 50;
/// The first time of refusals, the longest one of a user, and the longest one of an address.
const FIRST_MILLIS: u64 = 100;
const LONGEST_MILLIS: u64 = 10_000;
const LONGEST_OF_ADDRESS_MILLIS: u64 = 2_000;
/// A failure is forgotten after this long without another one.
const FORGOTTEN_MILLIS: u64 = 10 * 60 * 1000;
/// Checks that an address, or a user there who has logged in before, may have in progress.
const CHECKS_PER_ADDRESS: u32 = 16;
/// Entries that are kept.
const ENTRIES_MAX: usize = 8192;
/// Bytes of a name by which its failures are counted. Names of users have 128 characters at most; strangers send longer ones.
const NAME_BYTES_MAX: usize = 512;

/// See the module.
#[derive(Debug, Default)]
pub struct LoginAttempts(HashMap<Key, Entry>);

/// Whose failures are counted together: an address with one user, or with any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    network: IpAddr,
    user: Option<String>,
}

#[derive(Debug, Default)]
struct Entry {
    failures: u32,
    checks: u32,
    /// The user has logged in from there.
    is_good: bool,
    /// Refused until then.
    until: u64,
    touched: u64,
}

/// Why a login is not checked: too many have failed, or too many are being checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyAttempts {
    /// When to come back.
    pub wait_millis: u64,
}

impl Entry {
    fn is_blank(&self) -> bool {
        self.checks == 0 && self.failures == 0 && !self.is_good
    }
}

impl LoginAttempts {
    /// Whether a login may be checked now, which takes long; [`Self::released`] has to follow where it may.
    ///
    /// # Errors
    /// When it may be tried again.
    pub fn begin(&mut self, address: IpAddr, user: &str, now_millis: u64) -> Result<(), TooManyAttempts> {
        self.permits(address, user, now_millis)?;
        self.make_room(now_millis);
        for key in keys(address, user) {
            let entry = self.0.entry(key).or_default();
            entry.checks += 1;
            entry.touched = now_millis;
        }
        Ok(())
    }

    /// Whether a login may be checked now, which is cheap; [`Self::told`] follows once it was.
    ///
    /// # Errors
    /// When it may be tried again.
    pub fn permits(&mut self, address: IpAddr, user: &str, now_millis: u64) -> Result<(), TooManyAttempts> {
        let [of_address, of_user] = keys(address, user);
        let is_good = self.0.get(&of_user).is_some_and(|entry| entry.is_good);
        for key in [Some(of_user), Some(of_address).filter(|_| !is_good)].iter().flatten() {
            let Some(entry) = self.0.get_mut(key) else { continue };
            if now_millis.saturating_sub(entry.touched) >= FORGOTTEN_MILLIS {
                *entry = Entry { checks: entry.checks, is_good: entry.is_good, ..Entry::default() };
            }
            if now_millis < entry.until || entry.checks >= CHECKS_PER_ADDRESS {
                let wait_millis = entry.until.saturating_sub(now_millis).max(FIRST_MILLIS);
                return Err(TooManyAttempts { wait_millis });
            }
        }
        Ok(())
    }

    /// The check that [`Self::begin`] let through has ended, or was given up.
    pub fn released(&mut self, address: IpAddr, user: &str) {
        for key in keys(address, user) {
            let Some(entry) = self.0.get_mut(&key) else { continue };
            entry.checks = entry.checks.saturating_sub(1);
            if entry.is_blank() {
                self.0.remove(&key);
            }
        }
    }

    /// A login was right or wrong.
    pub fn told(&mut self, address: IpAddr, user: &str, is_right: bool, now_millis: u64) {
        self.make_room(now_millis);
        let [of_address, of_user] = keys(address, user);
        if is_right {
            // The address' count stays: an attacker may have a user of its own.
            let entry = self.0.entry(of_user).or_default();
            (entry.is_good, entry.failures, entry.touched) = (true, 0, now_millis);
            return;
        }
        let of_user = (of_user, FREE_PER_USER, LONGEST_MILLIS);
        for (key, free, longest) in [of_user, (of_address, FREE_PER_ADDRESS, LONGEST_OF_ADDRESS_MILLIS)] {
            let entry = self.0.entry(key).or_default();
            entry.touched = now_millis;
            entry.failures = entry.failures.saturating_add(1);
            if let Some(beyond) = entry.failures.checked_sub(free) {
                let wait = FIRST_MILLIS.saturating_mul(1 << beyond.min(16)).min(longest);
                entry.until = now_millis.saturating_add(wait);
            }
        }
    }

    /// Makes room for one more login, by what has been quiet for longest.
    fn make_room(&mut self, now_millis: u64) {
        if self.0.len() + 2 <= ENTRIES_MAX {
            return;
        }
        self.0.retain(|_, entry| {
            entry.checks > 0 || now_millis.saturating_sub(entry.touched) < FORGOTTEN_MILLIS
        });
        // A quarter at once: the search costs as much for one.
        let mut idle: Vec<_> = self
            .0
            .iter()
            .filter(|(_, entry)| entry.checks == 0)
            .map(|(key, entry)| (entry.until > now_millis, entry.touched, key.clone()))
            .collect();
        if self.0.len() + ENTRIES_MAX / 4 > ENTRIES_MAX {
            idle.sort_unstable_by_key(|(refuses, touched, _)| (*refuses, *touched));
            for (.., key) in idle.into_iter().take(ENTRIES_MAX / 4) {
                self.0.remove(&key);
            }
        }
    }
}

fn keys(address: IpAddr, user: &str) -> [Key; 2] {
    let network = network_of(address);
    let user = user.get(..user.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default();
    [Key { network, user: None }, Key { network, user: Some(user.to_owned()) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const AWAY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn end(attempts: &mut LoginAttempts, address: IpAddr, user: &str, is_right: bool, now: u64) {
        attempts.released(address, user);
        attempts.told(address, user, is_right, now);
    }

    fn fail(attempts: &mut LoginAttempts, user: &str, now: u64) -> bool {
        let is_checked = attempts.begin(HOME, user, now).is_ok();
        if is_checked {
            end(attempts, HOME, user, false, now);
        }
        is_checked
    }

    #[test]
    fn guesses_get_rare_and_other_addresses_feel_nothing() {
        let mut attempts = LoginAttempts::default();
        let hour = 3_600_000;
        let checked = (0..hour).step_by(10).filter(|&now| fail(&mut attempts, "ann", now)).count();
        assert!((300..400).contains(&checked), "{checked} guesses in an hour");
        assert!(attempts.begin(AWAY, "ann", hour).is_ok());
        assert!(attempts.begin(HOME, "bob", hour + LONGEST_MILLIS).is_ok(), "another user of the address");
    }

    #[test]
    fn guesses_behind_an_address_do_not_keep_its_users_out() {
        let mut attempts = LoginAttempts::default();
        attempts.begin(HOME, "bob", 0).unwrap();
        end(&mut attempts, HOME, "bob", true, 0);
        for number in 0..10_000 {
            fail(&mut attempts, &number.to_string(), number);
            assert!(attempts.permits(HOME, "bob", number).is_ok());
        }
        assert!(attempts.permits(HOME, "new", 9_999).is_err());
    }

    #[test]
    fn a_few_mistakes_cost_nothing_and_the_right_password_ends_the_count() {
        let mut attempts = LoginAttempts::default();
        for round in 0..10 {
            for _ in 0..FREE_PER_USER - 1 {
                assert!(fail(&mut attempts, "ann", round));
            }
            attempts.begin(HOME, "ann", round).unwrap();
            end(&mut attempts, HOME, "ann", true, round);
        }
    }

    #[test]
    fn an_address_that_tries_many_users_is_slowed_down_too() {
        let mut attempts = LoginAttempts::default();
        let checked = (0..10_000).filter(|number| fail(&mut attempts, &number.to_string(), 0)).count();
        assert_eq!(checked, FREE_PER_ADDRESS as usize);
        let refused = attempts.begin(HOME, "ann", 0).unwrap_err();
        assert!(attempts.begin(HOME, "ann", refused.wait_millis).is_ok());
    }

    #[test]
    fn an_address_has_a_few_checks_at_a_time() {
        let mut attempts = LoginAttempts::default();
        let begun = (0..100).filter(|number| attempts.begin(HOME, &number.to_string(), 0).is_ok()).count();
        assert_eq!(begun, CHECKS_PER_ADDRESS as usize);
        assert!(attempts.begin(AWAY, "ann", 0).is_ok());
        attempts.released(HOME, "0");
        assert!(attempts.begin(HOME, "ann", 0).is_ok());
    }

    #[test]
    fn long_names_are_counted_by_their_beginning_and_take_no_memory() {
        let mut attempts = LoginAttempts::default();
        let name = |number: u32| format!("{}{number}", "ä".repeat(30_000));
        let checked = (0..100).filter(|number| fail(&mut attempts, &name(*number), 0)).count();
        assert_eq!(checked, FREE_PER_USER as usize);
        let kept = attempts.0.keys().filter_map(|key| key.user.as_ref()).map(String::capacity).sum::<usize>();
        assert!(kept <= NAME_BYTES_MAX, "{kept} bytes");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut attempts = LoginAttempts::default();
        for number in 0..100_000_u32 {
            let address = IpAddr::from(number.to_be_bytes());
            attempts.begin(address, "ann", u64::from(number)).unwrap();
            end(&mut attempts, address, "ann", false, u64::from(number));
            assert!(attempts.0.len() <= ENTRIES_MAX);
        }
        let mut attempts = LoginAttempts::default();
        attempts.begin(HOME, "ann", 0).unwrap();
        end(&mut attempts, HOME, "ann", true, 0);
        assert_eq!(attempts.0.len(), 1, "that she has been here");
    }
}
