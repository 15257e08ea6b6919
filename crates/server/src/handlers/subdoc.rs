//! Operations on parts of documents: rights, the engine's terms for what was asked, and the answers in their single- and
//! multi-path forms.

use base::{Datatype, Status, bucket::BucketKind, limits};
use cluster::auth::Privilege;
use engine::{
    Change, Look, Lookup, LookupSpec, MutationSpec, Precondition, SubdocMutated, SubdocMutation, ValueForm,
    XattrRights,
};
use protocol::{
    binary::{
        Opcode, Response, ResponseWriter,
        subdoc::{
            DocFlags, PathFlags, Spec, SpecOp, SubdocRequest, append_lookup_result, append_mutation_failure,
            append_mutation_result, is_system_key,
        },
    },
    hello::Feature,
};

use super::store::{Acknowledgement, acknowledge, durability_of, expiry_of};
use crate::{
    call::{Call, Stop},
    reply,
};

/// Single lookups and MULTI_LOOKUP.
pub(crate) fn lookup(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let request = decode(call)?;
    call.session.require(Privilege::Read, call.request.key.key)?;
    let from_replica = request.doc.has(DocFlags::REPLICA_READ);
    if !from_replica {
        call.context.require_lease()?;
    }
    let specs: Vec<LookupSpec<'_>> = request.specs().map(|spec| lookup_spec(&spec)).collect();
    let lookup = Lookup {
        specs: &specs,
        access_deleted: request.doc.has(DocFlags::ACCESS_DELETED),
        from_replica,
        cas: call.request.frame.header.cas,
        rights: rights(call, &request, Privilege::SystemXattrRead),
    };
    let first = request.specs().next();
    let single = first.filter(|_| !request.is_multi());
    let bucket = call.session.bucket()?;
    let traced = call.session.has(Feature::Tracing);
    let duration = reply::duration(call.session, call.context);
    let mut writer = ResponseWriter::begin(&mut call.out.bytes, &call.request.frame.header, traced);
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let mut failed = None;
    let mut bytes = 0;
    let looked_up = bucket.engine.subdoc_lookup(vb, key, &lookup, now, |status, value| {
        bytes += value.len();
        if bytes > limits::FRAME_BODY_BYTES_MAX {
            failed = Some(Status::TooBig);
        } else if single.is_none() {
            append_lookup_result(status, value, writer.body());
        } else if status == Status::Success {
            writer.body().extend_from_slice(value);
        } else {
            failed = Some(status);
        }
    });
    let looked_up = looked_up.map_err(Stop::from).and_then(|done| match failed {
        Some(status) => Err(Stop::Status(status)),
        None => Ok(done),
    });
    let looked_up = match looked_up {
        Ok(looked_up) => looked_up,
        Err(stop) => {
            writer.cancel();
            return Err(stop);
        }
    };
    let status = match (looked_up.complete, looked_up.deleted) {
        (true, false) => Status::Success,
        (true, true) => Status::SubdocSuccessDeleted,
        (false, false) => Status::SubdocMultiPathFailure,
        (false, true) => Status::SubdocMultiPathFailureDeleted,
    };
    let response = Response::new(status).with_cas(looked_up.cas).with_duration(duration);
    let is_json = single.is_some_and(|spec| spec.op.returns_value() && !spec.flags.has(PathFlags::BINARY));
    let datatype = if is_json { reply::json_if_negotiated(call.session) } else { Datatype::RAW };
    writer.finish(&response.with_datatype(datatype));
    Ok(())
}

/// Single mutations and MULTI_MUTATION.
pub(crate) fn mutate(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let request = decode(call)?;
    let key = call.request.key;
    if call.request.loud == Opcode::SubdocCounter {
        call.session.require(Privilege::Read, key.key)?;
    }
    call.session.require(Privilege::Upsert, key.key)?;
    let doc = request.doc;
    let creates = doc.has(DocFlags::CREATE) || doc.has(DocFlags::ADD);
    let specs: Vec<MutationSpec<'_>> = request.specs().map(|spec| mutation_spec(&spec, creates)).collect();
    let info = &call.request.info;
    let mutation = SubdocMutation {
        specs: &specs,
        precondition: match (doc.has(DocFlags::ADD), creates) {
            (true, _) => Precondition::Absent,
            (false, true) => Precondition::Any,
            (false, false) => Precondition::Exists,
        },
        access_deleted: doc.has(DocFlags::ACCESS_DELETED),
        create_as_deleted: doc.has(DocFlags::CREATE_AS_DELETED),
        revive: doc.has(DocFlags::REVIVE),
        expiry: expiry_of(info, request.expiry),
        flags: request.flags,
        cas: call.request.frame.header.cas,
        durability: durability_of(info),
        rights: rights(call, &request, Privilege::SystemXattrWrite),
    };
    let engine = &call.session.bucket()?.engine;
    match engine.subdoc_mutate(call.request.vb, key, &mutation, call.context.now)? {
        SubdocMutated::Done { mutated, deleted, counted } => {
            let status = if deleted { Status::SubdocSuccessDeleted } else { Status::Success };
            let answer = acknowledgement(call, &request, status, &counted);
            acknowledge(call, mutated, answer)
        }
        SubdocMutated::Failed(_, status) if !request.is_multi() => Err(Stop::Status(status)),
        SubdocMutated::Failed(index, status) => {
            let mut value = Vec::new();
            append_mutation_failure(index, status, &mut value);
            call.answer_status(Status::SubdocMultiPathFailure, &value);
            Ok(())
        }
    }
}

fn decode<'r>(call: &Call<'r, '_>) -> Result<SubdocRequest<'r>, Stop> {
    let has_xattrs = call.session.bucket()?.engine.kind() != BucketKind::Memcached;
    let frame = call.request.frame;
    let xattrs = has_xattrs && call.session.has(Feature::Xattr);
    Ok(SubdocRequest::decode(call.request.opcode, frame.extras, frame.value, frame.header.cas, xattrs)?)
}

/// System attributes take a right of their own. Without it, nothing in attributes is done for a request that names one.
fn rights(call: &Call<'_, '_>, request: &SubdocRequest<'_>, for_system: Privilege) -> XattrRights {
    let in_xattrs = |spec: &Spec<'_>| spec.is_xattr();
    if !request.specs().any(|spec| in_xattrs(&spec)) {
        return XattrRights::default();
    }
    let may_system = call.session.require(for_system, call.request.key.key).is_ok();
    let names_system = request.specs().any(|spec| in_xattrs(&spec) && is_system_key(spec.path));
    XattrRights { denied: names_system && !may_system, lists_system: may_system }
}

fn lookup_spec<'a>(spec: &Spec<'a>) -> LookupSpec<'a> {
    let what = match spec.op {
        SpecOp::Get => Look::Get,
        SpecOp::GetCount => Look::Count,
        SpecOp::GetDocument => Look::Body,
        _ => Look::Exists,
    };
    LookupSpec {
        what,
        path: spec.path,
        in_xattrs: spec.is_xattr(),
        is_binary: spec.flags.has(PathFlags::BINARY),
    }
}

fn mutation_spec<'a>(spec: &Spec<'a>, creates: bool) -> MutationSpec<'a> {
    let change = match spec.op {
        SpecOp::DictAdd => Change::DictAdd,
        SpecOp::DictUpsert => Change::DictUpsert,
        SpecOp::Replace => Change::Replace,
        SpecOp::ArrayPushLast => Change::PushLast,
        SpecOp::ArrayPushFirst => Change::PushFirst,
        SpecOp::ArrayInsert => Change::Insert,
        SpecOp::ArrayAddUnique => Change::AddUnique,
        SpecOp::Counter => Change::Counter,
        SpecOp::ReplaceBodyWithXattr => Change::BodyFromXattr,
        SpecOp::SetDocument => Change::SetBody,
        SpecOp::DeleteDocument => Change::DeleteDocument,
        // Lookups have been refused.
        SpecOp::Delete | SpecOp::Get | SpecOp::Exists | SpecOp::GetCount | SpecOp::GetDocument => {
            Change::Delete
        }
    };
    let form = if spec.flags.has(PathFlags::EXPAND_MACROS) {
        ValueForm::Macro
    } else if spec.flags.has(PathFlags::BINARY) {
        ValueForm::Binary
    } else {
        ValueForm::Plain
    };
    MutationSpec {
        change,
        path: spec.path,
        value: spec.value,
        form,
        in_xattrs: spec.is_xattr(),
        // Whoever creates a document wants what is in it created as well.
        create_parents: creates || spec.flags.has(PathFlags::CREATE_PARENTS),
    }
}

fn acknowledgement(
    call: &Call<'_, '_>,
    request: &SubdocRequest<'_>,
    status: Status,
    counted: &[(u8, i64)],
) -> Acknowledgement {
    let mut value = Vec::new();
    let mut datatype = Datatype::RAW;
    for (index, number) in counted {
        let text = number.to_string();
        if request.is_multi() {
            append_mutation_result(*index, text.as_bytes(), &mut value);
        } else {
            value.extend_from_slice(text.as_bytes());
            datatype = reply::json_if_negotiated(call.session);
        }
    }
    if status == Status::Success && value.is_empty() {
        return Acknowledgement::Bare;
    }
    Acknowledgement::Parts { status, datatype, value: value.into() }
}
