//! The vocabulary every other crate shares: ids, keys, statuses, datatypes, limits, bucket and collection
//! descriptions.
//!
//! Nothing here does I/O, starts a thread or reads a clock. Wall-clock values arrive as [`time::Now`].

pub mod bucket;
pub mod datatype;
pub mod hash;
pub mod ids;
pub mod key;
pub mod limits;
pub mod manifest;
pub mod places;
pub mod recent_log;
pub mod status;
pub mod time;
pub mod vb_role;

pub use datatype::Datatype;
pub use ids::{BucketUuid, Cas, CollectionId, ManifestUid, NodeId, ScopeId, Seqno, VbId, VbUuid};
pub use key::{DocKey, HashedKey};
pub use manifest::Manifest;
pub use status::Status;
pub use time::Now;
pub use vb_role::VbRole;
