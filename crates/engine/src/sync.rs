//! Primitives for those places where threads meet that are compiled twice: here, and in the test `interleavings`. That test puts
//! the primitives of a scheduler in the place of these.

pub(crate) use std::sync::atomic;
