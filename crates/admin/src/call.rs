//! One request after its body was read and its sender identified, and what handlers ask of it.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
};
use cluster::{
    Applied, BucketInfo, Command, Metadata,
    auth::{Domain, Identity, Privilege},
    config::named_host,
};

use http::{
    AuditEvent, AuditKind, Connection,
    form::Form,
    permissions,
    reply::{self, Refusal},
};

use crate::{
    api::Api,
    cluster_status::ClusterStatus,
    figures::ClusterFigures,
    rights::{Lack, On, Sender},
    routes::table::Route,
};

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
        let Some(route) = self.route else { return Ok(()) };
        let (bucket, scope) =
            (route.parameter("{bucket}", &self.path), route.parameter("{scope}", &self.path));
        match self.sender().lacks(route.needs, bucket, scope) {
            None => Ok(()),
            Some(Lack::Login) => Err(reply::unauthorized()),
            Some(Lack::Right(privilege, On::Cluster)) => Err(self.denied(privilege, None)),
            Some(Lack::Right(privilege, On::Bucket)) => Err(self.denied(privilege, bucket)),
            Some(Lack::Everything) => Err(self.denied_all()),
            Some(Lack::Membership) => {
                Err(reply::text(StatusCode::FORBIDDEN, "This node was removed or failed over.").into())
            }
        }
    }

    /// Refuses a sender without a right on the cluster that what the request contains needs.
    pub(crate) fn require(&self, privilege: Privilege) -> Result<(), Refusal> {
        if self.holds(privilege, None) { Ok(()) } else { Err(self.denied(privilege, None)) }
    }

    /// Refuses everybody but full administrators.
    pub(crate) fn require_everything(&self) -> Result<(), Refusal> {
        if self.sender().holds_everything() { Ok(()) } else { Err(self.denied_all()) }
    }

    /// The refusal for a missing right: nobody is asked for a password, somebody is told what is missing.
    pub(crate) fn denied(&self, privilege: Privilege, bucket: Option<&str>) -> Refusal {
        self.denied_by_name(permissions::name(privilege, bucket))
    }

    fn denied_all(&self) -> Refusal {
        self.denied_by_name(permissions::EVERYTHING.into())
    }

    fn denied_by_name(&self, name: String) -> Refusal {
        self.audit(AuditKind::AccessDenied, &self.path.join("/"), name.as_str());
        if self.user.domain == Domain::Anonymous { reply::unauthorized() } else { reply::forbidden(&[name]) }
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

    /// Has a command decided and carried out.
    pub(crate) async fn submit(&self, command: Command) -> Result<Applied, Refusal> {
        Ok(self.api.control.submit(command).await?)
    }

    /// Takes note of something for auditors.
    pub(crate) fn audit(&self, kind: AuditKind, subject: &str, details: impl Into<String>) {
        self.api.control.audit(AuditEvent {
            kind,
            user: self.user.clone(),
            peer: Some(self.from.peer),
            subject: subject.to_owned(),
            details: details.into(),
        });
    }
}
