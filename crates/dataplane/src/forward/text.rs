//! Text commands as binary packets, and their answers as words.

use base::{Cas, Status, VbId};
use protocol::{
    binary::{Opcode, Request as Packet},
    text::{Command, StoreVerb, expiry_to_wire},
};

use crate::request::stage::Stop;

/// A counter that is not there is not made.
const NO_INITIAL: u32 = u32::MAX;

/// What a retrieval of one key is in binary.
pub(crate) fn retrieval(vb: VbId, key: &[u8], expiry: Option<i64>) -> Option<Vec<u8>> {
    match expiry {
        None => encoded(Packet { key, ..at(vb, Opcode::Get) }),
        Some(expiry) => {
            let extras = expiry_to_wire(expiry).to_be_bytes();
            encoded(Packet { key, extras: &extras, ..at(vb, Opcode::Gat) })
        }
    }
}

/// What a change is in binary; `None` for commands that are none.
pub(crate) fn change(vb: VbId, command: &Command<'_>) -> Option<Vec<u8>> {
    match *command {
        Command::Store { verb, key, flags, expiry, cas, value, .. } => {
            let fields = [flags.to_be_bytes(), expiry_to_wire(expiry).to_be_bytes()].concat();
            let (opcode, extras): (_, &[u8]) = match verb {
                StoreVerb::Set | StoreVerb::Cas => (Opcode::Set, &fields),
                StoreVerb::Add => (Opcode::Add, &fields),
                StoreVerb::Replace => (Opcode::Replace, &fields),
                StoreVerb::Append => (Opcode::Append, &[]),
                StoreVerb::Prepend => (Opcode::Prepend, &[]),
            };
            // As here: no document has CAS 1, and 0 would mean "any".
            let cas = if verb == StoreVerb::Cas { Cas(cas.max(1)) } else { Cas::NONE };
            encoded(Packet { key, value, extras, cas, ..at(vb, opcode) })
        }
        Command::Delete { key, .. } => encoded(Packet { key, ..at(vb, Opcode::Delete) }),
        Command::Counter { key, delta, decrement, .. } => {
            let opcode = if decrement { Opcode::Decrement } else { Opcode::Increment };
            let mut extras = [delta.to_be_bytes(), 0_u64.to_be_bytes()].concat();
            extras.extend(NO_INITIAL.to_be_bytes());
            encoded(Packet { key, extras: &extras, ..at(vb, opcode) })
        }
        Command::Touch { key, expiry, .. } => {
            let extras = expiry_to_wire(expiry).to_be_bytes();
            encoded(Packet { key, extras: &extras, ..at(vb, Opcode::Touch) })
        }
        _ => None,
    }
}

/// The key that a change is of; empty for commands that are none.
pub(crate) fn key_of<'a>(command: &Command<'a>) -> &'a [u8] {
    match *command {
        Command::Store { key, .. }
        | Command::Delete { key, .. }
        | Command::Counter { key, .. }
        | Command::Touch { key, .. } => key,
        _ => &[],
    }
}

fn at(vb: VbId, opcode: Opcode) -> Packet<'static> {
    Packet { vbucket: vb, ..Packet::new(opcode) }
}

fn encoded(packet: Packet<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).ok()?;
    Some(bytes)
}

/// A document that another node has.
pub(crate) struct Found<'a> {
    pub(crate) flags: u32,
    pub(crate) cas: Cas,
    pub(crate) value: &'a [u8],
}

/// The document in an answer to a retrieval.
pub(crate) fn found(packet: &[u8]) -> Result<Found<'_>, Stop> {
    let frame = super::frame_of(packet)?;
    let flags = frame.extras.first_chunk::<4>().ok_or(Stop::Status(Status::Internal))?;
    Ok(Found { flags: u32::from_be_bytes(*flags), cas: frame.header.cas, value: frame.value })
}

/// The number in an answer to a counter; changes of other kinds have none.
pub(crate) fn number(packet: &[u8], command: &Command<'_>) -> Result<Option<u64>, Stop> {
    if !matches!(command, Command::Counter { .. }) {
        return Ok(None);
    }
    let frame = super::frame_of(packet)?;
    let number = frame.value.first_chunk::<8>().ok_or(Stop::Status(Status::Internal))?;
    Ok(Some(u64::from_be_bytes(*number)))
}

#[cfg(test)]
mod tests {
    use protocol::{
        binary::{Decoded, decode_frame},
        text::{Parsed, parse},
    };

    use super::*;

    #[test]
    fn every_change_has_its_packet() {
        for (words, opcode, extras, value) in [
            (&b"set k 7 0 2\r\nab\r\n"[..], Opcode::Set, 8, &b"ab"[..]),
            (b"add k 7 0 2\r\nab\r\n", Opcode::Add, 8, b"ab"),
            (b"replace k 7 0 2\r\nab\r\n", Opcode::Replace, 8, b"ab"),
            (b"append k 7 0 2\r\nab\r\n", Opcode::Append, 0, b"ab"),
            (b"prepend k 7 0 2\r\nab\r\n", Opcode::Prepend, 0, b"ab"),
            (b"cas k 7 0 2 99\r\nab\r\n", Opcode::Set, 8, b"ab"),
            (b"delete k\r\n", Opcode::Delete, 0, b""),
            (b"incr k 5\r\n", Opcode::Increment, 20, b""),
            (b"decr k 5\r\n", Opcode::Decrement, 20, b""),
            (b"touch k 60\r\n", Opcode::Touch, 4, b""),
        ] {
            let Parsed::Command { command, .. } = parse(words, 100) else { panic!("{words:?}") };
            let packet = change(VbId(9), &command).unwrap();
            let Decoded::Frame(frame) = decode_frame(&packet) else { panic!("{words:?}") };
            assert_eq!(frame.header.opcode, opcode.code(), "{words:?}");
            assert_eq!((frame.header.vbucket(), frame.key), (VbId(9), &b"k"[..]));
            assert_eq!((frame.extras.len(), frame.value), (extras, value), "{words:?}");
            assert_eq!(frame.header.cas, Cas(if words.starts_with(b"cas") { 99 } else { 0 }));
        }
        let Parsed::Command { command, .. } = parse(b"version\r\n", 100) else { panic!("a command") };
        assert!(change(VbId(0), &command).is_none());
    }
}
