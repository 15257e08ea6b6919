//! What is counted and timed. Loops write it, statistics read it.

pub(crate) mod hot;
pub mod machine;
pub mod meter;
pub mod phases;
pub(crate) mod reading;
pub mod slow;
pub mod ticks;
