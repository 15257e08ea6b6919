//! Limits with their source.

/// Most vBuckets a bucket can have.
pub const VBUCKETS_MAX: u16 = 1024;
/// Fewest vBuckets a bucket can have.
pub const VBUCKETS_MIN: u16 = 16;
/// Longest logical key in the default collection (kv_engine, `docs/BinaryProtocol.md`).
pub const KEY_BYTES_MAX: usize = 250;
/// Longest logical key in any other collection.
pub const COLLECTION_KEY_BYTES_MAX: usize = 246;
/// Longest encoded key: a five-byte collection prefix and 246 bytes, or one byte and 250.
pub const ENCODED_KEY_BYTES_MAX: usize = 251;
/// Largest document body (kv_engine, `docs/DocumentSizeLimits.md`).
pub const VALUE_BYTES_MAX: usize = 20 * 1024 * 1024;
/// Largest system part of the extended attributes, on top of the body; the user's part shares the body's limit.
pub const XATTR_BYTES_MAX: usize = 1024 * 1024;
/// Longest name of an extended attribute.
pub const XATTR_KEY_BYTES_MAX: usize = 15;
/// Longest path of a sub-document operation (kv_engine, `docs/SubDocument.md`).
pub const SUBDOC_PATH_BYTES_MAX: usize = 1024;
/// Largest frame body; beyond it the connection is closed.
pub const FRAME_BODY_BYTES_MAX: usize = 30 * 1024 * 1024;
/// Relative expiry reaches this far; larger numbers are absolute Unix seconds.
pub const EXPIRY_RELATIVE_SECS_MAX: u32 = 30 * 24 * 60 * 60;
/// Lock time when the client gives none or too long a one.
pub const LOCK_SECS_DEFAULT: u32 = 15;
/// Longest lock.
pub const LOCK_SECS_MAX: u32 = 30;
/// The compatibility version reported everywhere a client may look. It is the first whose configurations name the
/// cluster, as ours do. Test suites of SDKs tell by it what to expect.
pub const COMPAT_VERSION: &str = "7.6.4";
