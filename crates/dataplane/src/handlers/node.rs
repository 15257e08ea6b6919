//! Commands to the node: VERSION, VERBOSITY, QUIT and the legacy FLUSH.

use base::{Cas, Datatype, Status};
use cluster::auth::Privilege;

use crate::{
    net::listener::ListenerKind,
    request::{
        call::Call,
        context::Context,
        reply::version_text,
        session::Session,
        stage::{Stage, Stop},
    },
    state::{completion::Completion, helper::Chore, shared::AuditEvent},
};

/// VERSION.
pub(crate) fn version(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], version_text().as_bytes());
    Ok(())
}

/// VERBOSITY: accepted from administrators, and without effect, as logging is configured elsewhere.
pub(crate) fn verbosity(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    if call.session.kind != ListenerKind::Memcached {
        call.session.require_everywhere(Privilege::NodeSupervisor)?;
    }
    call.answer_empty();
    Ok(())
}

/// QUIT, QUITQ.
pub(crate) fn quit(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    if !call.request.is_quiet() {
        call.answer_empty();
    }
    call.session.quitting = true;
    Ok(())
}

/// FLUSH, where the bucket allows it: empties the bucket. The work is done elsewhere, and waits for the disk or for other
/// nodes. Then the connections of the bucket end. So only the plain memcached port can be told how it went.
pub(crate) fn flush(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    if let Some(resumed) = call.resumed.take() {
        return match resumed.completion {
            Some(Completion::Done(Ok(()))) => {
                if !call.request.is_quiet() {
                    call.answer_empty();
                }
                Ok(())
            }
            Some(Completion::Done(Err(status))) => Err(Stop::Status(status)),
            _ => Err(Stop::Park(Stage::Helper, None)),
        };
    }
    let bucket = call.session.bucket()?;
    call.session.require_everywhere(Privilege::BucketFlush)?;
    if !bucket.flush_enabled {
        return Err(Stop::Refused(Status::NotSupported, "Flush is disabled for the bucket"));
    }
    if call.session.kind != ListenerKind::Memcached && is_shared(call.context) {
        let words = "Buckets of several nodes are flushed over REST, or on the memcached port";
        return Err(Stop::Refused(Status::NotSupported, words));
    }
    if call.request.frame.extras.iter().any(|byte| *byte != 0) {
        return Err(Stop::Refused(Status::NotSupported, "A delayed flush is not supported"));
    }
    submit_flush(call.session, call.context, call.ticket)?;
    Err(Stop::Park(Stage::Helper, None))
}

/// Whether other nodes have parts of the buckets.
fn is_shared(context: &Context) -> bool {
    context.snapshot.metadata.nodes.len() > 1
}

/// Has the session's bucket emptied; the holder of the ticket is told.
pub(crate) fn submit_flush(session: &Session, context: &Context, ticket: u64) -> Result<(), Stop> {
    let bucket = session.bucket()?;
    if is_shared(context) {
        context.shared.flush_everywhere(bucket, context.waiter(ticket))?;
    } else {
        let (engine, now) = (std::sync::Arc::clone(&bucket.engine), context.now);
        let work = move || Completion::Done(engine.flush_all(now));
        context.helper.submit(Chore::Flush, context.waiter(ticket), work)?;
    }
    let event =
        AuditEvent::BucketFlushed { bucket: bucket.name.to_string(), user: session.identity.name.clone() };
    context.shared.audit(event);
    Ok(())
}
