//! How far a mutation has come: OBSERVE by key, OBSERVE_SEQNO by history, SEQNO_PERSISTENCE by waiting.

use base::{Cas, Datatype, HashedKey, Status, VbUuid};
use cluster::auth::Privilege;
use engine::{Refusal, Wait};
use protocol::{
    binary::{
        document_key,
        extras::SeqnoExtras,
        observe::{ObserveKeys, ObservedSeqno, ObservedState, append_observed},
    },
    hello::Feature,
};

use crate::request::{
    call::Call,
    fetch,
    stage::{Resumed, Stage, Stop},
};

/// How long SEQNO_PERSISTENCE waits before it answers "temporary failure" (kv_engine's default).
const PERSISTENCE_TIMEOUT_MILLIS: u64 = 30_000;

/// Longest list of keys in one OBSERVE. SDKs ask for one key; a list without a bound would hold up everybody else on
/// the worker.
const OBSERVE_LIST_BYTES_MAX: usize = 64 * 1024;

/// OBSERVE: a list of keys in, their states out.
pub(crate) fn observe(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    let collections = call.session.has(Feature::Collections);
    let mut scratch = Vec::new();
    let mut answer = Vec::new();
    let frame = call.request.frame;
    // Where the list is depends on the client's age; see the opcode's row in the protocol's table.
    let list = match (frame.extras, frame.value) {
        ([], value @ [_, ..]) => value,
        (extras @ [_, ..], []) => extras,
        _ => return Err(Stop::Refused(Status::Invalid, "Request must include value")),
    };
    if list.len() > OBSERVE_LIST_BYTES_MAX {
        return Err(Stop::Refused(Status::TooBig, "The list of keys is longer than 64 KiB"));
    }
    for entry in ObserveKeys::new(list) {
        let entry = entry.map_err(|_| Stop::Refused(Status::Invalid, "The list of keys is cut off"))?;
        let key = HashedKey::new(document_key(entry.key, collections, &mut scratch)?);
        call.session.require(Privilege::MetaRead, key.key)?;
        match bucket.engine.observe(entry.vbucket, key, call.context.now) {
            Ok(observed) => {
                let state =
                    ObservedState::from_wire(observed.state.wire()).unwrap_or(ObservedState::NotFound);
                append_observed(entry, state, observed.cas, &mut answer);
            }
            Err(Refusal::Fetch) => {
                let (waiter, resumed) = (call.waiter(), call.resumed.as_ref());
                let (keys, which) = (ObserveKeys::new(list).count(), (entry.vbucket, key));
                let (session, context) = (&*call.session, &*call.context);
                return Err(fetch::ask_for_one_of(keys, session, which, waiter, resumed, context));
            }
            Err(Refusal::Status(status)) => return Err(Stop::Status(status)),
        }
    }
    // The header's CAS hints how long persistence takes; 0 says "poll as you like".
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
    Ok(())
}

/// `OBSERVE_SEQNO`.
pub(crate) fn observe_seqno(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    require_somewhere(call, Privilege::MetaRead)?;
    let uuid = call.request.frame.value.try_into().map(u64::from_be_bytes);
    let uuid = VbUuid(uuid.map_err(|_| Stop::Status(Status::Invalid))?);
    let observed = bucket.engine.observe_seqno(call.request.vb, uuid)?;
    let mut answer = Vec::new();
    ObservedSeqno {
        vbucket: call.request.vb,
        vb_uuid: observed.uuid,
        persisted: observed.persisted,
        current: observed.current,
        failover: observed.failed_over,
    }
    .append(&mut answer);
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
    Ok(())
}

/// `SEQNO_PERSISTENCE`: answered once everything up to the seqno is on disk.
pub(crate) fn seqno_persistence(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    require_somewhere(call, Privilege::MetaRead)?;
    let extras = SeqnoExtras::decode(call.request.frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    let (deadline, timed_out) = match call.resumed {
        Some(Resumed { stage: Stage::Persistence(deadline), timed_out, .. }) => (deadline, timed_out),
        _ => (call.context.now.mono_millis + PERSISTENCE_TIMEOUT_MILLIS, false),
    };
    let (waiter, now) = (call.waiter(), call.context.now);
    match bucket.engine.wait_persisted(call.request.vb, extras.seqno, waiter, now)? {
        Wait::Ready => call.answer_empty(),
        Wait::Parked if timed_out => return Err(Stop::Status(Status::TemporaryFailure)),
        Wait::Parked => return Err(Stop::Park(Stage::Persistence(deadline), Some(deadline))),
    }
    Ok(())
}

/// Facts about a vBucket are for users that may see some of its documents.
pub(crate) fn require_somewhere(call: &Call<'_, '_>, privilege: Privilege) -> Result<(), Stop> {
    if call.session.access().has_somewhere(privilege) { Ok(()) } else { Err(Stop::Status(Status::NoAccess)) }
}
