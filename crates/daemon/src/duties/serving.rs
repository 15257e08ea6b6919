//! Starting the control plane: what a new node is set up with, and what it serves.

use std::{net::TcpListener, sync::Arc};

use admin::{Api, NodeControl};
use base::BucketUuid;
use cluster::{
    Admin, Command, Initialize, QuotaChange,
    auth::{Credentials, SALT_BYTES},
};
use http::{Front, Gate as _, Limits, TlsNow};
use tokio::sync::watch;

use crate::{control::Control, duties::history};
use crate::{
    duties::{alerting, clocks, objectives, probing, turns},
    setup::{
        error::ServeError,
        options::{InitBucket, InitOptions},
        random::random_uuid,
    },
};

impl Control {
    /// What `POST /clusterInit` would do on a node that is new, and a first bucket on one that has none.
    pub(crate) async fn initialize_unattended(&self, init: &InitOptions) -> Result<(), ServeError> {
        if self.metadata().nodes.len() > 1 {
            // A member of a cluster is set up, and what it has is not for this node to say.
            return Ok(());
        }
        if !self.metadata().initialized {
            let objection = admin::administrator_objection(&self.metadata(), &init.username, &init.password);
            if let Some(text) = objection {
                return Err(ServeError::Refused(format!("--init-username and --init-password: {text}")));
            }
            let initialize = Command::Initialize(Initialize {
                admin: Admin { name: init.username.clone(), credentials: credentials(&init.password)? },
                cluster_name: Some(init.cluster_name.clone()).filter(|name| !name.is_empty()),
                quotas: QuotaChange::default(),
            });
            self.propose(initialize).await?;
        }
        // Asked again at every start: the one before may have ended between the two commands.
        match &init.bucket {
            Some(bucket) if self.metadata().buckets.is_empty() => {
                self.propose(create_bucket(bucket)?).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Serves REST, plain and over TLS, until `shutdown` turns true; returns what judges its requests. To be called within
    /// `runtime`.
    pub(crate) fn serve(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Runtime,
        (plain, tls): (TcpListener, TcpListener),
        shutdown: &watch::Sender<bool>,
    ) -> Result<Arc<Front>, ServeError> {
        let api = Api::new(Arc::clone(self) as Arc<dyn NodeControl>)?;
        let ended = || shutdown.subscribe();
        let plain = tokio::net::TcpListener::from_std(plain)?;
        let tls = tokio::net::TcpListener::from_std(tls)?;
        let limits = Limits::default();
        let (front, logged) = (api.front(), Arc::clone(&api));
        runtime.spawn(http::serve(plain, None, Arc::clone(&api), limits, ended()));
        runtime.spawn(http::serve(tls, Some(self.tls_now()), api, limits, ended()));
        runtime.spawn(logged.keep_log(ended()));
        runtime.spawn(Arc::clone(self.gauges()).sample(Arc::clone(self.loops().0), ended()));
        runtime.spawn(history::run(Arc::clone(self), ended()));
        runtime.spawn(objectives::run(Arc::clone(self), ended()));
        let (prober, over) = (Arc::clone(self), ended());
        runtime.spawn_blocking(move || probing::run(&prober, over));
        runtime.spawn(clocks::run(Arc::clone(self), ended()));
        runtime.spawn(alerting::foretell(Arc::clone(self), ended()));
        runtime.spawn(alerting::run(Arc::clone(self), ended()));
        runtime.spawn(turns::run(Arc::clone(self), ended()));
        runtime.spawn(Arc::clone(self).reopen(ended()));
        Ok(front)
    }

    /// The node's certificate as it is when a handshake begins.
    pub(crate) fn tls_now(&self) -> TlsNow {
        let shown = Arc::clone(self.certificates());
        Arc::new(move || shown.now())
    }
}

fn create_bucket(bucket: &InitBucket) -> Result<Command, ServeError> {
    let uuid = BucketUuid(random_uuid()?);
    Ok(Command::CreateBucket { name: bucket.name.clone(), uuid, params: bucket.params() })
}

fn credentials(password: &str) -> Result<Credentials, ServeError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(std::io::Error::other)?;
    Ok(Credentials::new(password, salt))
}
