//! One-time logins. A node that asks a cluster to add it lets the cluster call it back with one. It has no user yet,
//! and the cluster may be on another machine.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use cluster::auth::same_secret;

/// The user name that goes with a pass.
pub const USER: &str = "@join";
/// How long a pass is good for when nobody revokes it.
const GOOD_FOR: Duration = Duration::from_secs(120);
/// Passes at the same time; the oldest goes.
const PASSES_MAX: usize = 4;

/// The passes that are good.
#[derive(Default)]
pub struct Passes(Mutex<Vec<(String, Instant)>>);

impl Passes {
    /// Makes `secret`, which must be unpredictable, a pass.
    pub fn issue(&self, secret: String) -> String {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if passes.len() == PASSES_MAX {
            passes.remove(0);
        }
        passes.push((secret.clone(), Instant::now()));
        secret
    }

    /// Whether it is a good pass.
    pub fn admits(&self, user: &str, password: &str) -> bool {
        let passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let good = passes.iter().filter(|(_, issued)| issued.elapsed() < GOOD_FOR);
        user == USER
            && good.fold(false, |found, (pass, _)| found | same_secret(pass.as_bytes(), password.as_bytes()))
    }

    /// Ends a pass.
    pub fn revoke(&self, pass: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| known != pass);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_until_it_is_revoked_or_crowded_out() {
        let passes = Passes::default();
        let first = passes.issue("one".into());
        assert!(passes.admits(USER, &first));
        assert!(!passes.admits("admin", &first) && !passes.admits(USER, "on") && !passes.admits(USER, ""));
        passes.revoke(&first);
        assert!(!passes.admits(USER, &first));
        let old = passes.issue("old".into());
        for number in 0..PASSES_MAX {
            passes.issue(number.to_string());
        }
        assert!(!passes.admits(USER, &old) && passes.admits(USER, "0"));
    }
}
