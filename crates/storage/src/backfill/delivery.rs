//! The second pass: reads the records that were kept, in order, through a window per segment.
//!
//! Segments take turns, as their seqnos lie, so every one that has records left may hold a window; together they stay
//! within a bound. A segment is let go with its last record.

use super::{Pin, found::Found};
use crate::{
    api::{BackfillOptions, Locator, Record, ValueRule},
    counters::count,
    error::StoreError,
    format::frame::{self, FrameError, HEAD, Head},
    segment::Segment,
    window::{Extent, Window},
};

/// Held by all windows together, unless there are very many segments or a document alone is larger.
const WINDOWS_BYTES_MAX: u64 = 8 << 20;
/// Most and least read at once from one segment.
const WINDOW_BYTES_MAX: u64 = 256 << 10;
const WINDOW_BYTES_MIN: u64 = 4 << 10;
/// How far to look ahead in the list for records to read along.
const LOOK_AHEAD: usize = 4096;
/// Head and the longest key.
const HEAD_AND_KEY_MAX: u64 = HEAD as u64 + 255;

/// See the module.
pub(super) struct Delivery {
    newest: Vec<Found>,
    delivered: usize,
    /// Which records' values are read; `None`: all.
    values_of: Option<ValueRule>,
    /// By the segment's number in the pin.
    slots: Vec<Slot>,
    window_bytes: u64,
}

#[derive(Default)]
struct Slot {
    window: Window,
    /// Records still to come from here.
    left: u32,
}

impl Delivery {
    pub(super) fn new(pin: &mut Pin, newest: Vec<Found>, options: &BackfillOptions) -> Self {
        let mut slots: Vec<Slot> = pin.segments.iter().map(|_| Slot::default()).collect();
        for record in &newest {
            if let Some(slot) = slots.get_mut(record.segment()) {
                slot.left += 1;
            }
        }
        let mut used = 0;
        for (number, slot) in slots.iter().enumerate() {
            match slot.left {
                0 => pin.release(number),
                _ => used += 1,
            }
        }
        let window_bytes = (WINDOWS_BYTES_MAX / used.max(1)).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        let values_of = options.keys_only.then(|| options.values_of.unwrap_or(|_, _| false));
        Self { newest, delivered: 0, values_of, slots, window_bytes }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let windows: usize = self.slots.iter().map(|slot| slot.window.memory_bytes()).sum();
        self.newest.capacity() * size_of::<Found>() + self.slots.capacity() * size_of::<Slot>() + windows
    }

    /// Delivers records of about `bytes_max` bytes, at least one; false when there are no more. A caller that asks for little at a
    /// time is short of memory: no window is larger than that.
    pub(super) fn step(
        &mut self,
        pin: &mut Pin,
        bytes_max: u64,
        visit: &mut dyn FnMut(&Record<'_>, Locator),
    ) -> Result<bool, StoreError> {
        let most = self.window_bytes.min(bytes_max.max(WINDOW_BYTES_MIN));
        let (mut bytes, mut records) = (0, 0);
        while self.delivered < self.newest.len() && (records == 0 || bytes < bytes_max) {
            bytes += self.deliver(pin, most, visit)?;
            records += 1;
        }
        count(&pin.counters.backfill_records, records);
        count(&pin.counters.backfill_bytes, bytes);
        Ok(self.delivered < self.newest.len())
    }

    /// Delivers the next record, with a window of `most` bytes; returns how many of its bytes were wanted.
    fn deliver(
        &mut self,
        pin: &mut Pin,
        most: u64,
        visit: &mut dyn FnMut(&Record<'_>, Locator),
    ) -> Result<u64, StoreError> {
        let Some((wanted, following)) = self.newest.get(self.delivered..).and_then(<[Found]>::split_first)
        else {
            return Ok(0);
        };
        let number = wanted.segment();
        let (Some(segment), Some(slot)) = (pin.segment(number), self.slots.get_mut(number)) else {
            return Err(StoreError::Invalid("a record of a segment that was let go"));
        };
        let values_of = self.values_of;
        let extent = |found: &Found| {
            let Extent { offset, length } = found.extent();
            Extent { offset, length: if values_of.is_some() { length.min(HEAD_AND_KEY_MAX) } else { length } }
        };
        let at = extent(wanted);
        let following = || following.iter().take(LOOK_AHEAD).filter(|next| next.segment() == number);
        slot.window.hold(segment, at, following().map(extent), most)?;
        let damaged = |error| of_frame(segment, at.offset, error);
        let mut head = read_head(segment, at.offset, &slot.window)?;
        let mut has_value = true;
        if let Some(rule) = values_of {
            let bare = frame::record_of(slot.window.from(at.offset), &head, None).map_err(damaged)?;
            has_value = rule(bare.meta.kind, bare.key);
            if has_value {
                slot.window.hold(segment, wanted.extent(), following().map(extent), most)?;
                head = read_head(segment, at.offset, &slot.window)?;
            }
        }
        let held = slot.window.from(at.offset);
        let value = has_value.then(|| frame::check_body(held, &head)).transpose().map_err(damaged)?;
        let stored = frame::record_of(held, &head, value).map_err(damaged)?;
        if (stored.vb, stored.incarnation, stored.meta.seqno) != (pin.vb, pin.incarnation, wanted.seqno()) {
            return Err(damaged(FrameError::Damaged("not the record that was here")));
        }
        visit(&stored.to_record(), segment.locate(at.offset, stored.length));
        let bytes = if has_value { u64::from(stored.length) } else { (HEAD + stored.key.len()) as u64 };
        self.delivered += 1;
        slot.left -= 1;
        if slot.left == 0 {
            pin.release(number);
        }
        if slot.left == 0 || bytes > most {
            slot.window = Window::default();
        }
        Ok(bytes)
    }
}

fn read_head(segment: &Segment, offset: u64, window: &Window) -> Result<Head, StoreError> {
    frame::decode_head(window.from(offset), segment.salt).map_err(|error| of_frame(segment, offset, error))
}

fn of_frame(segment: &Segment, offset: u64, error: FrameError) -> StoreError {
    match error {
        FrameError::Damaged(detail) => damaged(segment, offset, detail),
        FrameError::Short(_) => damaged(segment, offset, "cut short"),
    }
}

/// Notes the damage: nobody may compact away what it was.
fn damaged(segment: &Segment, offset: u64, detail: &'static str) -> StoreError {
    segment.quarantine();
    segment.corrupt(offset, detail)
}
