//! One request after its body was read and its sender identified, and what handlers ask of it.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
};
use cluster::{
    Applied, BucketInfo, ClusterError, Command, Metadata,
    auth::{Domain, Identity, Privilege},
    config::named_host,
};

use http::{
    AuditEvent, AuditKind, Connection, Rights,
    form::Form,
    permissions,
    reply::{self, Refusal},
};

use super::{
    api::Api,
    figures::ClusterFigures,
    rights::{Lack, Named, On, Sender},
    route::{Alone, Route, UNDECIDED_FAILOVER},
};
use crate::node::cluster_status::ClusterStatus;

/// Longest body of a request that no route takes.
const UNKNOWN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest body of a request that is not about the agreement of the nodes or a question of one of their services.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a request asks for, as far as its sender has to have a right to it.
#[derive(Clone, Copy)]
pub(crate) struct AskedRoute<'a> {
    pub(crate) api: &'a Api,
    pub(crate) route: Option<&'static Route>,
    /// Decoded path segments.
    pub(crate) path: &'a [String],
    pub(crate) from: &'a Connection,
}

impl Rights for AskedRoute<'_> {
    type Lack = Lack;

    fn body_bytes_max(&self) -> usize {
        match self.route {
            None => UNKNOWN_BODY_BYTES_MAX,
            Some(route) if route.path.starts_with("_settee/") => usize::MAX,
            Some(_) => BODY_BYTES_MAX,
        }
    }

    fn lacks(&self, meta: &Metadata, user: &Identity) -> Option<Lack> {
        let route = self.route?;
        let of = |name| route.parameter(name, self.path);
        let (bucket, scope, collection) = (of("{bucket}"), of("{scope}"), of("{collection}"));
        Sender { meta, user }.lacks(route.needs, Named { bucket, scope, collection })
    }

    fn check_alone(&self, body: &[u8]) -> Result<(), Refusal> {
        let is_unsafe = || Form::parse(body).is_some_and(|form| form.get("allowUnsafe") == Some("true"));
        match self.route.map(|route| route.alone) {
            // Nothing is carried out without a route.
            None | Some(Alone::CarriedOut) => Ok(()),
            Some(Alone::IfUnsafe) if is_unsafe() => Ok(()),
            Some(Alone::IfUnsafe) => Err(reply::text(StatusCode::GATEWAY_TIMEOUT, UNDECIDED_FAILOVER).into()),
            Some(Alone::Refused) => Err(reply::unsure()),
        }
    }

    fn refuse(&self, user: &Identity, lack: Lack) -> Refusal {
        let bucket = self.route.and_then(|route| route.parameter("{bucket}", self.path));
        match lack {
            Lack::Login => reply::unauthorized(),
            Lack::Right(privilege, On::Cluster) => self.denied(user, permissions::name(privilege, None)),
            Lack::Right(privilege, On::Bucket) => self.denied(user, permissions::name(privilege, bucket)),
            Lack::Everything => self.denied(user, permissions::EVERYTHING.into()),
            Lack::Membership => {
                reply::text(StatusCode::FORBIDDEN, "This node was removed or failed over.").into()
            }
        }
    }
}

impl AskedRoute<'_> {
    /// The refusal for a missing right: a sender without a login is asked for a password, a user is told what is missing.
    fn denied(&self, user: &Identity, right: String) -> Refusal {
        self.api.control.audit(AuditEvent {
            kind: AuditKind::AccessDenied,
            user: user.clone(),
            peer: Some(self.from.peer),
            subject: self.path.join("/"),
            details: right.clone(),
        });
        if user.domain == Domain::Anonymous { reply::unauthorized() } else { reply::forbidden(&[right]) }
    }
}

/// One request.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    /// The state when the request arrived.
    pub(crate) meta: Arc<Metadata>,
    /// How the cluster was then.
    pub(crate) status: Arc<ClusterStatus>,
    /// What was known then of every node, where the path shows any of it.
    pub(crate) figures: Arc<ClusterFigures>,
    pub(crate) method: Method,
    /// What it asks for, if there is such a thing.
    pub(crate) route: Option<&'static Route>,
    /// Decoded path segments.
    pub(crate) path: Vec<String>,
    pub(crate) query: Form,
    pub(crate) body: Bytes,
    pub(crate) user: Identity,
    pub(crate) from: Connection,
}

impl Call {
    /// The body as a form.
    pub(crate) fn form(&self) -> Result<Form, Refusal> {
        Form::parse(&self.body).ok_or_else(|| reply::bad_request("Malformed form data"))
    }

    /// The sender's rights, by the state when the request arrived.
    pub(crate) fn sender(&self) -> Sender<'_> {
        Sender { meta: &self.meta, user: &self.user }
    }

    /// Whether the sender holds a right on the cluster (`bucket` absent) or in a whole bucket.
    pub(crate) fn holds(&self, privilege: Privilege, bucket: Option<&str>) -> bool {
        self.sender().holds(privilege, bucket)
    }

    /// Refuses a sender that lacks what the request's route needs.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let asked = self.asked();
        match asked.lacks(&self.meta, &self.user) {
            None => Ok(()),
            Some(lack) => Err(asked.refuse(&self.user, lack)),
        }
    }

    fn asked(&self) -> AskedRoute<'_> {
        AskedRoute { api: &self.api, route: self.route, path: &self.path, from: &self.from }
    }

    /// Refuses a sender without a right on the cluster that what the request contains needs.
    pub(crate) fn require(&self, privilege: Privilege) -> Result<(), Refusal> {
        if self.holds(privilege, None) { Ok(()) } else { Err(self.denied(privilege, None)) }
    }

    /// Refuses everybody but full administrators.
    pub(crate) fn require_everything(&self) -> Result<(), Refusal> {
        if self.sender().holds_everything() { Ok(()) } else { Err(self.denied_all()) }
    }

    /// The refusal for a missing right.
    pub(crate) fn denied(&self, privilege: Privilege, bucket: Option<&str>) -> Refusal {
        self.asked().denied(&self.user, permissions::name(privilege, bucket))
    }

    fn denied_all(&self) -> Refusal {
        self.asked().denied(&self.user, permissions::EVERYTHING.into())
    }

    /// The bucket of that name, if it has the uuid the request insists on.
    pub(crate) fn bucket(&self, name: &str) -> Result<&BucketInfo, Refusal> {
        let bucket = self.meta.buckets.get(name).ok_or_else(reply::not_found)?;
        match self.query.get("bucket_uuid") {
            Some(uuid) if uuid != bucket.uuid.0 => {
                let text = "Bucket uuid does not match the requested.\r\n";
                Err(reply::text(StatusCode::NOT_FOUND, text).into())
            }
            _ => Ok(bucket),
        }
    }

    /// The host in addresses shown to this client: the node's own name, or the address the client used.
    pub(crate) fn host_of(&self, node: &cluster::NodeInfo) -> String {
        let host = named_host(&self.meta, node)
            .map_or_else(|| self.from.local.ip().to_canonical().to_string(), str::to_owned);
        if host.contains(':') { format!("[{host}]") } else { host }
    }

    /// The same request, looking at the state as it is now.
    pub(crate) fn now(&self) -> Call {
        let control = &self.api.control;
        let meta = control.metadata();
        let figures = match self.route.is_some_and(|route| route.needs_figures) {
            true => Arc::new(self.api.figures.known(control.as_ref(), &meta)),
            false => Arc::default(),
        };
        Call { status: control.cluster_status(), figures, meta, ..self.clone() }
    }

    /// Has a command decided and carried out, and auditors told.
    pub(crate) async fn change(
        &self,
        command: Command,
        kind: AuditKind,
        subject: &str,
        details: impl Into<String>,
    ) -> Result<Applied, Refusal> {
        let ended = self.api.control.submit(command).await;
        self.audit_end(&ended, kind, subject, details);
        Ok(ended?)
    }

    /// Takes note of how a change has ended ([`AuditEvent::of_end`]).
    pub(crate) fn audit_end<T>(
        &self,
        ended: &Result<T, ClusterError>,
        kind: AuditKind,
        subject: &str,
        details: impl Into<String>,
    ) {
        if let Some(event) = self.event(kind, subject, details.into()).of_end(ended) {
            self.api.control.audit(event);
        }
    }

    /// Takes note of something for auditors.
    pub(crate) fn audit(&self, kind: AuditKind, subject: &str, details: impl Into<String>) {
        self.api.control.audit(self.event(kind, subject, details.into()));
    }

    fn event(&self, kind: AuditKind, subject: &str, details: String) -> AuditEvent {
        let (user, peer) = (self.user.clone(), Some(self.from.peer));
        AuditEvent { kind, user, peer, subject: subject.to_owned(), details }
    }
}
