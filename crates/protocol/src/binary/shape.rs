//! What a request of each kind has to look like: one [`Shape`] per opcode, held in the table of
//! [`super::opcode`] and enforced by [`super::validate()`]. Follows kv_engine's `daemon/mcbp_validators.cc`.

use base::Datatype;

/// Whether a part of the body may or must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Must be empty.
    None,
    /// May be empty.
    Optional,
    /// Must not be empty.
    Required,
}

/// What a request may say in its CAS field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasRule {
    /// Must be 0.
    Zero,
    /// Anything.
    Any,
    /// Must not be 0.
    Required,
}

/// The permitted form of one kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bit *n* set: *n* bytes of extras are permitted.
    extras: u64,
    /// The key.
    pub key: Presence,
    /// The value.
    pub value: Presence,
    /// The CAS field.
    pub cas: CasRule,
    /// Datatype bits that may be set, if the connection negotiated them.
    pub datatypes: Datatype,
}

impl Shape {
    /// No extras, key or value, CAS zero: what the other shapes start from.
    pub const BARE: Shape = Shape {
        extras: 1,
        key: Presence::None,
        value: Presence::None,
        cas: CasRule::Zero,
        datatypes: Datatype::RAW,
    };
    /// Reads one document.
    pub const READ: Shape = Shape::BARE.key(Presence::Required);
    /// Writes one document: flags and expiry, key, value.
    pub const STORE: Shape = Shape::WRITE.extras(&[8]);
    /// Writes one document that must not be there yet.
    pub const ADD: Shape = Shape::STORE.cas(CasRule::Zero);
    /// Appends or prepends.
    pub const CONCATENATE: Shape = Shape::WRITE;
    /// Deletes one document.
    pub const DELETE: Shape = Shape::READ.cas(CasRule::Any);
    /// Increments or decrements.
    pub const COUNTER: Shape = Shape::READ.extras(&[20]);
    /// Touches, with or without reading.
    pub const TOUCH: Shape = Shape::READ.extras(&[4]);
    /// Stores or deletes with the metadata of another cluster.
    pub const WITH_META: Shape = Shape::WRITE.extras(&[24, 26, 28, 30]).datatypes(Datatype::ALL);
    /// Reads part of a document.
    pub const SUBDOC_LOOKUP: Shape = Shape::SUBDOC.extras(&[3, 4]);
    /// Changes part of a document.
    pub const SUBDOC_MUTATION: Shape = Shape::SUBDOC.extras(&[3, 4, 7, 8, 11, 12]);
    /// Anything: the opcode is refused before its shape matters.
    pub const ANY: Shape = Shape {
        extras: u64::MAX,
        key: Presence::Optional,
        value: Presence::Optional,
        cas: CasRule::Any,
        datatypes: Datatype::ALL,
    };

    const SUBDOC: Shape = Shape::READ.value(Presence::Optional).cas(CasRule::Any);
    const WRITE: Shape = Shape::SUBDOC.datatypes(Datatype::JSON.with(Datatype::SNAPPY));

    /// Only these lengths of extras.
    #[expect(
        clippy::indexing_slicing,
        reason = "runs when constants are made: a wrong index does not compile"
    )]
    pub(super) const fn extras(mut self, lengths: &[u8]) -> Shape {
        self.extras = 0;
        let mut index = 0;
        while index < lengths.len() {
            self.extras |= 1 << lengths[index];
            index += 1;
        }
        self
    }

    /// Another rule for the key.
    pub(super) const fn key(mut self, key: Presence) -> Shape {
        self.key = key;
        self
    }

    /// Another rule for the value.
    pub(super) const fn value(mut self, value: Presence) -> Shape {
        self.value = value;
        self
    }

    /// Another rule for the CAS.
    pub(super) const fn cas(mut self, cas: CasRule) -> Shape {
        self.cas = cas;
        self
    }

    /// Other datatype bits.
    pub(super) const fn datatypes(mut self, datatypes: Datatype) -> Shape {
        self.datatypes = datatypes;
        self
    }

    /// Whether extras of `length` bytes are permitted.
    #[inline]
    #[must_use]
    pub const fn permits_extras(&self, length: u8) -> bool {
        if length < 64 { self.extras >> length & 1 == 1 } else { self.extras == u64::MAX }
    }
}
