//! Builds requests: for the client crate, for tests, and for what the server asks of duplex clients.

use super::{HEADER_BYTES, Header, Magic, Opaque, Opcode, RequestInfo, ServerOpcode};
use base::{Cas, CollectionId, Datatype, VbId, key};

/// A request to send. Start from [`Request::new`] and set what differs.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub opcode: Opcode,
    /// Where.
    pub vbucket: VbId,
    /// Comes back with the response.
    pub opaque: Opaque,
    /// Optimistic lock; 0 for none.
    pub cas: Cas,
    /// Of the value.
    pub datatype: Datatype,
    /// Durability and the like. If there is any, the packet is a flexible one.
    pub info: RequestInfo<'a>,
    /// Fixed-size arguments.
    pub extras: &'a [u8],
    /// Put in front of the key; `None` where collections were not negotiated or the key is no document's.
    pub collection: Option<CollectionId>,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// A part of the request is longer than its length field can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of the request is longer than the protocol can express")]
pub struct TooLong;

impl Request<'_> {
    /// A request without arguments.
    #[must_use]
    pub const fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            vbucket: VbId(0),
            opaque: Opaque([0; 4]),
            cas: Cas::NONE,
            datatype: Datatype::RAW,
            info: RequestInfo {
                barrier: false,
                durability: None,
                preserve_ttl: false,
                stream_id: None,
                impersonate: None,
                extra_privilege: None,
                token_id: None,
            },
            extras: &[],
            collection: None,
            key: &[],
            value: &[],
        }
    }

    /// Appends the packet.
    ///
    /// # Errors
    /// [`TooLong`], with nothing appended.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let start = out.len();
        let encoded = self.try_encode(start, out);
        if encoded.is_err() {
            out.truncate(start);
        }
        encoded
    }

    #[expect(clippy::indexing_slicing, reason = "the header's room was appended at `start` above")]
    fn try_encode(&self, start: usize, out: &mut Vec<u8>) -> Result<(), TooLong> {
        out.extend_from_slice(&[0; HEADER_BYTES]);
        self.info.encode(out);
        let framing_len = u8::try_from(out.len() - start - HEADER_BYTES).map_err(|_| TooLong)?;
        out.extend_from_slice(self.extras);
        let key_start = out.len();
        if let Some(collection) = self.collection {
            key::encode_leb128(collection.get(), out);
        }
        out.extend_from_slice(self.key);
        let key_len = u16::try_from(out.len() - key_start).map_err(|_| TooLong)?;
        out.extend_from_slice(self.value);
        let flexible = framing_len > 0;
        if flexible && key_len > 255 {
            return Err(TooLong);
        }
        let header = Header {
            magic: if flexible { Magic::FlexRequest } else { Magic::ClientRequest },
            opcode: self.opcode.code(),
            framing_len,
            extras_len: u8::try_from(self.extras.len()).map_err(|_| TooLong)?,
            key_len,
            datatype: self.datatype,
            vbucket_or_status: self.vbucket.get(),
            body_len: u32::try_from(out.len() - start - HEADER_BYTES).map_err(|_| TooLong)?,
            opaque: self.opaque,
            cas: self.cas,
        };
        out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
        Ok(())
    }
}

/// Appends a request of the server to a duplex client. The only one with a body is the push of a cluster map. Its
/// extras are the version, its key is the bucket's name (empty for the cluster's own map). Its value is the map (empty
/// for clients that asked for the brief form).
///
/// # Errors
/// [`TooLong`], with nothing appended.
pub fn write_server_request(
    out: &mut Vec<u8>,
    opcode: ServerOpcode,
    datatype: Datatype,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> Result<(), TooLong> {
    let header = Header {
        magic: Magic::ServerRequest,
        opcode: opcode as u8,
        framing_len: 0,
        extras_len: u8::try_from(extras.len()).map_err(|_| TooLong)?,
        key_len: u16::try_from(key.len()).map_err(|_| TooLong)?,
        datatype,
        vbucket_or_status: 0,
        body_len: u32::try_from(extras.len() + key.len() + value.len()).map_err(|_| TooLong)?,
        opaque: Opaque::default(),
        cas: Cas::NONE,
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::{Decoded, Durability, decode_frame};
    use base::bucket::DurabilityLevel;

    #[test]
    fn framing_makes_the_packet_flexible_and_the_collection_leads_the_key() {
        let mut request = Request { key: b"k", value: b"v", extras: &[0; 8], ..Request::new(Opcode::Set) };
        request.collection = Some(CollectionId(300));
        request.info.durability = Some(Durability { level: DurabilityLevel::Majority, timeout_ms: None });
        let mut out = Vec::new();
        request.encode(&mut out).unwrap();
        let Decoded::Frame(frame) = decode_frame(&out) else { panic!("not a frame") };
        assert_eq!(frame.header.magic, Magic::FlexRequest);
        assert_eq!((frame.key, frame.value), (&b"\xac\x02k"[..], &b"v"[..]));
        assert_eq!(frame.framing.parse_request(Opcode::Set).unwrap(), request.info);
    }

    #[test]
    fn what_cannot_be_expressed_leaves_no_trace() {
        let mut out = b"before".to_vec();
        let long_key = Request { key: &[0; 65_536], ..Request::new(Opcode::Get) };
        assert_eq!(long_key.encode(&mut out), Err(TooLong));
        let mut flexible = Request { key: &[0; 256], ..Request::new(Opcode::Get) };
        assert_eq!(flexible.encode(&mut Vec::new()), Ok(()));
        flexible.info.barrier = true;
        assert_eq!(flexible.encode(&mut out), Err(TooLong));
        let long_extras = Request { extras: &[0; 256], ..Request::new(Opcode::Get) };
        assert_eq!(long_extras.encode(&mut out), Err(TooLong));
        assert_eq!(out, b"before");
    }

    #[test]
    fn a_map_push_is_a_server_request() {
        let mut out = Vec::new();
        write_server_request(
            &mut out,
            ServerOpcode::ClustermapChangeNotification,
            Datatype::JSON,
            &[0; 16],
            b"b",
            b"{}",
        )
        .unwrap();
        let Decoded::Frame(frame) = decode_frame(&out) else { panic!("not a frame") };
        assert_eq!(frame.header.magic, Magic::ServerRequest);
        assert_eq!((frame.header.opcode, frame.key, frame.value), (1, &b"b"[..], &b"{}"[..]));
    }
}
