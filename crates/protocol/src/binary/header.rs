//! The 24 bytes in front of every packet, and the six magics that say who sends what to whom.
//!
//! A header is decoded without judging it: lengths that do not fit the body are found by
//! [`super::frame::decode_frame`], unknown opcodes by [`super::Opcode::from_wire`].

use base::{Cas, Datatype, Status, VbId};

/// Bytes in a header.
pub const HEADER_BYTES: usize = 24;

/// First byte of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Magic {
    /// A client asks.
    ClientRequest = 0x80,
    /// The server answers.
    ClientResponse = 0x81,
    /// The server asks (duplex connections only).
    ServerRequest = 0x82,
    /// The client answers the server.
    ServerResponse = 0x83,
    /// A client asks, with framing extras in front of the extras.
    FlexRequest = 0x08,
    /// The server answers, with framing extras.
    FlexResponse = 0x18,
}

impl Magic {
    /// The magic with this number.
    #[inline]
    #[must_use]
    pub const fn from_wire(byte: u8) -> Option<Magic> {
        match byte {
            0x80 => Some(Magic::ClientRequest),
            0x81 => Some(Magic::ClientResponse),
            0x82 => Some(Magic::ServerRequest),
            0x83 => Some(Magic::ServerResponse),
            0x08 => Some(Magic::FlexRequest),
            0x18 => Some(Magic::FlexResponse),
            _ => None,
        }
    }

    /// Whether byte 2 counts framing extras and byte 3 alone the key.
    #[inline]
    #[must_use]
    pub const fn is_flexible(self) -> bool {
        matches!(self, Magic::FlexRequest | Magic::FlexResponse)
    }

    /// Whether a client asks the server.
    #[inline]
    #[must_use]
    pub const fn is_client_request(self) -> bool {
        matches!(self, Magic::ClientRequest | Magic::FlexRequest)
    }

    /// Whether the server answers a client.
    #[inline]
    #[must_use]
    pub const fn is_client_response(self) -> bool {
        matches!(self, Magic::ClientResponse | Magic::FlexResponse)
    }
}

/// Four bytes that the requester chose and the response repeats. Bytes, not a number: nobody but the
/// requester may interpret them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opaque(pub [u8; 4]);

impl From<u32> for Opaque {
    fn from(number: u32) -> Self {
        Opaque(number.to_be_bytes())
    }
}

impl From<Opaque> for u32 {
    fn from(opaque: Opaque) -> Self {
        u32::from_be_bytes(opaque.0)
    }
}

/// A decoded header. `opcode` and `vbucket_or_status` stay numbers: an unknown one is answered, not refused
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The direction of a packet, and its form.
    pub magic: Magic,
    /// What is asked; a response repeats it.
    pub opcode: u8,
    /// Bytes of framing extras; 0 unless the magic is flexible.
    pub framing_len: u8,
    /// Bytes of extras.
    pub extras_len: u8,
    /// Bytes of key.
    pub key_len: u16,
    /// Datatype bits as sent, unchecked.
    pub datatype: Datatype,
    /// The vBucket of a request, the status of a response.
    pub vbucket_or_status: u16,
    /// Bytes after the header: framing extras, extras, key and value.
    pub body_len: u32,
    /// Repeated in the response.
    pub opaque: Opaque,
    /// CAS given or returned; 0 is none.
    pub cas: Cas,
}

impl Header {
    /// Reads a header; `None` if the magic is none of the six.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let magic = Magic::from_wire(bytes[0])?;
        let (framing_len, key_len) = if magic.is_flexible() {
            (bytes[2], u16::from(bytes[3]))
        } else {
            (0, u16::from_be_bytes([bytes[2], bytes[3]]))
        };
        Some(Header {
            magic,
            opcode: bytes[1],
            framing_len,
            extras_len: bytes[4],
            key_len,
            datatype: Datatype(bytes[5]),
            vbucket_or_status: u16::from_be_bytes([bytes[6], bytes[7]]),
            body_len: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            opaque: Opaque([bytes[12], bytes[13], bytes[14], bytes[15]]),
            cas: Cas(u64::from_be_bytes([
                bytes[16], bytes[17], bytes[18], bytes[19], bytes[20], bytes[21], bytes[22], bytes[23],
            ])),
        })
    }

    /// The bytes of this header. With a flexible magic only the low byte of `key_len` fits: callers keep keys
    /// below 256 bytes, which [`super::Request::encode`] checks.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.magic as u8;
        bytes[1] = self.opcode;
        let [key_high, key_low] = self.key_len.to_be_bytes();
        bytes[2] = if self.magic.is_flexible() { self.framing_len } else { key_high };
        bytes[3] = key_low;
        bytes[4] = self.extras_len;
        bytes[5] = self.datatype.0;
        bytes[6..8].copy_from_slice(&self.vbucket_or_status.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.body_len.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque.0);
        bytes[16..24].copy_from_slice(&self.cas.get().to_be_bytes());
        bytes
    }

    /// The vBucket of a request. Not yet compared with the bucket's number of vBuckets.
    #[inline]
    #[must_use]
    pub const fn vbucket(&self) -> VbId {
        VbId(self.vbucket_or_status)
    }

    /// The status of a response; `None` if this version does not know it.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        Status::from_wire(self.vbucket_or_status)
    }

    /// Header and body together.
    #[inline]
    #[must_use]
    pub const fn packet_len(&self) -> usize {
        HEADER_BYTES + self.body_len as usize
    }
}
