//! Response statuses of the memcached binary protocol as Couchbase extended it (kv_engine
//! `include/mcbp/protocol/status.h`), with the text that goes into the body of a failed response.
//!
//! The text is part of the contract. The older Java clients show it as their error, back off on exactly
//! `Temporary failure` and count collisions by the word `exists`.

macro_rules! statuses {
    ($($code:literal $name:ident $text:literal,)*) => {
        /// Outcome of a request on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "the text beside each name says what it means")]
        pub enum Status {
            $($name = $code,)*
        }

        impl Status {
            /// Every status.
            pub const ALL: &'static [Status] = &[$(Status::$name,)*];

            /// What the body of a failed response says.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Status::$name => $text,)*
                }
            }

            /// The status with this number on the wire.
            #[must_use]
            pub const fn from_wire(code: u16) -> Option<Status> {
                match code {
                    $($code => Some(Status::$name),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    0x00 Success "",
    0x01 KeyNotFound "Not found",
    0x02 KeyExists "Data exists for key",
    0x03 TooBig "Too large",
    0x04 Invalid "Invalid arguments",
    0x05 NotStored "Not stored",
    0x06 DeltaBadValue "Non-numeric server-side value for incr or decr",
    0x07 NotMyVbucket "I'm not responsible for this vbucket",
    0x08 NoBucket "Not connected to a bucket",
    0x09 Locked "Resource locked",
    0x0a DcpStreamNotFound "No DCP Stream for this request",
    0x0b OpaqueNoMatch "Opaque does not match",
    0x0c WouldThrottle "Command would have been throttled",
    0x0d ConfigOnly "Can't perform operation with config-only bucket",
    0x0e NotLocked "Requested resource is not locked",
    0x0f CasValueInvalid "CAS value is invalid",
    0x1f AuthStale "Authentication stale. Please reauthenticate",
    0x20 AuthError "Auth failure",
    0x21 AuthContinue "Auth continue",
    0x22 Range "Outside range",
    0x23 Rollback "Rollback",
    0x24 NoAccess "No access",
    0x25 NotInitialized "Node not initialized",
    0x32 RateLimitedMaxConnections "Rate limit: max connections",
    0x50 BucketPaused "Bucket is paused",
    0x51 Cancelled "Request cancelled",
    0x80 UnknownFrameInfo "Unknown frame info",
    0x81 UnknownCommand "Unknown command",
    0x82 NoMemory "Out of memory",
    0x83 NotSupported "Not supported",
    0x84 Internal "Internal error",
    0x85 Busy "Server too busy",
    0x86 TemporaryFailure "Temporary failure",
    0x87 XattrInvalid "XATTR invalid",
    0x88 UnknownCollection "Unknown Collection",
    0x8a CannotApplyCollectionsManifest "Cannot apply collections manifest",
    0x8c UnknownScope "Unknown Scope",
    0x8d DcpStreamIdInvalid "DCP stream-ID is invalid",
    0xa0 DurabilityInvalidLevel "Invalid durability level",
    0xa1 DurabilityImpossible "Durability impossible",
    0xa2 SyncWriteInProgress "Synchronous write in progress",
    0xa3 SyncWriteAmbiguous "Synchronous write ambiguous",
    0xa4 SyncWriteReCommitInProgress "The SyncWrite is being re-committed after a change in active node",
    0xa5 RangeScanCancelled "RangeScan was cancelled",
    0xa6 RangeScanMore "RangeScan has more data available",
    0xa7 RangeScanComplete "RangeScan has completed",
    0xa8 VbUuidNotEqual "VB UUID not equal",
    0xc0 SubdocPathNotFound "Subdoc: Path not does not exist",
    0xc1 SubdocPathMismatch "Subdoc: Path mismatch",
    0xc2 SubdocPathInvalid "Subdoc: Invalid path",
    0xc3 SubdocPathTooBig "Subdoc: Path too large",
    0xc4 SubdocDocTooDeep "Subdoc: Document too deep",
    0xc5 SubdocValueCannotInsert "Subdoc: Cannot insert specified value",
    0xc6 SubdocDocNotJson "Subdoc: Existing document not JSON",
    0xc7 SubdocNumberRange "Subdoc: Existing number outside valid arithmetic range",
    0xc8 SubdocDeltaInvalid "Subdoc: Delta is 0, not a number, or outside the valid range",
    0xc9 SubdocPathExists "Subdoc: Document path already exists",
    0xca SubdocValueTooDeep "Subdoc: Inserting value would cause document to be too deep",
    0xcb SubdocInvalidCombo "Subdoc: Invalid combination for multi-path command",
    0xcc SubdocMultiPathFailure "Subdoc: One or more paths in a multi-path command failed",
    0xcd SubdocSuccessDeleted "Subdoc: Operation completed successfully on a deleted document",
    0xce SubdocXattrInvalidFlagCombo "Subdoc: Invalid combination of flags",
    0xcf SubdocXattrInvalidKeyCombo "Subdoc: Invalid combination of keys",
    0xd0 SubdocXattrUnknownMacro "Subdoc: Invalid macro",
    0xd1 SubdocXattrUnknownVattr "Subdoc: Unknown virtual attribute",
    0xd2 SubdocXattrCannotModifyVattr "Subdoc: Can't modify virtual attributes",
    0xd3 SubdocMultiPathFailureDeleted "Subdoc: One or more paths in a multi-path command failed on a deleted document",
    0xd4 SubdocInvalidXattrOrder "Subdoc: Invalid XATTR order (xattrs should come first)",
    0xd5 SubdocXattrUnknownVattrMacro "Subdoc: The server don't know this virtual macro",
    0xd6 SubdocCanOnlyReviveDeletedDocuments "Subdoc: Only deleted documents can be revived",
    0xd7 SubdocDeletedDocumentCantHaveValue "Subdoc: A deleted document can't have a value",
    0xd8 XattrNotBinary "Subdoc: The xattr is not binary",
}

impl Status {
    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_the_texts_old_clients_match_are_exact() {
        for &status in Status::ALL {
            assert_eq!(Status::from_wire(status.code()), Some(status));
        }
        assert_eq!(Status::TemporaryFailure.text(), "Temporary failure");
        assert!(Status::KeyExists.text().contains("exists"));
        assert_eq!(Status::Success.text(), "");
    }
}
