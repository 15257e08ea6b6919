//! Range scans (kv_engine `docs/range_scans`): what CREATE asks for in JSON, and the arguments of CONTINUE and CANCEL.
//! Also the keys or documents that a CONTINUE is answered with.
//!
//! Unknown members of the JSON are ignored; known ones of another type are refused.

use std::ops::Bound;

use base::{Cas, CollectionId, Datatype, Seqno, Status, VbUuid, limits};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Map, Value};

use super::{extras::layout, validate::Violation};

/// Longest value of a CREATE. What it has to say fits many times; parsed, it takes up to sixteen times as much.
const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Longest name of a scan.
const NAME_BYTES_MAX: usize = 50;

layout! {
    /// Request of CONTINUE.
    ScanContinue [28] {
        /// Which scan.
        id: u128 as u128,
        /// Most keys or documents; 0: any number.
        items_max: u32 as u32,
        /// Longest time in milliseconds; 0: any.
        millis_max: u32 as u32,
        /// Bytes of keys and values after which to stop; 0: any number.
        bytes_max: u32 as u32,
    }
}
layout! {
    /// Request of CANCEL.
    ScanCancel [16] {
        /// Which scan.
        id: u128 as u128,
    }
}

/// What CREATE asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanConfig {
    /// Where to look.
    pub collection: CollectionId,
    /// Keys without documents.
    pub keys_only: bool,
    /// Documents with their extended attributes.
    pub include_xattrs: bool,
    /// Which of the collection's documents.
    pub selection: ScanSelection,
    /// What the vBucket must be like.
    pub requires: Option<ScanRequirements>,
    /// For people who look at statistics.
    pub name: Option<Box<str>>,
}

/// Which documents are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanSelection {
    /// Those with logical keys between these.
    Range(Bound<Box<[u8]>>, Bound<Box<[u8]>>),
    /// About so many, chosen by chance.
    Sample {
        /// How many.
        samples: u64,
        /// The same seed chooses the same documents.
        seed: u64,
    },
}

/// What the vBucket must be like for a scan to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequirements {
    /// Its branch of history.
    pub uuid: VbUuid,
    /// What must be on disk.
    pub seqno: Seqno,
    /// That very mutation must not have been superseded.
    pub must_exist: bool,
    /// How long to wait for it to be on disk; `None`: not at all.
    pub wait_millis: Option<u64>,
}

impl ScanConfig {
    /// Reads the value of a CREATE.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(value: &[u8]) -> Result<Self, Violation> {
        if value.len() > CONFIG_BYTES_MAX {
            return Err(Violation { status: Status::TooBig, context: "The value exceeds 64 KiB" });
        }
        let Ok(Value::Object(root)) = serde_json::from_slice(value) else {
            return Err(Violation::invalid("The value is not a JSON object"));
        };
        let keys_only = boolean(&root, "key_only", "key_only is not a boolean")?;
        let include_xattrs = boolean(&root, "include_xattrs", "include_xattrs is not a boolean")?;
        if keys_only && include_xattrs {
            return Err(Violation::invalid("cannot set key_only:true and include_xattrs:true"));
        }
        let range = object(&root, "range", "range is not an object")?;
        let sampling = object(&root, "sampling", "sampling is not an object")?;
        let selection = match (range, sampling) {
            (Some(_), Some(_)) => return Err(Violation::invalid("range and sampling exclude each other")),
            (Some(range), None) => range_of(range)?,
            (None, Some(sampling)) => sample_of(sampling)?,
            (None, None) => ScanSelection::Range(Bound::Unbounded, Bound::Unbounded),
        };
        let requires = object(&root, "snapshot_requirements", "snapshot_requirements is not an object")?;
        let name = text(&root, "name", "name is not a string")?;
        if name.is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err(Violation::invalid("name exceeds 50 bytes"));
        }
        Ok(Self {
            collection: collection_of(&root)?,
            keys_only,
            include_xattrs,
            selection,
            requires: requires.map(requirements_of).transpose()?,
            name: name.map(Into::into),
        })
    }
}

fn collection_of(root: &Map<String, Value>) -> Result<CollectionId, Violation> {
    const WRONG: &str = "Invalid formatting of the collection field";
    let Some(digits) = text(root, "collection", WRONG)? else { return Ok(CollectionId::DEFAULT) };
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // `from_str_radix` takes a sign, which is no digit.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u32::from_str_radix(digits, 16).ok().filter(|_| is_number).map(CollectionId);
    id.filter(|id| !id.is_reserved()).ok_or(Violation::invalid(WRONG))
}

fn range_of(range: &Map<String, Value>) -> Result<ScanSelection, Violation> {
    let start = bound(key(range, "start")?, key(range, "excl_start")?)
        .ok_or(Violation::invalid("range must include either start or excl_start"))?;
    let end = bound(key(range, "end")?, key(range, "excl_end")?)
        .ok_or(Violation::invalid("range must include either end or excl_end"))?;
    Ok(ScanSelection::Range(start, end))
}

/// `None` unless exactly one is given.
fn bound<T>(inclusive: Option<T>, exclusive: Option<T>) -> Option<Bound<T>> {
    match (inclusive, exclusive) {
        (Some(inclusive), None) => Some(Bound::Included(inclusive)),
        (None, Some(exclusive)) => Some(Bound::Excluded(exclusive)),
        _ => None,
    }
}

fn key(range: &Map<String, Value>, name: &str) -> Result<Option<Box<[u8]>>, Violation> {
    let Some(encoded) = text(range, name, "a key of the range is not a string")? else { return Ok(None) };
    let key = BASE64.decode(encoded).map_err(|_| Violation::invalid("a key of the range is not base64"))?;
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Violation::invalid("invalid key size in range"));
    }
    Ok(Some(key.into()))
}

fn sample_of(sampling: &Map<String, Value>) -> Result<ScanSelection, Violation> {
    let samples = number(sampling, "samples", "samples is not a number")?
        .ok_or(Violation::invalid("sampling did not include samples"))?;
    let seed = number(sampling, "seed", "seed is not a number")?.unwrap_or(0);
    Ok(ScanSelection::Sample { samples, seed })
}

fn requirements_of(snapshot: &Map<String, Value>) -> Result<ScanRequirements, Violation> {
    const WRONG_UUID: &str = "vb_uuid is not a string of decimal digits";
    let uuid = text(snapshot, "vb_uuid", WRONG_UUID)?.ok_or(Violation::invalid(WRONG_UUID))?;
    let is_number = uuid.bytes().all(|byte| byte.is_ascii_digit());
    let uuid = uuid.parse().ok().filter(|_| is_number).ok_or(Violation::invalid(WRONG_UUID))?;
    let seqno = number(snapshot, "seqno", "seqno is not a number")?
        .ok_or(Violation::invalid("snapshot_requirements did not include seqno"))?;
    Ok(ScanRequirements {
        uuid: VbUuid(uuid),
        seqno: Seqno(seqno),
        must_exist: boolean(snapshot, "seqno_exists", "seqno_exists is not a boolean")?,
        wait_millis: number(snapshot, "timeout_ms", "timeout_ms is not a number")?,
    })
}

fn member<'a, T>(
    object: &'a Map<String, Value>,
    name: &str,
    wrong: &'static str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, Violation> {
    object.get(name).map(|value| read(value).ok_or(Violation::invalid(wrong))).transpose()
}

fn boolean(object: &Map<String, Value>, name: &str, wrong: &'static str) -> Result<bool, Violation> {
    member(object, name, wrong, Value::as_bool).map(Option::unwrap_or_default)
}

fn number(object: &Map<String, Value>, name: &str, wrong: &'static str) -> Result<Option<u64>, Violation> {
    member(object, name, wrong, Value::as_u64)
}

fn text<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    wrong: &'static str,
) -> Result<Option<&'a str>, Violation> {
    member(object, name, wrong, Value::as_str)
}

fn object<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    wrong: &'static str,
) -> Result<Option<&'a Map<String, Value>>, Violation> {
    member(object, name, wrong, Value::as_object)
}

/// The extras of every answer to CONTINUE that may carry something: what it carries.
#[must_use]
pub const fn scan_extras(keys_only: bool) -> [u8; 4] {
    if keys_only { [0; 4] } else { [0, 0, 0, 1] }
}

/// What a scan tells of a document besides key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedMeta {
    /// The client's flags.
    pub flags: u32,
    /// Absolute Unix seconds; 0 never.
    pub expiry: u32,
    /// Its place in the vBucket's order.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// Of the value as it follows.
    pub datatype: Datatype,
}

/// Appends a key, as scans of keys answer.
pub fn append_scanned_key(key: &[u8], out: &mut Vec<u8>) {
    append_with_length(key, out);
}

/// Appends a document, as scans of documents answer.
pub fn append_scanned_document(meta: &ScannedMeta, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.reserve(25 + 5 + key.len() + 5 + value.len());
    out.extend_from_slice(&meta.flags.to_be_bytes());
    out.extend_from_slice(&meta.expiry.to_be_bytes());
    out.extend_from_slice(&meta.seqno.get().to_be_bytes());
    out.extend_from_slice(&meta.cas.get().to_be_bytes());
    out.push(meta.datatype.0);
    append_with_length(key, out);
    append_with_length(value, out);
}

fn append_with_length(bytes: &[u8], out: &mut Vec<u8>) {
    base::key::encode_leb128(bytes.len() as u32, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(json: &str) -> Result<ScanConfig, &'static str> {
        ScanConfig::decode(json.as_bytes()).map_err(|violation| violation.context)
    }

    #[test]
    fn the_documented_examples_are_understood() {
        let config = decode(
            r#"{"collection":"f2","key_only":true,"range":{"end":"dXNlcv8=","start":"dXNlcg=="},"other":1,
               "snapshot_requirements":{"vb_uuid":"16627788222","seqno":1000,"timeout_ms":2000}}"#,
        )
        .unwrap();
        let (start, end) = (Bound::Included(b"user"[..].into()), Bound::Included(b"user\xff"[..].into()));
        assert_eq!(
            config,
            ScanConfig {
                collection: CollectionId(0xf2),
                keys_only: true,
                include_xattrs: false,
                selection: ScanSelection::Range(start, end),
                requires: Some(ScanRequirements {
                    uuid: VbUuid(16_627_788_222),
                    seqno: Seqno(1000),
                    must_exist: false,
                    wait_millis: Some(2000),
                }),
                name: None,
            }
        );
        let sample = decode(r#"{"sampling":{"seed":18111,"samples":512},"name":"s","include_xattrs":true}"#);
        let sample = sample.unwrap();
        assert_eq!(sample.selection, ScanSelection::Sample { samples: 512, seed: 18111 });
        assert_eq!((sample.collection, sample.include_xattrs), (CollectionId::DEFAULT, true));
        let exclusive = decode(r#"{"range":{"excl_start":"","excl_end":"Yg=="}}"#).unwrap().selection;
        let (start, end) = (Bound::Excluded(b""[..].into()), Bound::Excluded(b"b"[..].into()));
        assert_eq!(exclusive, ScanSelection::Range(start, end));
        let all = decode("{}").unwrap().selection;
        assert_eq!(all, ScanSelection::Range(Bound::Unbounded, Bound::Unbounded));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_words() {
        let long = BASE64.encode([b'k'; 251]);
        let name = "n".repeat(51);
        let refused = [
            "[]",
            "",
            r#"{"range":{"start":"","end":""},"sampling":{"samples":1}}"#,
            r#"{"range":{"start":""}}"#,
            r#"{"range":{"start":"","excl_start":"","end":""}}"#,
            r#"{"range":{"start":"","end":"","excl_end":""}}"#,
            r#"{"range":{"start":"!","end":""}}"#,
            r#"{"range":{"start":1,"end":""}}"#,
            r#"{"range":7}"#,
            r#"{"sampling":{}}"#,
            r#"{"sampling":{"samples":-1}}"#,
            r#"{"sampling":{"samples":1,"seed":"1"}}"#,
            r#"{"collection":9}"#,
            r#"{"collection":"g"}"#,
            r#"{"collection":"+8"}"#,
            r#"{"collection":""}"#,
            r#"{"collection":"1"}"#,
            r#"{"key_only":1}"#,
            r#"{"key_only":true,"include_xattrs":true}"#,
            r#"{"snapshot_requirements":{"seqno":1}}"#,
            r#"{"snapshot_requirements":{"vb_uuid":1,"seqno":1}}"#,
            r#"{"snapshot_requirements":{"vb_uuid":"0x1","seqno":1}}"#,
            r#"{"snapshot_requirements":{"vb_uuid":"1"}}"#,
            &format!(r#"{{"range":{{"start":"{long}","end":""}}}}"#),
            &format!(r#"{{"name":"{name}"}}"#),
        ];
        for json in refused {
            let words = decode(json).expect_err(json);
            assert!(!words.is_empty(), "{json}");
        }
    }

    #[test]
    fn nobody_makes_us_build_a_tree_of_megabytes() {
        let json = |bytes: usize| format!("{{\"other\":[{}1]}}", "1,".repeat(bytes / 2 - 10));
        assert!(ScanConfig::decode(json(CONFIG_BYTES_MAX).as_bytes()).is_ok());
        let refused = ScanConfig::decode(json(2 * CONFIG_BYTES_MAX).as_bytes()).unwrap_err();
        assert_eq!(refused.status, Status::TooBig);
    }

    #[test]
    fn keys_and_documents_are_laid_out_as_documented() {
        let mut out = Vec::new();
        append_scanned_key(b"key0", &mut out);
        append_scanned_key(&[b'k'; 128], &mut out);
        assert_eq!(out[..8], *b"\x04key0\x80\x01k");
        assert_eq!(out.len(), 5 + 2 + 128);
        let meta =
            ScannedMeta { flags: 1, expiry: 2, seqno: Seqno(3), cas: Cas(4), datatype: Datatype::JSON };
        let mut out = Vec::new();
        append_scanned_document(&meta, b"key0", b"value0", &mut out);
        assert_eq!(out.len(), 37);
        assert_eq!(out[24..], *b"\x01\x04key0\x06value0");
        assert_eq!((out[3], out[7], out[15], out[23]), (1, 2, 3, 4));
        assert_eq!((scan_extras(true)[3], scan_extras(false)[3]), (0, 1));
    }
}
