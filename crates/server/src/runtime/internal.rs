//! What other nodes of the cluster may ask of this one: `POST /_settee/<name>`.

use std::{collections::BTreeMap, sync::Arc};

use cluster::ClusterError;
use http::BoxFuture;
use parking_lot::RwLock;

/// What answers one kind of question: the body in, the body of the answer out.
type Handler = Arc<dyn Fn(Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, ClusterError>> + Send + Sync>;

/// Who answers what, by name.
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
        self.handlers.write().insert(name, Arc::new(move |body| Box::pin(handler(body))));
    }

    /// Answers a question.
    pub(crate) fn answer(
        &self,
        name: &str,
        body: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, ClusterError>> {
        let handler = self.handlers.read().get(name).cloned();
        match handler {
            Some(handler) => handler(body),
            None => {
                let unknown = ClusterError::NotSupported(format!("{name} is not known"));
                Box::pin(std::future::ready(Err(unknown)))
            }
        }
    }
}
