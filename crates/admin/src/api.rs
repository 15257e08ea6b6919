//! From an HTTP request to an answer: limits on the body, who sends it, which handler, and the failures in between.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

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
use serde_json::json;
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{
    authenticate::Authenticator,
    browser,
    call::{Call, Connection},
    control::{BoxFuture, NodeControl},
    events::Events,
    figures::{ClusterFigures, Figures},
    form::{self, Form},
    passes::Passes,
    reply::{self, Refusal, Reply},
    routes,
    serve::Surface,
};

/// Longest body of a request.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest body of a request whose sender is not known.
const ANONYMOUS_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest body of a request of another node: a snapshot of the metadata.
const INTERNAL_BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How often it is looked how the cluster is, for the log.
const STATUS_LOOK: Duration = Duration::from_secs(1);
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The REST API of one node; shared by its plain and TLS listeners.
pub struct Api {
    pub(crate) control: Arc<dyn NodeControl>,
    authenticator: Authenticator,
    /// One-time logins of clusters that this node asked to add it.
    pub(crate) passes: Arc<Passes>,
    /// What every node says about itself.
    pub(crate) figures: Figures,
    /// What has happened to the cluster.
    pub(crate) events: Events,
}

impl Api {
    /// The API over `control`.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn new(control: Arc<dyn NodeControl>) -> io::Result<Arc<Self>> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let passes = Arc::new(Passes::default());
        Ok(Arc::new(Self {
            control: Arc::clone(&control),
            authenticator: Authenticator::new(control, Arc::clone(&passes), secret),
            passes,
            figures: Figures::default(),
            events: Events::default(),
        }))
    }

    /// Keeps the log of cluster changes until the server stops.
    pub async fn keep_log(self: Arc<Self>, mut closing: watch::Receiver<bool>) {
        let mut changes = self.control.watch();
        let mut looks = tokio::time::interval(STATUS_LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut seen, mut status) = (self.control.metadata(), self.control.cluster_status());
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = looks.tick() => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
            let now = self.control.metadata();
            if !Arc::ptr_eq(&now, &seen) {
                self.events.note(&seen, &now, routes::now_ms());
                seen = now;
            }
            let now = self.control.cluster_status();
            // While nobody leads, or knows yet, what was known last stands.
            if !now.stale {
                self.events.note_status(&seen, &status, &now, routes::now_ms());
                status = now;
            }
        }
    }

    /// Unpredictable bytes, for salts and uuids.
    pub(crate) fn random<const N: usize>() -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                let body = json!([format!("no randomness: {error}")]);
                Err(reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &body).into())
            }
        }
    }

    /// 32 hexadecimal digits that name something for its life.
    pub(crate) fn new_uuid() -> Result<String, Refusal> {
        use std::fmt::Write as _;
        let bytes: [u8; 16] = Self::random()?;
        Ok(bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }

    async fn handle(
        self: &Arc<Self>,
        parts: Parts,
        body: Incoming,
        from: Connection,
    ) -> Result<Reply, Refusal> {
        let mut meta = self.control.metadata();
        let bad_request = || reply::text(StatusCode::BAD_REQUEST, "Bad Request");
        let path = segments(parts.uri.path()).ok_or_else(bad_request)?;
        let query = Form::parse(parts.uri.query().unwrap_or_default().as_bytes()).ok_or_else(bad_request)?;
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
        if let Some(reply) = routes::health::answer(self.control.as_ref(), &meta, &method, &path) {
            return Ok(reply);
        }
        let is_own = |name: &str| self.control.is_own_name(name);
        let proves = self.authenticator.proves(&meta, &parts.headers);
        browser::refuse_pages(&method, &parts.headers, proves, &meta, is_own)?;
        let mut user = self.authenticator.identify(&meta, &parts.headers, from.peer).await?;
        if user.is_none() && method != Method::GET {
            // Nobody here, but perhaps made a user at another node a moment ago.
            (meta, user) = self.identify_anew(&meta, user, &parts.headers, from.peer).await?;
        }
        let refused = || from.place.refused(self.authenticator.refuse(&parts.headers, from.peer));
        let mut user = user.ok_or_else(refused)?;
        from.place.belong_to(&user).map_err(|TooMany| reply::too_many_connections())?;
        require_cluster(&query, &meta)?;
        let limit = match user.domain {
            Domain::Anonymous => ANONYMOUS_BODY_BYTES_MAX,
            Domain::Internal => INTERNAL_BODY_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        };
        let body = read_body(&parts, body, limit).await?;
        if is_change(&method, user.domain) {
            // Judged by what was known here, a change that follows on one made at another node would be refused.
            let known = Some(user);
            let (now, still) = self.identify_anew(&meta, known, &parts.headers, from.peer).await?;
            // This may be another cluster by now, with another administrator of that name.
            require_cluster(&query, &now)?;
            (meta, user) = (now, still.ok_or_else(refused)?);
        }
        let status = self.control.cluster_status();
        let figures = match (routes::shows_figures(&path), user.domain) {
            (false, _) => ClusterFigures::default(),
            // Whoever has not said who he is makes nobody ask anything.
            (true, Domain::Anonymous) => self.figures.known(self.control.as_ref(), &meta),
            (true, _) => self.figures.fresh(&self.control, &meta).await,
        };
        let figures = Arc::new(figures);
        let (api, route) = (Arc::clone(self), routes::table::find(method.as_str(), &path));
        let call = Call { api, meta, status, figures, method, route, path, query, body, user, from };
        routes::dispatch(&call).await
    }

    /// What is known once everything is carried out here that was agreed on, and who sent a request by that: `user` as far as
    /// nothing is new since `meta`.
    async fn identify_anew(
        &self,
        meta: &Arc<Metadata>,
        user: Option<Identity>,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Result<(Arc<Metadata>, Option<Identity>), Refusal> {
        self.control.catch_up().await;
        let now = self.control.metadata();
        if Arc::ptr_eq(&now, meta) {
            return Ok((now, user));
        }
        let user = self.authenticator.identify(&now, headers, peer).await?;
        Ok((now, user))
    }
}

impl Surface for Api {
    fn answer(self: Arc<Self>, parts: Parts, body: Incoming, from: Connection) -> BoxFuture<'static, Reply> {
        Box::pin(async move {
            let mut reply = match self.handle(parts, body, from).await {
                Ok(reply) => reply,
                Err(Refusal(reply)) => *reply,
            };
            browser::secure(&mut reply);
            reply
        })
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

/// Path segments, decoded; `None` when an escape is malformed. Repeated slashes count as one.
fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| form::decode(part.as_bytes(), false)).collect()
}

async fn read_body(parts: &Parts, body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
    let announced =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
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
