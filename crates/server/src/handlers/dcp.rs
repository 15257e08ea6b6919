//! DCP requests. Only the producing side exists: the server streams, it is not streamed to.
//!
//! Conditions and their order follow kv_engine (`daemon/mcbp_validators.cc`, `verify_common_dcp_restrictions`).

use base::{Cas, Datatype, Status, bucket::BucketKind};
use cluster::auth::Privilege;
use protocol::{
    binary::{
        Opcode, Violation,
        dcp::{OpenFlags, StreamFilter, StreamFlags, StreamRequest, request},
        extras::NumberExtras,
        observe::append_failover_log,
    },
    hello::Feature,
};
use replication::producer::{Producer, Refused, StreamAsk, controls::Negotiated};

use crate::{
    call::{Call, Stop},
    dcp::{DcpLink, may_stream},
};

use super::observe::require_somewhere;

/// Longest name of a connection (kv_engine, `docs/dcp/documentation/commands/open-connection.md`).
const NAME_BYTES_MAX: usize = 200;

/// Executes a DCP request.
///
/// # Errors
/// How it ended, if not with an answer.
pub(crate) fn handle(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    if call.session.bucket()?.engine.kind() == BucketKind::Memcached {
        return Err(Stop::Refused(Status::NotSupported, "Attached bucket does not support DCP"));
    }
    if call.session.has(Feature::UnorderedExecution) {
        let words = "DCP on connections with unordered execution is not supported";
        return Err(Stop::Refused(Status::NotSupported, words));
    }
    let opcode = call.request.opcode;
    if opcode != Opcode::DcpOpen {
        if call.session.dcp.is_none() {
            let words = "The command can only be sent on a DCP connection";
            return Err(Stop::Refused(Status::Invalid, words));
        }
        require_somewhere(call, Privilege::DcpProducer)?;
    }
    match opcode {
        Opcode::DcpOpen => open(call),
        Opcode::DcpControl => control(call),
        Opcode::DcpStreamReq => stream_request(call),
        Opcode::DcpCloseStream => close_stream(call),
        Opcode::DcpGetFailoverLog => failover_log(call),
        Opcode::DcpBufferAcknowledgement => acknowledge(call),
        // What consumers of ours would be sent, and what only replicas ask for.
        _ => Err(Stop::Status(Status::NotSupported)),
    }
}

fn open(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let frame = call.request.frame;
    let extras = request::OpenExtras::decode(frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    let flags = OpenFlags(extras.flags);
    flags.check()?;
    request::check_open_value(frame.value)?;
    if call.session.dcp.is_some() {
        let words = "The connection is already opened as a DCP connection";
        return Err(Stop::Refused(Status::Invalid, words));
    }
    let name = std::str::from_utf8(frame.key).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
    let name = name.ok_or(Stop::Refused(Status::Invalid, "The name must be text of at most 200 bytes"))?;
    if !flags.has(OpenFlags::PRODUCER) {
        require_somewhere(call, Privilege::DcpConsumer)?;
        return Err(Stop::Refused(Status::NotSupported, "The server does not consume DCP"));
    }
    require_somewhere(call, Privilege::DcpProducer)?;
    let negotiated = Negotiated {
        flags,
        collections: call.session.has(Feature::Collections),
        snappy: call.session.features.datatypes().contains(Datatype::SNAPPY),
    };
    let bucket = call.session.bucket()?;
    let waiter = call.waiter();
    let producer = Producer::new(name, negotiated, bucket.engine.clone(), waiter, call.context.now);
    let link = DcpLink::new(producer, &bucket.uuid.0, call.session.access(), waiter, call.context);
    tracing::info!(peer = ?call.session.peer, name, flags = flags.0, "DCP connection opened");
    call.answer_empty();
    call.session.features = call.session.features.with(Feature::Json);
    call.session.dcp = Some(Box::new(link));
    Ok(())
}

fn control(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let frame = call.request.frame;
    link(call)?.producer.control(frame.key, frame.value)?;
    call.answer_empty();
    Ok(())
}

fn stream_request(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let frame = call.request.frame;
    let arguments = StreamRequest::decode(frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    StreamFlags(arguments.flags).check()?;
    let filter = StreamFilter::decode(frame.value)?;
    let ask = StreamAsk::new(call.request.vb, frame.header.opaque, &arguments, filter);
    let link = call.session.dcp_with_rights().ok_or(Stop::Status(Status::Invalid))?;
    let (dcp, access, bucket) = link;
    match dcp.producer.stream_request(ask, &|part| may_stream(access, &bucket.engine, part)) {
        Ok(log) => {
            let mut answer = Vec::new();
            append_failover_log(&log, &mut answer);
            call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
            Ok(())
        }
        Err(Refused::Rollback(seqno)) => {
            tracing::info!(
                vb = call.request.vb.get(),
                start = arguments.start.get(),
                to = seqno.get(),
                "a DCP consumer has to go back"
            );
            call.answer_status(Status::Rollback, &seqno.get().to_be_bytes());
            Ok(())
        }
        Err(Refused::Violation(Violation { status, context: "" })) => Err(Stop::Status(status)),
        Err(Refused::Violation(violation)) => Err(violation.into()),
    }
}

fn close_stream(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let (vb, stream_id) = (call.request.vb, call.request.info.stream_id);
    link(call)?.producer.close_stream(vb, stream_id)?;
    call.answer_empty();
    Ok(())
}

fn failover_log(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let mut answer = Vec::new();
    append_failover_log(&call.session.bucket()?.engine.failover_log(call.request.vb)?, &mut answer);
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], &answer);
    Ok(())
}

/// Answered only when it is malformed.
fn acknowledge(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let extras = NumberExtras::decode(call.request.frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    link(call)?.producer.acknowledge(extras.number);
    Ok(())
}

fn link<'c>(call: &'c mut Call<'_, '_>) -> Result<&'c mut DcpLink, Stop> {
    call.session.dcp.as_deref_mut().ok_or(Stop::Status(Status::Invalid))
}
