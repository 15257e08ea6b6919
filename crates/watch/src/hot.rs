//! Whether one key or one client takes so much of a bucket's operations on a node that an administrator should know.
//!
//! More nodes help with many keys and many clients. They do not help with a single one: a key is served by one node.

/// Fewer operations a second load no node.
pub const PER_SECOND_MIN: f64 = 5_000.0;
/// Part of a bucket's operations on a node that a single key may take.
pub const KEY_SHARE: f64 = 0.25;
/// The same for the address of a single client.
pub const CLIENT_SHARE: f64 = 0.5;
/// Where fewer clients use a bucket, one of them takes most by nature.
pub const CLIENTS_MIN: u64 = 4;

/// Whether a key with that part of the operations, and so many a second, is hot.
#[must_use]
pub fn is_hot_key(share: f64, per_second: f64) -> bool {
    share >= KEY_SHARE && per_second >= PER_SECOND_MIN
}

/// The same for one of so many clients.
#[must_use]
pub fn is_hot_client(share: f64, per_second: f64, clients: u64) -> bool {
    clients >= CLIENTS_MIN && share >= CLIENT_SHARE && per_second >= PER_SECOND_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::{HOT_CLIENT, HOT_KEY};

    #[test]
    fn the_guide_says_from_what_on_a_key_and_a_client_are_hot() {
        let thousands = format!("{},000 operations/s", PER_SECOND_MIN / 1_000.0);
        assert!(HOT_KEY.cause.contains(&thousands) && HOT_CLIENT.cause.contains(&thousands), "{thousands}");
        assert!(HOT_CLIENT.cause.contains(&format!("{CLIENTS_MIN} addresses")));
    }

    #[test]
    fn a_large_part_of_few_operations_is_nothing_and_so_is_the_only_client() {
        assert!(is_hot_key(0.25, 5_000.0) && !is_hot_key(0.24, 9_000.0) && !is_hot_key(1.0, 4_999.0));
        assert!(is_hot_client(0.5, 5_000.0, 4) && !is_hot_client(0.49, 9_000.0, 4));
        assert!(!is_hot_client(1.0, 9_000.0, 3) && !is_hot_client(1.0, 4_999.0, 4));
    }
}
