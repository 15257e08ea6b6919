//! The operations on parts of a document, what each of them permits, and how they follow each other on the wire.

use super::{Arguments, DocFlags, PathFlags, rules};
use crate::binary::{Opcode, Violation};

macro_rules! ops {
    ($($code:literal $name:ident $doc:literal $permits:expr;)*) => {
        /// What to do at a path, with its number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum SpecOp {
            $(#[doc = $doc] $name = $code,)*
        }

        impl SpecOp {
            /// Every operation.
            pub const ALL: &'static [SpecOp] = &[$(SpecOp::$name,)*];

            /// The operation with this number.
            #[must_use]
            pub const fn from_wire(number: u8) -> Option<SpecOp> {
                match number {
                    $($code => Some(SpecOp::$name),)*
                    _ => None,
                }
            }

            /// What its requests may look like.
            pub(super) const fn permits(self) -> Permits {
                match self {
                    $(SpecOp::$name => $permits,)*
                }
            }
        }
    };
}

/// The permitted form of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permits {
    pub(super) mutates: bool,
    /// Acts on the whole document: no path.
    pub(super) whole: bool,
    pub(super) empty_path: bool,
    /// Has a value, which must not be empty; the others have none.
    pub(super) value: bool,
    pub(super) path_flags: PathFlags,
    pub(super) mandatory: PathFlags,
    pub(super) doc_flags: DocFlags,
}

const LOOKUP: Permits = Permits {
    mutates: false,
    whole: false,
    empty_path: false,
    value: false,
    path_flags: PathFlags::XATTR,
    mandatory: PathFlags::NONE,
    doc_flags: DocFlags::ACCESS_DELETED.with(DocFlags::REVIVE).with(DocFlags::REPLICA_READ),
};
const GET: Permits = Permits { path_flags: PathFlags::XATTR.with(PathFlags::BINARY), ..LOOKUP };
const COUNT: Permits = Permits { empty_path: true, ..LOOKUP };
const GET_WHOLE: Permits = Permits { whole: true, empty_path: true, path_flags: PathFlags::NONE, ..LOOKUP };

const REMOVE: Permits =
    Permits { mutates: true, doc_flags: DocFlags::ACCESS_DELETED.with(DocFlags::REVIVE), ..LOOKUP };
const REPLACE: Permits = Permits {
    value: true,
    path_flags: PathFlags::XATTR.with(PathFlags::EXPAND_MACROS).with(PathFlags::BINARY),
    doc_flags: REMOVE.doc_flags.with(DocFlags::ADD),
    ..REMOVE
};
const INSERT: Permits = Permits {
    path_flags: PathFlags::XATTR.with(PathFlags::EXPAND_MACROS),
    doc_flags: REPLACE.doc_flags.with(DocFlags::CREATE_AS_DELETED),
    ..REPLACE
};
const DICT: Permits = Permits {
    path_flags: REPLACE.path_flags.with(PathFlags::CREATE_PARENTS),
    doc_flags: INSERT.doc_flags.with(DocFlags::CREATE),
    ..REPLACE
};
const COUNTER: Permits = Permits { path_flags: PathFlags::XATTR.with(PathFlags::CREATE_PARENTS), ..DICT };
const ADD_UNIQUE: Permits = Permits { empty_path: true, ..COUNTER };
const PUSH: Permits = Permits { path_flags: COUNTER.path_flags.with(PathFlags::EXPAND_MACROS), ..ADD_UNIQUE };
const COPY_TO_BODY: Permits = Permits { path_flags: GET.path_flags, mandatory: PathFlags::XATTR, ..REMOVE };
const SET_WHOLE: Permits = Permits {
    whole: true,
    empty_path: true,
    value: true,
    path_flags: PathFlags::NONE,
    doc_flags: DocFlags::CREATE.with(DocFlags::ADD),
    ..REMOVE
};
const DELETE_WHOLE: Permits =
    Permits { whole: true, empty_path: true, path_flags: PathFlags::NONE, ..REMOVE };

ops! {
    0x00 GetDocument "The whole body." GET_WHOLE;
    0x01 SetDocument "Another body." SET_WHOLE;
    0x04 DeleteDocument "Delete the document." DELETE_WHOLE;
    0xc5 Get "The value at the path." GET;
    0xc6 Exists "Whether there is a value." LOOKUP;
    0xc7 DictAdd "A new member of an object." DICT;
    0xc8 DictUpsert "A member of an object." DICT;
    0xc9 Delete "Remove the value." REMOVE;
    0xca Replace "Another value in place of one." REPLACE;
    0xcb ArrayPushLast "Behind the last element of an array." PUSH;
    0xcc ArrayPushFirst "Before the first element of an array." PUSH;
    0xcd ArrayInsert "At a place in an array." INSERT;
    0xce ArrayAddUnique "A new element of an array, if it is not there." ADD_UNIQUE;
    0xcf Counter "Add to a number." COUNTER;
    0xd2 GetCount "Number of elements or members." COUNT;
    0xd3 ReplaceBodyWithXattr "An extended attribute becomes the body." COPY_TO_BODY;
}

impl SpecOp {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether requests with this opcode are sub-document requests.
    #[must_use]
    pub const fn is_opcode(opcode: Opcode) -> bool {
        matches!(opcode, Opcode::SubdocMultiLookup | Opcode::SubdocMultiMutation)
            || (opcode.code() >= Self::Get.code() && SpecOp::from_wire(opcode.code()).is_some())
    }

    /// Whether it changes the document.
    #[must_use]
    pub const fn mutates(self) -> bool {
        self.permits().mutates
    }

    /// Whether it answers with a value when it succeeds.
    #[must_use]
    pub const fn returns_value(self) -> bool {
        matches!(self, Self::Get | Self::GetCount | Self::GetDocument | Self::Counter)
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// What to do.
    pub op: SpecOp,
    /// How the path is meant.
    pub flags: PathFlags,
    /// Where.
    pub path: &'a [u8],
    /// With what.
    pub value: &'a [u8],
}

impl<'a> Spec<'a> {
    pub(super) fn single(op: SpecOp, arguments: &Arguments, value: &'a [u8]) -> Result<Self, Violation> {
        rules::check_path_len(arguments.path_len)?;
        let (path, value) = value.split_at_checked(arguments.path_len).ok_or(rules::CUT_OFF)?;
        Ok(Self { op, flags: arguments.path, path, value })
    }

    /// Cuts one spec off a list.
    pub(super) fn cut(mutates: bool, list: &mut &'a [u8]) -> Result<Self, Violation> {
        let (head, rest) = list.split_first_chunk::<4>().ok_or(rules::CUT_OFF)?;
        let [op, flags, a, b] = *head;
        let path_len = usize::from(u16::from_be_bytes([a, b]));
        let (value_len, rest) = if mutates {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or(rules::CUT_OFF)?;
            (u32::from_be_bytes(*length) as usize, rest)
        } else {
            (0, rest)
        };
        let (path, rest) = rest.split_at_checked(path_len).ok_or(rules::CUT_OFF)?;
        let (value, rest) = rest.split_at_checked(value_len).ok_or(rules::CUT_OFF)?;
        let op = SpecOp::from_wire(op).ok_or(rules::NO_SUBDOC)?;
        *list = rest;
        Ok(Self { op, flags: PathFlags(flags), path, value })
    }

    /// Whether the path is in the extended attributes.
    #[must_use]
    pub const fn is_xattr(&self) -> bool {
        self.flags.has(PathFlags::XATTR)
    }

    /// The key of the extended attribute; `None` for paths in the body.
    #[must_use]
    pub fn xattr_key(&self) -> Option<&'a [u8]> {
        if !self.is_xattr() {
            return None;
        }
        self.path.get(..super::xattr_key_len(self.path)?)
    }
}

/// The operations of a request, in order.
#[derive(Clone, Copy, Debug)]
pub struct Specs<'a>(Form<'a>);

#[derive(Clone, Copy, Debug)]
enum Form<'a> {
    One(Option<Spec<'a>>),
    /// Checked: every spec is whole.
    Many(bool, &'a [u8]),
}

impl<'a> Specs<'a> {
    pub(super) const fn one(spec: Spec<'a>) -> Self {
        Self(Form::One(Some(spec)))
    }

    pub(super) const fn many(mutates: bool, list: &'a [u8]) -> Self {
        Self(Form::Many(mutates, list))
    }

    pub(super) const fn is_many(&self) -> bool {
        matches!(self.0, Form::Many(..))
    }
}

impl<'a> Iterator for Specs<'a> {
    type Item = Spec<'a>;

    fn next(&mut self) -> Option<Spec<'a>> {
        match &mut self.0 {
            Form::One(spec) => spec.take(),
            Form::Many(_, []) => None,
            Form::Many(mutates, list) => Spec::cut(*mutates, list).ok(),
        }
    }
}
