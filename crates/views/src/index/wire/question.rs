//! What a node asks another one: a query of a view, over the vBuckets that the asker takes the other node to have.

use std::sync::Arc;

use base::BucketUuid;

use super::{VERSION, WireError};
use crate::{
    design::Signature,
    index::{
        VbSet,
        bytes::{Input, put_sized, put_varint},
    },
    query::{Grouping, OnError, Query, Range, Stale},
};

/// Ranges of a query. A client's request has no room for more keys.
const RANGES_MAX: u64 = 1 << 22;

const DESCENDING: u8 = 1;
const DEBUG: u8 = 2;
const FULL_SET: u8 = 4;
const STOPS: u8 = 8;
const TIMEOUT: u8 = 16;
const STALE_OK: u8 = 32;
const STALE_FALSE: u8 = 64;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The bucket.
    pub bucket: BucketUuid,
    /// The name of the design document.
    pub design: String,
    /// The index that the asker knows of it: another one would give other rows.
    pub signature: Signature,
    /// The name of the view.
    pub view: String,
    /// The vBuckets to be answered for: all of them, or the answer is an error.
    pub vbs: VbSet,
    /// The query.
    pub query: Arc<Query>,
}

impl Question {
    /// The question as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_sized(self.bucket.0.as_bytes(), &mut out);
        put_sized(self.design.as_bytes(), &mut out);
        out.extend_from_slice(&self.signature.0);
        put_sized(self.view.as_bytes(), &mut out);
        self.vbs.put(&mut out);
        put_query(&self.query, &mut out);
        out
    }

    /// The question that these bytes are.
    ///
    /// # Errors
    /// They are none, or one of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (version, rest) = bytes.split_first().ok_or(WireError::Damaged("a question is empty"))?;
        if *version != VERSION {
            return Err(WireError::Version(*version));
        }
        let mut input = Input(rest);
        let question = read(&mut input).filter(|_| input.is_empty());
        question.ok_or(WireError::Damaged("a question cannot be read"))
    }
}

fn read(input: &mut Input<'_>) -> Option<Question> {
    Some(Question {
        bucket: BucketUuid(input.text()?.to_owned()),
        design: input.text()?.to_owned(),
        signature: Signature(input.array()?),
        view: input.text()?.to_owned(),
        vbs: VbSet::read(input)?,
        query: Arc::new(read_query(input)?),
    })
}

fn put_query(query: &Query, out: &mut Vec<u8>) {
    let mut flags = 0;
    for (flag, is_set) in [
        (DESCENDING, query.descending),
        (DEBUG, query.debug),
        (FULL_SET, query.full_set),
        (STOPS, query.on_error == OnError::Stop),
        (TIMEOUT, query.connection_timeout.is_some()),
        (STALE_OK, query.stale == Stale::Ok),
        (STALE_FALSE, query.stale == Stale::False),
    ] {
        if is_set {
            flags |= flag;
        }
    }
    out.push(flags);
    if let Some(millis) = query.connection_timeout {
        put_varint(millis, out);
    }
    put_varint(query.skip, out);
    put_varint(query.limit, out);
    match query.grouping {
        None => out.push(0),
        Some(Grouping::All) => out.push(1),
        Some(Grouping::Exact) => out.push(2),
        Some(Grouping::Level(level)) => {
            out.push(3);
            put_varint(level, out);
        }
    }
    put_varint(query.ranges.len() as u64, out);
    query.ranges.iter().for_each(|range| put_range(range, out));
}

fn read_query(input: &mut Input<'_>) -> Option<Query> {
    let flags = input.byte()?;
    let is_set = |flag| flags & flag != 0;
    let stale = match (is_set(STALE_OK), is_set(STALE_FALSE)) {
        (false, false) => Stale::UpdateAfter,
        (true, false) => Stale::Ok,
        (false, true) => Stale::False,
        (true, true) => return None,
    };
    if flags & 0x80 != 0 {
        return None;
    }
    let connection_timeout = if is_set(TIMEOUT) { Some(input.varint()?) } else { None };
    let (skip, limit) = (input.varint()?, input.varint()?);
    let grouping = match input.byte()? {
        0 => None,
        1 => Some(Grouping::All),
        2 => Some(Grouping::Exact),
        3 => Some(Grouping::Level(input.varint()?)),
        _ => return None,
    };
    let count = input.varint().filter(|count| *count <= RANGES_MAX)?;
    let ranges: Option<Vec<Range>> = (0..count).map(|_| read_range(input)).collect();
    Some(Query {
        ranges: ranges?,
        descending: is_set(DESCENDING),
        skip,
        limit,
        grouping,
        stale,
        on_error: if is_set(STOPS) { OnError::Stop } else { OnError::Continue },
        debug: is_set(DEBUG),
        full_set: is_set(FULL_SET),
        connection_timeout,
    })
}

/// The upper end without what it has in common with the lower one: of a single key it has all but a byte.
fn put_range(range: &Range, out: &mut Vec<u8>) {
    put_sized(&range.lower, out);
    match &range.upper {
        None => out.push(0),
        Some(upper) => {
            let common = range.lower.iter().zip(upper).take_while(|(lower, upper)| lower == upper).count();
            put_varint(common as u64 + 1, out);
            put_sized(upper.get(common..).unwrap_or_default(), out);
        }
    }
}

fn read_range(input: &mut Input<'_>) -> Option<Range> {
    let lower = input.sized()?.to_vec();
    let upper = match input.length()? {
        0 => None,
        common => {
            let mut upper = lower.get(..common - 1)?.to_vec();
            upper.extend_from_slice(input.sized()?);
            Some(upper)
        }
    };
    Some(Range { lower, upper })
}
