//! From an HTTP request to an answer: who sends it, what the answer shows, and which handler.

use std::{sync::Arc, time::Duration};

use axum::http::{Method, request::Parts};
use cluster::{ClusterError, auth::Domain};
use http::{
    Admitted, Asked, BoxFuture, Connection, Surface,
    reply::{Refusal, Reply},
};
use hyper::body::Incoming;
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{
    node::time::now_ms,
    request::{Api, AskedRoute, Call, figures::ClusterFigures, stream},
    routes,
};

/// How often it is looked how the cluster is, for the log.
const STATUS_LOOK: Duration = Duration::from_secs(1);

impl Api {
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
                self.events.note(&seen, &now, now_ms());
                seen = now;
            }
            let now = self.control.cluster_status();
            // While nobody leads, or knows yet, what was known last stands.
            if !now.stale {
                self.events.note_status(&seen, &status, &now, now_ms());
                status = now;
            }
        }
    }

    async fn handle(
        self: &Arc<Self>,
        mut parts: Parts,
        body: Incoming,
        from: Connection,
    ) -> Result<Reply, Refusal> {
        let asked = Asked::of(&parts)?;
        let meta = self.control.metadata();
        if let Some(reply) = routes::health::answer(self.control.as_ref(), &meta, &asked.method, &asked.path)
        {
            return Ok(reply);
        }
        if let Some(reply) = from.node.answer(self.control.as_ref(), &asked) {
            return Ok(reply);
        }
        if let Some(reply) = routes::console::file(&asked, &parts) {
            return Ok(reply);
        }
        if routes::console::is_session(&asked) {
            return routes::console::session(&self.front, &asked, &parts, body, &from).await;
        }
        let route = routes::table::find(asked.method.as_str(), &asked.path);
        let rights = AskedRoute { api: self, route, path: &asked.path, from: &from };
        let admitted = self.front.admit(&asked, &rights, &parts.headers, body, &from).await?;
        if let Some(route) = route
            && routes::views::is_of(route)
        {
            return Ok(routes::views::answer(self.control.as_ref(), parts, asked.path, admitted, from).await);
        }
        let Admitted { meta, user, body } = admitted;
        let Asked { method, path, query } = asked;
        let status = self.control.cluster_status();
        let route = routes::table::find(method.as_str(), &path);
        let figures = match (route.is_some_and(|route| route.needs_figures), user.domain) {
            (false, _) => ClusterFigures::default(),
            // A sender without a login makes nobody ask anything.
            (true, Domain::Anonymous) => self.figures.known(self.control.as_ref(), &meta),
            (true, _) => self.figures.fresh(&self.control, &meta).await,
        };
        let figures = Arc::new(figures);
        let api = Arc::clone(self);
        let call = Call { api, meta, status, figures, method, route, path, query, body, user, from };
        if route.is_some_and(stream::is_telemetry) {
            return stream::telemetry(call, &mut parts);
        }
        carry_out(call).await
    }
}

/// Has a handler answer. One that may change something runs to its end though its client goes meanwhile. The change may be made, and auditors
/// are to hear of it. Until then the connection has its place, so that no user has more of them than connections.
async fn carry_out(call: Call) -> Result<Reply, Refusal> {
    if call.method == Method::GET || call.user.domain == Domain::Internal {
        return routes::dispatch(&call).await;
    }
    let ended = tokio::spawn(async move { routes::dispatch(&call).await }).await;
    ended.unwrap_or_else(|error| Err(ClusterError::Failed(error.to_string()).into()))
}

impl Surface for Api {
    fn answer(self: Arc<Self>, parts: Parts, body: Incoming, from: Connection) -> BoxFuture<'static, Reply> {
        Box::pin(async move {
            let mut reply = match self.handle(parts, body, from).await {
                Ok(reply) => reply,
                Err(Refusal(reply)) => *reply,
            };
            http::secure(&mut reply);
            reply
        })
    }
}
