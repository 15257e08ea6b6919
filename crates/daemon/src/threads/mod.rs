//! Threads of a node: how one is started and stopped, what wakes it, and how it is scheduled.

pub(crate) mod group_commit;
pub(crate) mod node_thread;
pub(crate) mod priority;
pub(crate) mod spawn;
pub(crate) mod wake_flag;
#[cfg(test)]
mod wake_flag_tests;
