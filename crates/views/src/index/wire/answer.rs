//! What a node answers: frames, written one by one as an index gives items, and read as bytes come.

use std::{cmp::Ordering, sync::Arc};

use base::VbId;

use super::{Question, VERSION, WireError};
use crate::{
    collation::{group_prefix, split_row_key},
    frames::Frames,
    index::{
        Group, Item, Partial, Reducing, Row, VbSet,
        bytes::{Input, put_sized, put_varint},
    },
    query::{Grouping, Query},
    reduce::State,
};

/// Longest frame. What a map function may emit of one document is half of it.
pub const FRAME_BYTES_MAX: usize = 2 << 20;
/// Longest text of an error.
const REASON_BYTES_MAX: usize = 4 << 10;

const HEAD: u8 = 1;
const ROW: u8 = 2;
const NATIVE: u8 = 3;
const FUNCTION: u8 = 4;
const END: u8 = 5;
const FAILED: u8 = 6;

/// Writes one answer. It ends by [`AnswerWriter::end`] or [`AnswerWriter::failed`].
#[derive(Debug)]
pub struct AnswerWriter {
    items: u64,
}

impl AnswerWriter {
    /// Begins an answer of a view that has so many rows in the vBuckets that were asked for. `lacks` says what the index lacks, for an
    /// asker who does not read to the end.
    pub fn begin(total_rows: u64, lacks: Option<&str>, out: &mut Vec<u8>) -> Self {
        frame(HEAD, out, |out| {
            out.push(VERSION);
            put_varint(total_rows, out);
            out.extend_from_slice(bounded(lacks.unwrap_or_default()).as_bytes());
        });
        Self { items: 0 }
    }

    /// Writes an item of this range of the query.
    ///
    /// # Errors
    /// It has no room in a frame; `out` is as it was.
    pub fn item(&mut self, range: usize, item: &Item, out: &mut Vec<u8>) -> Result<(), WireError> {
        let begin = out.len();
        match item {
            Item::Row(row) => frame(ROW, out, |out| {
                put_varint(range as u64, out);
                put_varint(u64::from(row.vb.get()), out);
                put_sized(&row.place, out);
                put_sized(row.key.as_bytes(), out);
                out.extend_from_slice(row.value.as_bytes());
            }),
            Item::Group(Group { place, key, partial }) => {
                let (kind, state, text) = match partial {
                    Partial::Native(state) => (NATIVE, Some(state.to_bytes()), ""),
                    Partial::Function(_, text) => (FUNCTION, None, text.as_str()),
                };
                frame(kind, out, |out| {
                    put_varint(range as u64, out);
                    put_sized(place, out);
                    put_sized(key.as_bytes(), out);
                    out.extend_from_slice(state.as_ref().map_or(text.as_bytes(), |state| state));
                });
            }
        }
        if out.len() - begin > FRAME_BYTES_MAX + 4 {
            out.truncate(begin);
            return Err(WireError::TooLarge);
        }
        self.items += 1;
        Ok(())
    }

    /// Ends the answer: everything that was asked for has been written.
    pub fn end(self, out: &mut Vec<u8>) {
        frame(END, out, |out| put_varint(self.items, out));
    }

    /// Ends the answer by an error.
    pub fn failed(self, reason: &str, out: &mut Vec<u8>) {
        frame(FAILED, out, |out| out.extend_from_slice(bounded(reason).as_bytes()));
    }
}

/// As much of a reason as is sent.
fn bounded(reason: &str) -> &str {
    let end = (0..=REASON_BYTES_MAX).rfind(|at| reason.is_char_boundary(*at)).unwrap_or(0);
    reason.get(..end).unwrap_or_default()
}

fn frame(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    write(out);
    let length = u32::try_from(out.len() - begin - 4).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(begin..begin + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// What an answer says next.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// How many rows the view has in the vBuckets that were asked for, and what the index lacks of them.
    Head(u64, Option<String>),
    /// An item, and the number of its range.
    Item(usize, Item),
    /// The other node could not go on.
    Failed(String),
    /// The answer is whole.
    End,
}

/// What an answer has to be, by its question.
#[derive(Clone, Debug)]
pub struct Expected {
    query: Arc<Query>,
    reducing: Option<Reducing>,
    vbs: VbSet,
}

impl Expected {
    /// By a question whose view is reduced in this way, where the query reduces.
    #[must_use]
    pub fn of(question: &Question, reducing: Option<Reducing>) -> Self {
        Self { query: Arc::clone(&question.query), reducing, vbs: question.vbs }
    }
}

/// Reads one answer. After an error there is nothing more to be had of it.
#[derive(Debug)]
pub struct AnswerReader {
    expected: Expected,
    frames: Frames,
    reading: Reading,
    items: u64,
    /// The range and place of the item before.
    last: Option<(usize, Vec<u8>)>,
}

/// How far an answer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Begins,
    Goes,
    Ended,
    Broken,
}

impl AnswerReader {
    /// For an answer that has to be this.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        let frames = Frames::up_to(FRAME_BYTES_MAX);
        Self { expected, frames, reading: Reading::Begins, items: 0, last: None }
    }

    /// Takes bytes that came. They are held until [`AnswerReader::next_event`] has taken them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes);
    }

    /// What comes next; `None` where that has not come yet, or nothing does.
    ///
    /// # Errors
    /// What came is no answer to the question.
    pub fn next_event(&mut self) -> Result<Option<Event>, WireError> {
        let next = self.read();
        match &next {
            Ok(Some(Event::Head(..))) => self.reading = Reading::Goes,
            Ok(Some(Event::End | Event::Failed(_))) => self.reading = Reading::Ended,
            Err(_) => self.reading = Reading::Broken,
            _ => {}
        }
        next
    }

    /// The stream has ended, and everything that came was read.
    ///
    /// # Errors
    /// The answer has not ended.
    pub fn close(&self) -> Result<(), WireError> {
        if self.reading == Reading::Ended && self.frames.is_empty() {
            Ok(())
        } else {
            Err(WireError::CutShort)
        }
    }

    fn read(&mut self) -> Result<Option<Event>, WireError> {
        match self.reading {
            Reading::Broken => return Err(WireError::CutShort),
            Reading::Ended if self.frames.is_empty() => return Ok(None),
            Reading::Ended => return Err(WireError::Damaged("something follows an answer")),
            Reading::Begins | Reading::Goes => {}
        }
        let frame = self.frames.next_frame().map_err(|_| WireError::Damaged("the length of a frame"))?;
        let Some((kind, fields)) = frame.and_then(<[u8]>::split_first) else { return Ok(None) };
        match (self.reading, *kind) {
            (_, FAILED) => Ok(Some(Event::Failed(reason(fields)))),
            (Reading::Begins, HEAD) => head(fields).map(Some),
            (Reading::Goes, END) => {
                let mut input = Input(fields);
                let items = input.varint().filter(|_| input.is_empty());
                let is_whole = items.ok_or(WireError::Damaged("the end of an answer"))? == self.items;
                if is_whole { Ok(Some(Event::End)) } else { Err(WireError::Unfit("items are missing")) }
            }
            (Reading::Goes, kind @ (ROW | NATIVE | FUNCTION)) => {
                let item = item(kind, fields, self.expected.reducing);
                let (range, item) = item.ok_or(WireError::Damaged("an item cannot be read"))?;
                let last = self.last.as_ref().map(|(range, place)| (*range, place.as_slice()));
                self.expected.check(range, &item, last)?;
                self.items += 1;
                if self.items > self.expected.most() {
                    return Err(WireError::Unfit("it has more items than were asked for"));
                }
                self.last = Some((range, item.place().to_vec()));
                Ok(Some(Event::Item(range, item)))
            }
            _ => Err(WireError::Damaged("a frame is of no known kind, or not in its place")),
        }
    }
}

fn head(fields: &[u8]) -> Result<Event, WireError> {
    let (version, rest) = fields.split_first().ok_or(WireError::Damaged("an answer has no version"))?;
    if *version != VERSION {
        return Err(WireError::Version(*version));
    }
    let mut input = Input(rest);
    let rows = input.varint().ok_or(WireError::Damaged("the beginning of an answer"))?;
    Ok(Event::Head(rows, (!input.is_empty()).then(|| reason(input.0))))
}

/// What the other node says of something that went wrong.
fn reason(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..REASON_BYTES_MAX).unwrap_or(bytes)).into_owned()
}

fn item(kind: u8, fields: &[u8], reducing: Option<Reducing>) -> Option<(usize, Item)> {
    let mut input = Input(fields);
    let range = input.length()?;
    if kind == ROW {
        let vb = VbId(u16::try_from(input.varint()?).ok()?);
        let place = input.sized()?;
        let (docid, key) = (split_row_key(place)?.docid, input.text()?.to_owned());
        let value = rest(&input)?;
        return Some((range, Item::Row(Row { place: place.to_vec(), vb, docid, key, value })));
    }
    let (place, key) = (input.sized()?.to_vec(), input.text()?.to_owned());
    let partial = match (kind, reducing?) {
        (NATIVE, Reducing::Native(kind)) => {
            Partial::Native(State::from_bytes(kind, input.0.try_into().ok()?))
        }
        (FUNCTION, Reducing::Function(number)) => Partial::Function(number, rest(&input)?),
        _ => return None,
    };
    Some((range, Item::Group(Group { place, key, partial })))
}

fn rest(input: &Input<'_>) -> Option<String> {
    std::str::from_utf8(input.0).ok().map(str::to_owned)
}

impl Expected {
    /// Items at most: the node that puts answers together skips, the others do not.
    fn most(&self) -> u64 {
        self.query.skip.saturating_add(self.query.limit)
    }

    /// Whether an item may come behind the one before: of that range, at that place.
    fn check(&self, range: usize, item: &Item, last: Option<(usize, &[u8])>) -> Result<(), WireError> {
        let of = self.query.ranges.get(range).ok_or(WireError::Unfit("an item is of no range"))?;
        let place = item.place();
        let is_all = self.query.grouping == Some(Grouping::All);
        match (item, self.query.grouping) {
            (Item::Row(row), None) if !self.vbs.contains(row.vb) => {
                return Err(WireError::Unfit("a row is of a vBucket that was not asked for"));
            }
            (Item::Row(_), None) | (Item::Group(_), Some(_)) => {}
            _ => return Err(WireError::Unfit("rows for groups, or groups for rows")),
        }
        if is_all != place.is_empty() || !is_all && !of.contains(place) {
            return Err(WireError::Unfit("an item is outside of its range"));
        }
        if !is_all && split_row_key(place).is_none() {
            return Err(WireError::Damaged("the place of an item cannot be read"));
        }
        let Some((last_range, last)) = last else { return Ok(()) };
        let order = last_range.cmp(&range).then_with(|| {
            let order = self.decides(last).cmp(&self.decides(place));
            if self.query.descending { order.reverse() } else { order }
        });
        if order == Ordering::Less { Ok(()) } else { Err(WireError::Unfit("items are out of order")) }
    }

    /// The bytes of a place that tell an item from the others of its range.
    fn decides<'p>(&self, place: &'p [u8]) -> Option<&'p [u8]> {
        match self.query.grouping {
            None => Some(place),
            Some(Grouping::All) => Some(&[]),
            Some(Grouping::Exact) => group_prefix(place, u64::MAX),
            Some(Grouping::Level(level)) => group_prefix(place, level),
        }
    }
}
