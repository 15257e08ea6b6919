//! What other nodes of the cluster may ask of this one: `POST /_settee/<name>`.

use std::{collections::BTreeMap, sync::Arc};

use base::NodeId;
use cluster::ClusterError;
use http::BoxFuture;
use parking_lot::RwLock;

/// What answers one kind of question: the node that asks, where its key has signed, and the body in; the body of the answer out.
type Handler =
    Arc<dyn Fn(Option<NodeId>, Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, ClusterError>> + Send + Sync>;

/// What answers each question, by name.
#[derive(Default)]
pub(crate) struct InternalRoutes {
    handlers: RwLock<BTreeMap<&'static str, Handler>>,
}

impl InternalRoutes {
    /// From now on `handler` answers questions of that name.
    pub(crate) fn add<F>(&self, name: &'static str, handler: impl Fn(Vec<u8>) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Vec<u8>, ClusterError>> + Send + 'static,
    {
        self.add_for(name, move |_, body| handler(body));
    }

    /// The same for a handler that looks at who asks.
    pub(crate) fn add_for<F>(
        &self,
        name: &'static str,
        handler: impl Fn(Option<NodeId>, Vec<u8>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Vec<u8>, ClusterError>> + Send + 'static,
    {
        self.handlers.write().insert(name, Arc::new(move |from, body| Box::pin(handler(from, body))));
    }

    /// Answers a question.
    pub(crate) fn answer(
        &self,
        name: &str,
        from: Option<NodeId>,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, ClusterError>> {
        let handler = self.handlers.read().get(name).cloned();
        match handler {
            Some(handler) => handler(from, body),
            None => {
                let unknown = ClusterError::NotSupported(format!("{name} is not known"));
                Box::pin(std::future::ready(Err(unknown)))
            }
        }
    }
}
