//! Operations on parts of documents that are so large that a data-plane loop would be held up: a helper does them.
//!
//! The request is parked ([`Stage::LargeDocument`]). The helper does all of it at once, in one version of the document,
//! by the same code as a loop, and the loop answers. Rights are judged before, and for lookups once more before the
//! answer. A change is published only while this node may serve.

use std::sync::Arc;

use base::{DocKey, HashedKey, Status};
use engine::{Refusal, SubdocBound, SubdocMutated};
use protocol::{
    binary::{Opcode, Response, ResponseWriter, subdoc::SubdocRequest},
    hello::Feature,
};

use super::subdoc::{self, Answers, Head, Terms};
use crate::{
    net::output::BY_REFERENCE_BYTES,
    request::{
        call::Call,
        fetch,
        stage::{Resumed, Stage, Stop},
    },
    state::{
        completion::{Completion, Looked},
        errand::Errand,
        lease,
        shared::{BucketEntry, Shared},
    },
};

/// A request with all that a helper needs.
struct Task {
    shared: Arc<Shared>,
    bucket: Arc<BucketEntry>,
    terms: Terms,
    opcode: Opcode,
    cas: base::Cas,
    xattrs: bool,
    key: Box<[u8]>,
    extras: Box<[u8]>,
    value: Box<[u8]>,
}

impl Task {
    fn of(call: &Call<'_, '_>, terms: Terms) -> Result<Self, Stop> {
        let frame = call.request.frame;
        Ok(Self {
            shared: Arc::clone(&call.context.shared),
            bucket: Arc::clone(call.session.attached().ok_or(Stop::Status(Status::NoBucket))?),
            terms,
            opcode: call.request.opcode,
            cas: frame.header.cas,
            xattrs: subdoc::may_have_xattrs(call)?,
            key: call.request.key.key.encoded().into(),
            extras: frame.extras.into(),
            value: frame.value.into(),
        })
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.extras.len() + self.value.len()
    }

    fn request(&self) -> Result<SubdocRequest<'_>, Refusal> {
        let decoded = SubdocRequest::decode(self.opcode, &self.extras, &self.value, self.cas, self.xattrs);
        decoded.map_err(|violation| Refusal::Status(violation.status))
    }

    fn look(&self) -> Result<Looked, Refusal> {
        let request = self.request()?;
        let key = HashedKey::new(DocKey::trusted(&self.key));
        let (engine, now) = (&self.bucket.engine, self.shared.now());
        let mut body = Vec::new();
        let mut answers = Answers::new(&mut body, &request);
        let found = subdoc::look(engine, &request, key, &self.terms, usize::MAX, now, &mut answers)?;
        let failed = answers.failed;
        let looked_up = found.ok_or(Refusal::Status(Status::Internal))?;
        Ok(Looked { looked_up, failed, body: body.into() })
    }

    fn change(&self) -> Result<SubdocMutated, Refusal> {
        let request = self.request()?;
        let key = HashedKey::new(DocKey::trusted(&self.key));
        let may_publish = || match self.shared.lease.has_run_out(lease::clock_millis) {
            true => Err(Status::TemporaryFailure),
            false => Ok(()),
        };
        let bound = SubdocBound { may_publish: &may_publish, ..SubdocBound::NONE };
        let (engine, now) = (&self.bucket.engine, self.shared.now());
        let changed = subdoc::change(engine, &request, key, &self.terms, &bound, now)?;
        changed.ok_or(Refusal::Status(Status::Internal))
    }
}

/// Has the lookup done by a helper.
pub(super) fn look(call: &Call<'_, '_>, terms: Terms) -> Stop {
    submit(call, terms, |task| Completion::Looked(task.look()))
}

/// Has the mutation done by a helper.
pub(super) fn change(call: &Call<'_, '_>, terms: Terms) -> Stop {
    submit(call, terms, |task| Completion::Changed(task.change()))
}

fn submit(
    call: &Call<'_, '_>,
    terms: Terms,
    work: impl FnOnce(&Task) -> Completion + Send + 'static,
) -> Stop {
    let task = match Task::of(call, terms) {
        Ok(task) => task,
        Err(stop) => return stop,
    };
    let (bytes, waiter, errand) = (task.bytes(), call.waiter(), Errand::new());
    let asked = errand.asked_by(waiter);
    let work = move || {
        if asked.set_out() {
            return work(&task);
        }
        // Its connection was closed while it waited: its user may be gone, or its bucket.
        Completion::Changed(Err(Refusal::Status(Status::TemporaryFailure)))
    };
    match call.context.helper.submit_document(waiter, bytes, work) {
        Ok(()) => {
            let fetches = fetch::fetches_of(call.resumed.as_ref());
            Stop::Park(Stage::LargeDocument { fetches, _errand: errand }, None)
        }
        Err(status) => Stop::Status(status),
    }
}

/// Answers with what a helper found or did.
pub(super) fn resume(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let Some(Resumed { stage, completion, ticket, timed_out }) = call.resumed.take() else {
        return Err(Stop::Status(Status::Internal));
    };
    let request = subdoc::decode(call)?;
    let refusal = match completion {
        Some(Completion::Looked(Ok(looked))) => return answer_lookup(call, &request, looked),
        Some(Completion::Changed(Ok(mutated))) => return subdoc::answer_mutation(call, &request, mutated),
        Some(Completion::Looked(Err(refusal)) | Completion::Changed(Err(refusal))) => refusal,
        // Woken for nothing.
        _ => return Err(Stop::Park(stage, None)),
    };
    // Should the document have to be fetched, it is counted how often.
    call.resumed = Some(Resumed { ticket, stage, completion: None, timed_out });
    Err(refusal.into())
}

fn answer_lookup(call: &mut Call<'_, '_>, request: &SubdocRequest<'_>, looked: Looked) -> Result<(), Stop> {
    subdoc::require_lookup(call, request)?;
    let Looked { looked_up, failed, body } = looked;
    if let Some(status) = failed {
        return Err(Stop::Status(status));
    }
    let response = Head::of(call, request).response(&looked_up);
    let traced = call.session.has(Feature::Tracing);
    let mut writer = ResponseWriter::begin(&mut call.out.bytes, &call.request.frame.header, traced);
    if body.len() < BY_REFERENCE_BYTES {
        writer.body().extend_from_slice(&body);
        writer.finish(&response);
    } else {
        let value_by_reference = u32::try_from(body.len()).unwrap_or(u32::MAX);
        writer.finish(&Response { value_by_reference, ..response });
        call.out.attach(body);
    }
    Ok(())
}
