//! What memory says about a key, and what a mutation says of itself beside its content.

use base::bucket::DurabilityLevel;

use crate::memory::item::{ItemId, ItemMeta, ItemRef};

/// Frequency of a document that has just been written, or loaded without being asked for. Low, so that what is written
/// or read once only does not displace what is in use; see [`crate::background::item_pager`].
pub(crate) const FREQUENCY_INITIAL: u8 = 2;

/// The newest version of a key, by value: good for as long as the lock is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) id: ItemId,
    pub(crate) meta: ItemMeta,
    pub(crate) resident: bool,
    pub(crate) frequency: u8,
}

impl Current {
    pub(crate) fn of(item: ItemRef<'_>) -> Self {
        Self { id: item.id(), meta: item.meta(), resident: item.is_resident(), frequency: item.frequency() }
    }
}

/// What memory says about a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A document.
    Live(Current),
    /// A tombstone, or a document past its expiry that could not be made one just now.
    Gone(Current),
    /// No version at all.
    Nothing,
}

impl Found {
    /// The version to be replaced.
    pub(crate) fn any(&self) -> Option<&Current> {
        match self {
            Self::Live(current) | Self::Gone(current) => Some(current),
            Self::Nothing => None,
        }
    }

    pub(crate) fn live(&self) -> Option<&Current> {
        match self {
            Self::Live(current) => Some(current),
            Self::Gone(_) | Self::Nothing => None,
        }
    }
}

/// The metadata of a mutation that its content does not tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    /// A CAS from elsewhere, already found acceptable; `None`: the next of the clock.
    pub(crate) cas: Option<base::Cas>,
    pub(crate) rev: u64,
    /// Not to be seen before it has reached this level: to be prepared.
    pub(crate) durable: Option<DurabilityLevel>,
}

/// Whether an expiry has passed: the second that it names belongs to the document's life. So a TTL of n seconds, given at
/// any time within a second, is n whole seconds at least.
#[inline]
pub(crate) const fn is_due(expiry: u32, now: base::Now) -> bool {
    expiry != 0 && expiry < now.unix_secs()
}
