//! The JSON value of a stream request: which part of the vBucket is wanted, and what the consumer remembers.
//!
//! Only its form is judged here; whether collections and scopes exist is looked up in a manifest.

use base::{CollectionId, ManifestUid, ScopeId, Seqno, Status};
use serde_json::{Map, Value};

use crate::binary::Violation;

/// Longest value. The ids of all the collections that a cluster can have fit several times; parsed, a value takes up to
/// sixteen times as much.
const FILTER_BYTES_MAX: usize = 256 << 10;

/// The key of [`StreamFilter::term`].
const TERM: &str = "settee_term";

/// The key of [`StreamFilter::may_lack`].
const MAY_LACK: &str = "settee_may_lack";

/// What the value of a stream request says. All absent for an empty value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFilter {
    /// The last manifest that the consumer heard of; decides nothing.
    pub manifest_uid: Option<ManifestUid>,
    /// Only these collections; ascending, each once.
    pub collections: Option<Box<[CollectionId]>>,
    /// Only this scope.
    pub scope: Option<ScopeId>,
    /// The name of the stream, on connections with several per vBucket; never 0.
    pub stream_id: Option<u16>,
    /// The consumer has been told that tombstones up to here are gone.
    pub purge_seqno: Option<Seqno>,
    /// Between nodes of a cluster: the term of the vBucket that the stream is for. Settee's own.
    pub term: Option<u64>,
    /// Beside a term: the copy may have lost what it has acknowledged, so that its first snapshot has to reach the last
    /// prepare there is. Settee's own.
    pub may_lack: bool,
}

/// The value of the stream request of a node that follows a vBucket at a term; see [`StreamFilter`] for the rest.
#[must_use]
pub fn value_for_term(term: u64, may_lack: bool) -> String {
    if may_lack {
        format!(r#"{{"{TERM}":"{term}","{MAY_LACK}":true}}"#)
    } else {
        format!(r#"{{"{TERM}":"{term}"}}"#)
    }
}

impl StreamFilter {
    /// Reads the value of a stream request.
    ///
    /// # Errors
    /// "Invalid arguments" for anything malformed, `DcpStreamIdInvalid` for stream id 0.
    pub fn decode(value: &[u8]) -> Result<Self, Violation> {
        if value.is_empty() {
            return Ok(Self::default());
        }
        if value.len() > FILTER_BYTES_MAX {
            return Err(Violation { status: Status::TooBig, context: "The value exceeds 256 KiB" });
        }
        let json: Map<String, Value> = serde_json::from_slice(value)
            .map_err(|_| Violation::invalid("The value of a stream request must be a JSON object"))?;
        let filter = Self {
            manifest_uid: json.get("uid").map(hex).transpose()?.map(ManifestUid),
            collections: json.get("collections").map(ids).transpose()?,
            scope: json.get("scope").map(id).transpose()?.map(ScopeId),
            stream_id: json.get("sid").map(stream_id).transpose()?,
            purge_seqno: json.get("purge_seqno").map(decimal).transpose()?.map(Seqno),
            term: json.get(TERM).map(decimal).transpose()?,
            may_lack: json.get(MAY_LACK).and_then(Value::as_bool).unwrap_or(false),
        };
        if filter == Self::default() {
            return Err(Violation::invalid("No sid, uid, scope, collections or purge_seqno in the value"));
        }
        if filter.collections.is_some() && filter.scope.is_some() {
            return Err(Violation::invalid("Scope and collections exclude each other"));
        }
        Ok(filter)
    }
}

fn text(value: &Value) -> Result<&str, Violation> {
    value.as_str().ok_or(Violation::invalid("Ids, uids and seqnos of a stream request must be strings"))
}

fn hex(value: &Value) -> Result<u64, Violation> {
    let text = text(value)?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // A sign is no digit, whatever the standard library thinks.
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    number.ok_or(Violation::invalid("Ids and uids must be hexadecimal"))
}

fn id(value: &Value) -> Result<u32, Violation> {
    u32::try_from(hex(value)?).map_err(|_| Violation::invalid("Ids have at most 32 bits"))
}

fn ids(value: &Value) -> Result<Box<[CollectionId]>, Violation> {
    let list = value.as_array().ok_or(Violation::invalid("Collections must be an array"))?;
    let mut ids = list.iter().map(|entry| id(entry).map(CollectionId)).collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.into())
}

fn decimal(value: &Value) -> Result<u64, Violation> {
    let number = text(value)?.parse();
    number.map_err(|_| Violation::invalid("Purge seqno and term must be decimal numbers"))
}

fn stream_id(value: &Value) -> Result<u16, Violation> {
    let id = value.as_u64().and_then(|id| u16::try_from(id).ok());
    match id.ok_or(Violation::invalid("The stream id must be a number of 16 bits"))? {
        0 => Err(Violation { status: Status::DcpStreamIdInvalid, context: "The stream id must not be 0" }),
        id => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(value: &str) -> Status {
        StreamFilter::decode(value.as_bytes()).expect_err(value).status
    }

    #[test]
    fn every_key_is_read() {
        let filter = StreamFilter::decode(br#"{"uid":"b4","collections":["8a","0","8a"],"sid":71,"x":1}"#);
        let expected = StreamFilter {
            manifest_uid: Some(ManifestUid(0xb4)),
            collections: Some([CollectionId(0), CollectionId(0x8a)].into()),
            stream_id: Some(71),
            ..StreamFilter::default()
        };
        assert_eq!(filter, Ok(expected));
        let filter = StreamFilter::decode(br#"{"scope":"9","purge_seqno":"81021"}"#).unwrap();
        assert_eq!((filter.scope, filter.purge_seqno), (Some(ScopeId(9)), Some(Seqno(81_021))));
        for may_lack in [false, true] {
            let filter = StreamFilter::decode(value_for_term(u64::MAX, may_lack).as_bytes());
            assert_eq!(
                filter,
                Ok(StreamFilter { term: Some(u64::MAX), may_lack, ..StreamFilter::default() })
            );
        }
        assert_eq!(StreamFilter::decode(b""), Ok(StreamFilter::default()));
        assert_eq!(StreamFilter::decode(br#"{"collections":[]}"#).unwrap().collections, Some([].into()));
    }

    #[test]
    fn nobody_makes_us_build_a_tree_of_megabytes() {
        let json = |bytes: usize| format!("{{\"sid\":1,\"other\":[{}1]}}", "1,".repeat(bytes / 2 - 16));
        assert!(StreamFilter::decode(json(FILTER_BYTES_MAX).as_bytes()).is_ok());
        assert_eq!(refusal(&json(2 * FILTER_BYTES_MAX)), Status::TooBig);
    }

    #[test]
    fn malformed_values_are_refused() {
        for bad in [
            "{",
            "[]",
            "{}",
            r#"{"other":1}"#,
            r#"{"uid":1}"#,
            r#"{"uid":"g"}"#,
            r#"{"uid":""}"#,
            r#"{"uid":"+1"}"#,
            r#"{"scope":"123456789"}"#,
            r#"{"scope":8}"#,
            r#"{"collections":"8"}"#,
            r#"{"collections":[8]}"#,
            r#"{"collections":["8"],"scope":"8"}"#,
            r#"{"sid":"1"}"#,
            r#"{"sid":65536}"#,
            r#"{"sid":-1}"#,
            r#"{"purge_seqno":5}"#,
            r#"{"purge_seqno":"5x"}"#,
            r#"{"settee_term":5}"#,
            r#"{"settee_term":"-1"}"#,
        ] {
            assert_eq!(refusal(bad), Status::Invalid, "{bad}");
        }
        assert_eq!(refusal(r#"{"sid":0}"#), Status::DcpStreamIdInvalid);
    }
}
