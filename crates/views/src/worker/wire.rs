//! Frames between a process that runs functions and the one that asks it.
//!
//! A frame is the length of the rest in four bytes, a byte for the kind, and fields. These are numbers in network order, texts with
//! their length in four bytes before them, lists with the number of their elements. A frame that breaks a rule ends the
//! connection. Nothing is reserved for a list before its elements are there.

use std::time::Duration;

pub use crate::frames::{BadLength, Frames};
use crate::{
    design::Invalid,
    js::{Body, Document, Failure, FailureKind, Limits, Mapped, Row, Sources},
};

/// Largest frame. A document with its metadata fits, and so does a batch that is cut where it gets large.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// A frame is not what it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of a worker is damaged")]
pub struct Damaged;

impl From<BadLength> for Damaged {
    fn from(_: BadLength) -> Self {
        Self
    }
}

/// What a worker is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// To compile the functions of an index.
    Load {
        /// The number that later requests name it by.
        context: u32,
        /// What functions may take.
        limits: Limits,
        /// Documents are read as far as functions look at them.
        analysed: bool,
        /// The functions.
        sources: Sources,
    },
    /// To map documents.
    Map {
        /// The number of the request.
        id: u64,
        /// Which functions.
        context: u32,
        /// The documents.
        documents: Vec<Document<'a>>,
    },
    /// To reduce values.
    Reduce {
        /// The number of the request.
        id: u64,
        /// Which functions.
        context: u32,
        /// Which of the reductions.
        function: u16,
        /// The keys, when rows are reduced.
        keys: Option<Vec<&'a str>>,
        /// The values.
        values: Vec<&'a str>,
    },
    /// To check a function of a design document.
    Check {
        /// The number of the request.
        id: u64,
        /// The source.
        source: &'a str,
    },
    /// To forget functions.
    Drop {
        /// Which.
        context: u32,
    },
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It runs.
    Ready,
    /// Functions were compiled, or not.
    Loaded {
        /// Which.
        context: u32,
        /// Why not.
        result: Result<(), Failure>,
    },
    /// Documents were mapped, in their order.
    Mapped {
        /// The number of the request.
        id: u64,
        /// The place of the first of these in the request.
        first: u32,
        /// What became of them.
        documents: Vec<Mapped>,
    },
    /// Values were reduced.
    Reduced {
        /// The number of the request.
        id: u64,
        /// The text of the reduction.
        result: Result<String, Failure>,
    },
    /// A function was checked.
    Checked {
        /// The number of the request.
        id: u64,
        /// What is wrong with it.
        result: Result<(), Invalid>,
    },
}

/// Writes the fields of one frame.
struct Fields<'o> {
    out: &'o mut Vec<u8>,
    begin: usize,
}

impl<'o> Fields<'o> {
    fn new(kind: u8, out: &'o mut Vec<u8>) -> Self {
        let begin = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, kind]);
        Self { out, begin }
    }

    fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    fn half(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn word(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn long(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn count(&mut self, length: usize) {
        // What is longer makes the frame longer than it may be, which its end notices.
        self.word(u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn bytes(&mut self, value: &[u8]) {
        self.count(value.len());
        self.out.extend_from_slice(value);
    }

    fn texts<T: AsRef<str>>(&mut self, values: &[T]) {
        self.count(values.len());
        for value in values {
            self.bytes(value.as_ref().as_bytes());
        }
    }

    fn failure(&mut self, failure: &Failure) {
        self.byte(match failure.kind {
            FailureKind::Thrown => 0,
            FailureKind::Timeout => 1,
            FailureKind::Memory => 2,
            FailureKind::Document => 3,
            FailureKind::NotAFunction => 4,
            FailureKind::Ended => 5,
            FailureKind::NoProcess => 6,
            FailureKind::Part => 7,
        });
        self.bytes(failure.text.as_bytes());
    }

    fn result<T>(&mut self, result: &Result<T, Failure>, value: impl FnOnce(&mut Self, &T)) {
        match result {
            Ok(good) => {
                self.byte(0);
                value(self, good);
            }
            Err(failure) => {
                self.byte(1);
                self.failure(failure);
            }
        }
    }

    /// Ends the frame, or takes it back where it is too long.
    fn end(self) -> Result<(), Damaged> {
        let length = self.out.len() - self.begin - 4;
        let place = self.out.get_mut(self.begin..self.begin + 4);
        match (u32::try_from(length), place) {
            (Ok(written), Some(place)) if length <= FRAME_BYTES_MAX => {
                place.copy_from_slice(&written.to_be_bytes());
                Ok(())
            }
            _ => {
                self.out.truncate(self.begin);
                Err(Damaged)
            }
        }
    }
}

/// Reads the fields of a frame.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.take(N)?.try_into().map_err(|_| Damaged)
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        Ok(u8::from_be_bytes(self.fixed()?))
    }

    fn half(&mut self) -> Result<u16, Damaged> {
        Ok(u16::from_be_bytes(self.fixed()?))
    }

    fn word(&mut self) -> Result<u32, Damaged> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    fn long(&mut self) -> Result<u64, Damaged> {
        Ok(u64::from_be_bytes(self.fixed()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let length = usize::try_from(self.word()?).map_err(|_| Damaged)?;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged)
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Damaged>) -> Result<Vec<T>, Damaged> {
        let count = self.word()?;
        let mut list = Vec::new();
        for _ in 0..count {
            if self.0.is_empty() {
                return Err(Damaged);
            }
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn flag(&mut self) -> Result<bool, Damaged> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }

    fn failure(&mut self) -> Result<Failure, Damaged> {
        let kind = match self.byte()? {
            0 => FailureKind::Thrown,
            1 => FailureKind::Timeout,
            2 => FailureKind::Memory,
            3 => FailureKind::Document,
            4 => FailureKind::NotAFunction,
            5 => FailureKind::Ended,
            6 => FailureKind::NoProcess,
            7 => FailureKind::Part,
            _ => return Err(Damaged),
        };
        Ok(Failure::new(kind, self.text()?))
    }

    fn result<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Damaged>,
    ) -> Result<Result<T, Failure>, Damaged> {
        if self.flag()? { Ok(Err(self.failure()?)) } else { Ok(Ok(value(self)?)) }
    }

    fn end<T>(self, value: T) -> Result<T, Damaged> {
        if self.0.is_empty() { Ok(value) } else { Err(Damaged) }
    }
}

mod kinds {
    pub(super) const LOAD: u8 = 1;
    pub(super) const MAP: u8 = 2;
    pub(super) const REDUCE: u8 = 3;
    pub(super) const CHECK: u8 = 4;
    pub(super) const DROP: u8 = 5;
    pub(super) const READY: u8 = 128;
    pub(super) const LOADED: u8 = 129;
    pub(super) const MAPPED: u8 = 130;
    pub(super) const REDUCED: u8 = 131;
    pub(super) const CHECKED: u8 = 132;
}

impl<'a> Request<'a> {
    /// Appends the frame of this request.
    ///
    /// # Errors
    /// It is larger than a frame may be.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let fields = match self {
            Self::Load { context, limits, analysed, sources } => {
                let mut fields = Fields::new(kinds::LOAD, out);
                fields.word(*context);
                fields.long(u64::try_from(limits.time.as_millis()).unwrap_or(u64::MAX));
                fields.long(limits.memory as u64);
                fields.long(limits.stack as u64);
                fields.byte(u8::from(*analysed));
                fields.texts(&sources.maps);
                fields.texts(&sources.reduces);
                fields
            }
            Self::Map { id, context, documents } => {
                let mut fields = Fields::new(kinds::MAP, out);
                fields.long(*id);
                fields.word(*context);
                fields.count(documents.len());
                for document in documents {
                    put_document(&mut fields, document);
                }
                fields
            }
            Self::Reduce { id, context, function, keys, values } => {
                let mut fields = Fields::new(kinds::REDUCE, out);
                fields.long(*id);
                fields.word(*context);
                fields.half(*function);
                fields.byte(u8::from(keys.is_some()));
                fields.texts(keys.as_deref().unwrap_or_default());
                fields.texts(values);
                fields
            }
            Self::Check { id, source } => {
                let mut fields = Fields::new(kinds::CHECK, out);
                fields.long(*id);
                fields.bytes(source.as_bytes());
                fields
            }
            Self::Drop { context } => {
                let mut fields = Fields::new(kinds::DROP, out);
                fields.word(*context);
                fields
            }
        };
        fields.end()
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// It is no request.
    pub fn decode(frame: &'a [u8]) -> Result<Self, Damaged> {
        let mut reader = Reader(frame);
        let request = match reader.byte()? {
            kinds::LOAD => decode_load(&mut reader)?,
            kinds::MAP => {
                Self::Map { id: reader.long()?, context: reader.word()?, documents: reader.list(document)? }
            }
            kinds::REDUCE => {
                let (id, context, function) = (reader.long()?, reader.word()?, reader.half()?);
                let has_keys = reader.flag()?;
                let keys = reader.list(Reader::text)?;
                if !has_keys && !keys.is_empty() {
                    return Err(Damaged);
                }
                Self::Reduce {
                    id,
                    context,
                    function,
                    keys: has_keys.then_some(keys),
                    values: reader.list(Reader::text)?,
                }
            }
            kinds::CHECK => Self::Check { id: reader.long()?, source: reader.text()? },
            kinds::DROP => Self::Drop { context: reader.word()? },
            _ => return Err(Damaged),
        };
        reader.end(request)
    }
}

fn decode_load<'a>(reader: &mut Reader<'a>) -> Result<Request<'a>, Damaged> {
    let context = reader.word()?;
    let time = Duration::from_millis(reader.long()?);
    let memory = usize::try_from(reader.long()?).map_err(|_| Damaged)?;
    let stack = usize::try_from(reader.long()?).map_err(|_| Damaged)?;
    let analysed = reader.flag()?;
    let owned = |reader: &mut Reader<'_>| reader.text().map(str::to_owned);
    let sources = Sources { maps: reader.list(owned)?, reduces: reader.list(owned)? };
    Ok(Request::Load { context, limits: Limits { time, memory, stack }, analysed, sources })
}

fn put_document(fields: &mut Fields<'_>, document: &Document<'_>) {
    fields.bytes(document.meta.as_bytes());
    match document.body {
        Body::Unused => fields.byte(0),
        Body::Json(text) => {
            fields.byte(1);
            fields.bytes(text.as_bytes());
        }
        Body::Binary(bytes) => {
            fields.byte(2);
            fields.bytes(bytes);
        }
        Body::Part { text, whole_bytes } => {
            fields.byte(3);
            fields.bytes(text.as_bytes());
            fields.word(whole_bytes);
        }
    }
}

fn document<'a>(reader: &mut Reader<'a>) -> Result<Document<'a>, Damaged> {
    let meta = reader.text()?;
    let body = match reader.byte()? {
        0 => Body::Unused,
        1 => Body::Json(reader.text()?),
        2 => Body::Binary(reader.bytes()?),
        3 => Body::Part { text: reader.text()?, whole_bytes: reader.word()? },
        _ => return Err(Damaged),
    };
    Ok(Document { meta, body })
}

impl Reply {
    /// Appends the frame of this reply.
    ///
    /// # Errors
    /// It is larger than a frame may be.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Damaged> {
        let fields = match self {
            Self::Ready => Fields::new(kinds::READY, out),
            Self::Loaded { context, result } => {
                let mut fields = Fields::new(kinds::LOADED, out);
                fields.word(*context);
                fields.result(result, |_, ()| {});
                fields
            }
            Self::Mapped { id, first, documents } => {
                let mut fields = Fields::new(kinds::MAPPED, out);
                fields.long(*id);
                fields.word(*first);
                fields.count(documents.len());
                for mapped in documents {
                    put_mapped(&mut fields, mapped);
                }
                fields
            }
            Self::Reduced { id, result } => {
                let mut fields = Fields::new(kinds::REDUCED, out);
                fields.long(*id);
                fields.result(result, |fields, text| fields.bytes(text.as_bytes()));
                fields
            }
            Self::Checked { id, result } => {
                let mut fields = Fields::new(kinds::CHECKED, out);
                fields.long(*id);
                let (what, text) = match result {
                    Ok(()) => (0, ""),
                    Err(Invalid::NotAFunction) => (1, ""),
                    Err(Invalid::Syntax(text)) => (2, text.as_str()),
                };
                fields.byte(what);
                fields.bytes(text.as_bytes());
                fields
            }
        };
        fields.end()
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// It is no reply.
    pub fn decode(frame: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader(frame);
        let reply = match reader.byte()? {
            kinds::READY => Self::Ready,
            kinds::LOADED => Self::Loaded { context: reader.word()?, result: reader.result(|_| Ok(()))? },
            kinds::MAPPED => {
                Self::Mapped { id: reader.long()?, first: reader.word()?, documents: reader.list(mapped)? }
            }
            kinds::REDUCED => {
                let id = reader.long()?;
                Self::Reduced { id, result: reader.result(|reader| reader.text().map(str::to_owned))? }
            }
            kinds::CHECKED => {
                let (id, what, text) = (reader.long()?, reader.byte()?, reader.text()?);
                let result = match what {
                    0 => Ok(()),
                    1 => Err(Invalid::NotAFunction),
                    2 => Err(Invalid::Syntax(text.to_owned())),
                    _ => return Err(Damaged),
                };
                Self::Checked { id, result }
            }
            _ => return Err(Damaged),
        };
        reader.end(reply)
    }
}

fn put_mapped(fields: &mut Fields<'_>, mapped: &Mapped) {
    fields.result(&mapped.rows, |fields, views| {
        fields.count(views.len());
        for rows in views {
            fields.result(rows, |fields, rows| {
                fields.count(rows.len());
                for row in rows {
                    fields.bytes(row.key.as_bytes());
                    fields.bytes(row.value.as_bytes());
                }
            });
        }
    });
    fields.texts(&mapped.logs);
}

fn mapped(reader: &mut Reader<'_>) -> Result<Mapped, Damaged> {
    let row = |reader: &mut Reader<'_>| {
        Ok(Row { key: reader.text()?.to_owned(), value: reader.text()?.to_owned() })
    };
    let view = |reader: &mut Reader<'_>| reader.result(|reader| reader.list(row));
    let rows = reader.result(|reader| reader.list(view))?;
    let logs = reader.list(|reader| reader.text().map(str::to_owned))?;
    Ok(Mapped { rows, logs })
}
