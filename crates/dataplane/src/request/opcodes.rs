//! What the server has to know of each opcode before it carries it out. There is one row per opcode, in a match without a wildcard, so that
//! a new opcode does not compile until its row is written.
//!
//! Requests look it up by number in a table that is made at compile time.

use protocol::binary::Opcode;

use crate::figures::meter::OpKind as K;

/// One opcode's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "columns of a table")]
pub(crate) struct Traits {
    /// Only active copies serve it. Lookups within documents say themselves which copy they want.
    pub(crate) needs_active: bool,
    /// It cannot be executed without the document's value.
    pub(crate) needs_value: bool,
    /// Its work may be out of proportion to the bytes that ask for it and the bytes that answer. The server searches,
    /// rewrites or gathers documents on the way.
    pub(crate) may_take_long: bool,
    /// It may leave more in memory and on disk than before.
    pub(crate) grows: bool,
    /// It writes the whole document anew, however little of it comes with the request.
    pub(crate) rewrites: bool,
    /// The statistics that it counts in.
    pub(crate) kind: K,
}

/// What the server has to know of an opcode.
#[inline]
pub(crate) fn of(opcode: Opcode) -> &'static Traits {
    &TABLE[usize::from(opcode.code())]
}

static TABLE: [Traits; 256] = {
    let mut table = [row(K::Other); 256];
    let mut next = 0;
    while next < Opcode::ALL.len() {
        let opcode = Opcode::ALL[next];
        table[opcode.code() as usize] = traits(opcode);
        next += 1;
    }
    table
};

/// A row to begin with: for no copy in particular, and of unknown duration.
const fn row(kind: K) -> Traits {
    Traits {
        needs_active: false,
        needs_value: false,
        may_take_long: true,
        grows: false,
        rewrites: false,
        kind,
    }
}

impl Traits {
    const fn active(self) -> Self {
        Self { needs_active: true, ..self }
    }

    const fn value(self) -> Self {
        Self { needs_value: true, ..self }
    }

    const fn quick(self) -> Self {
        Self { may_take_long: false, ..self }
    }

    const fn grows(self) -> Self {
        Self { grows: true, ..self }
    }

    const fn rewrites(self) -> Self {
        Self { rewrites: true, ..self }
    }
}

/// Expands to a match without a wildcard.
macro_rules! rows {
    ($($($opcode:ident)+ => $traits:expr;)*) => {
        const fn traits(opcode: Opcode) -> Traits {
            match opcode {
                $($(Opcode::$opcode)|+ => $traits,)*
            }
        }
    };
}

rows! {
    Get Getq Getk Getkq => row(K::Get).active().value().quick();
    Set Setq => row(K::Set).active().quick().grows();
    Add Addq => row(K::Add).active().quick().grows();
    Replace Replaceq => row(K::Replace).active().quick().grows();
    Delete Deleteq => row(K::Delete).active().quick();
    Increment Incrementq => row(K::Increment).active().value().grows();
    Decrement Decrementq => row(K::Decrement).active().value().grows();
    Append Appendq => row(K::Append).active().value().grows().rewrites();
    Prepend Prependq => row(K::Prepend).active().value().grows().rewrites();
    Touch => row(K::Touch).active();
    Gat Gatq => row(K::GetAndTouch).active().value();
    GetReplica => row(K::GetReplica);
    GetLocked => row(K::Lock).active().value().quick();
    UnlockKey => row(K::Unlock).active().quick();
    GetMeta GetqMeta => row(K::GetMeta).active().quick();
    SetWithMeta SetqWithMeta AddWithMeta AddqWithMeta => row(K::SetWithMeta).active().grows();
    DelWithMeta DelqWithMeta => row(K::DeleteWithMeta).active();
    Observe => row(K::Observe).active();
    ObserveSeqno => row(K::Observe);
    SubdocGet SubdocExists SubdocGetCount SubdocMultiLookup => row(K::SubdocLookup).value();
    SubdocDictAdd SubdocDictUpsert SubdocDelete SubdocReplace SubdocArrayPushLast SubdocArrayPushFirst
        SubdocArrayInsert SubdocArrayAddUnique SubdocCounter SubdocReplaceBodyWithXattr
        SubdocMultiMutation => row(K::SubdocMutation).active().value().grows().rewrites();
    GetRandomKey RangeScanCreate RangeScanContinue SeqnoPersistence => row(K::Other).active();
    Noop => row(K::Other).quick();
    // DCP messages that name a document.
    DcpMutation DcpDeletion DcpExpiration DcpPrepare DcpCommit DcpAbort => row(K::Other).active();
    // Not built. They name a document, so a node that may not serve it says that first.
    GetEx GetExReplica MutateWithMeta EvictKey ReturnMeta GetKeys => row(K::Other).active();
    Quit Quitq Flush Flushq Version Stat Verbosity Hello SaslListMechs SaslAuth SaslStep SelectBucket
        ListBuckets GetErrorMap GetClusterConfig GetAllVbSeqnos GetFailoverLog RangeScanCancel
        CollectionsGetManifest CollectionsGetId CollectionsGetScopeId => row(K::Other);
    DcpOpen DcpAddStream DcpCloseStream DcpStreamReq DcpGetFailoverLog DcpStreamEnd DcpSnapshotMarker
        DcpFlush DcpSetVbucketState DcpNoop DcpBufferAcknowledgement DcpControl DcpSystemEvent
        DcpSeqnoAcknowledged DcpSeqnoAdvanced DcpOsoSnapshot DcpCacheTransfer DcpCacheTransferEnd =>
        row(K::Other);
    // Not built.
    IoctlGet IoctlSet ConfigValidate ConfigReload AuditPut AuditConfigReload Shutdown
        SetBucketThrottleProperties SetBucketDataLimitExceeded SetNodeThrottleProperties
        SetActiveEncryptionKeys PruneEncryptionKeys RegisterAuthToken Rget Rset Rsetq Rappend Rappendq
        Rprepend Rprependq Rdelete Rdeleteq Rincr Rincrq Rdecr Rdecrq SetVbucket GetVbucket DelVbucket
        TapConnect TapMutation TapDelete TapFlush TapOpaque TapVbucketSet TapCheckpointStart
        TapCheckpointEnd GetFusionStorageSnapshot ReleaseFusionStorageSnapshot MountFusionVbucket
        UnmountFusionVbucket SyncFusionLogstore StartFusionUploader StopFusionUploader
        DeleteFusionNamespace GetFusionNamespaces CreateFusionNamespace StopPersistence StartPersistence
        SetParam SetChronicleAuthToken CreateBucket DeleteBucket PauseBucket ResumeBucket
        ValidateBucketConfig LastClosedCheckpoint DeregisterTapClient ResetReplicationChain
        SnapshotVbStates VbucketBatchCount CreateCheckpoint NotifyVbucketUpdate EnableTraffic
        DisableTraffic Ifconfig ChangeVbFilter CheckpointPersistence CompactDb SetClusterConfig
        CollectionsSetManifest SetDriftCounterState GetAdjustedTime PrepareSnapshot ReleaseSnapshot
        DownloadSnapshot GetFileFragment Scrub IsaslRefresh SslCertsRefresh GetCmdTimer SetCtrlToken
        GetCtrlToken UpdateExternalUserPermissions RbacRefresh AuthProvider DropPrivilege
        AdjustTimeofday EwouldblockCtl => row(K::Other);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(has: fn(&Traits) -> bool) -> Vec<Opcode> {
        Opcode::ALL.iter().copied().filter(|opcode| has(of(*opcode))).collect()
    }

    #[test]
    fn a_quiet_opcode_is_like_its_loud_one() {
        for opcode in Opcode::ALL {
            assert_eq!(of(*opcode), of(opcode.loud()), "{opcode:?}");
        }
    }

    #[test]
    fn opcodes_that_name_a_document_need_an_active_copy_unless_they_choose_one() {
        use Opcode as O;
        let chooses = [O::GetReplica, O::SubdocGet, O::SubdocExists, O::SubdocGetCount, O::SubdocMultiLookup];
        let of_several =
            [O::Observe, O::GetRandomKey, O::RangeScanCreate, O::RangeScanContinue, O::SeqnoPersistence];
        for opcode in Opcode::ALL {
            let expected =
                of_several.contains(opcode) || (opcode.has_document_key() && !chooses.contains(opcode));
            assert_eq!(of(*opcode).needs_active, expected, "{opcode:?}");
        }
    }

    #[test]
    fn only_mutations_grow_and_only_what_reads_a_value_rewrites_it() {
        for opcode in all(|traits| traits.grows) {
            assert!(opcode.mutates() && of(opcode).needs_active, "{opcode:?}");
        }
        for opcode in all(|traits| traits.rewrites) {
            assert!(of(opcode).grows && of(opcode).needs_value, "{opcode:?}");
        }
        for opcode in all(|traits| traits.needs_value) {
            assert!(opcode.has_document_key(), "{opcode:?}");
        }
    }

    #[test]
    fn what_frees_memory_or_only_looks_is_never_paced() {
        use Opcode as O;
        let passes =
            [O::Delete, O::DelWithMeta, O::Get, O::GetLocked, O::UnlockKey, O::Touch, O::Gat, O::GetMeta];
        let looks = [O::SubdocGet, O::SubdocExists, O::SubdocMultiLookup, O::ObserveSeqno, O::Stat, O::Noop];
        for opcode in passes.into_iter().chain(looks) {
            assert!(!of(opcode).grows, "{opcode:?}");
        }
        for opcode in [O::Append, O::Prepend, O::SubdocDictUpsert, O::SubdocCounter, O::SubdocMultiMutation] {
            assert!(of(opcode).rewrites, "{opcode:?}");
        }
        for opcode in [O::Set, O::Increment, O::SubdocGet, O::SubdocMultiLookup] {
            assert!(!of(opcode).rewrites, "{opcode:?}");
        }
        for opcode in
            [O::Set, O::Append, O::Increment, O::SetWithMeta, O::SubdocDictUpsert, O::SubdocMultiMutation]
        {
            assert!(of(opcode).grows, "{opcode:?}");
        }
    }

    #[test]
    fn what_is_quick_is_what_a_loop_may_do_many_times_in_a_turn() {
        use Opcode as O;
        let quick = all(|traits| !traits.may_take_long);
        let loud: Vec<_> = quick.into_iter().filter(|opcode| !opcode.is_quiet()).collect();
        let expected = [
            O::Get,
            O::Set,
            O::Add,
            O::Replace,
            O::Delete,
            O::Noop,
            O::Getk,
            O::GetLocked,
            O::UnlockKey,
            O::GetMeta,
        ];
        assert_eq!(loud, expected);
    }
}
