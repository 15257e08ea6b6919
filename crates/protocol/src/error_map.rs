//! The error map: statuses explained to clients that do not know them, as JSON (kv_engine
//! `docs/ErrorMap.md`).
//!
//! A client asks for the newest version it understands. Version 2 has every attribute; version 1 is the same
//! map without the attributes that did not exist then; nothing older exists. Descriptions are ours, names and
//! attributes are what clients act upon.

use std::sync::LazyLock;

/// Grows whenever an entry changes, so that clients can tell maps of one version apart.
const REVISION: u32 = 9;
/// Version 1 counted on its own before it was derived from version 2.
const REVISION_V1_LEAD: u32 = 4;

/// Attributes that version 1 does not know.
const NEW_IN_V2: [&str; 3] = ["rate-limit", "system-constraint", "no-retry"];

struct Entry {
    code: u16,
    name: &'static str,
    description: &'static str,
    attributes: &'static [&'static str],
}

macro_rules! entries {
    ($($code:literal $name:literal $description:literal [$($attribute:literal)*];)*) => {
        &[$(Entry { code: $code, name: $name, description: $description, attributes: &[$($attribute),*] },)*]
    };
}

static ENTRIES: &[Entry] = entries! {
    0x00 "SUCCESS" "The operation succeeded" ["success"];
    0x01 "KEY_ENOENT" "There is no such document" ["item-only"];
    0x02 "KEY_EEXISTS" "The document exists already or has another CAS" ["item-only"];
    0x03 "E2BIG" "The document is larger than the bucket allows" ["item-only" "invalid-input"];
    0x04 "EINVAL" "The request is malformed" ["internal" "invalid-input"];
    0x05 "NOT_STORED" "The condition for storing was not met" ["internal" "item-only"];
    0x06 "DELTA_BADVAL" "The document is no number that can be counted" ["item-only" "invalid-input"];
    0x07 "NOT_MY_VBUCKET" "This node does not serve the vBucket" ["fetch-config" "invalid-input"];
    0x08 "NO_BUCKET" "The connection has no bucket selected" ["conn-state-invalidated"];
    0x09 "LOCKED" "The document is locked" ["item-locked" "item-only" "retry-now"];
    0x0a "STREAM_NOT_FOUND" "There is no such DCP stream" ["conn-state-invalidated"];
    0x0b "OPAQUE_NO_MATCH" "The opaque does not belong to the DCP stream" ["conn-state-invalidated"];
    0x0c "EWOULD_THROTTLE" "The request would have been throttled" ["temp" "retry-later" "rate-limit"];
    0x0d "ECONFIG_ONLY" "The node knows the bucket's map only" ["fetch-config" "retry-now"];
    0x0e "NOT_LOCKED" "The document is not locked" ["item-only"];
    0x0f "CAS_VALUE_INVALID" "No document can have this CAS" ["item-only"];
    0x1f "AUTH_STALE" "The user has changed and must log in again" ["conn-state-invalidated" "auth"];
    0x20 "AUTH_ERROR" "Wrong user or password" ["conn-state-invalidated" "auth"];
    0x21 "AUTH_CONTINUE" "The login goes on with another step" ["special-handling"];
    0x22 "ERANGE" "An argument is outside its range" ["invalid-input"];
    0x23 "ROLLBACK" "The DCP client must go back first" ["dcp" "special-handling"];
    0x24 "EACCESS" "The user lacks the right to do this" ["support"];
    0x25 "NOT_INITIALIZED" "The node is not initialised" ["conn-state-invalidated"];
    0x26 "ENCRYPTION_KEY_NOT_AVAILABLE" "The encryption key is not available" ["special-handling"];
    0x27 "CHECKSUM_MISMATCH" "The data does not have its checksum" ["special-handling"];
    0x28 "EXPIRY_OVERFLOW" "The expiry cannot be represented" ["item-only" "system-constraint" "no-retry"];
    0x29 "LOCK_EXPIRY_OVERFLOW" "The lock's end cannot be represented"
        ["item-only" "system-constraint" "no-retry"];
    0x30 "RATE_LIMITED_NETWORK_INGRESS" "Too much sent by this user" ["temp" "retry-later" "rate-limit"];
    0x31 "RATE_LIMITED_NETWORK_EGRESS" "Too much received by this user" ["temp" "retry-later" "rate-limit"];
    0x32 "RATE_LIMITED_MAX_CONNECTIONS" "Too many connections" ["conn-state-invalidated" "rate-limit"];
    0x33 "RATE_LIMITED_MAX_COMMANDS" "Too many requests by this user" ["temp" "retry-later" "rate-limit"];
    0x35 "BUCKET_SIZE_LIMIT_EXCEEDED" "The bucket is at its size limit"
        ["item-only" "system-constraint" "no-retry"];
    0x36 "BUCKET_RESIDENT_RATIO_TOO_LOW" "Too little of the bucket fits in memory"
        ["item-only" "system-constraint" "no-retry"];
    0x37 "BUCKET_DATA_SIZE_TOO_BIG" "The bucket has too much data per node"
        ["item-only" "system-constraint" "no-retry"];
    0x38 "BUCKET_DISK_SPACE_TOO_LOW" "Too little disk space is left"
        ["item-only" "system-constraint" "no-retry"];
    0x50 "BUCKET_PAUSED" "The bucket is paused" ["support"];
    0x51 "CANCELLED" "The request was cancelled" ["item-only" "retry-now"];
    0x80 "UNKNOWN_FRAME_INFO" "The request carries a frame info that is not understood" ["support"];
    0x81 "UNKNOWN_COMMAND" "There is no such command" ["support"];
    0x82 "ENOMEM" "The bucket has no memory left" ["temp" "retry-later"];
    0x83 "NOT_SUPPORTED" "The command is not supported here" ["support"];
    0x84 "EINTERNAL" "Something failed inside the server" ["internal" "conn-state-invalidated"];
    0x85 "EBUSY" "The server is too busy" ["temp" "retry-now"];
    0x86 "ETMPFAIL" "The operation cannot be done at the moment" ["temp" "retry-now"];
    0x87 "XATTR_EINVAL" "The extended attributes are malformed" ["invalid-input"];
    0x88 "UNKNOWN_COLLECTION" "There is no such collection" ["invalid-input"];
    0x8a "CANNOT_APPLY_COLLECTIONS_MANIFEST" "The collections manifest cannot be applied" ["invalid-input"];
    0x8c "UNKNOWN_SCOPE" "There is no such scope" ["invalid-input"];
    0x8d "DCP stream-ID invalid" "The DCP stream id is wrong for this connection" ["invalid-input"];
    0xa0 "DurabilityInvalidLevel" "The bucket cannot provide this durability level" ["invalid-input"];
    0xa1 "DurabilityImpossible" "Too few nodes are there for this durability level"
        ["item-only" "invalid-input"];
    0xa2 "SyncWriteInProgress" "Another durable write to the document is pending" ["item-only" "retry-later"];
    0xa3 "SyncWriteAmbiguous" "The durable write timed out; it may or may not happen" ["item-only"];
    0xa4 "SyncWriteReCommitInProgress" "The durable write is being committed again"
        ["item-only" "retry-later"];
    0xa5 "RangeScanCancelled" "The range scan was cancelled" ["success"];
    0xa6 "RangeScanMore" "The range scan has more to send" ["success"];
    0xa7 "RangeScanComplete" "The range scan is complete" ["success"];
    0xa8 "VbUuidNotEqual" "The vBucket is on another branch" ["invalid-input"];
    0xc0 "SUBDOC_PATH_ENOENT" "The path is not in the document" ["subdoc" "item-only"];
    0xc1 "SUBDOC_PATH_MISMATCH" "The path leads to a value of another kind" ["subdoc" "item-only"];
    0xc2 "SUBDOC_PATH_EINVAL" "The path is malformed" ["subdoc" "invalid-input"];
    0xc3 "SUBDOC_PATH_E2BIG" "The path is too long or too deep" ["subdoc" "invalid-input"];
    0xc4 "SUBDOC_PATH_E2DEEP" "The document is too deep" ["subdoc" "invalid-input"];
    0xc5 "SUBDOC_VALUE_CANTINSERT" "The value cannot be put there" ["subdoc" "invalid-input"];
    0xc6 "SUBDOC_DOC_NOTJSON" "The document is not JSON" ["subdoc" "item-only"];
    0xc7 "SUBDOC_NUM_ERANGE" "The number in the document is out of range" ["subdoc" "item-only"];
    0xc8 "SUBDOC_DELTA_EINVAL" "The delta is zero or out of range" ["subdoc" "item-only"];
    0xc9 "SUBDOC_PATH_EEXISTS" "The path is in the document already" ["subdoc" "item-only"];
    0xca "SUBDOC_VALUE_ETOODEEP" "The value would make the document too deep"
        ["subdoc" "invalid-input" "item-only"];
    0xcb "SUBDOC_INVALID_COMBO" "These operations cannot be combined" ["subdoc" "invalid-input"];
    0xcc "SUBDOC_MULTI_PATH_FAILURE" "Some of the paths failed" ["subdoc" "special-handling"];
    0xcd "SUBDOC_SUCCESS_DELETED" "The operation succeeded on a deleted document"
        ["item-deleted" "success" "subdoc"];
    0xce "SUBDOC_XATTR_INVALID_FLAG_COMBO" "These flags cannot be combined" ["subdoc" "invalid-input"];
    0xcf "SUBDOC_XATTR_INVALID_KEY_COMBO" "These attributes cannot be combined" ["subdoc" "invalid-input"];
    0xd0 "SUBDOC_XATTR_UNKNOWN_MACRO" "There is no such macro" ["subdoc" "invalid-input"];
    0xd1 "SUBDOC_XATTR_UNKNOWN_VATTR" "There is no such virtual attribute" ["subdoc" "invalid-input"];
    0xd2 "SUBDOC_XATTR_CANT_MODIFY_VATTR" "Virtual attributes cannot be changed" ["subdoc" "invalid-input"];
    0xd3 "SUBDOC_MULTI_PATH_FAILURE_DELETED" "Some of the paths failed on a deleted document"
        ["item-deleted" "subdoc" "special-handling"];
    0xd4 "SUBDOC_INVALID_XATTR_ORDER" "Attributes must come before the body" ["subdoc" "invalid-input"];
    0xd5 "SUBDOC_XATTR_UNKNOWN_VATTR_MACRO" "There is no such macro of a virtual attribute"
        ["subdoc" "invalid-input"];
    0xd6 "SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS" "The document to revive is not deleted"
        ["subdoc" "item-only"];
    0xd7 "SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE" "A deleted document cannot have a body"
        ["subdoc" "item-only"];
    0xd8 "SUBDOC_FIELD_NOT_BINARY_VALUE" "The attribute is not binary" ["subdoc" "item-only"];
};

static V1: LazyLock<String> =
    LazyLock::new(|| render(1, REVISION + REVISION_V1_LEAD, |name| !NEW_IN_V2.contains(&name)));
static V2: LazyLock<String> = LazyLock::new(|| render(2, REVISION, |_| true));

/// The newest map that a client which understands up to `version` can read; `None` is answered "not found".
#[must_use]
pub fn error_map(version: u16) -> Option<&'static str> {
    match version {
        0 => None,
        1 => Some(&V1),
        _ => Some(&V2),
    }
}

fn render(version: u32, revision: u32, keep: impl Fn(&str) -> bool) -> String {
    let mut errors = serde_json::Map::new();
    for entry in ENTRIES {
        let attributes: Vec<&str> = entry.attributes.iter().copied().filter(|name| keep(name)).collect();
        let error = serde_json::json!({ "name": entry.name, "desc": entry.description, "attrs": attributes });
        errors.insert(format!("{:x}", entry.code), error);
    }
    serde_json::json!({ "version": version, "revision": revision, "errors": errors }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Status;
    use serde_json::Value;

    fn map(version: u16) -> Value {
        serde_json::from_str(error_map(version).unwrap()).unwrap()
    }

    #[test]
    fn every_status_is_explained_in_lower_case_hexadecimal() {
        let map = map(2);
        assert_eq!((&map["version"], &map["revision"]), (&2.into(), &9.into()));
        for status in Status::ALL {
            let entry = &map["errors"][format!("{:x}", status.code())];
            assert!(entry["name"].is_string() && entry["desc"].is_string(), "{status:?}");
            assert!(!entry["attrs"].as_array().unwrap().is_empty(), "{status:?}");
        }
        assert_eq!(map["errors"].as_object().unwrap().len(), ENTRIES.len(), "a code occurs twice");
        assert_eq!(map["errors"]["84"]["attrs"], serde_json::json!(["internal", "conn-state-invalidated"]));
    }

    #[test]
    fn version_one_lacks_the_newer_attributes_and_older_ones_do_not_exist() {
        let map = map(1);
        assert_eq!((&map["version"], &map["revision"]), (&1.into(), &13.into()));
        assert_eq!(map["errors"]["c"]["attrs"], serde_json::json!(["temp", "retry-later"]));
        assert_eq!(error_map(0), None);
        assert_eq!(error_map(9), error_map(2));
    }
}
