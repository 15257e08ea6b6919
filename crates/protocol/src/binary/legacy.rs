//! Statuses for clients that never asked for the newer ones.
//!
//! A connection without the extended-error feature was promised the statuses that existed before it. What it
//! gets for the others follows kv_engine's `daemon/connection.cc`; where there is no old status to stand in,
//! kv_engine hangs up.

use super::{Opcode, subdoc::SpecOp};
use crate::hello::{Feature, FeatureSet};
use base::Status;

/// The status to send to a connection with `features` in place of `status`; `None` to close it.
#[must_use]
pub fn status_for(status: Status, opcode: Opcode, features: FeatureSet) -> Option<Status> {
    if features.contains(Feature::Xerror) {
        return Some(status);
    }
    match status {
        Status::Locked
            if matches!(opcode, Opcode::GetLocked | Opcode::UnlockKey) || SpecOp::is_opcode(opcode) =>
        {
            Some(Status::TemporaryFailure)
        }
        Status::Locked | Status::CasValueInvalid => Some(Status::KeyExists),
        Status::NotLocked | Status::SyncWriteInProgress | Status::SyncWriteReCommitInProgress => {
            Some(Status::TemporaryFailure)
        }
        Status::RateLimitedMaxConnections => Some(Status::TooBig),
        Status::CannotApplyCollectionsManifest => Some(Status::Internal),
        Status::UnknownCollection | Status::UnknownScope if !features.contains(Feature::Collections) => {
            Some(Status::Invalid)
        }
        Status::NoAccess
        | Status::NoBucket
        | Status::AuthStale
        | Status::DurabilityInvalidLevel
        | Status::DurabilityImpossible
        | Status::SyncWriteAmbiguous
        | Status::DcpStreamIdInvalid
        | Status::RangeScanCancelled
        | Status::RangeScanMore
        | Status::RangeScanComplete
        | Status::VbUuidNotEqual
        | Status::Cancelled => None,
        known => Some(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_look_like_what_old_clients_retry() {
        let old = |status, opcode| status_for(status, opcode, FeatureSet::EMPTY);
        assert_eq!(old(Status::Locked, Opcode::Set), Some(Status::KeyExists));
        assert_eq!(old(Status::Locked, Opcode::GetLocked), Some(Status::TemporaryFailure));
        assert_eq!(old(Status::Locked, Opcode::SubdocMultiMutation), Some(Status::TemporaryFailure));
        assert_eq!(old(Status::NotLocked, Opcode::UnlockKey), Some(Status::TemporaryFailure));
        assert_eq!(old(Status::KeyNotFound, Opcode::Get), Some(Status::KeyNotFound));
        assert_eq!(old(Status::NoAccess, Opcode::Get), None);
        let new = FeatureSet::EMPTY.with(Feature::Xerror);
        assert_eq!(status_for(Status::Locked, Opcode::Set, new), Some(Status::Locked));
        assert_eq!(status_for(Status::NoAccess, Opcode::Set, new), Some(Status::NoAccess));
    }
}
