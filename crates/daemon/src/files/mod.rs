//! The data directory: what is in it, who has it, and the disk below it.

pub(crate) mod data_dir;
pub(crate) mod disk;
pub(crate) mod renames;
pub(crate) mod shards;
