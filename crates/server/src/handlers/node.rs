//! Commands to the node: VERSION, VERBOSITY, QUIT and the legacy FLUSH.

use base::{Cas, Datatype, Status, limits};
use cluster::auth::Privilege;

use crate::{
    call::{Call, Stage, Stop},
    helper::Completion,
    shared::AuditEvent,
};

/// The version clients gate features on; Settee's own has its own field in the statistics.
pub(crate) fn version_text() -> String {
    format!("{}-0000-enterprise", limits::COMPAT_VERSION)
}

/// VERSION.
pub(crate) fn version(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], version_text().as_bytes());
    Ok(())
}

/// VERBOSITY: accepted from administrators, and without effect, as logging is configured elsewhere.
pub(crate) fn verbosity(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    if call.session.kind != crate::workers::ListenerKind::Memcached {
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

/// FLUSH, where the bucket allows it: empties the bucket. The work is done elsewhere, it waits for the disk.
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
    if call.request.frame.extras.iter().any(|byte| *byte != 0) {
        return Err(Stop::Refused(Status::NotSupported, "A delayed flush is not supported"));
    }
    let (engine, now) = (std::sync::Arc::clone(&bucket.engine), call.context.now);
    call.context.helper.submit(call.waiter(), move || Completion::Done(engine.flush_all(now)))?;
    call.context.shared.audit(AuditEvent::BucketFlushed {
        bucket: bucket.name.to_string(),
        user: call.session.identity.name.clone(),
    });
    Err(Stop::Park(Stage::Helper, None))
}
