//! What a request asks, read off the threads that serve everybody where it is long.

use std::time::Duration;

use axum::{
    body::Bytes,
    http::{HeaderMap, Method, header, request::Parts},
};
use tokio::task::spawn_blocking;
use views::{
    query::{Body, Parameters, Query},
    refusal::Refusal,
};

use crate::{answer, path::Target};

/// Longer ones are read on a thread that may block. This many bytes take less than a millisecond, and megabytes of keys take many.
pub(super) const READ_AT_ONCE: usize = 16 << 10;

/// The query that a request is, of a view with or without a reduction.
pub(super) async fn query(parts: &Parts, body: &Bytes, has_reduction: bool) -> Result<Query, Refusal> {
    if body.len() <= READ_AT_ONCE {
        return read(parts, body, has_reduction);
    }
    let (parts, body) = (parts.clone(), body.clone());
    let query = spawn_blocking(move || read(&parts, &body, has_reduction)).await;
    query.unwrap_or_else(|error| Err(answer::failed(error.to_string())))
}

/// How long the sender of a request for rows waits, where it says so.
pub(crate) async fn timeout(target: Target<'_>, parts: &Parts, body: &Bytes) -> Option<Duration> {
    let Target::View(..) = target else { return None };
    query(parts, body, true).await.ok()?.connection_timeout.map(Duration::from_millis)
}

/// A POST has parameters in its body as well.
fn read(parts: &Parts, body: &[u8], has_reduction: bool) -> Result<Query, Refusal> {
    let query = parts.uri.query().unwrap_or_default();
    let content_type = content_type(&parts.headers);
    let body = (parts.method == Method::POST).then_some(Body { content_type, bytes: body });
    Parameters::parse(query, body)?.query(has_reduction)
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok())
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::mpsc::channel,
        task::{Context, Poll, Waker},
    };

    use super::*;

    /// A POST with this many keys.
    fn request(keys: usize) -> (Parts, Bytes) {
        let request = axum::http::Request::post("/b/_design/d/_view/v?limit=7");
        let request = request.header(header::CONTENT_TYPE, "application/json").body(()).unwrap();
        let body = serde_json::json!({ "keys": vec!["k"; keys] }).to_string();
        (request.into_parts().0, body.into())
    }

    #[test]
    fn keys_of_a_long_body_are_read_on_a_thread_that_may_block() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (go_on, waits) = channel::<()>();
        let blocks = runtime.spawn_blocking(move || waits.recv());
        let _entered = runtime.enter();
        let mut context = Context::from_waker(Waker::noop());
        let told = |query: Query| (query.ranges.len(), query.limit);

        let (parts, short) = request(3);
        let read = pin!(query(&parts, &short, false)).poll(&mut context);
        assert_eq!(read.map_ok(told), Poll::Ready(Ok((3, 7))));

        let (parts, long) = request(60_000);
        let mut read = pin!(query(&parts, &long, false));
        assert!(read.as_mut().poll(&mut context).is_pending(), "the only such thread has other work");
        go_on.send(()).unwrap();
        assert_eq!(runtime.block_on(read).map(told), Ok((60_000, 7)));
        runtime.block_on(blocks).unwrap().unwrap();

        let malformed = long.slice(..long.len() - 2);
        let refused = runtime.block_on(query(&parts, &malformed, false)).err();
        assert_eq!(refused.map(|refused| refused.status), Some(400));
    }
}
