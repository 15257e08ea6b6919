//! Cluster maps: asked for, and pushed.
//!
//! A client that is told in brief asks for the map. While a rebalance goes on, a client that has not asked yet is told of nothing
//! newer for a while. It has more news than it can read, and it gets the newest when it asks.
//!
//! Java's client reads maps on the threads of its connections. It was told of five maps a second by each of four nodes. With little of
//! a processor it did nothing but read maps until the rebalance was over. Its operations on one of the nodes timed out meanwhile.

use base::{Cas, Datatype, Status};
use protocol::{
    binary::{Header, Magic, Opaque, Response, ServerOpcode, extras},
    hello::Feature,
};

use crate::{
    net::output::Output,
    request::{call::Call, context::Context, reply, session::Session, stage::Stop},
    state::shared::{ConfigDocument, ConfigVersion},
};

/// How long a client that has not asked for a map is told of no newer one. It may have the map from another node, and never ask.
const UNASKED_MILLIS: u64 = 1_000;

/// `GET_CLUSTER_CONFIG`: the map of the bucket, or of the cluster while none is selected. Empty for clients that
/// have this version already.
pub(crate) fn get(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let known = extras::ConfigVersion::decode(call.request.frame.extras)
        .map(|version| ConfigVersion { epoch: version.epoch, rev: version.revision });
    if call.session.access().is_empty() && !is_known(call.session) {
        return Err(Stop::Status(Status::NoAccess));
    }
    let config = call.session.newest_config(call.context).ok_or(Stop::Status(Status::KeyNotFound))?;
    let version = config.version;
    if known >= Some(version) {
        call.session.seen = call.session.seen.max(Some(version));
        call.answer_empty();
        return Ok(());
    }
    let (datatype, body) = reply::config_body(call.session, config);
    let response = Response::new(Status::Success).with_datatype(datatype);
    let traced = call.session.has(Feature::Tracing);
    let header = &call.request.frame.header;
    protocol::binary::write_response(&mut call.out.bytes, header, traced, &response, &[], &[], body);
    call.session.seen = Some(version);
    call.session.pushed = call.session.pushed.max(Some(version));
    Ok(())
}

/// Whether the connection has authenticated: everybody who has may learn where the nodes are.
fn is_known(session: &Session) -> bool {
    session.identity.domain != cluster::auth::Domain::Anonymous
}

/// Pushes the map that is newer than what the client was last told of, if it asked for that.
pub(crate) fn push(session: &mut Session, out: &mut Output, context: &mut Context) {
    let whole = session.has(Feature::ClustermapChangeNotification);
    let brief = session.has(Feature::ClustermapChangeNotificationBrief);
    if !(whole || brief) {
        return;
    }
    let Some(version) = session.told_config(context).map(|config| config.version) else { return };
    let last = session.pushed.max(session.seen);
    match last {
        // News counts from here on; a client that wants to know how things are asks.
        None => {
            session.pushed = Some(version);
            return;
        }
        Some(last) if last >= version => return,
        Some(_) if !whole && is_behind(session, context) => return,
        Some(_) => {}
    }
    let Some(config) = session.told_config(context) else { return };
    let bucket = session.attached().map(|bucket| bucket.name.as_bytes()).unwrap_or_default();
    write_push(out, session, config, bucket, whole);
    session.pushed = Some(version);
    session.rest_pushes_until(context.now.mono_millis + UNASKED_MILLIS);
    if whole {
        session.seen = Some(version);
    }
}

/// Whether it is too early to tell a client of a newer map. If so, the connection is woken when it no longer is.
fn is_behind(session: &mut Session, context: &mut Context) -> bool {
    let until = session.pushes_rest_until();
    let has_asked = session.seen >= session.pushed;
    if has_asked || context.snapshot.metadata.rebalance.is_none() || context.now.mono_millis >= until {
        return false;
    }
    if !std::mem::replace(&mut session.push_waits, true) {
        context.wake_at(until);
    }
    true
}

fn write_push(out: &mut Output, session: &Session, config: &ConfigDocument, bucket: &[u8], whole: bool) {
    let ConfigVersion { epoch, rev } = config.version;
    let extras = extras::ConfigVersion { epoch, revision: rev }.encode();
    let (datatype, value) =
        if whole { reply::config_body(session, config) } else { (Datatype::RAW, &[][..]) };
    let header = Header {
        magic: Magic::ServerRequest,
        opcode: ServerOpcode::ClustermapChangeNotification as u8,
        framing_len: 0,
        extras_len: extras.len() as u8,
        key_len: bucket.len() as u16,
        datatype,
        vbucket_or_status: 0,
        body_len: (extras.len() + bucket.len() + value.len()) as u32,
        opaque: Opaque::default(),
        cas: Cas::NONE,
    };
    for part in [&header.encode()[..], &extras, bucket, value] {
        out.bytes.extend_from_slice(part);
    }
}
