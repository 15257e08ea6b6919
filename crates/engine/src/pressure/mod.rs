//! How much there is and how fast more may come: the account of memory, and the rule that paces writers. Decisions and
//! numbers; a bucket carries them out ([`crate::bucket::admission`], [`crate::bucket::quota`]).

pub(crate) mod gatekeeper;
pub(crate) mod pacing;
pub(crate) mod pools;
pub(crate) mod room;
