//! Where vBuckets are in their histories.

use base::{Cas, Datatype, Status};
use cluster::auth::Privilege;
use protocol::binary::{
    extras::{VbStateFilter, decode_all_vb_seqnos},
    observe::{append_failover_log, append_vb_seqnos},
};

use super::observe::require_somewhere;
use crate::call::{Call, Stop};

/// `GET_ALL_VB_SEQNOS`. Every vBucket of a node without replicas is active.
pub(crate) fn all_vb_seqnos(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    let extras = decode_all_vb_seqnos(call.request.frame.extras);
    let (filter, collection) = extras.ok_or(Stop::Status(Status::Invalid))?;
    match collection {
        Some(collection) => {
            call.session.require_in(Privilege::MetaRead, collection)?;
            if bucket.engine.manifest().collection(collection).is_none() {
                return Err(Stop::Status(Status::UnknownCollection));
            }
        }
        None => require_somewhere(call, Privilege::MetaRead)?,
    }
    let mut answer = Vec::new();
    if matches!(filter, VbStateFilter::Alive | VbStateFilter::Active) {
        append_vb_seqnos(&bucket.engine.seqnos(collection), &mut answer);
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
