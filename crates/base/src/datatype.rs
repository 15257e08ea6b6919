//! The datatype byte that travels with every value.

/// A set of datatype bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Datatype(pub u8);

impl Datatype {
    /// No bit set: an opaque value.
    pub const RAW: Datatype = Datatype(0);
    /// The (inflated) value is well-formed JSON.
    pub const JSON: Datatype = Datatype(1);
    /// The value is one raw Snappy block.
    pub const SNAPPY: Datatype = Datatype(2);
    /// The value begins with an extended-attributes section.
    pub const XATTR: Datatype = Datatype(4);
    /// Every bit that exists.
    pub const ALL: Datatype = Datatype(7);

    /// Whether all bits of `other` are set here.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Datatype) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Datatype) -> Datatype {
        Datatype(self.0 | other.0)
    }

    /// These bits less those of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Datatype) -> Datatype {
        Datatype(self.0 & !other.0)
    }

    /// Whether only known bits are set.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 & !Self::ALL.0 == 0
    }
}
