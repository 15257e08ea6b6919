//! Frames of the binary protocol, with Couchbase's extensions where [`Settings`] asks for them.

use super::{Command, Expected, Found, Outcome, Parsed, Settings, Verb};
use base::{Cas, Status};
use protocol::binary::extras::{CounterExtras, NumberExtras, StoreExtras};
use protocol::binary::{Decoded, Durability, Frame, Magic, Opaque, Opcode, Request, decode_frame};

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

/// Reads a reply; a multi-get's is complete with its NOOP.
pub(super) fn read<'a>(expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
    if expected.verb == Verb::MultiGet {
        return read_many(expected, input, found);
    }
    let frame = match next(input) {
        Ok(frame) => frame,
        Err(parsed) => return parsed,
    };
    let length = frame.packet_len();
    if frame.header.magic == Magic::ServerRequest {
        return Parsed::Unasked(length);
    }
    if frame.header.opaque != Opaque::from(expected.number) {
        return Parsed::Broken("a reply that is not the next one".to_owned());
    }
    Parsed::Reply(outcome(expected.verb, frame), length, server_micros(&frame))
}

/// The frame at the beginning, or what to say instead.
fn next(input: &[u8]) -> Result<Frame<'_>, Parsed<'_>> {
    match decode_frame(input) {
        Decoded::Frame(frame) => Ok(frame),
        Decoded::Incomplete { .. } => Err(Parsed::Incomplete),
        Decoded::Invalid(_) => Err(Parsed::Broken("a packet whose lengths contradict each other".to_owned())),
        Decoded::Fatal(fatal) => Err(Parsed::Broken(fatal.to_string())),
    }
}

fn read_many<'a>(expected: Expected, input: &'a [u8], found: &mut Vec<Found>) -> Parsed<'a> {
    found.clear();
    let mut at = 0;
    let (mut temporary, mut moved) = (false, false);
    loop {
        let frame = match next(&input[at..]) {
            Ok(frame) => frame,
            Err(parsed) => return parsed,
        };
        let end = at + frame.packet_len();
        if frame.header.magic != Magic::ServerRequest {
            let place = u32::from(frame.header.opaque).wrapping_sub(expected.number) as usize;
            if place == expected.keys {
                let outcome = match (moved, temporary) {
                    (true, _) => Outcome::Moved,
                    (false, true) => Outcome::Temporary,
                    (false, false) => Outcome::Many,
                };
                return Parsed::Reply(outcome, end, server_micros(&frame));
            }
            if place > expected.keys {
                return Parsed::Broken("a reply that is not the next one".to_owned());
            }
            match outcome(Verb::Get, frame) {
                Outcome::Hit(value, _) => found.push((Some(place), end - value.len()..end)),
                Outcome::Temporary => temporary = true,
                Outcome::Moved => moved = true,
                _ => {}
            }
        }
        at = end;
    }
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
        Some(Status::TemporaryFailure | Status::Busy | Status::SyncWriteInProgress) => Outcome::Temporary,
        Some(Status::NotMyVbucket) => Outcome::Moved,
        status => {
            let name = status.map_or_else(|| "unknown status".to_owned(), |status| format!("{status:?}"));
            Outcome::Failed(format!("{name} (0x{:02x})", frame.header.vbucket_or_status))
        }
    }
}
