//! What a text client can ask for. Keys and values borrow from the read buffer.

use super::line;
use base::limits;

/// How a storage command treats what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
    /// Store in any case.
    Set,
    /// Store if there is nothing.
    Add,
    /// Store if there is something.
    Replace,
    /// Put behind what is there.
    Append,
    /// Put before what is there.
    Prepend,
    /// Store if it has this CAS.
    Cas,
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`: one value per key that is there, then `END`.
    Get {
        /// Each no longer than [`limits::KEY_BYTES_MAX`].
        keys: Keys<'a>,
        /// `gets`: show the CAS.
        with_cas: bool,
    },
    /// `gat`, `gats`: as `get`, giving each document a new expiry.
    GetAndTouch {
        /// Each no longer than [`limits::KEY_BYTES_MAX`].
        keys: Keys<'a>,
        /// `gats`: show the CAS.
        with_cas: bool,
        /// For [`expiry_to_wire`].
        expiry: i64,
    },
    /// `set` and its kin.
    Store {
        /// Which of them.
        verb: StoreVerb,
        /// The document's key.
        key: &'a [u8],
        /// Returned unchanged.
        flags: u32,
        /// For [`expiry_to_wire`].
        expiry: i64,
        /// What `cas` compares; 0 for the others.
        cas: u64,
        /// The data block.
        value: &'a [u8],
        /// Do not answer.
        noreply: bool,
    },
    /// `delete`.
    Delete {
        /// The document's key.
        key: &'a [u8],
        /// Do not answer.
        noreply: bool,
    },
    /// `incr`, `decr`; never creates.
    Counter {
        /// The document's key.
        key: &'a [u8],
        /// What to add or subtract.
        delta: u64,
        /// `decr`.
        decrement: bool,
        /// Do not answer.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The document's key.
        key: &'a [u8],
        /// For [`expiry_to_wire`].
        expiry: i64,
        /// Do not answer.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// Seconds from now, or a Unix time; 0 or less is now.
        delay: i64,
        /// Do not answer.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `verbosity`: accepted for compatibility.
    Verbosity {
        /// Do not answer.
        noreply: bool,
    },
    /// `stats`, with the words that follow.
    Stats {
        /// Empty for the general statistics.
        group: &'a [u8],
    },
    /// `quit`: close without an answer.
    Quit,
}

/// The keys of a retrieval command, in the order asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub(super) &'a [u8]);

impl<'a> Keys<'a> {
    /// The keys; at least one unless the command was `gat` without any.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        line::words(self.0)
    }
}

/// The expiry that the binary protocol uses for what a text client wrote. 0 is never, up to 30 days is
/// relative, more is absolute, and negative is "expired already", which becomes a moment long past.
#[must_use]
pub fn expiry_to_wire(expiry: i64) -> u32 {
    if expiry < 0 {
        return limits::EXPIRY_RELATIVE_SECS_MAX + 1;
    }
    u32::try_from(expiry).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_expiries_lie_in_the_past() {
        assert_eq!(expiry_to_wire(-1), 2_592_001);
        assert_eq!((expiry_to_wire(0), expiry_to_wire(60), expiry_to_wire(i64::MAX)), (0, 60, u32::MAX));
    }
}
