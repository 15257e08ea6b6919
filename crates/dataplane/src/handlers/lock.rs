//! GET_LOCKED and UNLOCK_KEY: pessimistic locks of seconds.

use cluster::auth::Privilege;
use protocol::binary::extras::NumberExtras;

use super::get::{Form, finish};
use crate::request::{call::Call, stage::Stop};

/// `GET_LOCKED`; the CAS of the answer is the key to the lock.
pub(crate) fn get_locked(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Read, call.request.key.key)?;
    // No extras: the default time.
    let secs = NumberExtras::decode(call.request.frame.extras).map_or(0, |extras| extras.number);
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let form = Form::of(call, false);
    let out = &mut *call.out;
    let later = bucket.engine.lock(vb, key, secs, now, |doc| form.write(doc, out))?;
    finish(call, &form, later)
}

/// `UNLOCK_KEY`.
pub(crate) fn unlock(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Read, call.request.key.key)?;
    let (vb, key, cas) = (call.request.vb, call.request.key, call.request.frame.header.cas);
    bucket.engine.unlock(vb, key, cas, call.context.now)?;
    call.answer_empty();
    Ok(())
}
