//! Which of two versions, written on different clusters, is kept.
//!
//! Fields are compared in order, and the incoming version must be greater in the first one that differs (kv_engine,
//! `conflict_resolution.cc`). Where revisions decide, the order is revision number, CAS, expiry, flags. Where the last
//! write wins, CAS comes first. Deletions compare the first two only. Equal in everything: extended attributes win over
//! none, else the local version stays.

use base::{Cas, Datatype, bucket::ConflictResolution};

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) rev: u64,
    pub(crate) cas: Cas,
    pub(crate) expiry: u32,
    pub(crate) flags: u32,
    pub(crate) datatype: Datatype,
}

/// Whether the incoming version replaces the local one (a tombstone counts as a version).
pub(crate) fn incoming_wins(
    rule: ConflictResolution,
    local: &Contender,
    incoming: &Contender,
    is_deletion: bool,
) -> bool {
    let lead = |c: &Contender| match rule {
        ConflictResolution::Seqno => (c.rev, c.cas.get()),
        ConflictResolution::Lww | ConflictResolution::Custom => (c.cas.get(), c.rev),
    };
    if is_deletion {
        return lead(incoming) > lead(local);
    }
    let whole = |c: &Contender| (lead(c), c.expiry, c.flags);
    match whole(incoming).cmp(&whole(local)) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => {
            incoming.datatype.contains(Datatype::XATTR) && !local.datatype.contains(Datatype::XATTR)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Contender = Contender { rev: 5, cas: Cas(50), expiry: 7, flags: 1, datatype: Datatype::RAW };

    #[test]
    fn the_first_difference_decides() {
        use ConflictResolution::{Lww, Seqno};
        let cases = [
            (Contender { rev: 6, cas: Cas(1), ..LOCAL }, true, false),
            (Contender { rev: 4, cas: Cas(51), ..LOCAL }, false, true),
            (Contender { cas: Cas(51), ..LOCAL }, true, true),
            (Contender { expiry: 8, flags: 0, ..LOCAL }, true, true),
            (Contender { flags: 2, ..LOCAL }, true, true),
            (Contender { flags: 0, datatype: Datatype::XATTR, ..LOCAL }, false, false),
            (Contender { datatype: Datatype::XATTR, ..LOCAL }, true, true),
            (LOCAL, false, false),
        ];
        for (incoming, by_rev, by_time) in cases {
            assert_eq!(incoming_wins(Seqno, &LOCAL, &incoming, false), by_rev, "{incoming:?}");
            assert_eq!(incoming_wins(Lww, &LOCAL, &incoming, false), by_time, "{incoming:?}");
        }
    }

    #[test]
    fn deletions_look_at_revision_and_cas_only() {
        let incoming = Contender { expiry: 99, flags: 9, ..LOCAL };
        assert!(!incoming_wins(ConflictResolution::Seqno, &LOCAL, &incoming, true));
        let incoming = Contender { cas: Cas(51), ..incoming };
        assert!(incoming_wins(ConflictResolution::Seqno, &LOCAL, &incoming, true));
    }
}
