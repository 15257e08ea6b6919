//! Port 8092 while there are no views: every request is told so. The port is there because old clients insist on
//! `couchApiBase` in configurations.

use std::sync::Arc;

use axum::http::request::Parts;
use hyper::body::Incoming;

use crate::{
    call::Connection,
    control::BoxFuture,
    reply::{self, Reply},
    serve::Surface,
};

/// What answers on 8092.
#[derive(Debug, Default)]
pub struct Views;

impl Surface for Views {
    fn answer(self: Arc<Self>, _: Parts, _: Incoming, _: Connection) -> BoxFuture<'static, Reply> {
        Box::pin(async { reply::not_implemented("views are not part of Settee yet") })
    }
}
