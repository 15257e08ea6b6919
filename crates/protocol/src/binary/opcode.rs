//! Every opcode of kv_engine with its name, the shape of its request and its kind of command, in one table. A new
//! command is one new row.
//!
//! A row is: number, name here, name in statistics and logs, shape, attributes. A quiet command also has the loud one
//! that it is a variant of. Whether a command is carried out is the server's decision. A known one that it does not
//! carry out is answered "not supported", a number without a row "unknown command".

use super::shape::{CasRule, Presence, Shape};
use base::Datatype;

/// The key names a document, so it carries a collection prefix where collections were negotiated.
const DOCUMENT: u8 = 1;
/// Changes documents.
const MUTATES: u8 = 2;
/// May carry a durability requirement.
const DURABLE: u8 = 4;
/// May carry the request to keep the document's expiry.
const PRESERVES_TTL: u8 = 8;
/// May be answered out of order on connections that negotiated it.
const REORDERS: u8 = 16;
/// Belongs to DCP.
const DCP: u8 = 32;
/// Known once, carried out no more.
const RETIRED: u8 = 64;

const READS: u8 = DOCUMENT | REORDERS;
const WRITES: u8 = DOCUMENT | MUTATES | DURABLE | REORDERS;
const UPDATES: u8 = WRITES | PRESERVES_TTL;
const WRITES_QUIETLY: u8 = DOCUMENT | MUTATES;
const UPDATES_QUIETLY: u8 = DOCUMENT | MUTATES | PRESERVES_TTL;

const BARE: Shape = Shape::BARE;
const KEY: Shape = BARE.key(Presence::Required);
const KEY_MAYBE: Shape = BARE.key(Presence::Optional);
const VALUE: Shape = BARE.value(Presence::Required);
const VALUE_MAYBE: Shape = BARE.value(Presence::Optional);
const KEY_AND_VALUE: Shape = KEY.value(Presence::Required);
const KEY_VALUE_MAYBE: Shape = KEY.value(Presence::Optional);
const BOTH_MAYBE: Shape = KEY_MAYBE.value(Presence::Optional);
const JSON_VALUE: Shape = VALUE.datatypes(Datatype::JSON);
const KEY_AND_JSON: Shape = KEY_AND_VALUE.datatypes(Datatype::JSON);
const ANY: Shape = Shape::ANY;

struct Row {
    name: &'static str,
    shape: Shape,
    attributes: u8,
    loud: Option<Opcode>,
}

macro_rules! opcodes {
    ($($code:literal $name:ident $text:literal $shape:expr, $attributes:expr $(, quiet $loud:ident)?;)*) => {
        /// What a client asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the table says what they are")]
        pub enum Opcode {
            $($name = $code,)*
        }

        impl Opcode {
            /// Every opcode, by number.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];
        }

        static BY_NUMBER: [Option<Opcode>; 256] = {
            let mut table = [None; 256];
            $(table[$code] = Some(Opcode::$name);)*
            table
        };

        static ROWS: [Row; 256] = {
            let mut table = [const { Row { name: "", shape: ANY, attributes: 0, loud: None } }; 256];
            $(table[$code] = Row {
                name: $text,
                shape: $shape,
                attributes: $attributes,
                loud: opcodes!(@loud $($loud)?),
            };)*
            table
        };
    };
    (@loud) => { None };
    (@loud $loud:ident) => { Some(Opcode::$loud) };
}

opcodes! {
    0x00 Get "GET" Shape::READ, READS;
    0x01 Set "SET" Shape::STORE, UPDATES;
    0x02 Add "ADD" Shape::ADD, WRITES;
    0x03 Replace "REPLACE" Shape::STORE, UPDATES;
    0x04 Delete "DELETE" Shape::DELETE, WRITES;
    0x05 Increment "INCREMENT" Shape::COUNTER, UPDATES;
    0x06 Decrement "DECREMENT" Shape::COUNTER, UPDATES;
    0x07 Quit "QUIT" BARE, 0;
    0x08 Flush "FLUSH" BARE.extras(&[0, 4]), 0;
    0x09 Getq "GETQ" Shape::READ, DOCUMENT, quiet Get;
    0x0a Noop "NOOP" BARE, 0;
    0x0b Version "VERSION" BARE, 0;
    0x0c Getk "GETK" Shape::READ, READS;
    0x0d Getkq "GETKQ" Shape::READ, DOCUMENT, quiet Getk;
    0x0e Append "APPEND" Shape::CONCATENATE, UPDATES;
    0x0f Prepend "PREPEND" Shape::CONCATENATE, UPDATES;
    0x10 Stat "STAT" BOTH_MAYBE.datatypes(Datatype::JSON), 0;
    0x11 Setq "SETQ" Shape::STORE, UPDATES_QUIETLY, quiet Set;
    0x12 Addq "ADDQ" Shape::ADD, WRITES_QUIETLY, quiet Add;
    0x13 Replaceq "REPLACEQ" Shape::STORE, UPDATES_QUIETLY, quiet Replace;
    0x14 Deleteq "DELETEQ" Shape::DELETE, WRITES_QUIETLY, quiet Delete;
    0x15 Incrementq "INCREMENTQ" Shape::COUNTER, UPDATES_QUIETLY, quiet Increment;
    0x16 Decrementq "DECREMENTQ" Shape::COUNTER, UPDATES_QUIETLY, quiet Decrement;
    0x17 Quitq "QUITQ" BARE, 0, quiet Quit;
    0x18 Flushq "FLUSHQ" BARE.extras(&[0, 4]), 0, quiet Flush;
    0x19 Appendq "APPENDQ" Shape::CONCATENATE, UPDATES_QUIETLY, quiet Append;
    0x1a Prependq "PREPENDQ" Shape::CONCATENATE, UPDATES_QUIETLY, quiet Prepend;
    0x1b Verbosity "VERBOSITY" BARE.extras(&[4]), 0;
    0x1c Touch "TOUCH" Shape::TOUCH, WRITES;
    0x1d Gat "GAT" Shape::TOUCH, WRITES;
    0x1e Gatq "GATQ" Shape::TOUCH, WRITES_QUIETLY, quiet Gat;
    0x1f Hello "HELLO" BOTH_MAYBE, 0;
    0x20 SaslListMechs "SASL_LIST_MECHS" BARE, 0;
    0x21 SaslAuth "SASL_AUTH" KEY_VALUE_MAYBE, 0;
    0x22 SaslStep "SASL_STEP" KEY_VALUE_MAYBE, 0;
    0x23 IoctlGet "IOCTL_GET" KEY, 0;
    0x24 IoctlSet "IOCTL_SET" KEY_VALUE_MAYBE, 0;
    0x25 ConfigValidate "CONFIG_VALIDATE" VALUE, 0;
    0x26 ConfigReload "CONFIG_RELOAD" BARE, 0;
    0x27 AuditPut "AUDIT_PUT" VALUE.extras(&[4]), 0;
    0x28 AuditConfigReload "AUDIT_CONFIG_RELOAD" BARE, 0;
    0x29 Shutdown "SHUTDOWN" BARE, 0;
    0x2a SetBucketThrottleProperties "SET_BUCKET_THROTTLE_PROPERTIES" KEY_AND_JSON, REORDERS;
    0x2b SetBucketDataLimitExceeded "SET_BUCKET_DATA_LIMIT_EXCEEDED" KEY.extras(&[2]), REORDERS;
    0x2c SetNodeThrottleProperties "SET_NODE_THROTTLE_PROPERTIES" ANY, RETIRED;
    0x2d SetActiveEncryptionKeys "SET_ACTIVE_ENCRYPTION_KEYS" KEY_AND_JSON, REORDERS;
    0x2e PruneEncryptionKeys "PRUNE_ENCRYPTION_KEYS" KEY_AND_JSON, REORDERS;
    0x2f RegisterAuthToken "REGISTER_AUTH_TOKEN" JSON_VALUE, 0;
    0x30 Rget "RGET" ANY, RETIRED;
    0x31 Rset "RSET" ANY, RETIRED;
    0x32 Rsetq "RSETQ" ANY, RETIRED, quiet Rset;
    0x33 Rappend "RAPPEND" ANY, RETIRED;
    0x34 Rappendq "RAPPENDQ" ANY, RETIRED, quiet Rappend;
    0x35 Rprepend "RPREPEND" ANY, RETIRED;
    0x36 Rprependq "RPREPENDQ" ANY, RETIRED, quiet Rprepend;
    0x37 Rdelete "RDELETE" ANY, RETIRED;
    0x38 Rdeleteq "RDELETEQ" ANY, RETIRED, quiet Rdelete;
    0x39 Rincr "RINCR" ANY, RETIRED;
    0x3a Rincrq "RINCRQ" ANY, RETIRED, quiet Rincr;
    0x3b Rdecr "RDECR" ANY, RETIRED;
    0x3c Rdecrq "RDECRQ" ANY, RETIRED, quiet Rdecr;
    0x3d SetVbucket "SET_VBUCKET" VALUE_MAYBE.extras(&[1]).datatypes(Datatype::JSON), 0;
    0x3e GetVbucket "GET_VBUCKET" KEY_MAYBE, 0;
    0x3f DelVbucket "DEL_VBUCKET" VALUE_MAYBE, 0;
    0x40 TapConnect "TAP_CONNECT" ANY, RETIRED;
    0x41 TapMutation "TAP_MUTATION" ANY, RETIRED;
    0x42 TapDelete "TAP_DELETE" ANY, RETIRED;
    0x43 TapFlush "TAP_FLUSH" ANY, RETIRED;
    0x44 TapOpaque "TAP_OPAQUE" ANY, RETIRED;
    0x45 TapVbucketSet "TAP_VBUCKET_SET" ANY, RETIRED;
    0x46 TapCheckpointStart "TAP_CHECKPOINT_START" ANY, RETIRED;
    0x47 TapCheckpointEnd "TAP_CHECKPOINT_END" ANY, RETIRED;
    0x48 GetAllVbSeqnos "GET_ALL_VB_SEQNOS" BARE.extras(&[0, 4, 8]), REORDERS;
    0x49 GetEx "GET_EX" Shape::READ, READS;
    0x4a GetExReplica "GET_EX_REPLICA" Shape::READ, READS;
    0x4b MutateWithMeta "MUTATE_WITH_META" ANY.key(Presence::Required), DOCUMENT | MUTATES | REORDERS;
    0x50 DcpOpen "DCP_OPEN"
        KEY_VALUE_MAYBE.extras(&[8]).cas(CasRule::Any).datatypes(Datatype::JSON), DCP;
    0x51 DcpAddStream "DCP_ADD_STREAM" BARE.extras(&[4]).cas(CasRule::Any), DCP;
    0x52 DcpCloseStream "DCP_CLOSE_STREAM" BARE.cas(CasRule::Any), DCP;
    0x53 DcpStreamReq "DCP_STREAM_REQ" VALUE_MAYBE.extras(&[48]).cas(CasRule::Any), DCP;
    0x54 DcpGetFailoverLog "DCP_GET_FAILOVER_LOG" BARE.cas(CasRule::Any), DCP;
    0x55 DcpStreamEnd "DCP_STREAM_END" BARE.extras(&[4]).cas(CasRule::Any), DCP;
    0x56 DcpSnapshotMarker "DCP_SNAPSHOT_MARKER" VALUE_MAYBE.extras(&[1, 20]).cas(CasRule::Any), DCP;
    0x57 DcpMutation "DCP_MUTATION" ANY.extras(&[31]).key(Presence::Required), DCP | DOCUMENT;
    0x58 DcpDeletion "DCP_DELETION" ANY.extras(&[18, 21]).key(Presence::Required), DCP | DOCUMENT;
    0x59 DcpExpiration "DCP_EXPIRATION" ANY.extras(&[20]).key(Presence::Required), DCP | DOCUMENT;
    0x5a DcpFlush "DCP_FLUSH" ANY, RETIRED;
    0x5b DcpSetVbucketState "DCP_SET_VBUCKET_STATE" BARE.extras(&[1]).cas(CasRule::Any), DCP;
    0x5c DcpNoop "DCP_NOOP" BARE.cas(CasRule::Any), DCP;
    0x5d DcpBufferAcknowledgement "DCP_BUFFER_ACKNOWLEDGEMENT" BARE.extras(&[4]).cas(CasRule::Any), DCP;
    0x5e DcpControl "DCP_CONTROL" KEY_AND_VALUE.cas(CasRule::Any), DCP;
    0x5f DcpSystemEvent "DCP_SYSTEM_EVENT" ANY.extras(&[13]), DCP;
    0x60 DcpPrepare "DCP_PREPARE"
        ANY.extras(&[31]).key(Presence::Required).cas(CasRule::Required), DCP | DOCUMENT;
    0x61 DcpSeqnoAcknowledged "DCP_SEQNO_ACKNOWLEDGED" BARE.extras(&[8]), DCP;
    0x62 DcpCommit "DCP_COMMIT" KEY.extras(&[16]), DCP | DOCUMENT;
    0x63 DcpAbort "DCP_ABORT" KEY.extras(&[16]), DCP | DOCUMENT;
    0x64 DcpSeqnoAdvanced "DCP_SEQNO_ADVANCED" BARE.extras(&[8]), DCP;
    0x65 DcpOsoSnapshot "DCP_OSO_SNAPSHOT" BARE.extras(&[4]), DCP;
    0x66 DcpCacheTransfer "DCP_CACHE_TRANSFER" VALUE, DCP;
    0x67 DcpCacheTransferEnd "DCP_CACHE_TRANSFER_END" BARE, DCP;
    0x70 GetFusionStorageSnapshot "GET_FUSION_STORAGE_SNAPSHOT" JSON_VALUE, 0;
    0x71 ReleaseFusionStorageSnapshot "RELEASE_FUSION_STORAGE_SNAPSHOT" JSON_VALUE, 0;
    0x72 MountFusionVbucket "MOUNT_FUSION_VBUCKET" JSON_VALUE, 0;
    0x73 UnmountFusionVbucket "UNMOUNT_FUSION_VBUCKET" BARE, 0;
    0x74 SyncFusionLogstore "SYNC_FUSION_LOGSTORE" BARE, 0;
    0x75 StartFusionUploader "START_FUSION_UPLOADER" JSON_VALUE, 0;
    0x76 StopFusionUploader "STOP_FUSION_UPLOADER" BARE, 0;
    0x77 DeleteFusionNamespace "DELETE_FUSION_NAMESPACE" JSON_VALUE, 0;
    0x78 GetFusionNamespaces "GET_FUSION_NAMESPACES" JSON_VALUE, 0;
    0x79 CreateFusionNamespace "CREATE_FUSION_NAMESPACE" JSON_VALUE, 0;
    0x80 StopPersistence "STOP_PERSISTENCE" BARE, 0;
    0x81 StartPersistence "START_PERSISTENCE" BARE, 0;
    0x82 SetParam "SET_PARAM" KEY_AND_VALUE.extras(&[4]), 0;
    0x83 GetReplica "GET_REPLICA" Shape::READ, READS;
    0x84 SetChronicleAuthToken "SET_CHRONICLE_AUTH_TOKEN" JSON_VALUE, 0;
    0x85 CreateBucket "CREATE_BUCKET" KEY_AND_VALUE.cas(CasRule::Any), 0;
    0x86 DeleteBucket "DELETE_BUCKET" KEY_VALUE_MAYBE.cas(CasRule::Any), 0;
    0x87 ListBuckets "LIST_BUCKETS" BARE.cas(CasRule::Any), 0;
    0x89 SelectBucket "SELECT_BUCKET" KEY_MAYBE.cas(CasRule::Any), 0;
    0x8a PauseBucket "PAUSE_BUCKET" KEY_MAYBE, 0;
    0x8b ResumeBucket "RESUME_BUCKET" KEY_MAYBE, 0;
    0x8c ValidateBucketConfig "VALIDATE_BUCKET_CONFIG" VALUE, 0;
    0x91 ObserveSeqno "OBSERVE_SEQNO" VALUE_MAYBE.cas(CasRule::Any), 0;
    // The Java clients of 2014 declare the list of keys as extras, which servers of their time did not mind.
    0x92 Observe "OBSERVE" ANY.key(Presence::None).datatypes(Datatype::RAW), 0;
    0x93 EvictKey "EVICT_KEY" Shape::READ, READS;
    0x94 GetLocked "GET_LOCKED" Shape::READ.extras(&[0, 4]), READS;
    0x95 UnlockKey "UNLOCK_KEY" Shape::READ.cas(CasRule::Required), READS;
    0x96 GetFailoverLog "GET_FAILOVER_LOG" BARE.cas(CasRule::Any), 0;
    0x97 LastClosedCheckpoint "LAST_CLOSED_CHECKPOINT" ANY, RETIRED;
    0x9e DeregisterTapClient "DEREGISTER_TAP_CLIENT" ANY, RETIRED;
    0x9f ResetReplicationChain "RESET_REPLICATION_CHAIN" ANY, RETIRED;
    0xa0 GetMeta "GET_META" Shape::READ.extras(&[0, 1]), DOCUMENT;
    0xa1 GetqMeta "GETQ_META" Shape::READ.extras(&[0, 1]), DOCUMENT, quiet GetMeta;
    0xa2 SetWithMeta "SET_WITH_META" Shape::WITH_META, WRITES_QUIETLY;
    0xa3 SetqWithMeta "SETQ_WITH_META" Shape::WITH_META, WRITES_QUIETLY, quiet SetWithMeta;
    0xa4 AddWithMeta "ADD_WITH_META" Shape::WITH_META, WRITES_QUIETLY;
    0xa5 AddqWithMeta "ADDQ_WITH_META" Shape::WITH_META, WRITES_QUIETLY, quiet AddWithMeta;
    0xa6 SnapshotVbStates "SNAPSHOT_VB_STATES" ANY, RETIRED;
    0xa7 VbucketBatchCount "VBUCKET_BATCH_COUNT" ANY, RETIRED;
    0xa8 DelWithMeta "DEL_WITH_META" Shape::WITH_META, WRITES_QUIETLY;
    0xa9 DelqWithMeta "DELQ_WITH_META" Shape::WITH_META, WRITES_QUIETLY, quiet DelWithMeta;
    0xaa CreateCheckpoint "CREATE_CHECKPOINT" ANY, RETIRED;
    0xac NotifyVbucketUpdate "NOTIFY_VBUCKET_UPDATE" ANY, RETIRED;
    0xad EnableTraffic "ENABLE_TRAFFIC" BARE, 0;
    0xae DisableTraffic "DISABLE_TRAFFIC" BARE, 0;
    0xaf Ifconfig "IFCONFIG" KEY_VALUE_MAYBE.datatypes(Datatype::JSON), 0;
    0xb0 ChangeVbFilter "CHANGE_VB_FILTER" ANY, RETIRED;
    0xb1 CheckpointPersistence "CHECKPOINT_PERSISTENCE" ANY, RETIRED;
    0xb2 ReturnMeta "RETURN_META" KEY_VALUE_MAYBE.extras(&[12]).cas(CasRule::Any), WRITES_QUIETLY;
    0xb3 CompactDb "COMPACT_DB" VALUE_MAYBE.extras(&[24]).datatypes(Datatype::JSON), 0;
    0xb4 SetClusterConfig "SET_CLUSTER_CONFIG"
        KEY_MAYBE.value(Presence::Required).extras(&[16]).datatypes(Datatype::JSON), 0;
    0xb5 GetClusterConfig "GET_CLUSTER_CONFIG" BARE.extras(&[0, 16]), REORDERS;
    0xb6 GetRandomKey "GET_RANDOM_KEY" BARE.extras(&[0, 4, 5]), 0;
    0xb7 SeqnoPersistence "SEQNO_PERSISTENCE" BARE.extras(&[8]), 0;
    0xb8 GetKeys "GET_KEYS" Shape::READ.extras(&[0, 4]), DOCUMENT;
    0xb9 CollectionsSetManifest "COLLECTIONS_SET_MANIFEST" VALUE, 0;
    0xba CollectionsGetManifest "COLLECTIONS_GET_MANIFEST" BARE, 0;
    0xbb CollectionsGetId "COLLECTIONS_GET_ID" BOTH_MAYBE, 0;
    0xbc CollectionsGetScopeId "COLLECTIONS_GET_SCOPE_ID" BOTH_MAYBE, 0;
    0xc1 SetDriftCounterState "SET_DRIFT_COUNTER_STATE" ANY, RETIRED;
    0xc2 GetAdjustedTime "GET_ADJUSTED_TIME" ANY, RETIRED;
    0xc5 SubdocGet "SUBDOC_GET" Shape::SUBDOC_LOOKUP, READS;
    0xc6 SubdocExists "SUBDOC_EXISTS" Shape::SUBDOC_LOOKUP, READS;
    0xc7 SubdocDictAdd "SUBDOC_DICT_ADD" Shape::SUBDOC_MUTATION, UPDATES;
    0xc8 SubdocDictUpsert "SUBDOC_DICT_UPSERT" Shape::SUBDOC_MUTATION, UPDATES;
    0xc9 SubdocDelete "SUBDOC_DELETE" Shape::SUBDOC_MUTATION, UPDATES;
    0xca SubdocReplace "SUBDOC_REPLACE" Shape::SUBDOC_MUTATION, UPDATES;
    0xcb SubdocArrayPushLast "SUBDOC_ARRAY_PUSH_LAST" Shape::SUBDOC_MUTATION, UPDATES;
    0xcc SubdocArrayPushFirst "SUBDOC_ARRAY_PUSH_FIRST" Shape::SUBDOC_MUTATION, UPDATES;
    0xcd SubdocArrayInsert "SUBDOC_ARRAY_INSERT" Shape::SUBDOC_MUTATION, UPDATES;
    0xce SubdocArrayAddUnique "SUBDOC_ARRAY_ADD_UNIQUE" Shape::SUBDOC_MUTATION, UPDATES;
    0xcf SubdocCounter "SUBDOC_COUNTER" Shape::SUBDOC_MUTATION, UPDATES;
    0xd0 SubdocMultiLookup "SUBDOC_MULTI_LOOKUP" Shape::SUBDOC_LOOKUP.extras(&[0, 1]), READS;
    0xd1 SubdocMultiMutation "SUBDOC_MULTI_MUTATION" Shape::SUBDOC_MUTATION.extras(&[0, 1, 4, 5, 8, 9]), UPDATES;
    0xd2 SubdocGetCount "SUBDOC_GET_COUNT" Shape::SUBDOC_LOOKUP, READS;
    0xd3 SubdocReplaceBodyWithXattr "SUBDOC_REPLACE_BODY_WITH_XATTR" Shape::SUBDOC_MUTATION, UPDATES;
    0xda RangeScanCreate "RANGE_SCAN_CREATE" VALUE_MAYBE.datatypes(Datatype::JSON), REORDERS;
    0xdb RangeScanContinue "RANGE_SCAN_CONTINUE" BARE.extras(&[28]), 0;
    0xdc RangeScanCancel "RANGE_SCAN_CANCEL" BARE.extras(&[16]), 0;
    0xe0 PrepareSnapshot "PREPARE_SNAPSHOT" JSON_VALUE, 0;
    0xe1 ReleaseSnapshot "RELEASE_SNAPSHOT" KEY_MAYBE, 0;
    0xe2 DownloadSnapshot "DOWNLOAD_SNAPSHOT" JSON_VALUE, 0;
    0xe3 GetFileFragment "GET_FILE_FRAGMENT" KEY_AND_JSON, 0;
    0xf0 Scrub "SCRUB" ANY, RETIRED;
    0xf1 IsaslRefresh "ISASL_REFRESH" BARE, 0;
    0xf2 SslCertsRefresh "SSL_CERTS_REFRESH" ANY, RETIRED;
    0xf3 GetCmdTimer "GET_CMD_TIMER" KEY_MAYBE.extras(&[1]), 0;
    0xf4 SetCtrlToken "SET_CTRL_TOKEN" BARE.extras(&[8]), 0;
    0xf5 GetCtrlToken "GET_CTRL_TOKEN" BARE, 0;
    0xf6 UpdateExternalUserPermissions "UPDATE_USER_PERMISSIONS" VALUE, 0;
    0xf7 RbacRefresh "RBAC_REFRESH" BARE, 0;
    0xf8 AuthProvider "AUTH_PROVIDER" BARE, 0;
    0xfb DropPrivilege "DROP_PRIVILEGES" KEY, 0;
    0xfc AdjustTimeofday "ADJUST_TIMEOFDAY" ANY, 0;
    0xfd EwouldblockCtl "EWB_CTL" ANY, 0;
    0xfe GetErrorMap "GET_ERROR_MAP" VALUE_MAYBE, 0;
}

impl Opcode {
    /// The opcode with this number; `None` is answered "unknown command".
    #[inline]
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the table has a place for each of the 256 numbers")]
    pub fn from_wire(number: u8) -> Option<Opcode> {
        BY_NUMBER[usize::from(number)]
    }

    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name that statistics, logs and documentation use.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether an uninteresting outcome is not answered: success of a mutation, a miss of a read.
    #[inline]
    #[must_use]
    pub fn is_quiet(self) -> bool {
        self.row().loud.is_some()
    }

    /// The command that does the same and always answers; itself unless quiet.
    #[inline]
    #[must_use]
    pub fn loud(self) -> Opcode {
        self.row().loud.unwrap_or(self)
    }

    /// Whether the key names a document.
    #[inline]
    #[must_use]
    pub fn has_document_key(self) -> bool {
        self.has(DOCUMENT)
    }

    /// Whether it changes documents.
    #[inline]
    #[must_use]
    pub fn mutates(self) -> bool {
        self.has(MUTATES)
    }

    /// Whether it may carry a durability requirement.
    #[inline]
    #[must_use]
    pub fn accepts_durability(self) -> bool {
        self.has(DURABLE)
    }

    /// Whether it may ask to keep the document's expiry.
    #[inline]
    #[must_use]
    pub fn accepts_preserve_ttl(self) -> bool {
        self.has(PRESERVES_TTL)
    }

    /// Whether it may be answered out of order where that was negotiated.
    #[inline]
    #[must_use]
    pub fn may_reorder(self) -> bool {
        self.has(REORDERS)
    }

    /// Whether it belongs to DCP.
    #[inline]
    #[must_use]
    pub fn is_dcp(self) -> bool {
        self.has(DCP)
    }

    /// Whether Couchbase itself answers "not supported".
    #[inline]
    #[must_use]
    pub fn is_retired(self) -> bool {
        self.has(RETIRED)
    }

    /// What its request has to look like.
    #[inline]
    #[must_use]
    pub fn shape(self) -> &'static Shape {
        &self.row().shape
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the table has a place for each of the 256 codes")]
    fn row(self) -> &'static Row {
        &ROWS[usize::from(self.code())]
    }

    #[inline]
    fn has(self, attribute: u8) -> bool {
        self.row().attributes & attribute != 0
    }
}

/// What the server asks a client on a duplex connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ServerOpcode {
    /// The cluster map changed.
    ClustermapChangeNotification = 0x01,
    /// Authenticate a user (to an authentication provider).
    Authenticate = 0x02,
    /// Which external users are active.
    ActiveExternalUsers = 0x03,
    /// What an external user may do.
    GetAuthorization = 0x04,
}

impl ServerOpcode {
    /// The opcode with this number.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<ServerOpcode> {
        match number {
            0x01 => Some(ServerOpcode::ClustermapChangeNotification),
            0x02 => Some(ServerOpcode::Authenticate),
            0x03 => Some(ServerOpcode::ActiveExternalUsers),
            0x04 => Some(ServerOpcode::GetAuthorization),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_gaps_are_unknown() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_wire(opcode.code()), Some(opcode));
            assert!(!opcode.name().is_empty());
        }
        for number in [0x4c, 0x88, 0x8d, 0xab, 0xd4, 0xff] {
            assert_eq!(Opcode::from_wire(number), None);
        }
    }

    #[test]
    fn quiet_commands_differ_from_their_loud_ones_in_quietness_alone() {
        for &opcode in Opcode::ALL.iter().filter(|opcode| opcode.is_quiet()) {
            let loud = opcode.loud();
            assert!(!loud.is_quiet(), "{opcode:?}");
            assert_eq!(opcode.shape(), loud.shape(), "{opcode:?}");
            assert_eq!(opcode.mutates(), loud.mutates(), "{opcode:?}");
            assert_eq!(opcode.has_document_key(), loud.has_document_key(), "{opcode:?}");
            assert!(!opcode.accepts_durability(), "{opcode:?}");
        }
        assert_eq!(Opcode::Getkq.loud(), Opcode::Getk);
        assert_eq!(Opcode::Set.loud(), Opcode::Set);
    }

    #[test]
    fn document_keys_are_required_wherever_they_can_be() {
        for &opcode in Opcode::ALL.iter().filter(|opcode| opcode.has_document_key()) {
            assert_eq!(opcode.shape().key, Presence::Required, "{opcode:?}");
        }
    }
}
