//! From an HTTP request to one whose sender is known and has the right to it. The steps: names and origins, login, the sender's place,
//! rights, the body. A sender without the right has no more of its body read than a stranger.
//!
//! What comes out was judged by metadata that is new enough. A request that changes something waits for everything that was
//! agreed on before it came. Its sender is looked up in that. Where this node cannot learn it, such a request is refused: its sender may have
//! been removed. What changes nothing goes on, and so does what an operator needs where no majority is left.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
};
use base::places::TooMany;
use cluster::{
    Metadata,
    auth::{Domain, Identity},
};
use hyper::body::Incoming;

use crate::{
    authenticate::Authenticator,
    browser,
    connection::Connection,
    form::{self, Form},
    gate::Gate,
    passes::Passes,
    reply::{self, Refusal},
};

/// Longest body of a request.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest body of a request whose sender is not known.
const ANONYMOUS_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest body of a request of another node: a snapshot of the metadata.
const INTERNAL_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a request asks for, before anything is known of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET` for `HEAD` too.
    pub method: Method,
    /// Decoded path segments.
    pub path: Vec<String>,
    /// The query.
    pub query: Form,
}

impl Asked {
    /// # Errors
    /// 400 for malformed escapes.
    pub fn of(parts: &Parts) -> Result<Self, Refusal> {
        let bad_request = || reply::text(StatusCode::BAD_REQUEST, "Bad Request");
        let path = segments(parts.uri.path()).ok_or_else(bad_request)?;
        let query = Form::parse(parts.uri.query().unwrap_or_default().as_bytes()).ok_or_else(bad_request)?;
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
        Ok(Self { method, path, query })
    }
}

/// A request whose sender is known and has the right to it.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// What it was judged by.
    pub meta: Arc<Metadata>,
    /// Its sender.
    pub user: Identity,
    /// Its body.
    pub body: Bytes,
}

/// What a surface asks of the sender of one request.
pub trait Rights: Sync {
    /// What a sender can be without.
    type Lack: Send;
    /// The longest body that such a request can have, from any sender.
    fn body_bytes_max(&self) -> usize {
        usize::MAX
    }
    /// What the sender is without; `None` if nothing.
    fn lacks(&self, meta: &Metadata, user: &Identity) -> Option<Self::Lack>;
    /// The answer for a sender that is without something.
    fn refuse(&self, user: &Identity, lack: Self::Lack) -> Refusal;
    /// Admits such a request where this node cannot say what the cluster has agreed on. Its sender may have lost the right to it, or be no
    /// user any more.
    ///
    /// # Errors
    /// The answer where it is not admitted, as a change is not.
    fn check_alone(&self, _body: &[u8]) -> Result<(), Refusal> {
        Err(reply::unsure())
    }
}

/// Judges the requests of a surface.
pub struct Front {
    gate: Arc<dyn Gate>,
    authenticator: Authenticator,
}

impl Front {
    /// `passes` are logins that hold beside those of users.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn new(gate: Arc<dyn Gate>, passes: Arc<Passes>) -> std::io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self { gate: Arc::clone(&gate), authenticator: Authenticator::new(gate, passes, secret) })
    }

    /// Admits a request whose sender has the rights that it needs. Only then is more of its body taken than a stranger's may have.
    ///
    /// # Errors
    /// The answer for one that is not admitted.
    pub async fn admit<R: Rights>(
        &self,
        asked: &Asked,
        rights: &R,
        headers: &HeaderMap,
        body: Incoming,
        from: &Connection,
    ) -> Result<Admitted, Refusal> {
        let Asked { method, query, .. } = asked;
        let mut meta = self.gate.metadata();
        let is_own = |name: &str| self.gate.is_own_name(name);
        let proves = self.authenticator.proves(&meta, headers);
        browser::refuse_pages(method, headers, proves, &meta, is_own)?;
        let mut user = self.authenticator.identify(&meta, headers, from).await?;
        if user.is_none() && *method != Method::GET {
            // Nobody here, but perhaps made a user at another node a moment ago.
            (meta, user, _) = self.identify_anew(&meta, user, headers, from).await?;
        }
        let refused = || from.place.refused(self.authenticator.refuse(headers, from.peer));
        let mut user = user.ok_or_else(refused)?;
        from.place.belong_to(&user, &meta).map_err(|TooMany| reply::too_many_connections())?;
        require_cluster(query, &meta)?;
        let mut lack = rights.lacks(&meta, &user);
        if lack.is_some() && is_change(method, user.domain) {
            // The right may have been given at another node a moment ago.
            (meta, user, _) = self.still_known(&meta, user, headers, from).await?;
            lack = rights.lacks(&meta, &user);
        }
        if let Some(lack) = lack {
            // A sender that is answered before it has sent everything may lose the answer with the connection.
            let _ = read_body(headers, body, ANONYMOUS_BODY_BYTES_MAX).await;
            return Err(rights.refuse(&user, lack));
        }
        let longest = longest_body(user.domain).min(rights.body_bytes_max());
        let body = read_body(headers, body, longest).await?;
        if is_change(method, user.domain) {
            // Judged by what was known here, a change that follows on one made at another node would be refused.
            let is_new;
            (meta, user, is_new) = self.still_known(&meta, user, headers, from).await?;
            // This may be another cluster by now, with another administrator of that name.
            require_cluster(query, &meta)?;
            if let Some(lack) = rights.lacks(&meta, &user) {
                return Err(rights.refuse(&user, lack));
            }
            if !is_new {
                rights.check_alone(&body)?;
            }
        }
        Ok(Admitted { meta, user, body })
    }

    /// Logs a user in to the web console by `user` and `password` of a form, and returns the cookie of the session.
    ///
    /// # Errors
    /// The answer to a login that is not admitted: 400 where user and password are nobody's.
    pub async fn begin_session(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Incoming,
        from: &Connection,
    ) -> Result<String, Refusal> {
        let mut meta = self.gate.metadata();
        browser::refuse_pages(method, headers, false, &meta, |name| self.gate.is_own_name(name))?;
        let body = read_body(headers, body, ANONYMOUS_BODY_BYTES_MAX).await?;
        let form = Form::parse(&body).ok_or_else(|| reply::bad_request("Malformed form data"))?;
        let (name, password) =
            (form.get("user").unwrap_or_default(), form.get("password").unwrap_or_default());
        let mut user = self.authenticator.check_for_session(&meta, name, password, from).await?;
        if user.is_none() {
            // Perhaps made a user at another node a moment ago.
            self.gate.catch_up().await;
            let now = self.gate.metadata();
            if !Arc::ptr_eq(&now, &meta) {
                meta = now;
                user = self.authenticator.check_for_session(&meta, name, password, from).await?;
            }
        }
        let user = user.ok_or_else(|| self.authenticator.refuse_session(name, from))?;
        from.place.belong_to(&user, &meta).map_err(|TooMany| reply::too_many_connections())?;
        self.authenticator.begin_session(user, headers, from)
    }

    /// Ends the session of the web console that a request shows, and returns the cookie that takes its token back.
    ///
    /// # Errors
    /// The answer to a request that a page of somebody else may have caused.
    pub fn end_session(
        &self,
        method: &Method,
        headers: &HeaderMap,
        from: &Connection,
    ) -> Result<String, Refusal> {
        let meta = self.gate.metadata();
        browser::refuse_pages(method, headers, false, &meta, |name| self.gate.is_own_name(name))?;
        Ok(self.authenticator.end_session(headers, from))
    }

    /// The same as [`Self::identify_anew`] for a sender that was known, and has to be.
    async fn still_known(
        &self,
        meta: &Arc<Metadata>,
        user: Identity,
        headers: &HeaderMap,
        from: &Connection,
    ) -> Result<(Arc<Metadata>, Identity, bool), Refusal> {
        let (now, still, is_new) = self.identify_anew(meta, Some(user), headers, from).await?;
        let user = still.ok_or_else(|| from.place.refused(self.authenticator.refuse(headers, from.peer)))?;
        Ok((now, user, is_new))
    }

    /// The metadata once everything that was agreed on is carried out here, and the sender of a request by that. It is `user` as far as
    /// nothing is new since `meta`. The last of the three: whether they have all of that; else this node could not learn it.
    async fn identify_anew(
        &self,
        meta: &Arc<Metadata>,
        user: Option<Identity>,
        headers: &HeaderMap,
        from: &Connection,
    ) -> Result<(Arc<Metadata>, Option<Identity>, bool), Refusal> {
        let is_new = self.gate.catch_up().await;
        let now = self.gate.metadata();
        if Arc::ptr_eq(&now, meta) {
            return Ok((now, user, is_new));
        }
        let user = self.authenticator.identify(&now, headers, from).await?;
        Ok((now, user, is_new))
    }
}

/// Refuses what is meant for another cluster.
fn require_cluster(query: &Form, meta: &Metadata) -> Result<(), Refusal> {
    if query.get("uuid").is_some_and(|uuid| meta.initialized && uuid != meta.cluster_uuid) {
        let text = "Cluster uuid does not match the requested.\r\n";
        return Err(reply::text(StatusCode::NOT_FOUND, text).into());
    }
    Ok(())
}

/// Whether a request may change the cluster. Nodes among themselves say what keeps the cluster together, and wait for
/// nothing.
fn is_change(method: &Method, domain: Domain) -> bool {
    *method != Method::GET && !matches!(domain, Domain::Anonymous | Domain::Internal)
}

fn longest_body(domain: Domain) -> usize {
    match domain {
        Domain::Anonymous => ANONYMOUS_BODY_BYTES_MAX,
        Domain::Internal => INTERNAL_BODY_BYTES_MAX,
        _ => BODY_BYTES_MAX,
    }
}

/// Path segments, decoded; `None` when an escape is malformed. Repeated slashes count as one.
fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| form::decode(part.as_bytes(), false)).collect()
}

async fn read_body(headers: &HeaderMap, body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let too_large = || reply::text(StatusCode::PAYLOAD_TOO_LARGE, "The request body is too large.\r\n");
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(too_large().into());
    }
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(Body::new(body), limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large().into()),
        Err(_) => Err(reply::text(StatusCode::REQUEST_TIMEOUT, "The request body took too long.\r\n").into()),
    }
}
