//! Cuts packets out of a read buffer, without copying.
//!
//! Three things can be wrong with a packet, and they end differently. A magic that is none of ours or a body beyond
//! the limit leaves no way to find the next packet. That is [`Decoded::Fatal`], and the connection is closed. Lengths
//! that contradict each other inside a body of known size spoil that packet alone. That is [`Decoded::Invalid`],
//! answered with "invalid arguments" while the stream goes on behind it. Here kv_engine closes the connection; we are
//! milder. Everything else is a [`Frame`], whose four parts exactly fill the body, and is judged by
//! [`super::validate()`].

use super::{FrameInfos, HEADER_BYTES, Header, Magic};
use base::limits;

/// One whole packet, borrowed from the read buffer.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The decoded header.
    pub header: Header,
    /// Framing extras; empty unless the magic is flexible.
    pub framing: FrameInfos<'a>,
    /// Fixed-size arguments.
    pub extras: &'a [u8],
    /// The key as sent: with a collection prefix if the connection negotiated collections.
    pub key: &'a [u8],
    /// What is left of the body.
    pub value: &'a [u8],
}

impl Frame<'_> {
    /// Bytes this packet takes in the buffer.
    #[inline]
    #[must_use]
    pub const fn packet_len(&self) -> usize {
        self.header.packet_len()
    }
}

/// Why nothing behind this point of the stream can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// The first byte is none of the six magics.
    #[error("the packet begins with {0:#04x}, which is no magic")]
    BadMagic(u8),
    /// The body is longer than this connection may send.
    #[error("the body of {0} bytes is above the limit")]
    TooLarge(u32),
}

/// What the beginning of a read buffer holds.
#[derive(Clone, Copy, Debug)]
pub enum Decoded<'a> {
    /// Not all of a packet yet: with `need` bytes from the beginning of the buffer there is more to say.
    Incomplete {
        /// Bytes of the whole packet if the header is there, of the header otherwise.
        need: usize,
    },
    /// A whole packet of consistent lengths.
    Frame(Frame<'a>),
    /// A whole packet whose parts are longer than its body. Skip [`Header::packet_len`] bytes and answer.
    Invalid(Header),
    /// Close the connection.
    Fatal(Fatal),
}

/// Decodes the packet at the beginning of `bytes`; bodies up to [`limits::FRAME_BODY_BYTES_MAX`].
#[inline]
#[must_use]
pub fn decode_frame(bytes: &[u8]) -> Decoded<'_> {
    decode_frame_within(bytes, limits::FRAME_BODY_BYTES_MAX)
}

/// As [`decode_frame`], with another limit for the body: connections that have not authenticated get a small
/// one.
#[inline]
#[must_use]
pub fn decode_frame_within(bytes: &[u8], body_bytes_max: usize) -> Decoded<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return match bytes.first() {
            Some(&first) if Magic::from_wire(first).is_none() => Decoded::Fatal(Fatal::BadMagic(first)),
            _ => Decoded::Incomplete { need: HEADER_BYTES },
        };
    };
    let Some(header) = Header::decode(head) else {
        return Decoded::Fatal(Fatal::BadMagic(head[0]));
    };
    let body_len = header.body_len as usize;
    if body_len > body_bytes_max {
        return Decoded::Fatal(Fatal::TooLarge(header.body_len));
    }
    let Some((body, _)) = rest.split_at_checked(body_len) else {
        return Decoded::Incomplete { need: header.packet_len() };
    };
    match split_body(&header, body) {
        Some(frame) => Decoded::Frame(frame),
        None => Decoded::Invalid(header),
    }
}

/// Order in the body: framing extras, extras, key, value.
#[inline]
fn split_body<'a>(header: &Header, body: &'a [u8]) -> Option<Frame<'a>> {
    let (framing, rest) = body.split_at_checked(usize::from(header.framing_len))?;
    let (extras, rest) = rest.split_at_checked(usize::from(header.extras_len))?;
    let (key, value) = rest.split_at_checked(usize::from(header.key_len))?;
    Some(Frame { header: *header, framing: FrameInfos::new(framing), extras, key, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Cas, Datatype};

    fn get_packet() -> Vec<u8> {
        let mut bytes = vec![0x80, 0x00, 0, 3, 0, 0, 0x02, 0x0e, 0, 0, 0, 3, 0xde, 0xad, 0xbe, 0xef];
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(b"abc");
        bytes
    }

    #[test]
    fn a_packet_is_cut_out_at_its_last_byte_and_not_before() {
        let packet = get_packet();
        for length in 0..HEADER_BYTES {
            assert!(matches!(decode_frame(&packet[..length]), Decoded::Incomplete { need: HEADER_BYTES }));
        }
        for length in HEADER_BYTES..packet.len() {
            assert!(matches!(decode_frame(&packet[..length]), Decoded::Incomplete { need: 27 }));
        }
        let mut two = packet.clone();
        two.extend_from_slice(b"\x80\x00");
        let Decoded::Frame(frame) = decode_frame(&two) else { panic!("no frame") };
        assert_eq!((frame.packet_len(), frame.key, frame.value), (27, &b"abc"[..], &b""[..]));
        assert_eq!(frame.header.vbucket().get(), 526);
        assert_eq!(frame.header.opaque.0, [0xde, 0xad, 0xbe, 0xef]);
    }

    #[test]
    fn flexible_packets_have_framing_extras_and_a_one_byte_key_length() {
        let mut packet = get_packet();
        packet[0] = 0x08;
        (packet[2], packet[3], packet[11]) = (1, 2, 4);
        packet.insert(HEADER_BYTES, 0x50);
        let Decoded::Frame(frame) = decode_frame(&packet) else { panic!("no frame") };
        assert_eq!((frame.framing.bytes(), frame.key, frame.value), (&[0x50][..], &b"ab"[..], &b"c"[..]));
    }

    #[test]
    fn contradicting_lengths_spoil_one_packet_only() {
        let mut packet = get_packet();
        packet[4] = 1;
        let Decoded::Invalid(header) = decode_frame(&packet) else { panic!("not refused") };
        assert_eq!(header.packet_len(), packet.len());
        packet[0] = 0x08;
        packet[2] = 0xff;
        assert!(matches!(decode_frame(&packet), Decoded::Invalid(_)));
    }

    #[test]
    fn garbage_and_giants_end_the_connection_before_the_body_arrives() {
        assert!(matches!(decode_frame(b"G"), Decoded::Fatal(Fatal::BadMagic(b'G'))));
        let mut packet = get_packet();
        packet[8..12].copy_from_slice(&(30 * 1024 * 1024 + 1_u32).to_be_bytes());
        assert!(matches!(decode_frame(&packet), Decoded::Fatal(Fatal::TooLarge(_))));
        packet[8..12].copy_from_slice(&(30 * 1024 * 1024_u32).to_be_bytes());
        assert!(matches!(decode_frame(&packet), Decoded::Incomplete { .. }));
        assert!(matches!(decode_frame_within(&get_packet(), 2), Decoded::Fatal(Fatal::TooLarge(3))));
    }

    #[test]
    fn headers_round_trip() {
        for magic in [0x80_u8, 0x81, 0x82, 0x83, 0x08, 0x18] {
            let magic = Magic::from_wire(magic).unwrap();
            let header = Header {
                magic,
                opcode: 0xa2,
                framing_len: if magic.is_flexible() { 3 } else { 0 },
                extras_len: 24,
                key_len: 200,
                datatype: Datatype(3),
                vbucket_or_status: 1023,
                body_len: 4096,
                opaque: 0x0102_0304.into(),
                cas: Cas(0x1122_3344_5566_7788),
            };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
    }
}
