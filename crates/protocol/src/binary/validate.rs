//! The one check that every request passes before a handler sees it. It compares the shape with the table of
//! [`super::opcode`], and the datatype with what the connection negotiated. It also applies the few rules that a
//! table cannot say. Order and outcomes follow kv_engine's `daemon/mcbp_validators.cc`.
//!
//! Not checked here: framing extras ([`super::FrameInfos::parse_request`]), document keys
//! ([`super::document_key`]), whether a value really is what its datatype says, and anything that needs a
//! bucket.

use super::{
    Frame, Opcode,
    shape::{CasRule, Presence},
};
use crate::hello::{Feature, FeatureSet};
use base::{Cas, Datatype, Status, limits};

/// Why a request is refused: the status, and words for the error context of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{context}")]
pub struct Violation {
    /// What to answer.
    pub status: Status,
    /// What to tell the developer who reads the error context; may be empty.
    pub context: &'static str,
}

impl Violation {
    /// "Invalid arguments", with an explanation.
    #[must_use]
    pub const fn invalid(context: &'static str) -> Self {
        Self { status: Status::Invalid, context }
    }
}

impl From<Violation> for Status {
    fn from(violation: Violation) -> Status {
        violation.status
    }
}

/// Checks the form of a request on a connection that negotiated `features`.
///
/// # Errors
/// What to answer instead of carrying it out.
#[inline]
pub fn validate(opcode: Opcode, frame: &Frame<'_>, features: FeatureSet) -> Result<(), Violation> {
    if opcode.is_retired() {
        return Err(Violation {
            status: Status::NotSupported,
            context: "This command is no longer supported",
        });
    }
    let shape = opcode.shape();
    let header = &frame.header;
    let datatype = header.datatype;
    if datatype != Datatype::RAW {
        if !datatype.is_valid() || !shape.datatypes.contains(datatype) {
            return Err(Violation::invalid("Request datatype invalid"));
        }
        if !features.datatypes().contains(datatype) {
            return Err(Violation::invalid("Datatype not enabled for the connection"));
        }
    }
    if !shape.permits_extras(header.extras_len) {
        return Err(Violation::invalid("Request extras are of a wrong length"));
    }
    check_key(shape.key, frame.key, features)?;
    check_presence(shape.value, frame.value)
        .map_err(|missing| Violation::invalid(if missing { MISSING_VALUE } else { NEEDLESS_VALUE }))?;
    match shape.cas {
        CasRule::Zero if header.cas != Cas::NONE => {
            return Err(Violation::invalid("Request CAS must not be set"));
        }
        CasRule::Required if header.cas == Cas::NONE => {
            return Err(Violation::invalid("Request CAS must be set"));
        }
        CasRule::Zero | CasRule::Required | CasRule::Any => {}
    }
    check_specifics(opcode, frame, features)
}

const MISSING_VALUE: &str = "Request must include value";
const NEEDLESS_VALUE: &str = "Request must not include value";

/// `Err(true)`: missing; `Err(false)`: there and must not be.
#[inline]
fn check_presence(rule: Presence, part: &[u8]) -> Result<(), bool> {
    match rule {
        Presence::None if !part.is_empty() => Err(false),
        Presence::Required if part.is_empty() => Err(true),
        Presence::None | Presence::Required | Presence::Optional => Ok(()),
    }
}

#[inline]
fn check_key(rule: Presence, key: &[u8], features: FeatureSet) -> Result<(), Violation> {
    check_presence(rule, key).map_err(|missing| {
        Violation::invalid(if missing { "Request must include key" } else { "Request must not include key" })
    })?;
    let longest = if features.contains(Feature::Collections) {
        limits::ENCODED_KEY_BYTES_MAX
    } else {
        limits::KEY_BYTES_MAX
    };
    if key.len() > longest {
        return Err(Violation::invalid("Key length exceeds the limit"));
    }
    Ok(())
}

/// What depends on more than lengths. The hot commands leave at once.
#[inline]
fn check_specifics(opcode: Opcode, frame: &Frame<'_>, features: FeatureSet) -> Result<(), Violation> {
    use Opcode as O;
    match opcode {
        O::Hello if !frame.value.len().is_multiple_of(2) => {
            Err(Violation::invalid("Request value must be of even length"))
        }
        O::Stat if !frame.value.is_empty() && !frame.header.datatype.contains(Datatype::JSON) => {
            Err(Violation::invalid("Datatype must be JSON"))
        }
        O::ObserveSeqno if frame.value.len() != 8 => {
            Err(Violation::invalid("Request value must be of length 8"))
        }
        O::GetMeta | O::GetqMeta if frame.extras.first().is_some_and(|&version| version > 2) => {
            Err(Violation::invalid("Request extras invalid"))
        }
        O::GetErrorMap => {
            check_no_vbucket(frame)?;
            if frame.value.len() == 2 {
                return Ok(());
            }
            Err(Violation::invalid("Request value must be of length 2"))
        }
        O::CollectionsGetManifest | O::CollectionsSetManifest => check_no_vbucket(frame),
        O::CollectionsGetId | O::CollectionsGetScopeId => {
            if !frame.key.is_empty() && !frame.value.is_empty() {
                return Err(Violation::invalid("Cannot set both key and value"));
            }
            check_no_vbucket(frame)
        }
        O::GetRandomKey if frame.extras.is_empty() == features.contains(Feature::Collections) => {
            Err(Violation::invalid(
                "Extras hold the collection id where collections were negotiated, else nothing",
            ))
        }
        O::GetAllVbSeqnos
            if frame.extras.first_chunk().is_some_and(|state| u32::from_be_bytes(*state) > 4) =>
        {
            Err(Violation::invalid("Request vbucket state invalid"))
        }
        O::GetClusterConfig | O::SetClusterConfig => check_config_version(frame.extras),
        O::DcpStreamReq if !frame.value.is_empty() && !features.contains(Feature::Collections) => {
            Err(Violation::invalid(NEEDLESS_VALUE))
        }
        O::RangeScanCreate if !frame.header.datatype.contains(Datatype::JSON) => {
            Err(Violation::invalid("Datatype must be JSON"))
        }
        _ => Ok(()),
    }
}

fn check_no_vbucket(frame: &Frame<'_>) -> Result<(), Violation> {
    if frame.header.vbucket().get() == 0 {
        return Ok(());
    }
    Err(Violation::invalid("Request vbucket id must be 0"))
}

fn check_config_version(extras: &[u8]) -> Result<(), Violation> {
    let Some(version) = super::extras::ConfigVersion::decode(extras) else { return Ok(()) };
    if version.revision < 1 {
        return Err(Violation::invalid("Revision number must not be less than 1"));
    }
    if version.epoch < 1 && version.epoch != -1 {
        return Err(Violation::invalid("Epoch must not be less than 1 (or -1)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
