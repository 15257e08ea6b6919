//! DCP requests: the server streams to consumers. What it is streamed by other nodes comes on connections that it has
//! opened itself ([`crate::links`]).
//!
//! Conditions and their order follow kv_engine (`daemon/mcbp_validators.cc`, `verify_common_dcp_restrictions`).

use base::{Cas, Datatype, NodeId, Status, bucket::BucketKind};
use cluster::auth::{self, Privilege};
use protocol::{
    binary::{
        Opcode, Violation,
        dcp::{OpenFlags, StreamFilter, StreamFlags, StreamRequest, request},
        extras::{NumberExtras, SeqnoExtras},
        observe::append_failover_log,
    },
    hello::Feature,
};
use replication::{
    LinkName,
    consumer::BUCKET_CONTROL,
    producer::{Producer, Refused, StreamAsk, controls::Negotiated},
};

use crate::request::{
    call::Call,
    dcp::{DcpLink, may_stream},
    stage::Stop,
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
        Opcode::DcpSeqnoAcknowledged => acknowledge_durable(call),
        // What consumers of ours are sent on connections that they have opened.
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
        replica: follower(call, name)?,
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

/// Which node of the cluster wants to follow, if it is one.
fn follower(call: &Call<'_, '_>, name: &str) -> Result<Option<NodeId>, Stop> {
    if !call.session.identity.is_internal() {
        // A connection that takes a name closes the one that had it.
        let words = "Names of this form are for the nodes of the cluster";
        return LinkName::parse(name).map_or(Ok(None), |_| Err(Stop::Refused(Status::Invalid, words)));
    }
    // What it acknowledges counts as what that node has. A node that has logged in by its key acknowledges for itself alone.
    let signer = auth::number_of(&call.context.snapshot.metadata, &call.session.identity);
    let words = "A node of the cluster has to say which it is, and what it follows";
    let link = LinkName::parse(name)
        .filter(|link| call.session.attached().is_some_and(|on| *on.name == *link.bucket))
        .filter(|link| signer.is_none_or(|signer| signer == link.to));
    link.map(|link| Some(link.to)).ok_or(Stop::Refused(Status::Invalid, words))
}

fn control(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let frame = call.request.frame;
    if frame.key == BUCKET_CONTROL {
        // The bucket that it means may have been dropped and created anew.
        if frame.value != call.session.bucket()?.uuid.0.as_bytes() {
            return Err(Stop::Refused(Status::KeyNotFound, "There is no such bucket any more"));
        }
        call.answer_empty();
        return Ok(());
    }
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
                bucket = bucket.engine.name(),
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

/// Answered only when it is refused.
fn acknowledge_durable(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let extras = SeqnoExtras::decode(call.request.frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    let (vb, now) = (call.request.vb, call.context.now);
    Ok(link(call)?.producer.acknowledge_durable(vb, extras.seqno, now)?)
}

fn link<'c>(call: &'c mut Call<'_, '_>) -> Result<&'c mut DcpLink, Stop> {
    call.session.dcp.as_deref_mut().ok_or(Stop::Status(Status::Invalid))
}
