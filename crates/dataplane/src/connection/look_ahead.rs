//! Looking ahead of a request that waits for the disk, where what follows has to wait behind it.
//!
//! Without this, each request would ask for its document when its turn comes. A connection would get one document per
//! disk access, however many it has asked for. So the loop looks once through what it has read, and asks together for the
//! documents that are on disk only. This is a hint and no more: every request is executed in its turn as if nothing had been
//! looked at.

use base::HashedKey;
use protocol::{
    binary::{Decoded, decode_frame_within},
    text::{Command, Parsed, parse},
};

use super::{decode::decode, requests::Requests, turn::BATCH};
use crate::{
    handlers::text,
    request::{context::Context, opcodes, session::Session},
};

/// Asks for the documents of the requests in `input`, which are behind the one that waits.
pub(super) fn of_binary(requests: &Requests, session: &Session, input: &[u8], context: &mut Context) {
    let Some(bucket) = session.attached().filter(|_| requests.wait_for_disk()) else { return };
    let mut keys = std::mem::take(&mut context.keys);
    let mut rest = input;
    for _ in 0..BATCH {
        let Decoded::Frame(frame) = decode_frame_within(rest, base::limits::FRAME_BODY_BYTES_MAX) else {
            break;
        };
        rest = rest.get(frame.packet_len()..).unwrap_or_default();
        if let Ok(request) = decode(session, &frame, None, &mut keys)
            && opcodes::of(request.loud).needs_value
        {
            bucket.engine.fetch_ahead(request.vb, request.key);
        }
    }
    context.keys = keys;
}

/// As [`of_binary`], for text.
pub(super) fn of_text(requests: &Requests, session: &Session, input: &[u8], context: &mut Context) {
    let Some(bucket) = session.attached().filter(|_| requests.wait_for_disk()) else { return };
    let mut scratch = std::mem::take(&mut context.keys);
    let mut ask = |logical: &[u8]| {
        if let Ok(key) = text::encoded(logical, &mut scratch) {
            bucket.engine.fetch_ahead(session.vbucket_of(logical), HashedKey::new(key));
        }
    };
    // What waits itself may be the rest of a longer list.
    for packet in requests.waiting.packets() {
        if let Parsed::Command { command, .. } = parse(packet, base::limits::VALUE_BYTES_MAX) {
            keys_of(&command).take(BATCH).for_each(&mut ask);
        }
    }
    let mut rest = input;
    for _ in 0..BATCH {
        let Parsed::Command { command, length } = parse(rest, base::limits::VALUE_BYTES_MAX) else {
            break;
        };
        rest = rest.get(length..).unwrap_or_default();
        keys_of(&command).take(BATCH).for_each(&mut ask);
    }
    context.keys = scratch;
}

/// The keys whose values a command reads.
fn keys_of<'a>(command: &Command<'a>) -> impl Iterator<Item = &'a [u8]> {
    let keys = match *command {
        Command::Get { keys, .. } | Command::GetAndTouch { keys, .. } => Some(keys),
        _ => None,
    };
    keys.into_iter().flat_map(|keys| keys.iter())
}
