//! Where vBuckets are in their histories.

use base::{Cas, CollectionId, Datatype, Status, VbRole};
use cluster::auth::Privilege;
use protocol::{
    binary::{
        extras::{VbStateFilter, decode_all_vb_seqnos},
        observe::{append_failover_log, append_vb_seqnos},
    },
    hello::Feature,
};

use super::observe::require_somewhere;
use crate::request::{call::Call, stage::Stop};

/// `GET_ALL_VB_SEQNOS`. A client that does not know collections is told the last seqno of the default one: nothing behind it will
/// ever be streamed to them.
pub(crate) fn all_vb_seqnos(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    let extras = decode_all_vb_seqnos(call.request.frame.extras);
    let (filter, collection) = extras.ok_or(Stop::Status(Status::Invalid))?;
    let knows_collections = call.session.has(Feature::Collections);
    match collection {
        Some(_) if !knows_collections => return Err(Stop::Status(Status::Invalid)),
        Some(collection) => {
            call.session.require_in(Privilege::MetaRead, collection)?;
            if bucket.engine.manifest().collection(collection).is_none() {
                return Err(Stop::Status(Status::UnknownCollection));
            }
        }
        None => require_somewhere(call, Privilege::MetaRead)?,
    }
    let collection = if knows_collections { collection } else { Some(CollectionId::DEFAULT) };
    let mut answer = Vec::new();
    append_vb_seqnos(&bucket.engine.seqnos(collection, roles(filter)), &mut answer);
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
    Ok(())
}

/// The roles that are asked for. Nothing here is what Couchbase calls pending.
fn roles(filter: VbStateFilter) -> &'static [VbRole] {
    match filter {
        VbStateFilter::Alive => &[VbRole::Active, VbRole::Replica],
        VbStateFilter::Active => &[VbRole::Active],
        VbStateFilter::Replica => &[VbRole::Replica],
        VbStateFilter::Pending => &[],
        VbStateFilter::Dead => &[VbRole::Dead, VbRole::Sealed],
    }
}

/// `GET_FAILOVER_LOG`.
pub(crate) fn failover_log(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    require_somewhere(call, Privilege::Read)?;
    let mut answer = Vec::new();
    append_failover_log(&bucket.engine.failover_log(call.request.vb)?, &mut answer);
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
    Ok(())
}
