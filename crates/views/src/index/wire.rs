//! A query between nodes as bytes: what one node asks, and what the other answers.
//!
//! Both sides are of the same cluster, but may be of two versions, and a node may be broken. So nothing that is read is trusted:
//!
//! - A question and an answer begin with their version. Another version is an error, which the client is told.
//! - An answer is a sequence of frames. The head says how many rows the view has and what the index lacks. Items follow in the order of
//!   the query. The end says how many items there were. An answer without its end is an error, never a short answer.
//! - Items are held to the question ([`AnswerReader`]): kinds, ranges, order, vBuckets and number.
//! - A reader holds what came of one frame, and reserves nothing for what is only announced.

mod answer;
mod question;
mod remote;
#[cfg(test)]
mod tests;

pub use answer::{AnswerReader, AnswerWriter, Event, Expected, FRAME_BYTES_MAX};
pub use question::Question;
pub use remote::Remote;

/// The version of questions and answers.
pub const VERSION: u8 = 2;

/// Something that came from another node is not what it has to be, or something is too long to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other node speaks another version.
    #[error("the other node speaks version {0} of view queries, and this node version {VERSION}")]
    Version(u8),
    /// Something cannot be read.
    #[error("what the other node sent is damaged: {0}")]
    Damaged(&'static str),
    /// Items of an answer are not those that were asked for.
    #[error("the other node's answer does not fit the query: {0}")]
    Unfit(&'static str),
    /// The stream ended before the answer did.
    #[error("the other node's answer was cut short")]
    CutShort,
    /// A row or a group has no room in a frame.
    #[error("an item of the answer is too large to be sent")]
    TooLarge,
}
