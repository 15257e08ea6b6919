//! One request after its body was read and its sender identified, and what handlers ask of it.

use std::{net::SocketAddr, sync::Arc};

use axum::{body::Bytes, http::Method};
use cluster::{
    Applied, BucketInfo, Command, Metadata,
    auth::{Domain, Identity, Privilege, Privileges, privileges},
    config::named_host,
};
use tokio::sync::watch;

use crate::{
    api::Api,
    cluster_status::ClusterStatus,
    control::{AuditEvent, AuditKind},
    figures::ClusterFigures,
    form::Form,
    permissions,
    places::Place,
    reply::{self, Refusal},
    routes,
};

/// Where a request came in.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// The address the client reached this node by.
    pub(crate) local: SocketAddr,
    /// Turns true when the server stops; streams end then.
    pub(crate) closing: watch::Receiver<bool>,
    /// The connection's place among those of its listener.
    pub(crate) place: Arc<Place>,
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

    /// What the sender may do in `bucket`, or on the cluster.
    ///
    /// Clients older than users may read what they bootstrap from and nothing else, however much KV allows them.
    fn privileges(&self, bucket: Option<&str>) -> Privileges {
        privileges(&self.meta, &self.user, bucket)
    }

    /// Whether the sender holds a right on the cluster (`bucket` absent) or in a whole bucket.
    pub(crate) fn holds(&self, privilege: Privilege, bucket: Option<&str>) -> bool {
        match self.user.domain {
            Domain::Admin | Domain::Local | Domain::External | Domain::Internal => {
                self.privileges(bucket).has(privilege)
            }
            Domain::Bucket | Domain::Anonymous => self.legacy_holds(privilege, bucket),
        }
    }

    fn legacy_holds(&self, privilege: Privilege, bucket: Option<&str>) -> bool {
        let reads = |name: &str| self.privileges(Some(name)).has(Privilege::BucketRead);
        match (privilege, bucket) {
            (Privilege::PoolsRead, None) => self.meta.buckets.keys().any(|name| reads(name)),
            (Privilege::BucketRead, Some(bucket)) => reads(bucket),
            _ => false,
        }
    }

    /// Refuses unless [`Call::holds`].
    pub(crate) fn require(&self, privilege: Privilege, bucket: Option<&str>) -> Result<(), Refusal> {
        if self.holds(privilege, bucket) { Ok(()) } else { Err(self.denied(privilege, bucket)) }
    }

    /// Refuses unless the right is held somewhere in the bucket.
    pub(crate) fn require_somewhere(
        &self,
        privilege: Privilege,
        bucket: &str,
    ) -> Result<Privileges, Refusal> {
        let held = self.privileges(Some(bucket));
        let legacy = matches!(self.user.domain, Domain::Bucket | Domain::Anonymous);
        if held.has_somewhere(privilege) && !legacy {
            Ok(held)
        } else {
            Err(self.denied(privilege, Some(bucket)))
        }
    }

    /// Refuses whoever has not said who he is.
    pub(crate) fn require_somebody(&self) -> Result<(), Refusal> {
        if self.user.domain == Domain::Anonymous { Err(reply::unauthorized()) } else { Ok(()) }
    }

    /// The refusal for a missing right: nobody is asked for a password, somebody is told what is missing.
    pub(crate) fn denied(&self, privilege: Privilege, bucket: Option<&str>) -> Refusal {
        self.audit(AuditKind::AccessDenied, &self.path.join("/"), permissions::name(privilege, bucket));
        if self.user.domain == Domain::Anonymous {
            reply::unauthorized()
        } else {
            reply::forbidden(&[permissions::name(privilege, bucket)])
        }
    }

    /// The bucket of that name, if it has the uuid the request insists on.
    pub(crate) fn bucket(&self, name: &str) -> Result<&BucketInfo, Refusal> {
        let bucket = self.meta.buckets.get(name).ok_or_else(reply::not_found)?;
        match self.query.get("bucket_uuid") {
            Some(uuid) if uuid != bucket.uuid.0 => {
                let text = "Bucket uuid does not match the requested.\r\n";
                Err(reply::text(axum::http::StatusCode::NOT_FOUND, text).into())
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
        let figures = match routes::shows_figures(&self.path) {
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
