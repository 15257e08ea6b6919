//! TOUCH and get-and-touch: a new expiry.

use base::{Datatype, Status};
use cluster::auth::Privilege;
use protocol::binary::extras::NumberExtras;

use super::get::{Form, finish};
use crate::request::{call::Call, stage::Stop};

/// TOUCH. Its answer carries the CAS and nothing else.
pub(crate) fn touch(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Upsert, call.request.key.key)?;
    let expiry = expiry(call)?;
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let (cas, _) = bucket.engine.touch(vb, key, expiry, now, |doc| doc.cas)?;
    call.answer(cas, Datatype::RAW, &[], &[], &[]);
    Ok(())
}

/// GAT, GATQ.
pub(crate) fn get_and_touch(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Read, call.request.key.key)?;
    call.session.require(Privilege::Upsert, call.request.key.key)?;
    let expiry = expiry(call)?;
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let form = Form::of(call, false);
    let out = &mut *call.out;
    let (later, _) = bucket.engine.touch(vb, key, expiry, now, |doc| form.write(doc, out))?;
    finish(call, &form, later)
}

/// The expiry asked for. That it be durable may be asked, and cannot be had, as in Couchbase.
fn expiry(call: &Call<'_, '_>) -> Result<u32, Stop> {
    if call.request.info.durability.is_some() {
        return Err(Stop::Refused(
            Status::NotSupported,
            "A new expiry cannot be made durable by this command",
        ));
    }
    let extras = NumberExtras::decode(call.request.frame.extras);
    Ok(extras.ok_or(Stop::Status(Status::Invalid))?.number)
}
