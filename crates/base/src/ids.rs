//! Newtypes for every number that crosses a boundary, so that two bare integers never meet in one signature.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number, for wire encoding and arithmetic at the edge.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl From<$inner> for $name {
            #[inline]
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A vBucket: the unit of ownership, ordering and replication. Below [`crate::limits::VBUCKETS_MAX`].
    VbId(u16)
);
id!(
    /// Position in a vBucket's order of mutations; the first mutation has 1. At most 48 bits are used.
    Seqno(u64)
);
id!(
    /// Optimistic lock token and hybrid-logical-clock time (nanoseconds, low 16 bits logical). Zero: none.
    Cas(u64)
);
id!(
    /// Names one branch of a vBucket's history.
    VbUuid(u64)
);
id!(
    /// A collection within a bucket; 0 is the default collection, 1..=7 are reserved.
    CollectionId(u32)
);
id!(
    /// A scope within a bucket; 0 is the default scope.
    ScopeId(u32)
);
id!(
    /// Version of a collections manifest; grows with every change.
    ManifestUid(u64)
);

id!(
    /// A node's number within its cluster: given when the node is added, never given to another one.
    NodeId(u16)
);

impl Cas {
    /// What a locked document shows instead of its CAS.
    pub const LOCKED: Cas = Cas(u64::MAX);
    /// "No CAS given" in requests.
    pub const NONE: Cas = Cas(0);
}

impl Seqno {
    /// The seqno that follows.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Seqno {
        Seqno(self.0 + 1)
    }
}

impl VbUuid {
    /// All bits that are used: no more than a number in JSON carries, as in kv_engine.
    const MASK: u64 = (1 << 48) - 1;
    /// Below the generation: what makes branches of one generation different.
    const RANDOM_BITS: u32 = 30;
    const GENERATION_MAX: u64 = Self::MASK >> Self::RANDOM_BITS;

    /// Which of two branches was begun with more knowledge: one begins with everything that was acknowledged on those of
    /// smaller generations. (Beyond a quarter of a million they are all the same.)
    #[must_use]
    pub const fn generation(self) -> u64 {
        (self.0 & Self::MASK) >> Self::RANDOM_BITS
    }

    /// The same but for its generation.
    #[must_use]
    pub const fn of_generation(self, generation: u64) -> Self {
        let generation = if generation < Self::GENERATION_MAX { generation } else { Self::GENERATION_MAX };
        Self(self.0 & ((1 << Self::RANDOM_BITS) - 1) | generation << Self::RANDOM_BITS)
    }
}

impl CollectionId {
    /// The default collection, which every bucket has until somebody drops it.
    pub const DEFAULT: CollectionId = CollectionId(0);

    /// Whether it belongs to the server: no manifest lists it and no client may name it.
    #[inline]
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        matches!(self.0, 1..=7)
    }
}

impl ScopeId {
    /// The default scope, which cannot be dropped.
    pub const DEFAULT: ScopeId = ScopeId(0);
}

/// A bucket's identity over its whole life: a bucket dropped and created anew has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BucketUuid(pub String);
