//! The sender of a request: the certificate that a client has shown, or Basic credentials, against the metadata.
//!
//! Checking a password costs milliseconds, so it happens off the event loop, a few at a time, and successes are
//! remembered. Until the cluster is initialised there is nobody to check against. A sender that may set the node up
//! ([`crate::Gate::allows_setup_from`]) is the administrator then, whatever credentials were sent along.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, StatusCode, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{
    CertificateUse, Metadata,
    auth::{Domain, INTERNAL_USER, Identity, LoginAttempts, PasswordCache, check_password},
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    audit::{AuditEvent, AuditKind},
    connection::Connection,
    gate::Gate,
    node_login,
    passes::Passes,
    reply::{self, Refusal},
    sessions::{self, Sessions},
};

/// Passwords hashed at the same time.
const CHECKS_AT_ONCE: usize = 2;
/// Requests waiting for their password to be hashed; more are told to come back.
const CHECKS_WAITING_MAX: usize = 256;
/// How often a login that goes on working is noted for auditors.
const LOGIN_NOTED_EVERY: Duration = Duration::from_secs(15 * 60);
/// Logins remembered as noted.
const LOGINS_NOTED_MAX: usize = 4096;

/// Checks credentials.
pub(crate) struct Authenticator {
    gate: Arc<dyn Gate>,
    passes: Arc<Passes>,
    cache: Arc<PasswordCache>,
    sessions: Sessions,
    at_once: Arc<Semaphore>,
    waiting: Semaphore,
    noted: Mutex<BTreeMap<(String, IpAddr), Instant>>,
    attempts: Mutex<LoginAttempts>,
    begun: Instant,
}

/// A login that is being checked; one that ends with its connection tells nothing.
struct Checked<'a> {
    all: &'a Authenticator,
    user: String,
    address: IpAddr,
}

impl Drop for Checked<'_> {
    fn drop(&mut self) {
        self.all.attempts().released(self.address, &self.user);
    }
}

impl Authenticator {
    /// `secret` must be unpredictable.
    pub(crate) fn new(gate: Arc<dyn Gate>, passes: Arc<Passes>, secret: [u8; 32]) -> Self {
        Self {
            gate,
            passes,
            cache: Arc::new(PasswordCache::new(secret)),
            sessions: Sessions::new(secret),
            at_once: Arc::new(Semaphore::new(CHECKS_AT_ONCE)),
            waiting: Semaphore::new(CHECKS_WAITING_MAX),
            noted: Mutex::new(BTreeMap::new()),
            attempts: Mutex::default(),
            begun: Instant::now(),
        }
    }

    /// The sender, by what is in `meta`; `None` for a name and a password that are nobody's there, which
    /// [`Self::refuse`] is for.
    pub(crate) async fn identify(
        &self,
        meta: &Arc<Metadata>,
        headers: &HeaderMap,
        from: &Connection,
    ) -> Result<Option<Identity>, Refusal> {
        let peer = from.peer;
        let credentials = if node_login::is_of_node(headers) { Ok(None) } else { basic_credentials(headers) };
        if let Ok(Some((name, password))) = &credentials
            && name == INTERNAL_USER
        {
            // A node that joins hears from its cluster before it knows who administers it. Not worth a line in the
            // audit trail: it happens all the time.
            let member = check_password(meta, name, password);
            return member.map(Some).ok_or_else(|| self.refuse_secret(meta, from));
        }
        if node_login::is_of_node(headers) {
            let member = from.node.check(meta, self.gate.as_ref(), headers);
            return member.map(Some).ok_or_else(|| from.place.refused(reply::unauthorized()));
        }
        let rules = meta.client_cert_auth();
        let must_show = must_show(meta, from);
        // A session began with a password, perhaps on a port that asks for no certificate.
        if !must_show && let Some(identity) = self.sessions.recall(meta, headers, Instant::now()) {
            return Ok(Some(identity));
        }
        if rules.used != CertificateUse::Disabled {
            // As in Couchbase, a certificate comes before a password.
            if let Some(identity) = from.shown.chain.as_ref().and_then(|chain| chain.user(meta)) {
                self.note_login(&identity, peer);
                return Ok(Some(identity));
            }
            // A node asks for something to sign before it logs in. Any client may ask for a node's name, so nothing else is taken there.
            let is_nobody = matches!(credentials, Ok(None)) && !sessions::is_of_console(headers);
            if must_show && from.shown.is_for_node && is_nobody {
                return Ok(Some(Identity::anonymous()));
            }
            if must_show {
                return Err(reply::unauthorized());
            }
        }
        if !meta.initialized {
            return self.before_initialisation(headers, peer).map(Some);
        }
        if sessions::is_of_console(headers) {
            // Its session is over, and it logs in by nothing else: other nodes need not be asked.
            return Err(from.place.refused(self.refuse(headers, peer)));
        }
        let Some((name, password)) = credentials? else { return Ok(Some(Identity::anonymous())) };
        if password.is_empty() && meta.buckets.get(&name).is_some_and(|bucket| bucket.legacy.passwordless) {
            // How the oldest clients attach to a bucket that asks for no password.
            return Ok(Some(Identity::anonymous()));
        }
        let identity = self.check_counted(meta, name, password, peer).await?;
        identity.iter().for_each(|identity| self.note_login(identity, peer));
        Ok(identity)
    }

    /// Whether a request carries a password, which no page in a browser knows. The password may be wrong:
    /// [`Self::identify`] refuses it then.
    pub(crate) fn proves(&self, meta: &Metadata, headers: &HeaderMap) -> bool {
        if node_login::is_of_node(headers) {
            return true;
        }
        match basic_credentials(headers) {
            Ok(Some((name, password))) => {
                let is_checked = meta.initialized || name == INTERNAL_USER;
                !password.is_empty() && (is_checked || self.passes.admits(&name, &password))
            }
            _ => false,
        }
    }

    /// Refuses somebody whom [`Self::identify`] does not know, and takes note of it.
    pub(crate) fn refuse(&self, headers: &HeaderMap, peer: SocketAddr) -> Refusal {
        if sessions::is_of_console(headers) {
            return reply::session_over();
        }
        if let Ok(Some((name, _))) = basic_credentials(headers) {
            self.audit(AuditKind::LoginFailure, Identity::unproved(&name, Domain::Anonymous), peer);
        }
        reply::unauthorized()
    }

    /// The user with that password, for a session of the console; `None` for a password that is nobody's. Clients that are older than users
    /// have no sessions.
    pub(crate) async fn check_for_session(
        &self,
        meta: &Arc<Metadata>,
        name: &str,
        password: &str,
        from: &Connection,
    ) -> Result<Option<Identity>, Refusal> {
        if name == INTERNAL_USER || name.is_empty() {
            return Ok(None);
        }
        let must_show = must_show(meta, from);
        let checked = self.check_counted(meta, name.to_owned(), password.to_owned(), from.peer).await?;
        let may = |user: &Identity| !must_show && matches!(user.domain, Domain::Admin | Domain::Local);
        Ok(checked.filter(may))
    }

    /// Begins a session of the console, and returns the cookie for it.
    pub(crate) fn begin_session(
        &self,
        user: Identity,
        headers: &HeaderMap,
        from: &Connection,
    ) -> Result<String, Refusal> {
        let unpredictable = |error| -> Refusal {
            let text = format!("no randomness: {error}");
            reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &json!([text])).into()
        };
        let token = self.sessions.begin(user.clone(), Instant::now()).map_err(unpredictable)?;
        self.audit(AuditKind::LoginSuccess, user, from.peer);
        Ok(sessions::cookie(headers, Some(&token), from.is_tls))
    }

    /// Ends the session that a request shows, if it shows one, and returns the cookie that takes its token back.
    pub(crate) fn end_session(&self, headers: &HeaderMap, from: &Connection) -> String {
        if let Some(user) = self.sessions.end(headers) {
            self.audit(AuditKind::Logout, user, from.peer);
        }
        sessions::cookie(headers, None, from.is_tls)
    }

    /// Takes note of a login to the console that has failed, and refuses it as Couchbase does.
    pub(crate) fn refuse_session(&self, name: &str, from: &Connection) -> Refusal {
        self.audit(AuditKind::LoginFailure, Identity::unproved(name, Domain::Anonymous), from.peer);
        from.place.refused(reply::text(StatusCode::BAD_REQUEST, "").into())
    }

    /// Refuses a secret that is none of the cluster's. The right one always passes: members must not be kept out. A wrong one
    /// counts for its address, like the password of a user. A node that joins has no users to protect until it is initialised.
    fn refuse_secret(&self, meta: &Metadata, from: &Connection) -> Refusal {
        if !meta.initialized {
            return reply::unauthorized();
        }
        self.attempts().told(from.peer.ip(), INTERNAL_USER, false, self.millis());
        from.place.refused(reply::unauthorized())
    }

    fn before_initialisation(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<Identity, Refusal> {
        let asked_for = match basic_credentials(headers) {
            Ok(Some((user, password))) => self.passes.admits(&user, &password),
            _ => false,
        };
        if asked_for || self.gate.allows_setup_from(peer.ip().to_canonical()) {
            return Ok(Identity::unproved("", Domain::Admin));
        }
        let text = "This node is not initialized, and may not be set up from this address.";
        Err(reply::with_status(StatusCode::FORBIDDEN, &json!({ "message": text, "permissions": [] })).into())
    }

    /// Checks a password, unless too many from that address were wrong. A remembered one is checked by the same rule: a guess
    /// that is right must not be told apart while others are refused.
    async fn check_counted(
        &self,
        meta: &Arc<Metadata>,
        name: String,
        password: String,
        peer: SocketAddr,
    ) -> Result<Option<Identity>, Refusal> {
        let begun = self.attempts().begin(peer.ip(), &name, self.millis());
        begun.map_err(reply::too_many_attempts)?;
        let checked = Checked { all: self, user: name.clone(), address: peer.ip() };
        let identity = match self.cache.recall(meta, &name, &password) {
            Some(identity) => Some(identity),
            None => self.check(meta, name, password).await?,
        };
        self.attempts().told(checked.address, &checked.user, identity.is_some(), self.millis());
        Ok(identity)
    }

    fn attempts(&self) -> MutexGuard<'_, LoginAttempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn check(
        &self,
        meta: &Arc<Metadata>,
        name: String,
        password: String,
    ) -> Result<Option<Identity>, Refusal> {
        let busy = || -> Refusal {
            let text = "Temporary error occurred. Please try again later.";
            reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!(text)).into()
        };
        let _place = self.waiting.try_acquire().map_err(|_| busy())?;
        let turn = Arc::clone(&self.at_once).acquire_owned().await.map_err(|_| busy())?;
        let (meta, cache) = (Arc::clone(meta), Arc::clone(&self.cache));
        let check = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            cache.check(&meta, &name, &password)
        });
        check.await.map_err(|_| busy())
    }

    fn note_login(&self, identity: &Identity, peer: SocketAddr) {
        let now = Instant::now();
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (identity.name.clone(), peer.ip());
        if noted.get(&key).is_some_and(|at| now.duration_since(*at) < LOGIN_NOTED_EVERY) {
            return;
        }
        if noted.len() >= LOGINS_NOTED_MAX {
            noted.clear();
        }
        noted.insert(key, now);
        drop(noted);
        self.audit(AuditKind::LoginSuccess, identity.clone(), peer);
    }

    fn audit(&self, kind: AuditKind, user: Identity, peer: SocketAddr) {
        self.gate.audit(AuditEvent {
            kind,
            user,
            peer: Some(peer),
            subject: "rest".into(),
            details: String::new(),
        });
    }
}

/// Whether a client has to show a certificate: a password counts for nothing there, and so does a session.
fn must_show(meta: &Metadata, from: &Connection) -> bool {
    meta.client_cert_auth().used == CertificateUse::Mandatory && from.is_tls
}

/// Name and password of a Basic authorization header. Empty ones count as none, as old clients send them.
fn basic_credentials(headers: &HeaderMap) -> Result<Option<(String, String)>, Refusal> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| {
        let (scheme, encoded) = text.trim().split_once(' ')?;
        let bytes = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(encoded.trim()).ok())??;
        let text = String::from_utf8(bytes).ok()?;
        let (name, password) = text.split_once(':')?;
        Some((name.to_owned(), password.to_owned()))
    });
    match parsed {
        Some((name, password)) if name.is_empty() && password.is_empty() => Ok(None),
        Some(credentials) => Ok(Some(credentials)),
        None => Err(reply::unauthorized()),
    }
}
