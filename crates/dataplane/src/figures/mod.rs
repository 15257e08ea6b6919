//! What is counted and timed. Loops write it, statistics read it.

pub mod machine;
pub mod meter;
pub mod phases;
pub mod slow;
