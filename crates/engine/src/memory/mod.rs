//! How documents lie in memory: slabs, items, tables of them, and what keeps the slabs dense. Knows no vBucket and no disk.

pub mod arena;
pub mod defragmenter;
pub mod hash_table;
pub mod item;
pub(crate) mod item_kind;
pub(crate) mod key_map;
