//! Starting the control plane: what a new node is set up with, and what it serves.

use std::{net::TcpListener, sync::Arc};

use admin::{Api, NodeControl, Views};
use base::BucketUuid;
use cluster::{
    Admin, Command, Initialize, QuotaChange,
    auth::{Credentials, SALT_BYTES},
};
use http::Limits;
use tokio::sync::watch;

use super::Control;
use crate::runtime::{
    ServeError,
    options::{InitBucket, InitOptions},
    random_uuid,
};

/// Listeners of the control plane.
pub(crate) struct ControlListeners {
    pub(crate) mgmt: TcpListener,
    pub(crate) mgmt_tls: TcpListener,
    pub(crate) capi: TcpListener,
}

impl Control {
    /// What `POST /clusterInit` would do on a node that is new, and a first bucket on one that has none.
    pub(crate) async fn initialize_unattended(&self, init: &InitOptions) -> Result<(), ServeError> {
        if self.metadata.load().nodes.len() > 1 {
            // A member of a cluster is set up, and what it has is not for this node to say.
            return Ok(());
        }
        if !self.metadata.load().initialized {
            let objection =
                admin::administrator_objection(&self.metadata.load(), &init.username, &init.password);
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
            Some(bucket) if self.metadata.load().buckets.is_empty() => {
                self.propose(create_bucket(bucket)?).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Serves REST, plain and over TLS, and the view port's honest refusal, until `shutdown` turns true.
    pub(crate) fn serve(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Runtime,
        listeners: ControlListeners,
        shutdown: &watch::Sender<bool>,
    ) -> Result<(), ServeError> {
        let _context = runtime.enter();
        let api = Api::new(Arc::clone(self) as Arc<dyn NodeControl>)?;
        let ended = || shutdown.subscribe();
        let (plain, tls, views) = (
            tokio::net::TcpListener::from_std(listeners.mgmt)?,
            tokio::net::TcpListener::from_std(listeners.mgmt_tls)?,
            tokio::net::TcpListener::from_std(listeners.capi)?,
        );
        let limits = Limits::default();
        let keeper = Arc::clone(&api);
        runtime.spawn(http::serve(plain, None, Arc::clone(&api), limits, ended()));
        let shown = Arc::clone(&self.certificates);
        let now = Arc::new(move || shown.now());
        runtime.spawn(http::serve(tls, Some(now), api, limits, ended()));
        runtime.spawn(http::serve(views, None, Arc::new(Views), limits, ended()));
        runtime.spawn(keeper.keep_log(ended()));
        let (buckets, account) = (Arc::clone(&self.buckets), Arc::clone(&self.shared.account));
        runtime.spawn(Arc::clone(&self.gauges).sample(buckets, account, ended()));
        runtime.spawn(Arc::clone(self).reopen(ended()));
        Ok(())
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
