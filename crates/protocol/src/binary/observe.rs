//! Values of OBSERVE and OBSERVE_SEQNO, GET_ALL_VB_SEQNOS and the failover log.

use base::{Cas, Seqno, VbId, VbUuid};

/// How far a document has come, as OBSERVE reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ObservedState {
    /// In memory only.
    InMemory = 0x00,
    /// On disk.
    Persisted = 0x01,
    /// There is none and no trace of one.
    NotFound = 0x80,
    /// Deleted, and the deletion is not on disk yet.
    Deleted = 0x81,
}

impl ObservedState {
    /// The state with this number.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        match number {
            0x00 => Some(Self::InMemory),
            0x01 => Some(Self::Persisted),
            0x80 => Some(Self::NotFound),
            0x81 => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// One document asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveKey<'a> {
    /// Where it lives.
    pub vbucket: VbId,
    /// As sent, with a collection prefix where collections were negotiated.
    pub key: &'a [u8],
}

/// The value of an OBSERVE request: vBucket, key length, key, and again. Yields `Err` once if it is cut off.
#[derive(Clone, Copy, Debug)]
pub struct ObserveKeys<'a>(&'a [u8]);

/// The value ends inside an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value ends inside an entry")]
pub struct Truncated;

impl<'a> ObserveKeys<'a> {
    /// The entries of this value.
    #[must_use]
    pub const fn new(value: &'a [u8]) -> Self {
        Self(value)
    }
}

impl<'a> Iterator for ObserveKeys<'a> {
    type Item = Result<ObserveKey<'a>, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = take_key(&mut self.0);
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry.ok_or(Truncated))
    }
}

fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(u16::from_be_bytes(*head))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(u64::from_be_bytes(*head))
}

fn take_key<'a>(rest: &mut &'a [u8]) -> Option<ObserveKey<'a>> {
    let mut tail = *rest;
    let vbucket = VbId(take_u16(&mut tail)?);
    let length = take_u16(&mut tail)?;
    let (key, tail) = tail.split_at_checked(usize::from(length))?;
    *rest = tail;
    Some(ObserveKey { vbucket, key })
}

/// Appends one entry of an OBSERVE request. `None`, and nothing appended, if the key is longer than 65,535
/// bytes.
#[must_use]
pub fn append_observe_key(entry: ObserveKey<'_>, out: &mut Vec<u8>) -> Option<()> {
    let length = u16::try_from(entry.key.len()).ok()?;
    out.extend_from_slice(&entry.vbucket.get().to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(entry.key);
    Some(())
}

/// Appends one entry of an OBSERVE response. The key comes from a decoded request, so its length fits.
pub fn append_observed(entry: ObserveKey<'_>, state: ObservedState, cas: Cas, out: &mut Vec<u8>) {
    if append_observe_key(entry, out).is_some() {
        out.push(state as u8);
        out.extend_from_slice(&cas.get().to_be_bytes());
    }
}

/// Reads an OBSERVE response; `None` if it is malformed.
#[must_use]
pub fn decode_observed(value: &[u8]) -> Option<Vec<(ObserveKey<'_>, ObservedState, Cas)>> {
    let mut rest = value;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let entry = take_key(&mut rest)?;
        let (&state, tail) = rest.split_first()?;
        rest = tail;
        entries.push((entry, ObservedState::from_wire(state)?, Cas(take_u64(&mut rest)?)));
    }
    Some(entries)
}

/// What OBSERVE_SEQNO answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedSeqno {
    /// The vBucket asked about.
    pub vbucket: VbId,
    /// The branch it is on now.
    pub vb_uuid: VbUuid,
    /// Everything up to here is on disk.
    pub persisted: Seqno,
    /// The newest mutation.
    pub current: Seqno,
    /// If the branch asked about has ended: its name and where it ended.
    pub failover: Option<(VbUuid, Seqno)>,
}

impl ObservedSeqno {
    /// Appends the value of a response.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.failover.is_some()));
        out.extend_from_slice(&self.vbucket.get().to_be_bytes());
        for number in [self.vb_uuid.get(), self.persisted.get(), self.current.get()] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        if let Some((uuid, seqno)) = self.failover {
            out.extend_from_slice(&uuid.get().to_be_bytes());
            out.extend_from_slice(&seqno.get().to_be_bytes());
        }
    }

    /// Reads the value of a response.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (&format, mut rest) = value.split_first()?;
        let mut observed = Self {
            vbucket: VbId(take_u16(&mut rest)?),
            vb_uuid: VbUuid(take_u64(&mut rest)?),
            persisted: Seqno(take_u64(&mut rest)?),
            current: Seqno(take_u64(&mut rest)?),
            failover: None,
        };
        match format {
            0 => {}
            1 => observed.failover = Some((VbUuid(take_u64(&mut rest)?), Seqno(take_u64(&mut rest)?))),
            _ => return None,
        }
        rest.is_empty().then_some(observed)
    }
}

/// Reads the value of an OBSERVE_SEQNO request.
#[must_use]
pub fn decode_observe_seqno(value: &[u8]) -> Option<VbUuid> {
    value.try_into().ok().map(|bytes| VbUuid(u64::from_be_bytes(bytes)))
}

/// Appends the value of a GET_ALL_VB_SEQNOS response.
pub fn append_vb_seqnos(seqnos: &[(VbId, Seqno)], out: &mut Vec<u8>) {
    for (vbucket, seqno) in seqnos {
        out.extend_from_slice(&vbucket.get().to_be_bytes());
        out.extend_from_slice(&seqno.get().to_be_bytes());
    }
}

/// Reads the value of a GET_ALL_VB_SEQNOS response.
#[must_use]
pub fn decode_vb_seqnos(value: &[u8]) -> Option<Vec<(VbId, Seqno)>> {
    let mut rest = value;
    let mut seqnos = Vec::with_capacity(value.len() / 10);
    while !rest.is_empty() {
        seqnos.push((VbId(take_u16(&mut rest)?), Seqno(take_u64(&mut rest)?)));
    }
    Some(seqnos)
}

/// Appends a failover log, newest branch first, as GET_FAILOVER_LOG answers it.
pub fn append_failover_log(log: &[(VbUuid, Seqno)], out: &mut Vec<u8>) {
    for (uuid, seqno) in log {
        out.extend_from_slice(&uuid.get().to_be_bytes());
        out.extend_from_slice(&seqno.get().to_be_bytes());
    }
}

/// Reads a failover log.
#[must_use]
pub fn decode_failover_log(value: &[u8]) -> Option<Vec<(VbUuid, Seqno)>> {
    let mut rest = value;
    let mut log = Vec::with_capacity(value.len() / 16);
    while !rest.is_empty() {
        log.push((VbUuid(take_u64(&mut rest)?), Seqno(take_u64(&mut rest)?)));
    }
    Some(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observe_round_trips_and_stops_at_a_cut() {
        let first = ObserveKey { vbucket: VbId(1), key: b"one" };
        let second = ObserveKey { vbucket: VbId(1023), key: b"" };
        let mut value = Vec::new();
        append_observe_key(first, &mut value).unwrap();
        append_observe_key(second, &mut value).unwrap();
        let keys: Result<Vec<_>, _> = ObserveKeys::new(&value).collect();
        assert_eq!(keys.unwrap(), [first, second]);
        for cut in [1, 3, 5, 6, 8, 10] {
            let last = ObserveKeys::new(&value[..cut]).last();
            assert_eq!(last, Some(Err(Truncated)), "{cut}");
        }
        let mut answer = Vec::new();
        append_observed(first, ObservedState::Persisted, Cas(7), &mut answer);
        append_observed(second, ObservedState::NotFound, Cas(0), &mut answer);
        let entries = decode_observed(&answer).unwrap();
        assert_eq!(entries[0], (first, ObservedState::Persisted, Cas(7)));
        assert_eq!(entries[1].1, ObservedState::NotFound);
        assert_eq!(decode_observed(&answer[..answer.len() - 1]), None);
    }

    #[test]
    fn observe_seqno_has_a_longer_form_after_a_failover() {
        let mut observed = ObservedSeqno {
            vbucket: VbId(5),
            vb_uuid: VbUuid(1),
            persisted: Seqno(2),
            current: Seqno(3),
            failover: None,
        };
        for (failover, length) in [(None, 27), (Some((VbUuid(9), Seqno(1))), 43)] {
            observed.failover = failover;
            let mut value = Vec::new();
            observed.append(&mut value);
            assert_eq!(value.len(), length);
            assert_eq!(ObservedSeqno::decode(&value), Some(observed));
            assert_eq!(ObservedSeqno::decode(&value[..length - 1]), None);
        }
    }

    #[test]
    fn lists_round_trip() {
        let seqnos = [(VbId(0), Seqno(9)), (VbId(1), Seqno(0))];
        let log = [(VbUuid(2), Seqno(10)), (VbUuid(1), Seqno(0))];
        let (mut a, mut b) = (Vec::new(), Vec::new());
        append_vb_seqnos(&seqnos, &mut a);
        append_failover_log(&log, &mut b);
        assert_eq!(
            (decode_vb_seqnos(&a).unwrap(), decode_failover_log(&b).unwrap()),
            (seqnos.into(), log.into())
        );
        assert_eq!(decode_vb_seqnos(&a[1..]), None);
        assert_eq!(decode_failover_log(&b[1..]), None);
    }
}
