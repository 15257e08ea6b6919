//! Reading documents: GET and its variants, and the form in which a document goes out, which all reads share.

use base::{Cas, Datatype, Status};
use cluster::auth::Privilege;
use engine::{DocView, SharedValue};
use protocol::{
    binary::{Header, Opcode, Response, ResponseWriter, ServerDuration},
    hello::Feature,
};

use crate::{
    net::output::{BY_REFERENCE_BYTES, Output},
    request::{call::Call, stage::Stop, value},
};

/// GET, GETQ, GETK, GETKQ.
pub(crate) fn get(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Read, call.request.key.key)?;
    let form = Form::of(call, call.request.loud == Opcode::Getk);
    let out = &mut *call.out;
    let later =
        bucket.engine.get(call.request.vb, call.request.key, call.context.now, |doc| form.write(doc, out))?;
    finish(call, &form, later)
}

/// `GET_REPLICA`: as GET, from a copy that follows the active one.
pub(crate) fn get_replica(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Read, call.request.key.key)?;
    let form = Form::of(call, false);
    let out = &mut *call.out;
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let later = bucket.engine.get_replica(vb, key, now, |doc| form.write(doc, out))?;
    finish(call, &form, later)
}

/// How a document is written for this request, decided before its vBucket is locked.
#[derive(Debug)]
pub(crate) struct Form<'r> {
    header: &'r Header,
    /// The key, where it is repeated.
    key: &'r [u8],
    traced: bool,
    negotiated: Datatype,
}

/// A document whose value has to be changed for this client before it goes out, which is not done under the lock.
#[derive(Debug)]
pub(crate) struct Later {
    value: SharedValue,
    key: Box<[u8]>,
    cas: Cas,
    flags: u32,
    datatype: Datatype,
}

/// What a response's header and extras say of a document.
#[derive(Clone, Copy, Debug)]
struct Head {
    cas: Cas,
    datatype: Datatype,
    flags: u32,
}

impl<'r> Form<'r> {
    pub(crate) fn of(call: &Call<'r, '_>, with_key: bool) -> Self {
        Self {
            header: &call.request.frame.header,
            key: if with_key { call.request.frame.key } else { &[] },
            traced: call.session.has(Feature::Tracing),
            negotiated: call.session.features.datatypes(),
        }
    }

    /// Writes the response; runs under the vBucket's lock.
    #[inline]
    pub(crate) fn write(&self, doc: &DocView<'_>, out: &mut Output) -> Option<Later> {
        self.write_with_key(doc, self.key, out)
    }

    /// As [`Self::write`], with another key.
    #[inline]
    pub(crate) fn write_with_key(&self, doc: &DocView<'_>, key: &[u8], out: &mut Output) -> Option<Later> {
        let unwanted = Datatype::SNAPPY.without(self.negotiated).with(Datatype::XATTR);
        if doc.datatype.0 & unwanted.0 != 0 {
            let DocView { cas, flags, datatype, .. } = *doc;
            return Some(Later { value: doc.share(), key: key.into(), cas, flags, datatype });
        }
        let by_reference = doc.value.len() >= BY_REFERENCE_BYTES;
        let copied = if by_reference { &[][..] } else { doc.value };
        let length = if by_reference { doc.value.len() } else { 0 };
        let head = Head { cas: doc.cas, datatype: doc.datatype, flags: doc.flags };
        self.write_parts(out, head, key, copied, length);
        if by_reference {
            out.attach(doc.share());
        }
        None
    }

    fn write_parts(&self, out: &mut Output, head: Head, key: &[u8], copied: &[u8], by_reference: usize) {
        let mut writer = ResponseWriter::begin(&mut out.bytes, self.header, self.traced);
        let body = writer.body();
        body.reserve(4 + key.len() + copied.len());
        body.extend_from_slice(&head.flags.to_be_bytes());
        body.extend_from_slice(key);
        body.extend_from_slice(copied);
        writer.finish(&Response {
            status: Status::Success,
            cas: head.cas,
            datatype: Datatype(head.datatype.0 & self.negotiated.0),
            extras_len: 4,
            key_len: key.len() as u16,
            value_by_reference: by_reference as u32,
            duration: ServerDuration(0),
        });
    }
}

/// Writes what could not be written under the lock.
pub(crate) fn finish(call: &mut Call<'_, '_>, form: &Form<'_>, later: Option<Later>) -> Result<(), Stop> {
    let Some(Later { value, key, cas, flags, mut datatype }) = later else { return Ok(()) };
    let mut scratch = std::mem::take(&mut call.context.scratch);
    scratch.clear();
    let body = value::plain_body(&value, &mut datatype, form.negotiated, &mut scratch);
    if let Some(body) = body {
        form.write_parts(call.out, Head { cas, datatype, flags }, &key, body, 0);
    }
    let done = body.is_some();
    call.context.keep_scratch(scratch);
    if done { Ok(()) } else { Err(Stop::Refused(Status::Internal, "The stored value cannot be inflated")) }
}
