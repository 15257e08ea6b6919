//! Frames of the binary protocol, with Couchbase's extensions where [`Settings`] asks for them.

use super::{Command, Expected, Outcome, Parsed, Settings, Verb};
use base::{Cas, Status};
use protocol::binary::extras::{CounterExtras, NumberExtras, StoreExtras};
use protocol::binary::{
    Decoded, Durability, Frame, Magic, Opaque, Opcode, Request, ServerDuration, decode_frame,
};

/// Bytes of a packet's header, which ends with its number and its version.
const HEADER_BYTES: usize = 24;
/// The server tells no longer time, in microseconds: about two minutes.
const LONGEST_TOLD: u64 = 130_000_000;
/// Sub-document flag: make the fields in between too.
const SUBDOC_MKDIR_P: u8 = 1;

/// Appends a request.
pub(super) fn write(command: &Command<'_>, out: &mut Vec<u8>) {
    let settings = command.settings;
    let store = StoreExtras { flags: settings.flags, expiry: settings.expiry }.encode();
    let counter = CounterExtras { delta: 1, initial: 1 << 32, expiry: settings.expiry }.encode();
    let number = NumberExtras { number: settings.expiry }.encode();
    let (look, change) = (subdoc_extras(settings, 0), subdoc_extras(settings, SUBDOC_MKDIR_P));
    let mut body = Vec::new();
    let (opcode, extras, value): (Opcode, &[u8], &[u8]) = match command.verb {
        Verb::Get | Verb::GetCas | Verb::MultiGet => (Opcode::Get, &[], &[]),
        Verb::Set | Verb::SetCas => (Opcode::Set, &store, command.value),
        Verb::Add => (Opcode::Add, &store, command.value),
        Verb::Replace => (Opcode::Replace, &store, command.value),
        Verb::Append => (Opcode::Append, &[], command.value),
        Verb::Prepend => (Opcode::Prepend, &[], command.value),
        Verb::Delete => (Opcode::Delete, &[], &[]),
        Verb::Incr => (Opcode::Increment, &counter, &[]),
        Verb::Decr => (Opcode::Decrement, &counter, &[]),
        Verb::Touch => (Opcode::Touch, &number, &[]),
        Verb::SubGet => (Opcode::SubdocGet, &look, &settings.path[..]),
        Verb::SubSet => {
            body.extend_from_slice(&settings.path);
            body.extend_from_slice(command.value);
            (Opcode::SubdocDictUpsert, &change, &body[..])
        }
    };
    let cas = if command.verb == Verb::SetCas { Cas(command.cas) } else { Cas::NONE };
    let request = Request { extras, value, cas, ..request(opcode, command) };
    append(&request, out);
}

/// Appends one key of a multi-get: quiet reads, and a NOOP behind the last whose reply ends the answer.
pub(super) fn write_many(place: usize, of: usize, command: &Command<'_>, out: &mut Vec<u8>) {
    let number = command.number.wrapping_add(place as u32);
    append(&Request { opaque: Opaque::from(number), ..request(Opcode::Getq, command) }, out);
    if place + 1 == of {
        append(&Request { opaque: Opaque::from(number.wrapping_add(1)), ..Request::new(Opcode::Noop) }, out);
    }
}

fn request<'a>(opcode: Opcode, command: &Command<'a>) -> Request<'a> {
    let settings = command.settings;
    let mut request = Request {
        vbucket: command.vb,
        opaque: Opaque::from(command.number),
        collection: settings.collection,
        key: command.key,
        ..Request::new(opcode)
    };
    if opcode.accepts_durability() {
        request.info.durability =
            settings.durability.map(|(level, timeout_ms)| Durability { level, timeout_ms });
    }
    request
}

fn append(request: &Request<'_>, out: &mut Vec<u8>) {
    let encoded = request.encode(out);
    // Keys are at most 250 bytes and values 20 MiB: the packet can express both.
    debug_assert!(encoded.is_ok(), "{encoded:?}");
}

fn subdoc_extras(settings: &Settings, flags: u8) -> [u8; 3] {
    let [high, low] = (settings.path.len() as u16).to_be_bytes();
    [high, low, flags]
}

/// The number of the request that the reply at the beginning answers; `None` while its header is not all there.
pub(super) fn number(input: &[u8]) -> Option<u32> {
    let header = input.first_chunk::<HEADER_BYTES>()?;
    header[12..].first_chunk().map(|opaque| u32::from(Opaque(*opaque)))
}

/// Reads a reply; a multi-get's come one by one and are complete with its NOOP.
pub(super) fn read<'a>(expected: Expected, input: &'a [u8]) -> Parsed<'a> {
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
    let place = u32::from(frame.header.opaque).wrapping_sub(expected.number) as usize;
    let many = expected.verb == Verb::MultiGet;
    match (many, place) {
        (false, 0) => Parsed::Reply(outcome(expected.verb, frame), length, server_micros(&frame)),
        (true, place) if place < expected.keys => Parsed::Part(place, outcome(Verb::Get, frame), length),
        (true, place) if place == expected.keys => {
            Parsed::Reply(Outcome::Many, length, server_micros(&frame))
        }
        _ => Parsed::Broken("a reply that is not the next one".to_owned()),
    }
}

/// The times in microseconds that the server tells as this one: the shortest, and the longest.
pub(crate) fn told_within(micros: u64) -> (u64, u64) {
    let told = ServerDuration::from_micros(micros);
    let least = |is_there: &dyn Fn(ServerDuration) -> bool| {
        let (mut low, mut high) = (0, LONGEST_TOLD);
        while low < high {
            let middle = low.midpoint(high);
            if is_there(ServerDuration::from_micros(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    };
    let (first, next) = (least(&|one| one >= told), least(&|one| one > told));
    (first, next.saturating_sub(1).max(first))
}

fn server_micros(frame: &Frame<'_>) -> Option<u32> {
    if frame.framing.bytes().is_empty() {
        return None;
    }
    let info = frame.framing.parse_response().ok()?;
    Some(info.server_duration?.to_duration().as_micros() as u32)
}

fn outcome(verb: Verb, frame: Frame<'_>) -> Outcome<'_> {
    match frame.header.status() {
        Some(Status::Success) => match verb {
            Verb::Get | Verb::GetCas | Verb::SubGet => Outcome::Hit(frame.value, frame.header.cas.get()),
            _ => Outcome::Done,
        },
        Some(Status::KeyNotFound | Status::NotStored | Status::SubdocPathNotFound) => Outcome::Miss,
        Some(Status::KeyExists) if matches!(verb, Verb::Add | Verb::SetCas) => Outcome::Miss,
        Some(status @ (Status::TemporaryFailure | Status::Busy | Status::SyncWriteInProgress)) => {
            let other = (status != Status::TemporaryFailure).then(|| name(&frame));
            Outcome::Temporary(error_context(frame.value).or(other))
        }
        Some(Status::NotMyVbucket) => Outcome::Moved(frame.value),
        _ => Outcome::Failed(name(&frame)),
    }
}

/// What a status is called.
fn name(frame: &Frame<'_>) -> String {
    let status = frame.header.status();
    let name = status.map_or_else(|| "unknown status".to_owned(), |status| format!("{status:?}"));
    format!("{name} (0x{:02x})", frame.header.vbucket_or_status)
}

/// The server's own words, as it gives them to those who know extended errors.
fn error_context(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(body["error"]["context"].as_str()?.to_owned())
}
