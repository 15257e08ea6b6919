//! Remembers passwords that were right, so that Basic authentication does not hash 4,096 times per request.
//!
//! An entry's key is an HMAC of name and password under a secret of this process. Its value is the verifier's key that
//! the password was checked against. A changed password, a locked or removed user invalidate it by themselves. No
//! password is kept.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::{INTERNAL_USER, Identity, ScramHash, check_internal, check_password, credentials, same_secret};
use crate::metadata::Metadata;

/// Most entries; at the limit the cache starts anew.
const ENTRIES_MAX: usize = 1024;

/// A cache of successful password checks.
#[derive(Debug)]
pub struct PasswordCache {
    secret: [u8; 32],
    verified: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl PasswordCache {
    /// An empty cache; `secret` must be unpredictable.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self { secret, verified: Mutex::new(BTreeMap::new()) }
    }

    /// The identity, if this password was verified before and is still the right one. Cheap.
    #[must_use]
    pub fn recall(&self, meta: &Metadata, name: &str, password: &str) -> Option<Identity> {
        if name == INTERNAL_USER {
            return check_internal(meta, name, password);
        }
        // Before it is known whether somebody has that name, so that it takes as long if nobody does.
        let key = self.key(name, password);
        let (identity, credentials) = credentials(meta, name)?;
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let against = verified.get(&key)?;
        same_secret(against, &credentials.sha512.stored_key).then_some(identity)
    }

    /// As [`check_password`], remembering success. Takes milliseconds unless remembered.
    #[must_use]
    pub fn check(&self, meta: &Metadata, name: &str, password: &str) -> Option<Identity> {
        if let Some(identity) = self.recall(meta, name, password) {
            return Some(identity);
        }
        let identity = check_password(meta, name, password)?;
        let (_, credentials) = credentials(meta, name)?;
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= ENTRIES_MAX {
            verified.clear();
        }
        verified.insert(self.key(name, password), credentials.sha512.stored_key.clone());
        Some(identity)
    }

    fn key(&self, name: &str, password: &str) -> Vec<u8> {
        let mut message = Vec::with_capacity(8 + name.len() + password.len());
        message.extend((name.len() as u64).to_be_bytes());
        message.extend(name.as_bytes());
        message.extend(password.as_bytes());
        ScramHash::Sha256.hmac(&self.secret, &message)
    }
}
