//! What a turn has to say to its client, and what the client's socket has not taken yet.
//!
//! [`Output`] belongs to the worker, and every connection reuses it. It has response bytes in one growing buffer, and
//! references to large values at the positions where they belong. So a turn ends in one (vectored) write, and no large
//! value is copied. What a slow client leaves over becomes a [`Pending`], which belongs to the connection. Nothing more
//! is read from or executed for that client until it is gone, which bounds both.

use std::{collections::VecDeque, io::IoSlice, ops::Deref};

use engine::SharedValue;
use protocol::binary::{HEADER_BYTES, Magic, ServerDuration};

/// Values from this size on are sent by reference. Below it a copy is cheaper than another slice (guess).
pub(crate) const BY_REFERENCE_BYTES: usize = 16 * 1024;
/// A turn stops executing requests once it has this much to say.
pub(crate) const TURN_BYTES: usize = 256 * 1024;
/// Most values held by reference in a turn; with the slices between them it stays below the kernel's 1,024.
pub(crate) const TURN_VALUES: usize = 32;
/// Buffer capacity that survives a turn.
const KEPT_BYTES: usize = 2 * TURN_BYTES;

/// Slices of a write with every value held: value, bytes, value, …, bytes.
const SLICES: usize = 2 * TURN_VALUES + 1;

/// A value that is sent from where it is.
#[derive(Debug)]
pub(crate) enum Lent {
    /// A document's.
    Document(SharedValue),
    /// What was made for this answer alone.
    Made(Box<[u8]>),
}

impl Lent {
    /// Bytes that a bucket accounts for.
    fn lent_bytes(&self) -> usize {
        match self {
            Self::Document(value) => value.len(),
            Self::Made(_) => 0,
        }
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Document(value) => value,
            Self::Made(bytes) => bytes,
        }
    }
}

impl From<SharedValue> for Lent {
    fn from(value: SharedValue) -> Self {
        Self::Document(value)
    }
}

impl From<Box<[u8]>> for Lent {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::Made(bytes)
    }
}

/// The worker's output buffer.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Everything that is not held by reference. Handlers append to it.
    pub(crate) bytes: Vec<u8>,
    /// Values, each with the position in `bytes` it goes before; ascending.
    values: Vec<(usize, Lent)>,
    value_bytes: usize,
}

/// A place in the output to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    bytes: usize,
    values: usize,
}

impl Output {
    /// Sends `value` after everything said so far: by reference, but for those beyond what one write takes. Were some left over that
    /// the socket was never given, no event would tell that it has room for them.
    pub(crate) fn attach(&mut self, value: impl Into<Lent>) {
        let value = value.into();
        if self.values.len() >= TURN_VALUES {
            self.bytes.extend_from_slice(&value);
            return;
        }
        self.value_bytes += value.len();
        self.values.push((self.bytes.len(), value));
    }

    /// Copies what is sent by reference, before the connection goes to another bucket. Its client may take long over this output, and the
    /// bucket that it leaves may be dropped meanwhile. Nothing would tell then that the output holds that one.
    pub(crate) fn own_values(&mut self) {
        for (_, value) in &mut self.values {
            if let Lent::Document(document) = value {
                *value = Lent::Made(document[..].into());
            }
        }
    }

    /// Of what is to be sent, about how much is held by reference.
    #[cfg(test)]
    pub(crate) fn lent_bytes(&self) -> usize {
        self.values.iter().map(|(_, value)| value.lent_bytes()).sum()
    }

    /// Bytes to be sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.value_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.values.is_empty()
    }

    /// Whether the turn has said enough for now.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= TURN_BYTES || self.values.len() >= TURN_VALUES
    }

    /// Here.
    pub(crate) fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), values: self.values.len() }
    }

    /// Tells how long the server took in each answer since `mark` that has room for it. What was said since then is whole packets.
    pub(crate) fn tell(&mut self, mark: Mark, duration: ServerDuration) {
        let [high, low] = duration.0.to_be_bytes();
        let mut lent = self.values.get(mark.values..).unwrap_or_default().iter().peekable();
        let mut at = mark.bytes;
        while let Some((header, behind)) =
            self.bytes.get_mut(at..).and_then(|rest| rest.split_first_chunk_mut::<HEADER_BYTES>())
        {
            if header[0] == Magic::FlexResponse as u8
                && let Some(info @ [0x02, _, _]) = behind.first_chunk_mut()
            {
                *info = [0x02, high, low];
            }
            let mut left =
                HEADER_BYTES + u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
            // Values of this packet are before its end. Those of a later one are behind that one's header.
            while let Some((place, value)) = lent.next_if(|(place, _)| place.saturating_sub(at) < left) {
                left = left.saturating_sub(place.saturating_sub(at) + value.len());
                at = *place;
            }
            at += left;
        }
    }

    /// Takes back what was said since `mark`.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        for (_, value) in self.values.drain(mark.values.min(self.values.len())..) {
            self.value_bytes -= value.len();
        }
    }

    /// Hands the output as slices to `write`.
    pub(crate) fn with_slices<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        if self.values.is_empty() {
            return write(&[IoSlice::new(&self.bytes)]);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut used = 0;
        let mut from = 0;
        for (at, value) in &self.values {
            for part in [self.bytes.get(from..*at).unwrap_or_default(), value] {
                if let Some(slice) = slices.get_mut(used).filter(|_| !part.is_empty()) {
                    *slice = IoSlice::new(part);
                    used += 1;
                }
            }
            from = *at;
        }
        let tail = self.bytes.get(from..).unwrap_or_default();
        if let Some(slice) = slices.get_mut(used).filter(|_| !tail.is_empty()) {
            *slice = IoSlice::new(tail);
            used += 1;
        }
        write(slices.get(..used).unwrap_or_default())
    }

    /// Moves everything after the first `written` bytes out, for the connection to keep.
    pub(crate) fn take_rest(&mut self, written: usize) -> Pending {
        let mut pending = Pending::default();
        let mut from = 0;
        for (at, value) in self.values.drain(..) {
            pending.push_bytes(self.bytes.get(from..at).unwrap_or_default());
            pending.push(Segment::Value(value));
            from = at;
        }
        pending.push_bytes(self.bytes.get(from..).unwrap_or_default());
        pending.advance(written);
        self.clear();
        pending
    }

    /// Forgets everything, keeping a reasonable buffer.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.value_bytes = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
    }
}

#[derive(Debug)]
enum Segment {
    Bytes(Box<[u8]>),
    Value(Lent),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Value(value) => value,
        }
    }
}

/// Output that a socket has not taken.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are written already.
    offset: usize,
    remaining: usize,
}

impl Pending {
    fn push(&mut self, segment: Segment) {
        self.remaining += segment.bytes().len();
        self.segments.push_back(segment);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push(Segment::Bytes(bytes.into()));
        }
    }

    /// Bytes still to be written.
    pub(crate) fn len(&self) -> usize {
        self.remaining
    }

    /// Of those, about how many are held by reference.
    pub(crate) fn lent_bytes(&self) -> usize {
        let lent = |segment: &Segment| match segment {
            Segment::Bytes(_) => 0,
            Segment::Value(value) => value.lent_bytes(),
        };
        self.segments.iter().map(lent).sum::<usize>().min(self.remaining)
    }

    /// Drops what has been written.
    pub(crate) fn advance(&mut self, written: usize) {
        self.remaining = self.remaining.saturating_sub(written);
        self.offset += written;
        while let Some(first) = self.segments.front()
            && self.offset >= first.bytes().len()
        {
            self.offset -= first.bytes().len();
            self.segments.pop_front();
        }
    }

    /// Hands what remains as slices to `write`.
    pub(crate) fn with_slices<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut used = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            let skip = if used == 0 { self.offset } else { 0 };
            *slice = IoSlice::new(segment.bytes().get(skip..).unwrap_or_default());
            used += 1;
        }
        write(slices.get(..used).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{DocKey, HashedKey, Now, VbId, bucket::BucketKind};
    use engine::{Bucket, BucketOptions, Notifier, Store, Waiter, Work};

    use super::*;

    struct Deaf;

    impl Notifier for Deaf {
        fn wake(&self, _: Waiter) {}
        fn work(&self, _: Work) {}
    }

    fn written(pending: &Pending) -> Vec<u8> {
        pending.with_slices(|slices| slices.iter().flat_map(|slice| slice.to_vec()).collect())
    }

    #[test]
    fn the_rest_of_a_partial_write_is_exactly_what_is_missing() {
        let mut output = Output::default();
        output.bytes.extend_from_slice(b"hello ");
        output.bytes.extend_from_slice(b"world");
        for cut in 0..=11 {
            let mut copy = Output { bytes: output.bytes.clone(), ..Output::default() };
            let mut pending = copy.take_rest(cut);
            assert_eq!(written(&pending), &b"hello world"[cut..]);
            assert_eq!(pending.len(), 11 - cut);
            assert!(copy.is_empty());
            let rest = pending.len();
            pending.advance(rest);
            assert_eq!(written(&pending), b"");
        }
    }

    /// Callers end a turn before there are so many; should one not, nothing is left out of the write.
    #[test]
    fn however_many_values_a_turn_has_they_all_go_out_in_its_write() {
        let bucket = Bucket::open(
            BucketOptions { kind: BucketKind::Ephemeral, ..BucketOptions::new("values", 64 << 20) },
            Vec::new(),
            Arc::default(),
            Arc::new(Deaf),
            Now::default(),
        )
        .unwrap();
        let key = HashedKey::new(DocKey::trusted(b"\0key"));
        bucket.store(VbId(0), key, &Store::set(b"value"), Now::default()).unwrap();
        for values in [1, TURN_VALUES, TURN_VALUES + 1, 3 * TURN_VALUES] {
            let mut output = Output::default();
            for n in 0..values {
                output.bytes.extend_from_slice(format!("head {n} ").as_bytes());
                let value = bucket.get(VbId(0), key, Now::default(), |view| view.share()).unwrap();
                output.attach(value);
            }
            output.bytes.extend_from_slice(b"tail");
            let heads: String = (0..values).map(|n| format!("head {n} value")).collect();
            let sent = output
                .with_slices(|slices| slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>());
            assert_eq!(String::from_utf8(sent).unwrap(), heads + "tail", "{values} values");
            assert_eq!(output.len(), output.take_rest(0).len());
        }
    }

    #[test]
    fn rewinding_takes_back_everything_since_the_mark() {
        let mut output = Output::default();
        output.bytes.extend_from_slice(b"kept");
        let mark = output.mark();
        output.bytes.extend_from_slice(b"taken back");
        output.rewind(mark);
        assert_eq!((output.bytes.as_slice(), output.len()), (&b"kept"[..], 4));
    }
}
