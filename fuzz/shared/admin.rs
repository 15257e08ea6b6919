//! The target of the `admin` crate: what nodes ask and answer one another about documents that are looked at over REST.

#![allow(dead_code, reason = "every entry point compiles all targets and uses one")]

use settee_admin::documents::{DocumentAnswer, DocumentQuestion};

/// A question, or an answer.
pub(super) fn document(bytes: &[u8]) {
    if let Ok(question) = serde_json::from_slice::<DocumentQuestion>(bytes) {
        let again = serde_json::to_vec(&question).expect("a question that was read");
        assert_eq!(
            serde_json::from_slice::<DocumentQuestion>(&again).ok(),
            Some(question),
            "it is what it was"
        );
    }
    if let Ok(answer) = serde_json::from_slice::<DocumentAnswer>(bytes) {
        let again = serde_json::to_vec(&answer).expect("an answer that was read");
        assert_eq!(serde_json::from_slice::<DocumentAnswer>(&again).ok(), Some(answer), "it is what it was");
    }
}
