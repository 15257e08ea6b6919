//! What a shard makes of a write that its store has refused.

use std::sync::atomic::Ordering;

use base::Status;
use storage::StoreError;

use crate::{api::stats::FlushFailure, shard::Shard};

/// Draws the consequences of a refused write.
pub(crate) fn failure_of(shard: &Shard, error: &StoreError) -> FlushFailure {
    shard.counters.commit_failures.fetch_add(1, Ordering::Relaxed);
    if matches!(error, StoreError::NoSpace) {
        shard.gate.set_full(true);
        return FlushFailure::NoSpace;
    }
    shard.gate.poison();
    FlushFailure::Poisoned
}

/// As [`failure_of`], for callers that answer a client.
pub(crate) fn refused(shard: &Shard, error: &StoreError) -> Status {
    if !matches!(error, StoreError::NoSpace) {
        failure_of(shard, error);
    }
    Status::TemporaryFailure
}
