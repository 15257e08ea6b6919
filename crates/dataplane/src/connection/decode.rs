//! From a frame to a request that a handler can rely on.

use base::{DocKey, HashedKey};
use protocol::{
    binary::{Frame, Opcode, document_key, validate},
    hello::Feature,
};

use crate::{
    net::listener::ListenerKind,
    request::{call::Request, located::Located, session::Session, stage::Stop},
};

/// Decodes a frame. `located` says where its document is, if that was found out before.
pub(super) fn decode<'a>(
    session: &Session,
    frame: &'a Frame<'a>,
    located: Option<Located>,
    keys: &'a mut Vec<u8>,
) -> Result<Request<'a>, Stop> {
    let opcode = Opcode::from_wire(frame.header.opcode).ok_or(Stop::Status(base::Status::UnknownCommand))?;
    let on_memcached_port = session.kind == ListenerKind::Memcached;
    if on_memcached_port && opcode.code() > Opcode::Gatq.code() {
        return Err(Stop::Status(base::Status::UnknownCommand));
    }
    validate(opcode, frame, session.features)?;
    if on_memcached_port && !frame.framing.bytes().is_empty() {
        // They would be lost on the way to the node that has the document. Nothing is negotiated here, so no client expects them.
        let words = "Framing extras are not supported on this port";
        return Err(Stop::Refused(base::Status::NotSupported, words));
    }
    let info = frame.framing.parse_request(opcode)?;
    let mut vb = frame.header.vbucket();
    let key = if opcode.has_document_key() {
        let key = document_key(frame.key, session.has(Feature::Collections), keys)?;
        match located {
            Some(located) => {
                vb = located.vb;
                HashedKey { key, hash: located.hash }
            }
            None => {
                if session.places_by_key() {
                    vb = session.vbucket_of(key.logical());
                }
                HashedKey::new(key)
            }
        }
    } else {
        HashedKey { key: DocKey::trusted(&[]), hash: 0 }
    };
    Ok(Request { frame, opcode, loud: opcode.loud(), info, key, vb })
}
