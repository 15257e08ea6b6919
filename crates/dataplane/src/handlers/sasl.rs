//! Logins: SASL_LIST_MECHS, SASL_AUTH, SASL_STEP.
//!
//! SCRAM steps are a few hashes over keys made when the password was set, cheap enough for the loop. PLAIN has to
//! hash the password as often as that took. So it goes to the helper thread, unless the same password was right a
//! moment ago. CRAM-MD5 is offered only while some bucket has a password of its own: nobody else's is known.
//!
//! A client whose certificate names a user is logged in from the start, and may say so (EXTERNAL). Where certificates are mandatory
//! no password is taken.
//!
//! Nodes of the cluster sign a challenge (SETTEE-NODE). The mechanism is not in the list: no client has a key.
//!
//! A failed login tells nothing but that it failed. A name that nobody has gets salts like every other name: the same on
//! every node, another for each mechanism. Its proof never holds (`cluster::auth::scram_verifier`).

use std::{fmt::Write as _, net::IpAddr, sync::Arc, sync::atomic::Ordering};

use base::{Cas, Datatype, Status};
use cluster::auth::{self, CHALLENGE_BYTES, INTERNAL_USER, Identity, LoginPort, NodeProof, ScramHash};
use protocol::sasl::{
    self, Mechanism,
    cram_md5::CramMd5Response,
    plain::Plain,
    scram::{ClientFinal, ClientFirst, ServerFirst, auth_message, encode_server_final},
};

use crate::{
    handlers::hello::require_no_dcp,
    request::{
        call::Call,
        context::Context,
        exchange::{Exchange, ScramExchange},
        session::Session,
        stage::{Resumed, Stage, Stop},
    },
    state::{
        completion::Completion,
        helper::Chore,
        shared::{AuditEvent, LoginEvent, Shared, Snapshot},
    },
};

/// Random bytes in a nonce or challenge.
const NONCE_BYTES: usize = 18;
/// Logins that may fail on one connection; the last of them ends it.
const FAILURES_MAX: u32 = 5;
/// The answer to a login that is not checked.
const TOO_MANY_ATTEMPTS: Stop =
    Stop::Refused(Status::TemporaryFailure, "Too many logins from this address have failed: try again later");
/// Longest user name that is looked up: 128 characters.
const USER_BYTES_MAX: usize = 512;

/// `SASL_LIST_MECHS`.
pub(crate) fn list_mechanisms(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let offered: Vec<_> = Mechanism::ALL
        .into_iter()
        .filter(|mechanism| is_offered(*mechanism, &call.context.snapshot))
        .collect();
    let mut list = sasl::list(&offered);
    if call.session.certificate.user.is_some() {
        list = format!("{} {list}", sasl::EXTERNAL);
    }
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], list.as_bytes());
    Ok(())
}

fn is_offered(mechanism: Mechanism, snapshot: &Snapshot) -> bool {
    let has_password =
        || snapshot.metadata.buckets.values().any(|bucket| bucket.legacy.sasl_password.is_some());
    mechanism != Mechanism::CramMd5 || has_password()
}

/// `SASL_AUTH`: the first message of an exchange.
pub(crate) fn auth(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    if let Some(Resumed { stage: Stage::Helper, completion, .. }) = call.resumed.take() {
        return match completion {
            Some(Completion::Login(identity)) => finish_plain(call, identity),
            _ => Err(Stop::Park(Stage::Helper, None)),
        };
    }
    require_no_dcp(call)?;
    call.session.exchange = None;
    call.out.own_values();
    call.session.log_out(&call.context.snapshot);
    if call.request.frame.key == sasl::EXTERNAL.as_bytes() {
        let identity = call.session.certificate.user.clone();
        let user = identity.as_ref().map_or_else(String::new, |identity| identity.name.clone());
        return finish(call, sasl::EXTERNAL, &user, identity, &[]);
    }
    if call.request.frame.key == sasl::NODE.as_bytes() {
        return begin_node(call);
    }
    let mechanism = Mechanism::from_name(call.request.frame.key)
        .filter(|mechanism| is_offered(*mechanism, &call.context.snapshot))
        .ok_or(Stop::Status(Status::AuthError))?;
    match mechanism {
        Mechanism::ScramSha512 => begin_scram(call, mechanism, ScramHash::Sha512),
        Mechanism::ScramSha256 => begin_scram(call, mechanism, ScramHash::Sha256),
        Mechanism::ScramSha1 => begin_scram(call, mechanism, ScramHash::Sha1),
        Mechanism::CramMd5 => {
            let challenge = format!("<{}@settee>", nonce()?);
            call.answer_status(Status::AuthContinue, challenge.as_bytes());
            call.session.exchange = Some(Exchange::CramMd5(challenge));
            Ok(())
        }
        Mechanism::Plain => begin_plain(call),
    }
}

/// `SASL_STEP`: every message after the first.
pub(crate) fn step(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    // An exchange may have been begun before the connection was opened for streams.
    require_no_dcp(call)?;
    let exchange = call.session.exchange.take().ok_or(Stop::Status(Status::AuthError))?;
    match exchange {
        Exchange::Scram(scram) => {
            // Exchanges may have been begun on many connections before the first one failed.
            require_attempt(call, &scram.user)?;
            let signature = scram.verify(call.request.frame.value);
            let (mechanism, user) = (scram.mechanism.name(), scram.user);
            let (identity, signature) = scram.identity.zip(signature).unzip();
            let answer = signature.map(|signature| encode_server_final(&signature)).unwrap_or_default();
            finish(call, mechanism, &user, identity, answer.as_bytes())
        }
        Exchange::CramMd5(challenge) => finish_cram_md5(call, &challenge),
        Exchange::Node(uuid, challenge) => {
            let to = call.context.shared.node_tls.uuid().unwrap_or_default();
            let signature = call.request.frame.value;
            let proof =
                NodeProof { port: LoginPort::Kv, from: &uuid, to: &to, challenge: &challenge, signature };
            let identity = proof.check_member(&call.context.snapshot.metadata);
            finish(call, sasl::NODE, INTERNAL_USER, identity, &[])
        }
    }
}

fn begin_node(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let uuid = shortened(&String::from_utf8_lossy(call.request.frame.value));
    let mut challenge = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut challenge).map_err(|_| Stop::Status(Status::TemporaryFailure))?;
    call.answer_status(Status::AuthContinue, &challenge);
    call.session.exchange = Some(Exchange::Node(uuid, challenge));
    Ok(())
}

fn begin_scram(call: &mut Call<'_, '_>, mechanism: Mechanism, hash: ScramHash) -> Result<(), Stop> {
    let first =
        ClientFirst::decode(call.request.frame.value).map_err(|error| malformed(call, mechanism, error))?;
    let user = shortened(&first.user);
    require_attempt(call, &user)?;
    let metadata = &call.context.snapshot.metadata;
    let (identity, verifier) = auth::scram_verifier(metadata, hash, &user);
    let nonce = [first.nonce, nonce()?.as_bytes()].concat();
    let server_first = ServerFirst {
        nonce: nonce.as_slice().into(),
        salt: verifier.salt.as_slice().into(),
        iterations: verifier.iterations,
    }
    .encode();
    call.answer_status(Status::AuthContinue, &server_first);
    call.session.exchange = Some(Exchange::Scram(Box::new(ScramExchange {
        mechanism,
        user,
        identity,
        verifier,
        gs2_header: first.gs2_header.to_vec(),
        client_first_bare: first.bare.to_vec(),
        server_first,
        nonce,
    })));
    Ok(())
}

impl ScramExchange {
    /// The server's signature, if the client's proof holds.
    fn verify(&self, message: &[u8]) -> Option<Vec<u8>> {
        let last = ClientFinal::decode(message).ok()?;
        if last.channel_binding != self.gs2_header || last.nonce != self.nonce {
            return None;
        }
        let message = auth_message(&self.client_first_bare, &self.server_first, last.without_proof);
        self.verifier.check_proof(&message, &last.proof)
    }
}

fn begin_plain(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let plain =
        Plain::decode(call.request.frame.value).map_err(|error| malformed(call, Mechanism::Plain, error))?;
    let Ok(password) = std::str::from_utf8(plain.password) else {
        return finish(call, Mechanism::Plain.name(), plain.user, None, &[]);
    };
    let (user, password) = (shortened(plain.user), password.to_owned());
    // The right secret of nodes always passes: members must not be kept out.
    if user != INTERNAL_USER {
        require_attempt(call, &user)?;
    }
    let (metadata, shared) = (Arc::clone(&call.context.snapshot.metadata), Arc::clone(&call.context.shared));
    if let Some(identity) = shared.passwords().recall(&metadata, &user, &password) {
        return finish(call, Mechanism::Plain.name(), &user, Some(identity), &[]);
    }
    let checked = Checked::begin(call, &user)?;
    let work = move || {
        let identity = shared.passwords().check(&metadata, &user, &password);
        drop(checked);
        Completion::Login(identity)
    };
    call.context.helper.submit(Chore::Password, call.waiter(), work)?;
    Err(Stop::Park(Stage::Helper, None))
}

/// A check that waits or runs: it counts for its address until then, whatever becomes of its connection.
struct Checked(Option<(Arc<Shared>, IpAddr, String)>);

impl Checked {
    fn begin(call: &Call<'_, '_>, user: &str) -> Result<Self, Stop> {
        let Some(address) = counted_address(call).filter(|_| user != INTERNAL_USER) else {
            return Ok(Self(None));
        };
        let shared = &call.context.shared;
        let begun = shared.attempts().begin(address, user, call.context.now.mono_millis);
        begun.map_err(|_| TOO_MANY_ATTEMPTS)?;
        Ok(Self(Some((Arc::clone(shared), address, user.to_owned()))))
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if let Some((shared, address, user)) = &self.0 {
            shared.attempts().released(*address, user);
        }
    }
}

/// Whose guesses are counted. A node that joins a cluster has no users until then: its clients, which fail meanwhile, would be kept
/// out once it has them.
fn counted_address(call: &Call<'_, '_>) -> Option<IpAddr> {
    let has_users = call.context.snapshot.metadata.initialized;
    call.session.peer.map(|peer| peer.ip()).filter(|_| has_users)
}

/// Refuses a cheap check where too many logins have failed.
fn require_attempt(call: &Call<'_, '_>, user: &str) -> Result<(), Stop> {
    let Some(address) = counted_address(call) else { return Ok(()) };
    let now = call.context.now.mono_millis;
    call.context.shared.attempts().permits(address, user, now).map_err(|_| TOO_MANY_ATTEMPTS)
}

fn finish_plain(call: &mut Call<'_, '_>, identity: Option<Identity>) -> Result<(), Stop> {
    let plain =
        Plain::decode(call.request.frame.value).map_err(|error| malformed(call, Mechanism::Plain, error))?;
    finish(call, Mechanism::Plain.name(), plain.user, identity, &[])
}

fn finish_cram_md5(call: &mut Call<'_, '_>, challenge: &str) -> Result<(), Stop> {
    let response = CramMd5Response::decode(call.request.frame.value)
        .map_err(|error| malformed(call, Mechanism::CramMd5, error))?;
    require_attempt(call, response.user)?;
    let digest = hexadecimal(&response.digest);
    let metadata = &call.context.snapshot.metadata;
    let identity = auth::check_cram_md5(metadata, response.user, challenge.as_bytes(), &digest);
    finish(call, Mechanism::CramMd5.name(), response.user, identity, &[])
}

/// Says to the audit log that a certificate has logged its user in.
pub(crate) fn note_certificate(session: &Session, context: &Context) {
    let Some(identity) = &session.certificate.user else { return };
    context.shared.audit(AuditEvent::LoginSucceeded(LoginEvent {
        user: shortened(&identity.name),
        domain: Some(identity.domain.name()),
        mechanism: sasl::EXTERNAL,
        peer: session.peer,
        local: session.local,
    }));
}

/// Ends an exchange, well or badly, and says so to the audit log.
fn finish(
    call: &mut Call<'_, '_>,
    mechanism: &'static str,
    user: &str,
    identity: Option<Identity>,
    answer: &[u8],
) -> Result<(), Stop> {
    let event = LoginEvent {
        user: shortened(user),
        domain: None,
        mechanism,
        peer: call.session.peer,
        local: call.session.local,
    };
    // The password may have been changed, or the user be locked, while the messages went to and fro.
    let may_log_in = |identity: &Identity| {
        !call.session.certificate.is_only_way || mechanism == sasl::EXTERNAL || identity.is_internal()
    };
    let metadata = &call.context.snapshot.metadata;
    let identity = identity.filter(|identity| auth::is_current(metadata, identity) && may_log_in(identity));
    // Nodes come and go with their keys, which nobody guesses.
    let is_of_node = mechanism == sasl::NODE || identity.as_ref().is_some_and(Identity::is_internal);
    if let Some(address) = counted_address(call).filter(|_| !is_of_node) {
        let now = call.context.now.mono_millis;
        call.context.shared.attempts().told(address, user, identity.is_some(), now);
    }
    let Some(identity) = identity else {
        call.session.failed_logins += 1;
        // The answer is the last one on this connection.
        call.session.quitting |= call.session.failed_logins >= FAILURES_MAX;
        call.context.shared.totals.auth_errors.fetch_add(1, Ordering::Relaxed);
        call.context.shared.audit(AuditEvent::LoginFailed(event));
        return Err(Stop::Status(Status::AuthError));
    };
    let domain = Some(identity.domain.name());
    call.context.shared.audit(AuditEvent::LoginSucceeded(LoginEvent { domain, ..event }));
    call.out.own_values();
    call.session.log_in(identity, &call.context.snapshot);
    call.answer(Cas::NONE, Datatype::RAW, &[], &[], answer);
    Ok(())
}

/// A message that cannot be read: a failed login of nobody in particular.
fn malformed(call: &Call<'_, '_>, mechanism: Mechanism, error: sasl::Malformed) -> Stop {
    tracing::debug!(%error, peer = ?call.session.peer, "login failed");
    call.context.shared.totals.auth_errors.fetch_add(1, Ordering::Relaxed);
    call.context.shared.audit(AuditEvent::LoginFailed(LoginEvent {
        user: String::new(),
        domain: None,
        mechanism: mechanism.name(),
        peer: call.session.peer,
        local: call.session.local,
    }));
    Stop::Status(Status::AuthError)
}

fn shortened(user: &str) -> String {
    user.get(..user.floor_char_boundary(USER_BYTES_MAX)).unwrap_or_default().to_owned()
}

/// Unpredictable, printable, without a comma.
fn nonce() -> Result<String, Stop> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| Stop::Status(Status::TemporaryFailure))?;
    Ok(hexadecimal(&bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
