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
use crate::call::{Call, Stop};

/// `GET_ALL_VB_SEQNOS`. Every vBucket of a node without replicas is active. Who does not know collections is told the
/// last seqno of the default one: nothing behind it will ever be streamed to them.
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
    if matches!(filter, VbStateFilter::Alive | VbStateFilter::Active) {
        append_vb_seqnos(&bucket.engine.seqnos(collection, &[VbRole::Active]), &mut answer);
    }
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
    Ok(())
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
