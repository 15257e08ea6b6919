//! Writing documents: SET, ADD, REPLACE, APPEND, PREPEND and DELETE, and how every mutation is acknowledged.

use base::{
    Datatype, Status,
    bucket::{CompressionMode, DurabilityLevel},
    limits,
};
use cluster::auth::Privilege;
use engine::{Bucket, Delete, Durable, Expiry, Mutated, Store, StoreMode};
use protocol::{
    binary::{
        Opcode, RequestInfo, Response,
        extras::{MutationToken, StoreExtras},
    },
    hello::Feature,
};

use crate::request::{
    call::Call,
    context::Context,
    stage::{Acknowledgement, Resumed, Stage, Stop},
    value,
};

/// How long a durable write may take when the client says nothing (kv_engine's default).
const DURABILITY_TIMEOUT_MILLIS: u64 = 30_000;

/// SET, ADD, REPLACE, APPEND, PREPEND and their quiet forms.
pub(crate) fn store(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let mode = match call.request.loud {
        Opcode::Add => StoreMode::Add,
        Opcode::Replace => StoreMode::Replace,
        Opcode::Append => StoreMode::Append,
        Opcode::Prepend => StoreMode::Prepend,
        _ => StoreMode::Set,
    };
    call.session.bucket()?;
    require_write(call, mode)?;
    let frame = call.request.frame;
    // Append and prepend have no extras; the document keeps what it has.
    let StoreExtras { flags, expiry } =
        StoreExtras::decode(frame.extras).unwrap_or(StoreExtras { flags: 0, expiry: 0 });
    let mut scratch = std::mem::take(&mut call.context.scratch);
    scratch.clear();
    let engine = &call.session.bucket()?.engine;
    let result = checked_value(engine, frame.value, frame.header.datatype, mode, &mut scratch).and_then(
        |(value, datatype)| {
            let store = Store {
                mode,
                value,
                datatype,
                flags,
                expiry: expiry_of(&call.request.info, expiry),
                cas: frame.header.cas,
                durability: durability_of(&call.request.info),
            };
            Ok(engine.store(call.request.vb, call.request.key, &store, call.context.now)?)
        },
    );
    call.context.keep_scratch(scratch);
    acknowledge(call, result?, Acknowledgement::Bare)
}

fn require_write(call: &Call<'_, '_>, mode: StoreMode) -> Result<(), Stop> {
    let key = call.request.key.key;
    if mode == StoreMode::Add && call.session.require(Privilege::Insert, key).is_ok() {
        return Ok(());
    }
    call.session.require(Privilege::Upsert, key)
}

/// The value as it is stored, and what it is. Compressed values are inflated to be looked at, and stay compressed
/// unless they are to be joined to another, or the bucket keeps none.
fn checked_value<'a>(
    engine: &Bucket,
    value: &'a [u8],
    claimed: Datatype,
    mode: StoreMode,
    scratch: &'a mut Vec<u8>,
) -> Result<(&'a [u8], Datatype), Stop> {
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    if !claimed.contains(Datatype::SNAPPY) {
        if value.len() > limits::VALUE_BYTES_MAX {
            return Err(Stop::Status(Status::TooBig));
        }
        // The engine looks at what a joined value has become.
        return Ok((value, if joins { Datatype::RAW } else { value::detect(value) }));
    }
    if !value::inflate(value, scratch) {
        return Err(Stop::Refused(
            Status::Invalid,
            "The value is not a Snappy block, or inflates beyond the limit",
        ));
    }
    if scratch.len() > limits::VALUE_BYTES_MAX {
        return Err(Stop::Status(Status::TooBig));
    }
    if joins {
        return Ok((scratch, Datatype::RAW));
    }
    let detected = value::detect(scratch);
    Ok(match engine.compression() {
        CompressionMode::Off => (scratch.as_slice(), detected),
        CompressionMode::Passive | CompressionMode::Active => (value, detected.with(Datatype::SNAPPY)),
    })
}

/// DELETE.
pub(crate) fn delete(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    call.session.require(Privilege::Delete, call.request.key.key)?;
    let delete = Delete { cas: call.request.frame.header.cas, durability: durability_of(&call.request.info) };
    let mutated = bucket.engine.delete(call.request.vb, call.request.key, &delete, call.context.now)?;
    acknowledge(call, mutated, Acknowledgement::Bare)
}

pub(crate) fn expiry_of(info: &RequestInfo<'_>, wire: u32) -> Expiry {
    if info.preserve_ttl { Expiry::Preserve(wire) } else { Expiry::Wire(wire) }
}

pub(crate) fn durability_of(info: &RequestInfo<'_>) -> DurabilityLevel {
    info.durability.map_or(DurabilityLevel::None, |durability| durability.level)
}

/// Answers a mutation, now or when it is as durable as it has to be.
pub(crate) fn acknowledge(
    call: &mut Call<'_, '_>,
    mutated: Mutated,
    acknowledgement: Acknowledgement,
) -> Result<(), Stop> {
    if !mutated.wait {
        answer(call, &mutated, &acknowledgement);
        if call.session.bucket()?.engine.has_level(durability_of(&call.request.info)) {
            call.session.note_durable_at_once(call.context);
        }
        return Ok(());
    }
    let deadline = deadline_of(&call.request.info, call.context);
    await_durability(call, mutated, acknowledgement, deadline)?;
    call.session.note_durable_at_once(call.context);
    Ok(())
}

fn deadline_of(info: &RequestInfo<'_>, context: &Context) -> u64 {
    let asked = info.durability.and_then(|durability| durability.timeout_ms).map(u64::from);
    context.now.mono_millis + asked.unwrap_or(DURABILITY_TIMEOUT_MILLIS)
}

fn await_durability(
    call: &mut Call<'_, '_>,
    mutated: Mutated,
    acknowledgement: Acknowledgement,
    deadline: u64,
) -> Result<(), Stop> {
    let waiter = call.waiter();
    let (vb, key, now) = (call.request.vb, call.request.key, call.context.now);
    let engine = &call.session.bucket()?.engine;
    match engine.complete_durable(vb, key, &mutated, waiter, deadline, now)? {
        Durable::Committed(mutated) => answer(call, &mutated, &acknowledgement),
        Durable::Parked => {
            return Err(Stop::Park(Stage::Durable { mutated, acknowledgement, deadline }, Some(deadline)));
        }
    }
    Ok(())
}

/// A parked durable mutation: it was applied, only its acknowledgement waits.
pub(crate) fn resume_durable(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let Some(Resumed { stage: Stage::Durable { mutated, acknowledgement, deadline }, timed_out, .. }) =
        call.resumed.take()
    else {
        return Err(Stop::Status(Status::Internal));
    };
    // Whose time is up is told so, and then it must not happen any more.
    let deadline = if timed_out { 0 } else { deadline };
    match await_durability(call, mutated, acknowledgement, deadline) {
        Err(Stop::Park(..)) if timed_out => Err(Stop::Status(Status::SyncWriteAmbiguous)),
        other => other,
    }
}

/// Success of a mutation: nothing for quiet ones, otherwise CAS and, where negotiated, the mutation token.
fn answer(call: &mut Call<'_, '_>, mutated: &Mutated, acknowledgement: &Acknowledgement) {
    if call.request.is_quiet() {
        return;
    }
    let token = MutationToken { vb_uuid: mutated.vb_uuid, seqno: mutated.seqno }.encode();
    let extras: &[u8] = if call.session.has(Feature::MutationSeqno) { &token } else { &[] };
    match acknowledgement {
        Acknowledgement::Bare => call.answer(mutated.cas, Datatype::RAW, extras, &[], &[]),
        Acknowledgement::Number(number) => {
            call.answer(mutated.cas, Datatype::RAW, extras, &[], &number.to_be_bytes());
        }
        Acknowledgement::Parts { status, datatype, value } => {
            let response = Response::new(*status).with_cas(mutated.cas).with_datatype(*datatype);
            call.answer_as(&response, extras, value);
        }
    }
}
