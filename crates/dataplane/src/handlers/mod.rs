//! One function per command, grouped by what they do. A handler decodes its arguments, checks rights, calls the
//! engine and writes the answer; it ends with a [`Stop`] where there is none (yet).

use base::Status;
use protocol::binary::{Opcode, RequestInfo};

use crate::request::{
    call::Call,
    opcodes,
    stage::{Stage, Stop},
};

pub(crate) mod collections;
pub(crate) mod config;
pub(crate) mod counter;
pub(crate) mod dcp;
pub(crate) mod get;
pub(crate) mod hello;
pub(crate) mod large_documents;
pub(crate) mod lock;
pub(crate) mod meta;
pub(crate) mod node;
pub(crate) mod observe;
pub(crate) mod random;
pub(crate) mod range_scan;
pub(crate) mod sasl;
pub(crate) mod seqnos;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod subdoc;
pub(crate) mod text;
pub(crate) mod touch;

/// Executes a request.
///
/// # Errors
/// How it ended, if not with an answer.
#[inline]
pub(crate) fn handle(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    require_own_rights(&call.request.info)?;
    if let Some(done) = go_on(call) {
        return done;
    }
    if opcodes::of(call.request.loud).needs_active {
        call.context.require_lease()?;
    }
    use Opcode as O;
    match call.request.loud {
        O::Get | O::Getk => get::get(call),
        O::GetReplica => get::get_replica(call),
        O::Set | O::Add | O::Replace | O::Append | O::Prepend => store::store(call),
        O::Delete => store::delete(call),
        O::Increment | O::Decrement => counter::counter(call),
        O::Touch => touch::touch(call),
        O::Gat => touch::get_and_touch(call),
        O::GetLocked => lock::get_locked(call),
        O::UnlockKey => lock::unlock(call),
        O::GetMeta => meta::get_meta(call),
        O::SetWithMeta | O::AddWithMeta | O::DelWithMeta => meta::with_meta(call),
        O::Observe => observe::observe(call),
        O::ObserveSeqno => observe::observe_seqno(call),
        O::SeqnoPersistence => observe::seqno_persistence(call),
        O::GetAllVbSeqnos => seqnos::all_vb_seqnos(call),
        O::GetFailoverLog => seqnos::failover_log(call),
        O::GetRandomKey => random::random_key(call),
        O::SubdocGet | O::SubdocExists | O::SubdocGetCount | O::SubdocMultiLookup => subdoc::lookup(call),
        O::SubdocDictAdd
        | O::SubdocDictUpsert
        | O::SubdocDelete
        | O::SubdocReplace
        | O::SubdocArrayPushLast
        | O::SubdocArrayPushFirst
        | O::SubdocArrayInsert
        | O::SubdocArrayAddUnique
        | O::SubdocCounter
        | O::SubdocReplaceBodyWithXattr
        | O::SubdocMultiMutation => subdoc::mutate(call),
        O::RangeScanCreate => range_scan::create(call),
        O::RangeScanContinue => range_scan::resume(call),
        O::RangeScanCancel => range_scan::cancel(call),
        O::Hello => hello::hello(call),
        O::GetErrorMap => hello::get_error_map(call),
        O::SelectBucket => hello::select_bucket(call),
        O::ListBuckets => hello::list_buckets(call),
        O::SaslListMechs => sasl::list_mechanisms(call),
        O::SaslAuth => sasl::auth(call),
        O::SaslStep => sasl::step(call),
        O::GetClusterConfig => config::get(call),
        O::CollectionsGetManifest => collections::manifest(call),
        O::CollectionsGetId => collections::collection_id(call),
        O::CollectionsGetScopeId => collections::scope_id(call),
        O::Stat => stats::stat(call),
        O::Noop => {
            call.answer_empty();
            Ok(())
        }
        O::Version => node::version(call),
        O::Quit => node::quit(call),
        O::Flush => node::flush(call),
        O::Verbosity => node::verbosity(call),
        opcode if opcode.is_dcp() => dcp::handle(call),
        // Known, and not built: clients see it in the capabilities and in this answer.
        _ => Err(Stop::Status(Status::NotSupported)),
    }
}

/// A request that is to be carried out with the rights of somebody else must not be carried out with those of its connection.
#[inline]
fn require_own_rights(info: &RequestInfo<'_>) -> Result<(), Stop> {
    if info.impersonate.is_some() {
        let words = "Executing on behalf of another user is not supported";
        return Err(Stop::Refused(Status::NotSupported, words));
    }
    if info.token_id.is_some() {
        return Err(Stop::Refused(Status::UnknownFrameInfo, "Unknown frame info id"));
    }
    Ok(())
}

/// Goes on with a request that was carried out as far as it can be without asking anything again. A durable write needs no lease for
/// that: what enough copies have is durable whichever node serves by now. The next active copy lets nobody read the key before it has
/// committed the write (`docs/promises.md`).
#[inline]
fn go_on(call: &mut Call<'_, '_>) -> Option<Result<(), Stop>> {
    match call.resumed.as_ref()?.stage {
        Stage::Durable { .. } => Some(store::resume_durable(call)),
        Stage::LargeDocument { .. } => Some(large_documents::resume(call)),
        _ => None,
    }
}
