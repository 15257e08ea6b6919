//! The open buckets, and the threads that serve them.

pub(crate) mod asked;
pub(crate) mod background;
pub(crate) mod compaction;
pub(crate) mod disk_guard;
pub(crate) mod housekeeping;
pub(crate) mod maps;
pub(crate) mod open;
pub(crate) mod pacing;
pub(crate) mod pressure_log;
pub(crate) mod unavailable;
