//! What is refused, in the words that clients of Couchbase match.

use crate::json;

/// A refused request: a status of HTTP, and the two members of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// The member `error`.
    pub error: &'static str,
    /// The member `reason`.
    pub reason: String,
}

impl Refusal {
    /// A body or parameter that is not what it has to be.
    #[must_use]
    pub fn bad_request(reason: impl Into<String>) -> Self {
        Self { status: 400, error: "bad_request", reason: reason.into() }
    }

    /// A parameter of a query.
    #[must_use]
    pub fn query(reason: impl Into<String>) -> Self {
        Self { status: 400, error: "query_parse_error", reason: reason.into() }
    }

    /// A design document.
    #[must_use]
    pub fn design(reason: impl Into<String>) -> Self {
        Self { status: 400, error: "invalid_design_document", reason: reason.into() }
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut out = b"{\"error\":".to_vec();
        json::write_string(self.error, &mut out);
        out.extend_from_slice(b",\"reason\":");
        json::write_string(&self.reason, &mut out);
        out.extend_from_slice(b"}\n");
        out
    }
}
