//! Operations on parts of documents: rights, the engine's terms for what was asked, and the answers in their single- and
//! multi-path forms.

use base::{
    Cas, Datatype, HashedKey, Now, Status, VbId,
    bucket::{BucketKind, DurabilityLevel},
    limits,
};
use cluster::auth::Privilege;
use engine::{
    Bucket, Change, Expiry, Look, LookedUp, Lookup, LookupSpec, MutationSpec, Precondition, Refusal,
    SubdocBound, SubdocMutated, SubdocMutation, ValueForm, XattrRights,
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

use super::{
    large_documents,
    store::{acknowledge, durability_of},
};
use crate::request::{
    call::Call,
    reply,
    stage::{Acknowledgement, Stop},
};

/// Bytes of documents that a loop itself looks at and writes for one request; they take about 1 ms. What takes more is done by
/// a helper.
pub(super) const WORK_BYTES_MAX: usize = 1 << 20;

/// What has to be known of a request's surroundings to carry it out, wherever that is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    vb: VbId,
    cas: Cas,
    rights: XattrRights,
    preserve_ttl: bool,
    durability: DurabilityLevel,
}

impl Terms {
    fn of(call: &Call<'_, '_>, request: &SubdocRequest<'_>, for_system: Privilege) -> Self {
        Self {
            vb: call.request.vb,
            cas: call.request.frame.header.cas,
            rights: rights(call, request, for_system),
            preserve_ttl: call.request.info.preserve_ttl,
            durability: durability_of(&call.request.info),
        }
    }
}

/// What lookups are answered with, in the form of their request.
#[derive(Debug)]
pub(super) struct Answers<'b> {
    body: &'b mut Vec<u8>,
    bytes: usize,
    is_multi: bool,
    /// Set where the document was there, and the lookup failed.
    pub(super) failed: Option<Status>,
}

impl<'b> Answers<'b> {
    /// Appends to `body`.
    pub(super) fn new(body: &'b mut Vec<u8>, request: &SubdocRequest<'_>) -> Self {
        Self { body, bytes: 0, is_multi: request.is_multi(), failed: None }
    }

    fn add(&mut self, status: Status, value: &[u8]) {
        self.bytes += value.len();
        if self.bytes > limits::FRAME_BODY_BYTES_MAX {
            self.failed = Some(Status::TooBig);
        } else if self.is_multi {
            append_lookup_result(status, value, self.body);
        } else if status == Status::Success {
            self.body.extend_from_slice(value);
        } else {
            self.failed = Some(status);
        }
    }
}

/// Looks up what `request` asks for; `None` where that would take more work than so many bytes.
pub(super) fn look(
    engine: &Bucket,
    request: &SubdocRequest<'_>,
    key: HashedKey<'_>,
    terms: &Terms,
    work_bytes_max: usize,
    now: Now,
    answers: &mut Answers<'_>,
) -> Result<Option<LookedUp>, Refusal> {
    let specs: Vec<LookupSpec<'_>> = request.specs().map(|spec| lookup_spec(&spec)).collect();
    let lookup = Lookup {
        specs: &specs,
        access_deleted: request.doc.has(DocFlags::ACCESS_DELETED),
        from_replica: request.doc.has(DocFlags::REPLICA_READ),
        cas: terms.cas,
        rights: terms.rights,
    };
    engine.subdoc_lookup_within(work_bytes_max, terms.vb, key, &lookup, now, |status, value| {
        answers.add(status, value);
    })
}

/// Makes the changes that `request` asks for; `None` where that would take more work than `bound` allows.
pub(super) fn change(
    engine: &Bucket,
    request: &SubdocRequest<'_>,
    key: HashedKey<'_>,
    terms: &Terms,
    bound: &SubdocBound<'_>,
    now: Now,
) -> Result<Option<SubdocMutated>, Refusal> {
    let doc = request.doc;
    let creates = doc.has(DocFlags::CREATE) || doc.has(DocFlags::ADD);
    let specs: Vec<MutationSpec<'_>> = request.specs().map(|spec| mutation_spec(&spec, creates)).collect();
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
        expiry: if terms.preserve_ttl {
            Expiry::Preserve(request.expiry)
        } else {
            Expiry::Wire(request.expiry)
        },
        flags: request.flags,
        cas: terms.cas,
        durability: terms.durability,
        rights: terms.rights,
    };
    engine.subdoc_mutate_within(bound, terms.vb, key, &mutation, now)
}

/// Single lookups and MULTI_LOOKUP.
pub(crate) fn lookup(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let request = decode(call)?;
    require_lookup(call, &request)?;
    let terms = Terms::of(call, &request, Privilege::SystemXattrRead);
    let head = Head::of(call, &request);
    let engine = &call.session.bucket()?.engine;
    let traced = call.session.has(Feature::Tracing);
    let mut writer = ResponseWriter::begin(&mut call.out.bytes, &call.request.frame.header, traced);
    let mut answers = Answers::new(writer.body(), &request);
    let (key, now) = (call.request.key, call.context.now);
    let looked_up = look(engine, &request, key, &terms, WORK_BYTES_MAX, now, &mut answers);
    let failed = answers.failed;
    let stop = match (looked_up, failed) {
        (Ok(Some(looked_up)), None) => {
            writer.finish(&head.response(&looked_up));
            return Ok(());
        }
        (Ok(Some(_)), Some(status)) => Some(Stop::Status(status)),
        (Ok(None), _) => None,
        (Err(refusal), _) => Some(refusal.into()),
    };
    writer.cancel();
    Err(stop.unwrap_or_else(|| large_documents::look(call, terms)))
}

/// Checks the right to look, and that this node may tell.
pub(super) fn require_lookup(call: &Call<'_, '_>, request: &SubdocRequest<'_>) -> Result<(), Stop> {
    call.session.require(Privilege::Read, call.request.key.key)?;
    if request.doc.has(DocFlags::REPLICA_READ) { Ok(()) } else { call.context.require_lease() }
}

/// What the header of a lookup's answer says beside what was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    datatype: Datatype,
}

impl Head {
    pub(super) fn of(call: &Call<'_, '_>, request: &SubdocRequest<'_>) -> Self {
        let single = request.specs().next().filter(|_| !request.is_multi());
        let is_json =
            single.is_some_and(|spec| spec.op.returns_value() && !spec.flags.has(PathFlags::BINARY));
        let datatype = if is_json { reply::json_if_negotiated(call.session) } else { Datatype::RAW };
        Self { datatype }
    }

    pub(super) fn response(self, looked_up: &LookedUp) -> Response {
        let status = match (looked_up.complete, looked_up.deleted) {
            (true, false) => Status::Success,
            (true, true) => Status::SubdocSuccessDeleted,
            (false, false) => Status::SubdocMultiPathFailure,
            (false, true) => Status::SubdocMultiPathFailureDeleted,
        };
        Response::new(status).with_cas(looked_up.cas).with_datatype(self.datatype)
    }
}

/// Single mutations and MULTI_MUTATION.
pub(crate) fn mutate(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let request = decode(call)?;
    let key = call.request.key;
    if call.request.loud == Opcode::SubdocCounter {
        call.session.require(Privilege::Read, key.key)?;
    }
    call.session.require(Privilege::Upsert, key.key)?;
    let terms = Terms::of(call, &request, Privilege::SystemXattrWrite);
    let engine = &call.session.bucket()?.engine;
    let bound = SubdocBound { work_bytes_max: WORK_BYTES_MAX, ..SubdocBound::NONE };
    match change(engine, &request, key, &terms, &bound, call.context.now)? {
        Some(mutated) => answer_mutation(call, &request, mutated),
        None => Err(large_documents::change(call, terms)),
    }
}

/// Answers a mutation that was carried out, or could not be.
pub(super) fn answer_mutation(
    call: &mut Call<'_, '_>,
    request: &SubdocRequest<'_>,
    mutated: SubdocMutated,
) -> Result<(), Stop> {
    match mutated {
        SubdocMutated::Done { mutated, deleted, counted } => {
            let status = if deleted { Status::SubdocSuccessDeleted } else { Status::Success };
            let answer = acknowledgement(call, request, status, &counted);
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

/// Reads a request's extras and value.
pub(super) fn decode<'r>(call: &Call<'r, '_>) -> Result<SubdocRequest<'r>, Stop> {
    let frame = call.request.frame;
    let xattrs = may_have_xattrs(call)?;
    Ok(SubdocRequest::decode(call.request.opcode, frame.extras, frame.value, frame.header.cas, xattrs)?)
}

/// Whether extended attributes are possible on this connection and bucket.
pub(super) fn may_have_xattrs(call: &Call<'_, '_>) -> Result<bool, Stop> {
    let has_xattrs = call.session.bucket()?.engine.kind() != BucketKind::Memcached;
    Ok(has_xattrs && call.session.has(Feature::Xattr))
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
        // A client that creates a document wants the objects in it created as well.
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
