//! How a connection begins: what it can, what errors mean, which bucket it uses.

use std::{fmt::Write as _, sync::atomic::Ordering};

use base::{Cas, Datatype, Status};
use protocol::{
    error_map::error_map,
    hello::{ClientName, Feature, FeatureSet, negotiate},
};

use crate::request::{call::Call, stage::Stop};

/// What is granted to every client. Every grant is a promise.
const SUPPORTED: FeatureSet = FeatureSet::EMPTY
    .with(Feature::TcpNoDelay)
    .with(Feature::MutationSeqno)
    .with(Feature::Xattr)
    .with(Feature::Xerror)
    .with(Feature::SelectBucket)
    .with(Feature::Snappy)
    .with(Feature::Json)
    .with(Feature::Duplex)
    .with(Feature::ClustermapChangeNotification)
    .with(Feature::UnorderedExecution)
    .with(Feature::Tracing)
    .with(Feature::AltRequest)
    .with(Feature::SyncReplication)
    .with(Feature::Collections)
    .with(Feature::SnappyEverywhere)
    .with(Feature::PreserveTtl)
    .with(Feature::VAttr)
    .with(Feature::SubdocCreateAsDeleted)
    .with(Feature::SubdocDocumentMacro)
    .with(Feature::SubdocReplaceBodyWithXattr)
    .with(Feature::SubdocReplicaRead)
    .with(Feature::ConfigWithKnownVersion)
    .with(Feature::DedupeNotMyVbucketMap)
    .with(Feature::ClustermapChangeNotificationBrief)
    .with(Feature::DcpSkipDeletesInBackfill)
    .with(Feature::SubdocMultipleXattrKeys)
    .with(Feature::SubdocBinaryXattr)
    .with(Feature::RangeScanIncludeXattr);

/// Longest name of a client that is kept.
const AGENT_BYTES_MAX: usize = 256;

/// HELLO. A repeated one replaces the earlier.
pub(crate) fn hello(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let mut granted = negotiate(call.request.frame.value, SUPPORTED)?;
    if call.session.dcp.is_some() {
        granted = granted.without(Feature::UnorderedExecution);
    }
    let name = ClientName::decode(call.request.frame.key);
    let mut agent = name.agent;
    if let Some(id) = name.connection_id {
        let _ = write!(agent, " {id}");
    }
    agent.truncate(agent.floor_char_boundary(AGENT_BYTES_MAX));
    tracing::debug!(peer = ?call.session.peer, %agent, "hello");
    let mut value = Vec::new();
    granted.encode(&mut value);
    // The answer itself still goes by the old set: the client cannot know the new one yet.
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &value);
    call.session.agent = Some(agent.into());
    call.session.features = granted;
    Ok(())
}

/// `GET_ERROR_MAP`.
pub(crate) fn get_error_map(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let version = call.request.frame.value.try_into().map(u16::from_be_bytes);
    let version = version.map_err(|_| Stop::Status(Status::Invalid))?;
    let json = error_map(version).ok_or(Stop::Status(Status::KeyNotFound))?;
    call.answer_json(json);
    Ok(())
}

/// Deselects the bucket.
const NO_BUCKET: &[u8] = b"@no bucket@";

/// `SELECT_BUCKET`.
pub(crate) fn select_bucket(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    require_no_dcp(call)?;
    call.out.own_values();
    let key = call.request.frame.key;
    if key == NO_BUCKET {
        call.session.deselect(&call.context.snapshot);
    } else {
        let name = std::str::from_utf8(key).map_err(|_| Stop::Status(Status::NoAccess))?;
        let selected = call.session.select(name, &call.context.snapshot);
        // For clients this is the status that means "not yet", as for a bucket that is being opened.
        let is_behind = || call.context.shared.behind.load(Ordering::Acquire);
        selected.map_err(|status| match status {
            Status::NoAccess if is_behind() => Status::KeyNotFound,
            status => status,
        })?;
    }
    call.answer_empty();
    Ok(())
}

/// A DCP connection stays with the bucket and the user that opened it.
///
/// # Errors
/// `NotSupported` on DCP connections.
pub(crate) fn require_no_dcp(call: &Call<'_, '_>) -> Result<(), Stop> {
    if call.session.dcp.is_none() {
        return Ok(());
    }
    Err(Stop::Refused(Status::NotSupported, "Not on a DCP connection"))
}

/// `LIST_BUCKETS`: the names of those this identity may use, separated by spaces.
pub(crate) fn list_buckets(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let snapshot = &call.context.snapshot;
    let may = |name: &str| {
        !cluster::auth::privileges(&snapshot.metadata, &call.session.identity, Some(name)).is_empty()
    };
    let names: Vec<&str> =
        snapshot.metadata.buckets.keys().map(String::as_str).filter(|name| may(name)).collect();
    let names = names.join(" ");
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], names.as_bytes());
    Ok(())
}
