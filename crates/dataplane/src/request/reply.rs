//! Responses of the binary protocol.
//!
//! What a refusal looks like depends on the client. Clients that negotiated extended errors get the status, and a JSON
//! context where the server has something to add. All others get the texts and the older statuses that their libraries
//! match on.
//!
//! A response to a client that wants to know how long it took is written with room for that. The end of its batch fills it in
//! ([`Output::tell`]).

use base::{Cas, Datatype, Status, limits};
use protocol::{
    binary::{Header, Opcode, Response, extras, legacy::status_for, write_response},
    hello::Feature,
};

use crate::{
    net::output::Output,
    request::{call::Call, context::Context, session::Session},
};

impl Call<'_, '_> {
    /// Answers with success and these parts, quiet or not.
    #[inline]
    pub(crate) fn answer(&mut self, cas: Cas, datatype: Datatype, extras: &[u8], key: &[u8], value: &[u8]) {
        let response = Response::new(Status::Success).with_cas(cas).with_datatype(datatype);
        let traced = self.session.has(Feature::Tracing);
        write_response(
            &mut self.out.bytes,
            &self.request.frame.header,
            traced,
            &response,
            extras,
            key,
            value,
        );
    }

    /// Answers with success and nothing else.
    pub(crate) fn answer_empty(&mut self) {
        self.answer(Cas::NONE, Datatype::RAW, &[], &[], &[]);
    }

    /// Answers with JSON text, marked as such where the client understands the mark.
    pub(crate) fn answer_json(&mut self, json: &str) {
        let datatype = json_if_negotiated(self.session);
        self.answer(Cas::NONE, datatype, &[], &[], json.as_bytes());
    }

    /// Answers with a status other than success and a value.
    pub(crate) fn answer_status(&mut self, status: Status, value: &[u8]) {
        self.answer_as(&Response::new(status), &[], value);
    }

    /// Answers with `response`, extras and a value.
    pub(crate) fn answer_as(&mut self, response: &Response, extras: &[u8], value: &[u8]) {
        let traced = self.session.has(Feature::Tracing);
        write_response(&mut self.out.bytes, &self.request.frame.header, traced, response, extras, &[], value);
    }
}

/// The version clients gate features on; Settee's own has its own field in the statistics.
pub(crate) fn version_text() -> String {
    format!("{}-0000-enterprise", limits::COMPAT_VERSION)
}

pub(crate) fn json_if_negotiated(session: &Session) -> Datatype {
    if session.has(Feature::Json) { Datatype::JSON } else { Datatype::RAW }
}

/// There is nothing to answer: the connection has to be closed.
pub(crate) struct HangUp;

/// Answers with a refusal. Absence goes unsaid to quiet reads; a client that was promised the older statuses is hung up
/// on where there is none for what happened.
#[cold]
pub(crate) fn refuse(
    session: &mut Session,
    header: &Header,
    out: &mut Output,
    context: &Context,
    status: Status,
    words: Option<&'static str>,
) -> Result<(), HangUp> {
    let opcode = Opcode::from_wire(header.opcode);
    if status == Status::KeyNotFound && opcode.is_some_and(is_quiet_read) {
        return Ok(());
    }
    let traced = session.has(Feature::Tracing);
    let response = Response::new(status);
    let mut write = |response: &Response, value: &[u8]| {
        write_response(&mut out.bytes, header, traced, response, &[], &[], value);
    };
    if status == Status::NotMyVbucket {
        let (datatype, body) = newer_config(session, header, context);
        write(&response.with_datatype(datatype), body.unwrap_or_default());
        return Ok(());
    }
    if !session.has(Feature::Xerror) {
        let known = opcode.map_or(Some(status), |opcode| status_for(status, opcode, session.features));
        // A client that has not logged in yet is told so in any case.
        let Some(status) = known.or_else(|| (!session.is_logged_in()).then_some(status)) else {
            tracing::info!(?status, peer = ?session.peer, "closing a client that does not know extended errors");
            return Err(HangUp);
        };
        write(&Response { status, ..response }, status.text().as_bytes());
        return Ok(());
    }
    let body = match (status, session.attached()) {
        (Status::UnknownCollection | Status::UnknownScope, Some(bucket)) => {
            Some(extras::unknown_collection_context(bucket.engine.manifest().uid))
        }
        (Status::TemporaryFailure, Some(bucket)) if words.is_none() => {
            bucket.engine.shortage(context.now).map(|words| extras::error_context(words, None))
        }
        _ => words.filter(|words| !words.is_empty()).map(|words| extras::error_context(words, None)),
    };
    let datatype = if body.is_some() { json_if_negotiated(session) } else { Datatype::RAW };
    write(&response.with_datatype(datatype), body.unwrap_or_default().as_bytes());
    Ok(())
}

fn is_quiet_read(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Getq | Opcode::Getkq | Opcode::Gatq | Opcode::GetqMeta)
}

/// The cluster map for a client that asked the wrong node. There is none if the client has had this version, or a newer one, and
/// wants it once only.
fn newer_config<'a>(
    session: &mut Session,
    header: &Header,
    context: &'a Context,
) -> (Datatype, Option<&'a [u8]>) {
    let snapshot = &context.snapshot;
    let Some(bucket) = session.attached().and_then(|bucket| snapshot.buckets.get(&*bucket.name)) else {
        return (Datatype::RAW, None);
    };
    let plans = snapshot.metadata.buckets.get(&*bucket.name).map_or(&[][..], |info| info.vbs.as_slice());
    let mut config = bucket.maps.for_misled(header.vbucket(), plans);
    if session.has(Feature::DedupeNotMyVbucketMap) && session.seen >= Some(config.version) {
        return (Datatype::RAW, None);
    }
    if session.seen > Some(config.version) {
        // Nobody is shown an older one than before.
        config = bucket.maps.newest();
    }
    session.seen = Some(config.version);
    let (datatype, body) = config_body(session, config);
    (datatype, Some(body))
}

/// A cluster map in the form this client takes: compressed where anything may be.
pub(crate) fn config_body<'a>(
    session: &Session,
    config: &'a crate::state::shared::ConfigDocument,
) -> (Datatype, &'a [u8]) {
    let json = json_if_negotiated(session);
    if session.has(Feature::SnappyEverywhere) && !config.snappy.is_empty() {
        (json.with(Datatype::SNAPPY), &config.snappy)
    } else {
        (json, config.json.as_bytes())
    }
}
