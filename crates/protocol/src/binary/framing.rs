//! Framing extras: small tagged objects in front of the extras of a flexible packet.
//!
//! An object is one byte with the id in the high and the length in the low four bits, then its data. Fifteen
//! in either half means "fifteen plus the next byte", the id's byte first. What requests and responses carry
//! is parsed into [`RequestInfo`] and [`ResponseInfo`].

use super::{Opcode, ServerDuration, Violation};
use base::{Status, bucket::DurabilityLevel};

const BARRIER: u16 = 0;
const DURABILITY: u16 = 1;
const STREAM_ID: u16 = 2;
const IMPERSONATE: u16 = 4;
const PRESERVE_TTL: u16 = 5;
const EXTRA_PRIVILEGE: u16 = 6;
const TOKEN_ID: u16 = 7;

const SERVER_DURATION: u16 = 0;
const READ_UNITS: u16 = 1;
const WRITE_UNITS: u16 = 2;
const THROTTLE_DURATION: u16 = 3;

/// The longest data one object can have.
pub const INFO_BYTES_MAX: usize = 15 + 255;

/// The framing extras of one packet, undecoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfos<'a>(&'a [u8]);

/// The object at this place is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the framing extras end inside an object")]
pub struct Truncated;

impl<'a> FrameInfos<'a> {
    /// Framing extras as they stand in the packet.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes as they stand in the packet.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Reads what a request of this opcode may carry.
    ///
    /// # Errors
    /// The status to answer: an unknown id, a wrong length, a durability level or timeout out of range, or
    /// something this opcode cannot do.
    #[inline]
    pub fn parse_request(self, opcode: Opcode) -> Result<RequestInfo<'a>, Violation> {
        if self.0.is_empty() {
            return Ok(RequestInfo::default());
        }
        self.parse_request_infos(opcode)
    }

    fn parse_request_infos(self, opcode: Opcode) -> Result<RequestInfo<'a>, Violation> {
        let mut info = RequestInfo::default();
        for object in self {
            let (id, data) = object.map_err(|_| Violation::invalid("Invalid encoding in framing extras"))?;
            match id {
                BARRIER => {
                    require(data.is_empty(), "Barrier must not have data")?;
                    info.barrier = true;
                }
                DURABILITY => {
                    let durability = Durability::decode(data)?;
                    require(opcode.accepts_durability(), "Durability is not supported by this command")?;
                    info.durability = Some(durability);
                }
                STREAM_ID => info.stream_id = Some(decode_u16(data, "DCP stream id must have two bytes")?),
                IMPERSONATE => info.impersonate = Some(Impersonate::decode(data)?),
                PRESERVE_TTL => {
                    require(data.is_empty(), "Preserve TTL must not have data")?;
                    if !opcode.accepts_preserve_ttl() {
                        let context = "Preserve TTL is not supported by this command";
                        return Err(Violation { status: Status::NotSupported, context });
                    }
                    info.preserve_ttl = true;
                }
                EXTRA_PRIVILEGE => {
                    require(!data.is_empty(), "The extra privilege must be named")?;
                    info.extra_privilege = Some(data);
                }
                TOKEN_ID => info.token_id = Some(decode_u16(data, "Token id must have two bytes")?),
                _ => {
                    return Err(Violation {
                        status: Status::UnknownFrameInfo,
                        context: "Unknown frame info id",
                    });
                }
            }
        }
        Ok(info)
    }

    /// Reads what a response may carry; what a client does not know it skips.
    ///
    /// # Errors
    /// [`Truncated`] when an object is cut off.
    pub fn parse_response(self) -> Result<ResponseInfo, Truncated> {
        let mut info = ResponseInfo::default();
        for object in self {
            let (id, data) = object?;
            let Ok(number) = <[u8; 2]>::try_from(data).map(u16::from_be_bytes) else { continue };
            match id {
                SERVER_DURATION => info.server_duration = Some(ServerDuration(number)),
                READ_UNITS => info.read_units = Some(number),
                WRITE_UNITS => info.write_units = Some(number),
                THROTTLE_DURATION => info.throttle_duration = Some(ServerDuration(number)),
                _ => {}
            }
        }
        Ok(info)
    }
}

impl<'a> IntoIterator for FrameInfos<'a> {
    type Item = Result<(u16, &'a [u8]), Truncated>;
    type IntoIter = FrameInfoIter<'a>;

    fn into_iter(self) -> FrameInfoIter<'a> {
        FrameInfoIter(self.0)
    }
}

/// The objects in order; ends after the first one that is cut off.
#[derive(Clone, Debug)]
pub struct FrameInfoIter<'a>(&'a [u8]);

impl<'a> Iterator for FrameInfoIter<'a> {
    type Item = Result<(u16, &'a [u8]), Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let object = take_object(&mut self.0);
        if object.is_none() {
            self.0 = &[];
        }
        Some(object.ok_or(Truncated))
    }
}

fn take_object<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (&first, mut tail) = rest.split_first()?;
    let id = take_nibble(first >> 4, &mut tail)?;
    let length = take_nibble(first & 0x0f, &mut tail)?;
    let (data, tail) = tail.split_at_checked(usize::from(length))?;
    *rest = tail;
    Some((id, data))
}

fn take_nibble(nibble: u8, tail: &mut &[u8]) -> Option<u16> {
    if nibble < 15 {
        return Some(u16::from(nibble));
    }
    let (&more, rest) = tail.split_first()?;
    *tail = rest;
    Some(15 + u16::from(more))
}

fn require(condition: bool, context: &'static str) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation::invalid(context)) }
}

fn decode_u16(data: &[u8], context: &'static str) -> Result<u16, Violation> {
    data.try_into().map(u16::from_be_bytes).map_err(|_| Violation::invalid(context))
}

/// Appends one object. Data beyond [`INFO_BYTES_MAX`] cannot be expressed and is the caller's mistake.
pub fn append_info(id: u8, data: &[u8], out: &mut Vec<u8>) {
    debug_assert!(data.len() <= INFO_BYTES_MAX, "frame info of {} bytes", data.len());
    let id_nibble = id.min(15);
    let length_nibble = data.len().min(15) as u8;
    out.push(id_nibble << 4 | length_nibble);
    if id_nibble == 15 {
        out.push(id - 15);
    }
    if length_nibble == 15 {
        out.push((data.len() - 15) as u8);
    }
    out.extend_from_slice(data);
}

/// How far a write must have travelled before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// The level; never [`DurabilityLevel::None`].
    pub level: DurabilityLevel,
    /// Milliseconds to wait; `None` leaves it to the server.
    pub timeout_ms: Option<u16>,
}

impl Durability {
    /// Statuses as kv_engine's `docs/BinaryProtocol.md` states them (its code answers "invalid level" for the
    /// reserved timeouts too).
    fn decode(data: &[u8]) -> Result<Self, Violation> {
        let (level, timeout_ms) = match *data {
            [level] => (level, None),
            [level, high, low] => (level, Some(u16::from_be_bytes([high, low]))),
            _ => return Err(Violation::invalid("Durability must have one or three bytes")),
        };
        require(!matches!(timeout_ms, Some(0 | u16::MAX)), "Durability timeouts 0 and 65535 are reserved")?;
        let unknown =
            Violation { status: Status::DurabilityInvalidLevel, context: "Unknown durability level" };
        let level = DurabilityLevel::from_wire(level).ok_or(unknown)?;
        Ok(Self { level, timeout_ms })
    }
}

/// Whose rights a request uses instead of the connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impersonate<'a> {
    /// The user's name.
    pub name: &'a [u8],
    /// Whether the user is known to an external directory only.
    pub external: bool,
}

impl<'a> Impersonate<'a> {
    fn decode(data: &'a [u8]) -> Result<Self, Violation> {
        match data {
            [] => Err(Violation::invalid("The impersonated user must be named")),
            [b'^', name @ ..] => Ok(Self { name, external: true }),
            name => Ok(Self { name, external: false }),
        }
    }
}

/// What the framing extras of a request say. If an object is repeated, the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo<'a> {
    /// Neither this request nor what follows may overtake the other.
    pub barrier: bool,
    /// Required durability.
    pub durability: Option<Durability>,
    /// Keep the document's expiry.
    pub preserve_ttl: bool,
    /// The DCP stream meant.
    pub stream_id: Option<u16>,
    /// Act as this user.
    pub impersonate: Option<Impersonate<'a>>,
    /// One more privilege for the impersonated user.
    pub extra_privilege: Option<&'a [u8]>,
    /// Act as the bearer of this token.
    pub token_id: Option<u16>,
}

impl RequestInfo<'_> {
    /// Appends these objects as the framing extras of a request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.barrier {
            append_info(BARRIER as u8, &[], out);
        }
        if let Some(Durability { level, timeout_ms }) = self.durability {
            let level = level as u8;
            match timeout_ms.map(u16::to_be_bytes) {
                Some([high, low]) => append_info(DURABILITY as u8, &[level, high, low], out),
                None => append_info(DURABILITY as u8, &[level], out),
            }
        }
        if let Some(id) = self.stream_id {
            append_info(STREAM_ID as u8, &id.to_be_bytes(), out);
        }
        if let Some(Impersonate { name, external }) = self.impersonate {
            let prefix: &[u8] = if external { b"^" } else { b"" };
            append_info(IMPERSONATE as u8, &[prefix, name].concat(), out);
        }
        if self.preserve_ttl {
            append_info(PRESERVE_TTL as u8, &[], out);
        }
        if let Some(name) = self.extra_privilege {
            append_info(EXTRA_PRIVILEGE as u8, name, out);
        }
        if let Some(id) = self.token_id {
            append_info(TOKEN_ID as u8, &id.to_be_bytes(), out);
        }
    }
}

/// What the framing extras of a response say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseInfo {
    /// From the whole request received until the response written.
    pub server_duration: Option<ServerDuration>,
    /// Metering; sent by serverless deployments only.
    pub read_units: Option<u16>,
    /// Metering.
    pub write_units: Option<u16>,
    /// Time held back by throttling.
    pub throttle_duration: Option<ServerDuration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], opcode: Opcode) -> Result<RequestInfo<'_>, Status> {
        FrameInfos::new(bytes).parse_request(opcode).map_err(|violation| violation.status)
    }

    #[test]
    fn requests_round_trip() {
        let long_name = [b'u'; 40];
        let info = RequestInfo {
            barrier: true,
            durability: Some(Durability {
                level: DurabilityLevel::PersistToMajority,
                timeout_ms: Some(1500),
            }),
            preserve_ttl: true,
            stream_id: Some(7),
            impersonate: Some(Impersonate { name: &long_name, external: true }),
            extra_privilege: Some(b"SystemCollectionLookup"),
            token_id: Some(3),
        };
        let mut bytes = Vec::new();
        info.encode(&mut bytes);
        assert_eq!(parse(&bytes, Opcode::Set), Ok(info));
    }

    #[test]
    fn escapes_extend_both_halves_and_the_id_comes_first() {
        let mut bytes = vec![0xff, 0x02, 0x01];
        bytes.extend_from_slice(&[9; 16]);
        let objects: Vec<_> = FrameInfos::new(&bytes).into_iter().collect();
        assert_eq!(objects, [Ok((17, &[9; 16][..]))]);
        let mut encoded = Vec::new();
        append_info(17, &[9; 16], &mut encoded);
        assert_eq!(encoded, bytes);
    }

    #[test]
    fn unknown_ids_truncation_and_wrong_lengths_have_their_statuses() {
        assert_eq!(parse(&[0x30], Opcode::Set), Err(Status::UnknownFrameInfo));
        assert_eq!(parse(&[0xf0, 0x00], Opcode::Set), Err(Status::UnknownFrameInfo));
        for truncated in [&[0x12_u8, 1][..], &[0xf0], &[0x0f], &[0xff, 1]] {
            assert_eq!(parse(truncated, Opcode::Set), Err(Status::Invalid));
        }
        assert_eq!(parse(&[0x01, 0], Opcode::Get), Err(Status::Invalid), "barrier with data");
        assert_eq!(parse(&[0x21, 0], Opcode::Get), Err(Status::Invalid), "short stream id");
        assert_eq!(parse(&[0x40], Opcode::Get), Err(Status::Invalid), "nobody to impersonate");
    }

    #[test]
    fn durability_has_one_or_three_bytes_and_no_reserved_timeout() {
        let majority = Durability { level: DurabilityLevel::Majority, timeout_ms: None };
        assert_eq!(parse(&[0x11, 1], Opcode::Set).unwrap().durability, Some(majority));
        assert_eq!(parse(&[0x12, 1, 1], Opcode::Set), Err(Status::Invalid));
        assert_eq!(parse(&[0x11, 0], Opcode::Set), Err(Status::DurabilityInvalidLevel));
        assert_eq!(parse(&[0x11, 4], Opcode::Set), Err(Status::DurabilityInvalidLevel));
        assert_eq!(parse(&[0x13, 1, 0, 0], Opcode::Set), Err(Status::Invalid));
        assert_eq!(parse(&[0x13, 1, 0xff, 0xff], Opcode::Set), Err(Status::Invalid));
        assert_eq!(parse(&[0x11, 1], Opcode::Get), Err(Status::Invalid));
        assert_eq!(parse(&[0x11, 1], Opcode::Setq), Err(Status::Invalid));
    }

    #[test]
    fn only_updates_can_keep_the_expiry() {
        assert!(parse(&[0x50], Opcode::Replace).unwrap().preserve_ttl);
        assert_eq!(parse(&[0x50], Opcode::Add), Err(Status::NotSupported));
        assert_eq!(parse(&[0x51, 0], Opcode::Set), Err(Status::Invalid));
    }

    #[test]
    fn responses_skip_what_they_do_not_know() {
        let info = FrameInfos::new(&[0x02, 0x01, 0x00, 0x91, 0x05, 0x12, 0, 3]).parse_response().unwrap();
        assert_eq!((info.server_duration, info.read_units), (Some(ServerDuration(256)), Some(3)));
        assert_eq!(FrameInfos::new(&[0x02, 0x01]).parse_response(), Err(Truncated));
    }
}
