//! GET_RANDOM_KEY: some document of a collection.

use base::Status;
use cluster::auth::Privilege;
use protocol::binary::extras::decode_random_key;

use super::get::{Form, finish};
use crate::request::{call::Call, stage::Stop};

/// `GET_RANDOM_KEY`.
pub(crate) fn random_key(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let (collection, xattrs) =
        decode_random_key(call.request.frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    if xattrs {
        return Err(Stop::Status(Status::NotSupported));
    }
    let bucket = call.session.bucket()?;
    call.session.require_in(Privilege::Read, collection)?;
    let form = Form::of(call, false);
    let pick = call.context.dice.roll();
    let out = &mut *call.out;
    let later = bucket.engine.random(collection, pick, call.context.now, |doc| {
        // The logical key: the client knows which collection it asked for.
        form.write_with_key(doc, doc.key.logical(), out)
    })?;
    finish(call, &form, later)
}
