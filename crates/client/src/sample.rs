//! Documents that nobody has named: one by chance, and all that the server knows of it.

use std::collections::HashMap;

use base::{Status, VbId};
use protocol::binary::{
    Opcode, Request,
    subdoc::{DocFlags, LookupResults, PathFlags, Spec, SpecOp, encode_multi},
};
use serde_json::Value;

use crate::{Client, ClientError, Result};

/// A version of a document with what its server says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The body.
    pub body: Vec<u8>,
    /// What the server says of it.
    pub facts: Facts,
    /// Extended attributes that the user may read: name and text.
    pub attributes: Vec<(String, Vec<u8>)>,
}

/// What the server says of a version: the virtual attribute `$document`, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its CAS.
    pub cas: u64,
    /// How often the document has been written.
    pub rev: u64,
    /// Its place in the order of its vBucket.
    pub seqno: u64,
    /// Its vBucket.
    pub vb: VbId,
    /// Absolute seconds, 0 never.
    pub expiry: u32,
    /// The client's.
    pub flags: u32,
    /// The body is JSON.
    pub is_json: bool,
}

impl Client {
    /// The key of some document of the default collection. The node of this number in the map is asked. `None`: that
    /// node has found none.
    ///
    /// # Errors
    /// Any status but success and "not found".
    pub fn random_key(&mut self, node: usize) -> Result<Option<Vec<u8>>> {
        let response = self.node(node)?.call(&Request::new(Opcode::GetRandomKey))?;
        if response.status == Some(Status::KeyNotFound) {
            return Ok(None);
        }
        Ok(Some(response.success("GET_RANDOM_KEY")?.key))
    }

    /// A document with all that the server knows of it, the attributes as far as the user may read them; `None` where there is
    /// none. Attributes that are not of the version of the body are left out.
    ///
    /// # Errors
    /// Any status but success and "not found".
    pub fn sample(&mut self, key: &[u8]) -> Result<Option<Sampled>> {
        let found = self.look_up(key, &[(b"$document", true), (b"$XTOC", true), (b"", false)])?;
        let Some(mut found) = found else { return Ok(None) };
        let unreadable = || ClientError::Protocol("a document without $document and body".to_owned());
        let (Some(Some(body)), Some(contents), Some(Some(about))) = (found.pop(), found.pop(), found.pop())
        else {
            return Err(unreadable());
        };
        let facts = facts(&about, self.map().vbucket_of(key)).ok_or_else(unreadable)?;
        let names: Vec<String> =
            contents.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let mut attributes = Vec::new();
        for name in names {
            let paths: [(&[u8], bool); 2] = [(b"$document.CAS", true), (name.as_bytes(), true)];
            let Some(found) = self.look_up(key, &paths)? else { continue };
            let [cas, value] = found.as_slice() else { continue };
            let cas = cas.as_deref().and_then(|text| serde_json::from_slice(text).ok());
            if cas.as_ref().and_then(number) == Some(facts.cas)
                && let Some(value) = value
            {
                attributes.push((name, value.clone()));
            }
        }
        Ok(Some(Sampled { body, facts, attributes }))
    }

    /// Parts of a document, in the order of the paths; those that are not there, or may not be read, are `None`.
    fn look_up(&mut self, key: &[u8], paths: &[(&[u8], bool)]) -> Result<Option<Vec<Option<Vec<u8>>>>> {
        let specs: Vec<Spec<'_>> = paths
            .iter()
            .map(|&(path, attribute)| Spec {
                op: if path.is_empty() { SpecOp::GetDocument } else { SpecOp::Get },
                flags: if attribute { PathFlags::XATTR } else { PathFlags::NONE },
                path,
                value: b"",
            })
            .collect();
        let (extras, value) = encode_multi(&specs, DocFlags::NONE, None)
            .map_err(|error| ClientError::Protocol(error.to_string()))?;
        let vbucket = self.map().vbucket_of(key);
        let request = Request {
            vbucket,
            key,
            extras: &extras,
            value: &value,
            ..Request::new(Opcode::SubdocMultiLookup)
        };
        let response = self.call(&request)?;
        let response = match response.status {
            Some(Status::KeyNotFound) => return Ok(None),
            Some(Status::SubdocMultiPathFailure) => response,
            _ => response.success(request.opcode.name())?,
        };
        let results = LookupResults(&response.value);
        Ok(Some(
            results
                .map(|result| (result.status == Some(Status::Success)).then(|| result.value.to_vec()))
                .collect(),
        ))
    }
}

/// A number as `$document` has it: in hexadecimal or decimal digits within a string, or a number.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
        other => other.as_u64(),
    }
}

fn facts(about: &[u8], vb: VbId) -> Option<Facts> {
    let about: HashMap<String, Value> = serde_json::from_slice(about).ok()?;
    let of = |name: &str| about.get(name).and_then(number);
    Some(Facts {
        cas: of("CAS")?,
        rev: of("revid")?,
        seqno: of("seqno")?,
        vb,
        expiry: of("exptime")?.try_into().ok()?,
        flags: of("flags")?.try_into().ok()?,
        is_json: about.get("datatype")?.as_array()?.iter().any(|name| name == "json"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_of_a_document_is_read() {
        let about = br#"{"CAS":"0x0000000000000abc","datatype":["json","xattr"],"deleted":false,"exptime":7,
            "flags":33554438,"revid":"3","seqno":"0x0000000000000010","value_bytes":2}"#;
        let read = facts(about, VbId(5)).expect("facts");
        assert_eq!((read.cas, read.rev, read.seqno, read.vb), (0xabc, 3, 16, VbId(5)));
        assert_eq!((read.expiry, read.flags, read.is_json), (7, 0x0200_0006, true));
        assert_eq!(facts(b"{}", VbId(5)), None);
        assert_eq!(facts(b"no JSON", VbId(5)), None);
    }
}
