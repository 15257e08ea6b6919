//! Has what requests are about to need fetched from memory, a batch at a time. First come the hash-table lines of
//! their keys, then the documents that these point to. A hint and no more.

use base::hash;
use protocol::{
    binary::{Decoded, Frame, Opcode, decode_frame_within},
    hello::Feature,
};

use super::turn::BATCH;
use crate::request::{context::Context, located::Located, session::Session};

/// Decodes a batch ahead: has the table lines of its keys fetched, then the documents these point to. Returns the
/// length of the batch.
pub(super) fn plan(session: &Session, input: &[u8], context: &mut Context) -> usize {
    context.planned.clear();
    let Some(bucket) = session.attached() else { return 0 };
    let mut rest = input;
    while context.planned.len() < BATCH {
        let Decoded::Frame(frame) = decode_frame_within(rest, base::limits::FRAME_BODY_BYTES_MAX) else {
            break;
        };
        rest = rest.get(frame.packet_len()..).unwrap_or_default();
        let located = locate(session, &frame);
        if let Some(Located { vb, hash }) = located {
            bucket.engine.prefetch(vb, hash);
        }
        context.planned.push(located);
    }
    for Located { vb, hash } in context.planned.iter().flatten() {
        bucket.engine.prefetch_item(*vb, *hash);
    }
    context.planned.len()
}

/// Where the document is if `input` is one request for one; its table line is fetched meanwhile. Pipelines look
/// ahead themselves.
pub(super) fn preview(session: &Session, input: &[u8]) -> Option<Located> {
    let bucket = session.attached()?;
    let Decoded::Frame(frame) = decode_frame_within(input, base::limits::FRAME_BODY_BYTES_MAX) else {
        return None;
    };
    if frame.packet_len() < input.len() {
        return None;
    }
    let located = locate(session, &frame)?;
    bucket.engine.prefetch(located.vb, located.hash);
    Some(located)
}

/// Has a document fetched from memory, its table line being there.
pub(super) fn document(session: &Session, located: Located) {
    if let Some(bucket) = session.attached() {
        bucket.engine.prefetch_item(located.vb, located.hash);
    }
}

fn locate(session: &Session, frame: &Frame<'_>) -> Option<Located> {
    let has_key = Opcode::from_wire(frame.header.opcode).is_some_and(Opcode::has_document_key);
    if !has_key {
        return None;
    }
    let collections = session.has(Feature::Collections);
    let vb = match session.places_by_key() {
        false => frame.header.vbucket(),
        // The logical key is behind a prefix, which is decoded when the request's turn comes.
        true if collections => return None,
        true => session.vbucket_of(frame.key),
    };
    let hash = encoded_hash(frame.key, collections)?;
    Some(Located { vb, hash })
}

/// `None` for what is too long to be a key; it is refused when its turn comes.
fn encoded_hash(key: &[u8], collections: bool) -> Option<u64> {
    if collections {
        return Some(hash::key_hash(key));
    }
    let mut encoded = [0; base::limits::ENCODED_KEY_BYTES_MAX];
    encoded.get_mut(1..=key.len())?.copy_from_slice(key);
    encoded.get(..=key.len()).map(hash::key_hash)
}
