//! Where nothing goes wrong, a writer is told what became of its write. It is done, or nothing has happened and another node is
//! to be asked. What is planned costs no more than that, also where vBuckets move while writes to them are in progress.

use crate::operation::Request;

/// See the module.
#[derive(Default)]
pub(crate) struct Certainty {
    /// Nothing goes wrong, nor are there fewer copies than durable writes need.
    pub(crate) is_promised: bool,
    unknown: u64,
}

impl Certainty {
    /// A write was tried, and the writer does not know what became of it.
    pub(crate) fn lost(&mut self, request: &Request) {
        assert!(!self.is_promised, "nobody knows what became of {request:?}");
        self.unknown += 1;
    }

    /// How many writes nobody knows the outcome of.
    pub(crate) fn summary(&self) -> String {
        format!("unknown {}", self.unknown)
    }
}
