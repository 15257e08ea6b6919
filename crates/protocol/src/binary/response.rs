//! Appends responses to an output buffer.
//!
//! [`ResponseWriter::begin`] leaves room for header and framing extras. The caller appends extras, key and value behind
//! it, under a lock if need be. [`ResponseWriter::finish`] fills the room in. So no byte of a value is copied twice,
//! and no length has to be known beforehand. A value too large to copy is sent by reference: its length goes into
//! [`Response::value_by_reference`] and its bytes follow the buffer in a vectored write.
//!
//! Whether a quiet command stays silent is the server's decision; [`ResponseWriter::cancel`] takes back what
//! was begun.

use super::{HEADER_BYTES, Header, Magic, ServerDuration};
use base::{Cas, Datatype, Status};

/// Framing extras of a traced response: id 0, two bytes.
const TRACE_BYTES: usize = 3;

/// What the header of a response says beyond what it repeats from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Outcome.
    pub status: Status,
    /// CAS of the document, or 0.
    pub cas: Cas,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// How many of the appended bytes are extras.
    pub extras_len: u8,
    /// How many of the appended bytes, after the extras, are the key.
    pub key_len: u16,
    /// Bytes of value that will follow the buffer.
    pub value_by_reference: u32,
    /// Time taken, encoded; written only on traced connections.
    pub duration: ServerDuration,
}

impl Response {
    /// A response with this status and nothing else.
    #[inline]
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self {
            status,
            cas: Cas::NONE,
            datatype: Datatype::RAW,
            extras_len: 0,
            key_len: 0,
            value_by_reference: 0,
            duration: ServerDuration(0),
        }
    }

    /// As [`Response::new`], with a CAS.
    #[inline]
    #[must_use]
    pub const fn with_cas(mut self, cas: Cas) -> Self {
        self.cas = cas;
        self
    }

    /// As [`Response::new`], with a datatype.
    #[inline]
    #[must_use]
    pub const fn with_datatype(mut self, datatype: Datatype) -> Self {
        self.datatype = datatype;
        self
    }

    /// As [`Response::new`], with the time taken.
    #[inline]
    #[must_use]
    pub const fn with_duration(mut self, duration: ServerDuration) -> Self {
        self.duration = duration;
        self
    }
}

/// One response under construction at the end of an output buffer.
#[derive(Debug)]
pub struct ResponseWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    opcode: u8,
    opaque: super::Opaque,
    traced: bool,
}

impl<'o> ResponseWriter<'o> {
    /// Begins the response to `request` at the end of `out`. `traced` if the connection negotiated tracing.
    #[inline]
    #[must_use]
    pub fn begin(out: &'o mut Vec<u8>, request: &Header, traced: bool) -> Self {
        let start = out.len();
        if traced {
            out.extend_from_slice(&[0; HEADER_BYTES + TRACE_BYTES]);
        } else {
            out.extend_from_slice(&[0; HEADER_BYTES]);
        }
        Self { out, start, opcode: request.opcode, opaque: request.opaque, traced }
    }

    /// Where to append extras, key and value, in this order.
    #[inline]
    pub fn body(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Takes back everything since [`ResponseWriter::begin`].
    #[inline]
    pub fn cancel(self) {
        self.out.truncate(self.start);
    }

    /// Takes back the body but not the response: the operation has failed half-way.
    #[inline]
    pub fn clear_body(&mut self) {
        let head = HEADER_BYTES + if self.traced { TRACE_BYTES } else { 0 };
        self.out.truncate(self.start + head);
    }

    /// Fills in header and framing extras. Returns the bytes that this response takes in the buffer.
    ///
    /// The lengths in `response` must not exceed what was appended: the only caller is the server, which
    /// counts what it appends. Keys of traced responses are below 256 bytes, since document keys are.
    #[inline]
    pub fn finish(self, response: &Response) -> usize {
        let Self { out, start, opcode, opaque, traced } = self;
        let packet_len = out.len() - start;
        let body_len = packet_len - HEADER_BYTES + response.value_by_reference as usize;
        let framing_len = if traced { TRACE_BYTES } else { 0 };
        debug_assert!(
            framing_len + usize::from(response.extras_len) + usize::from(response.key_len) <= body_len
        );
        debug_assert!(!traced || response.key_len < 256);
        let header = Header {
            magic: if traced { Magic::FlexResponse } else { Magic::ClientResponse },
            opcode,
            framing_len: framing_len as u8,
            extras_len: response.extras_len,
            key_len: response.key_len,
            datatype: response.datatype,
            vbucket_or_status: response.status.code(),
            body_len: body_len as u32,
            opaque,
            cas: response.cas,
        };
        if let Some(room) = out.get_mut(start..) {
            if let Some(head) = room.first_chunk_mut::<HEADER_BYTES>() {
                *head = header.encode();
            }
            if traced && let Some(info) = room.get_mut(HEADER_BYTES..HEADER_BYTES + TRACE_BYTES) {
                let [high, low] = response.duration.0.to_be_bytes();
                info.copy_from_slice(&[0x02, high, low]);
            }
        }
        packet_len
    }
}

/// Appends a whole response at once. The lengths in `response` are taken from the parts.
#[inline]
pub fn write_response(
    out: &mut Vec<u8>,
    request: &Header,
    traced: bool,
    response: &Response,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> usize {
    let mut writer = ResponseWriter::begin(out, request, traced);
    let body = writer.body();
    body.reserve(extras.len() + key.len() + value.len());
    body.extend_from_slice(extras);
    body.extend_from_slice(key);
    body.extend_from_slice(value);
    writer.finish(&Response { extras_len: extras.len() as u8, key_len: key.len() as u16, ..*response })
}

/// Appends a response that is a status and its text: what a failure looks like without an error context.
#[inline]
pub fn write_status(out: &mut Vec<u8>, request: &Header, traced: bool, response: &Response) -> usize {
    write_response(out, request, traced, response, &[], &[], response.status.text().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Decoded, Frame, Opcode, Request, decode_frame};

    fn request() -> Header {
        let mut bytes = Vec::new();
        Request { opaque: 7.into(), key: b"key", ..Request::new(Opcode::Get) }.encode(&mut bytes).unwrap();
        match decode_frame(&bytes) {
            Decoded::Frame(frame) => frame.header,
            other => panic!("{other:?}"),
        }
    }

    fn decode(bytes: &[u8]) -> Frame<'_> {
        match decode_frame(bytes) {
            Decoded::Frame(frame) => frame,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_value_can_be_appended_in_place() {
        for traced in [false, true] {
            let mut out = b"before".to_vec();
            let mut writer = ResponseWriter::begin(&mut out, &request(), traced);
            writer.body().extend_from_slice(&[1, 2, 3, 4]);
            writer.body().extend_from_slice(b"value");
            let response = Response { extras_len: 4, ..Response::new(Status::Success) };
            let response = response.with_cas(Cas(9)).with_duration(ServerDuration(300));
            assert_eq!(writer.finish(&response), out.len() - 6);
            let frame = decode(&out[6..]);
            assert_eq!((frame.extras, frame.key, frame.value), (&[1, 2, 3, 4][..], &b""[..], &b"value"[..]));
            assert_eq!((frame.header.opaque, frame.header.cas), (7.into(), Cas(9)));
            assert_eq!(frame.header.status(), Some(Status::Success));
            let duration = frame.framing.parse_response().unwrap().server_duration;
            assert_eq!(duration, traced.then_some(ServerDuration(300)));
        }
    }

    #[test]
    fn a_value_by_reference_counts_but_is_not_there() {
        let mut out = Vec::new();
        let mut writer = ResponseWriter::begin(&mut out, &request(), false);
        writer.body().extend_from_slice(&[0; 4]);
        let response = Response { extras_len: 4, value_by_reference: 5, ..Response::new(Status::Success) };
        assert_eq!(writer.finish(&response), 28);
        assert!(matches!(decode_frame(&out), Decoded::Incomplete { need: 33 }));
        out.extend_from_slice(b"value");
        assert_eq!(decode(&out).value, b"value");
    }

    #[test]
    fn what_was_begun_can_be_taken_back() {
        let mut out = b"before".to_vec();
        let mut writer = ResponseWriter::begin(&mut out, &request(), true);
        writer.body().extend_from_slice(b"half a val");
        writer.clear_body();
        writer.finish(&Response::new(Status::KeyNotFound));
        assert_eq!(decode(&out[6..]).header.status(), Some(Status::KeyNotFound));
        let length = out.len();
        let mut writer = ResponseWriter::begin(&mut out, &request(), true);
        writer.body().push(1);
        writer.cancel();
        assert_eq!(out.len(), length);
    }

    #[test]
    fn failures_carry_their_text_and_success_carries_none() {
        let mut out = Vec::new();
        write_status(&mut out, &request(), false, &Response::new(Status::TemporaryFailure));
        assert_eq!(decode(&out).value, b"Temporary failure");
        out.clear();
        write_status(&mut out, &request(), false, &Response::new(Status::Success));
        assert_eq!(out.len(), HEADER_BYTES);
    }
}
