//! Sub-document requests: which part of a document to look at or to change.
//!
//! A single-path request says what to do in its opcode; MULTI_LOOKUP and MULTI_MUTATION carry a list of [`Spec`]s.
//! Both become a [`SubdocRequest`], which has passed every rule that needs neither the document nor a right. Order
//! and outcomes follow kv_engine's `daemon/subdocument_validators.cc`. What each operation permits follows its
//! `subdocument_traits.h`. Nothing is allocated: specs stay in the request's buffer and are cut out again when they
//! are iterated over.
//!
//! Not checked here: the syntax of paths and values, which only the operation itself can judge.

mod encode;
mod results;
mod rules;
mod spec;
#[cfg(test)]
mod tests;
mod xattr_key;

pub use encode::{encode_multi, encode_single};
pub use results::{
    LookupResult, LookupResults, MutationResult, MutationResults, append_lookup_result,
    append_mutation_failure, append_mutation_result,
};
pub use spec::{Spec, SpecOp, Specs};
pub use xattr_key::{BINARY_PREFIX, is_system_key, is_virtual_key, xattr_key_len};

use super::{Opcode, Violation};
use base::{Cas, limits};

/// Most specs in one request (kv_engine's default of `subdoc_multi_max_paths`).
pub const SPECS_MAX: usize = 16;
/// Longest path.
pub const PATH_BYTES_MAX: usize = limits::SUBDOC_PATH_BYTES_MAX;

/// Declares a set of bits with named members.
macro_rules! bits {
    ($(#[$doc:meta])* $name:ident { $($(#[$bit_doc:meta])* $bit:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub u8);

        impl $name {
            /// No bit.
            pub const NONE: $name = $name(0);
            $($(#[$bit_doc])* pub const $bit: $name = $name($value);)*

            /// Whether all bits of `other` are set here.
            #[inline]
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits and those of `other`.
            #[inline]
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether no bit is set but those of `other`.
            #[inline]
            pub(super) const fn is_within(self, other: Self) -> bool {
                self.0 & !other.0 == 0
            }
        }
    };
}

bits! {
    /// How one path is meant.
    PathFlags {
        /// Create the objects on the way to it.
        CREATE_PARENTS = 0x01,
        /// It is in the extended attributes.
        XATTR = 0x04,
        /// Its value is a macro, to be expanded.
        EXPAND_MACROS = 0x10,
        /// Its value is binary.
        BINARY = 0x20,
    }
}

bits! {
    /// How the document is meant.
    DocFlags {
        /// Create it if there is none.
        CREATE = 0x01,
        /// Create it, and fail if there is one.
        ADD = 0x02,
        /// A tombstone is a document, too.
        ACCESS_DELETED = 0x04,
        /// What is created is a tombstone.
        CREATE_AS_DELETED = 0x08,
        /// Make a tombstone a document again.
        REVIVE = 0x10,
        /// Read from a replica.
        REPLICA_READ = 0x20,
    }
}

/// Every document flag there is.
const DOC_FLAGS: DocFlags = DocFlags(0x3f);

/// A decoded and checked request.
#[derive(Clone, Copy, Debug)]
pub struct SubdocRequest<'a> {
    /// How the document is meant.
    pub doc: DocFlags,
    /// Expiry as the client gives it; only of mutations.
    pub expiry: u32,
    /// The document's flags from now on; its own when there are none. Only of mutations.
    pub flags: Option<u32>,
    specs: Specs<'a>,
}

/// The fixed-size arguments, whatever their length.
#[derive(Clone, Copy, Debug, Default)]
struct Arguments {
    path_len: usize,
    path: PathFlags,
    expiry: u32,
    flags: Option<u32>,
    doc: DocFlags,
}

impl<'a> SubdocRequest<'a> {
    /// Reads extras and value of a request with this opcode, whose shape has been checked. `xattrs`: extended
    /// attributes are possible on this connection and bucket.
    ///
    /// # Errors
    /// What to answer instead of carrying it out.
    pub fn decode(
        opcode: Opcode,
        extras: &[u8],
        value: &'a [u8],
        cas: Cas,
        xattrs: bool,
    ) -> Result<Self, Violation> {
        let rules = rules::Rules { cas, xattrs };
        match opcode {
            Opcode::SubdocMultiLookup | Opcode::SubdocMultiMutation => {
                let mutates = opcode == Opcode::SubdocMultiMutation;
                let arguments = Arguments::of_multi(extras)?;
                rules.check_multi(mutates, arguments.doc, value)?;
                Ok(Self::with(&arguments, Specs::many(mutates, value)))
            }
            _ => {
                let op = SpecOp::from_wire(opcode.code()).ok_or(rules::NO_SUBDOC)?;
                let arguments = Arguments::of_single(extras)?;
                let spec = Spec::single(op, &arguments, value)?;
                rules.check_single(&spec, arguments.doc)?;
                Ok(Self::with(&arguments, Specs::one(spec)))
            }
        }
    }

    fn with(arguments: &Arguments, specs: Specs<'a>) -> Self {
        Self { doc: arguments.doc, expiry: arguments.expiry, flags: arguments.flags, specs }
    }

    /// What is to be done, in order.
    #[must_use]
    pub fn specs(&self) -> Specs<'a> {
        self.specs
    }

    /// Whether it came as a list, which decides the form of the answer.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.specs.is_many()
    }
}

impl Arguments {
    fn of_single(extras: &[u8]) -> Result<Self, Violation> {
        let (path_len, path, rest) = match *extras {
            [a, b, path, ref rest @ ..] => (u16::from_be_bytes([a, b]), path, rest),
            _ => return Err(rules::BAD_EXTRAS),
        };
        let arguments = Self::of_multi(rest)?;
        Ok(Self { path_len: path_len.into(), path: PathFlags(path), ..arguments })
    }

    /// Expiry, or expiry and user flags; then document flags; each of them or none.
    fn of_multi(extras: &[u8]) -> Result<Self, Violation> {
        let (words, doc) = extras.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
        let (expiry, flags) = (words.next().unwrap_or(0), words.next());
        let doc = match *doc {
            [] => DocFlags::NONE,
            [doc] => DocFlags(doc),
            _ => return Err(rules::BAD_EXTRAS),
        };
        if words.next().is_some() || !doc.is_within(DOC_FLAGS) {
            return Err(rules::BAD_EXTRAS);
        }
        Ok(Self { expiry, flags, doc, ..Self::default() })
    }
}
