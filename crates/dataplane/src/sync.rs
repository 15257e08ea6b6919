//! The primitives of the places where threads meet. These places are compiled twice: here, and in the test `interleavings`, which
//! puts the primitives of a scheduler in the place of these.

pub(crate) use std::sync::atomic;

pub(crate) use parking_lot::Mutex;
