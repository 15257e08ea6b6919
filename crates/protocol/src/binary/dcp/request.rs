//! Arguments of DCP requests.

use base::{Seqno, VbUuid};

use crate::binary::{
    Violation,
    extras::{SeqnoRaw, VbUuidRaw, layout},
};

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self($bit);)*
            /// Every bit that exists.
            pub const ALL: Self = Self(0 $(| $bit)*);

            /// Whether all bits of `other` are set here.
            #[inline]
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits and those of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether only known bits are set.
            #[must_use]
            pub const fn is_valid(self) -> bool {
                self.0 & !Self::ALL.0 == 0
            }
        }
    };
}
pub(super) use flags;

flags! {
    /// What OPEN asks of the connection.
    OpenFlags {
        /// The server is to be the producer; without it, the consumer.
        PRODUCER = 0x01,
        /// Values come with their extended attributes.
        INCLUDE_XATTRS = 0x04,
        /// Values come without their body.
        NO_VALUE = 0x08,
        /// Deletions say when they happened.
        INCLUDE_DELETE_TIMES = 0x20,
        /// As `NO_VALUE`, with the datatype that the value had.
        NO_VALUE_WITH_DATATYPE = 0x40,
        /// Deletions keep the attributes of users.
        INCLUDE_DELETED_USER_XATTRS = 0x100,
        /// No deletions before the consumer has caught up.
        SKIP_DELETES_IN_BACKFILL = 0x200,
    }
}

flags! {
    /// What STREAM_REQ asks of the stream.
    StreamFlags {
        /// Hand the vBucket over at the end.
        TAKEOVER = 0x01,
        /// What is on disk, then end.
        DISK_ONLY = 0x02,
        /// End at what is the newest mutation now.
        TO_LATEST = 0x04,
        /// Only if the vBucket is active.
        ACTIVE_ONLY = 0x10,
        /// The branch must match even for a stream from the beginning.
        STRICT_UUID = 0x20,
        /// Begin behind what is the newest mutation now.
        FROM_LATEST = 0x40,
        /// The consumer does not mind having missed tombstones that are gone.
        IGNORE_PURGED = 0x80,
    }
}

layout! {
    /// Request of OPEN.
    OpenExtras [8] {
        /// Unused.
        seqno: u32 as u32,
        /// As [`OpenFlags`].
        flags: u32 as u32,
    }
}

layout! {
    /// Request of STREAM_REQ.
    StreamRequest [48] {
        /// As [`StreamFlags`].
        flags: u32 as u32,
        /// Unused.
        reserved: u32 as u32,
        /// The last seqno that the consumer has.
        start: Seqno as SeqnoRaw,
        /// The stream ends with the snapshot that reaches this one.
        end: Seqno as SeqnoRaw,
        /// The branch that the consumer is on; 0 if it has nothing.
        vb_uuid: VbUuid as VbUuidRaw,
        /// Begin of the last snapshot that the consumer was in.
        snap_start: Seqno as SeqnoRaw,
        /// End of that snapshot.
        snap_end: Seqno as SeqnoRaw,
    }
}

impl OpenFlags {
    /// Refuses flags that do not exist or contradict each other.
    ///
    /// # Errors
    /// "Invalid arguments", with words.
    pub const fn check(self) -> Result<(), Violation> {
        let words = if !self.is_valid() {
            "Request contains invalid flags"
        } else if self.has(Self::SKIP_DELETES_IN_BACKFILL) && !self.has(Self::PRODUCER) {
            "Only a producer can skip deletes in the initial backfill"
        } else if self.has(Self::NO_VALUE) && self.has(Self::NO_VALUE_WITH_DATATYPE) {
            "NO_VALUE and NO_VALUE_WITH_UNDERLYING_DATATYPE exclude each other"
        } else if self.has(Self::INCLUDE_DELETED_USER_XATTRS) && !self.has(Self::INCLUDE_XATTRS) {
            "INCLUDE_DELETED_USER_XATTRS needs INCLUDE_XATTRS"
        } else {
            return Ok(());
        };
        Err(Violation::invalid(words))
    }
}

impl StreamFlags {
    /// An old flag of streams that belongs to OPEN.
    const NO_VALUE: Self = Self(0x08);

    /// Refuses flags that do not exist.
    ///
    /// # Errors
    /// "Invalid arguments", with words.
    pub const fn check(self) -> Result<(), Violation> {
        if self.is_valid() {
            return Ok(());
        }
        Err(Violation::invalid(if self.has(Self::NO_VALUE) {
            "The NO_VALUE flag belongs to DCP_OPEN"
        } else {
            "Request contains invalid flags"
        }))
    }
}

/// Refuses a value of OPEN: it may hold settings for consumers of ours, which there are none of.
///
/// # Errors
/// "Invalid arguments", with words.
pub fn check_open_value(value: &[u8]) -> Result<(), Violation> {
    if value.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(value) {
        Ok(settings) if settings.is_empty() => Ok(()),
        Ok(_) => Err(Violation::invalid("Unsupported property for a producer")),
        Err(_) => Err(Violation::invalid("The value must be a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let producer = OpenFlags::PRODUCER;
        assert!(producer.with(OpenFlags::INCLUDE_XATTRS).check().is_ok());
        for bad in [
            OpenFlags(0x02),
            OpenFlags(0x10),
            OpenFlags::SKIP_DELETES_IN_BACKFILL,
            producer.with(OpenFlags::NO_VALUE).with(OpenFlags::NO_VALUE_WITH_DATATYPE),
            producer.with(OpenFlags::INCLUDE_DELETED_USER_XATTRS),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(StreamFlags(0xf7).check().is_ok());
        assert!(StreamFlags(0x08).check().is_err_and(|words| words.context.contains("DCP_OPEN")));
        assert!(StreamFlags(0x100).check().is_err());
    }

    #[test]
    fn open_takes_no_settings() {
        assert!(check_open_value(b"").is_ok() && check_open_value(b"{}").is_ok());
        for bad in [&b"[]"[..], b"{", br#"{"consumer_name":"x"}"#] {
            assert!(check_open_value(bad).is_err());
        }
    }
}
