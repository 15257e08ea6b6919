//! The protocols the driver speaks: how a request is written and a reply is read.
//!
//! Three ways to the same two operations: the binary protocol as Couchbase's clients speak it (authenticated,
//! every request addressed to its vBucket), the same frames as plain memcached understands them, and memcached's
//! text protocol.

use super::Records;
use base::{Cas, Datatype, Status, VbId};
use protocol::binary::extras::StoreExtras;
use protocol::binary::{Decoded, Frame, HEADER_BYTES, Header, Magic, Opaque, Opcode, decode_frame};

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// Binary with authentication, bucket and vBuckets (port 11210)
    Couchbase,
    /// Plain memcached binary (port 11211)
    Binary,
    /// Plain memcached text (port 11211)
    Text,
}

/// The two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Get,
    Set,
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    Hit(&'a [u8]),
    Miss,
    Stored,
    /// "Temporary failure": to be tried again.
    Temporary,
    Error(String),
}

/// What the beginning of the input holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    Incomplete,
    /// A reply and the bytes it takes.
    Reply(Outcome<'a>, usize),
    /// Something the server sent unasked, and the bytes it takes.
    Unasked(usize),
    /// No reply of this protocol: the connection is of no more use.
    Broken(String),
}

/// Longest line of the text protocol: a key and three numbers.
const LINE_BYTES_MAX: usize = 2048;

impl Protocol {
    /// Appends a request and returns how many bytes of value it carries. `number` comes back with the reply of the
    /// binary protocols.
    #[allow(clippy::too_many_arguments, reason = "a request has this many parts")]
    pub(super) fn write<R: Records>(
        self,
        op: Op,
        index: u64,
        version: u64,
        vb: VbId,
        number: u32,
        records: &R,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> usize {
        match self {
            Protocol::Text => write_text(op, index, version, records, scratch, out),
            Protocol::Couchbase | Protocol::Binary => {
                write_binary(op, index, version, vb, number, records, out)
            }
        }
    }

    /// Reads the reply at the beginning of `input` to request `number`, which was `op`.
    pub(super) fn read(self, op: Op, number: u32, input: &[u8]) -> Parsed<'_> {
        match self {
            Protocol::Text => read_text(op, input),
            Protocol::Couchbase | Protocol::Binary => read_binary(number, input),
        }
    }
}

fn write_binary<R: Records>(
    op: Op,
    index: u64,
    version: u64,
    vb: VbId,
    number: u32,
    records: &R,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let mut extras_len = 0;
    if op == Op::Set {
        let extras = StoreExtras { flags: records.flags(), expiry: 0 }.encode();
        extras_len = extras.len() as u8;
        out.extend_from_slice(&extras);
    }
    let key_start = out.len();
    records.key(index, out);
    let key_len = (out.len() - key_start) as u16;
    let value_start = out.len();
    if op == Op::Set {
        records.value(index, version, out);
    }
    let header = Header {
        magic: Magic::ClientRequest,
        opcode: if op == Op::Get { Opcode::Get.code() } else { Opcode::Set.code() },
        framing_len: 0,
        extras_len,
        key_len,
        datatype: Datatype::RAW,
        vbucket_or_status: vb.get(),
        body_len: (out.len() - start - HEADER_BYTES) as u32,
        opaque: Opaque::from(number),
        cas: Cas::NONE,
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
    out.len() - value_start
}

fn read_binary(number: u32, input: &[u8]) -> Parsed<'_> {
    let frame = match decode_frame(input) {
        Decoded::Frame(frame) => frame,
        Decoded::Incomplete { .. } => return Parsed::Incomplete,
        Decoded::Invalid(_) => {
            return Parsed::Broken("a packet whose lengths contradict each other".to_owned());
        }
        Decoded::Fatal(fatal) => return Parsed::Broken(fatal.to_string()),
    };
    let length = frame.packet_len();
    if frame.header.magic == Magic::ServerRequest {
        return Parsed::Unasked(length);
    }
    if frame.header.opaque != Opaque::from(number) {
        return Parsed::Broken("a reply that is not the next one".to_owned());
    }
    Parsed::Reply(binary_outcome(frame), length)
}

fn binary_outcome(frame: Frame<'_>) -> Outcome<'_> {
    match frame.header.status() {
        Some(Status::Success) if frame.header.opcode == Opcode::Get.code() => Outcome::Hit(frame.value),
        Some(Status::Success) => Outcome::Stored,
        Some(Status::KeyNotFound) => Outcome::Miss,
        Some(Status::TemporaryFailure | Status::Busy) => Outcome::Temporary,
        status => {
            let name = status.map_or_else(|| "unknown status".to_owned(), |status| format!("{status:?}"));
            let text = String::from_utf8_lossy(&frame.value[..frame.value.len().min(200)]);
            Outcome::Error(format!("{name} (0x{:02x}) {text}", frame.header.vbucket_or_status))
        }
    }
}

fn write_text<R: Records>(
    op: Op,
    index: u64,
    version: u64,
    records: &R,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> usize {
    use std::io::Write;
    scratch.clear();
    if op == Op::Get {
        out.extend_from_slice(b"get ");
        records.key(index, out);
    } else {
        records.value(index, version, scratch);
        out.extend_from_slice(b"set ");
        records.key(index, out);
        // Writing to a Vec cannot fail.
        let _ = write!(out, " {} 0 {}\r\n", records.flags(), scratch.len());
        out.extend_from_slice(scratch);
    }
    out.extend_from_slice(b"\r\n");
    scratch.len()
}

fn read_text(op: Op, input: &[u8]) -> Parsed<'_> {
    let Some((line, line_len)) = text_line(input) else {
        if input.len() > LINE_BYTES_MAX {
            return Parsed::Broken("a line without end".to_owned());
        }
        return Parsed::Incomplete;
    };
    match (op, line) {
        (Op::Set, b"STORED") => Parsed::Reply(Outcome::Stored, line_len),
        (Op::Get, b"END") => Parsed::Reply(Outcome::Miss, line_len),
        (Op::Get, value) if value.starts_with(b"VALUE ") => read_value(value, line_len, input),
        (_, error) => {
            let text = String::from_utf8_lossy(error).into_owned();
            let temporary = text.to_ascii_lowercase().contains("temporary failure");
            if !text.starts_with("SERVER_ERROR") && !text.starts_with("NOT_STORED") {
                return Parsed::Broken(text);
            }
            Parsed::Reply(if temporary { Outcome::Temporary } else { Outcome::Error(text) }, line_len)
        }
    }
}

/// `VALUE key flags bytes`, the bytes, `END`.
fn read_value<'a>(line: &[u8], line_len: usize, input: &'a [u8]) -> Parsed<'a> {
    let size = line.split(|&byte| byte == b' ').nth(3).and_then(|size| std::str::from_utf8(size).ok());
    let Some(size) = size.and_then(|size| size.parse::<usize>().ok()) else {
        return Parsed::Broken("a VALUE line without size".to_owned());
    };
    const TAIL: &[u8] = b"\r\nEND\r\n";
    let Some((value, rest)) = input[line_len..].split_at_checked(size) else {
        return Parsed::Incomplete;
    };
    match rest.get(..TAIL.len()) {
        None => Parsed::Incomplete,
        Some(TAIL) => Parsed::Reply(Outcome::Hit(value), line_len + size + TAIL.len()),
        Some(_) => Parsed::Broken("a value longer than announced".to_owned()),
    }
}

/// The first line without its end, and its length with it.
fn text_line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n')?;
    Some((input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]), end + 1))
}
