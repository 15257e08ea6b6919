//! Answers that never end: a configuration, then a new one whenever it changes, each followed by four newlines. Those are
//! an HTTP chunk of their own, which the Java clients up to 1.4 wait for.
//!
//! Nothing is queued for a slow reader: the next configuration is made when the connection has taken the last one, and
//! is then the newest. Rights are checked again for each, so a stream ends when its user loses them, when what it shows
//! is gone, or when the server stops. With `?heartbeat=<seconds>` the four newlines alone are sent at that interval.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::watch;

use http::{
    BoxFuture,
    reply::{self, Outcome, Refusal},
};

use super::call::Call;

/// Ends every configuration.
const SEPARATOR: &str = "\n\n\n\n";
/// The longest interval worth a timer.
const HEARTBEAT_SECS_MAX: u64 = 3600;

/// Makes the text of a configuration.
pub(crate) type Render = fn(&Call, &str) -> Result<String, Refusal>;

/// Streams what `render` makes of `subject` (a bucket's name, or empty).
pub(crate) fn stream(call: &Call, subject: &str, render: Render) -> Outcome {
    let mut changes = call.api.control.watch();
    changes.mark_unchanged();
    let call = call.now();
    let first = render(&call, subject)?;
    let seconds = call.query.get("heartbeat").and_then(|value| value.parse::<u64>().ok());
    let heartbeat = seconds.filter(|s| *s > 0).map(|s| Duration::from_secs(s.min(HEARTBEAT_SECS_MAX)));
    let state = State {
        closing: call.from.closing.clone(),
        subject: subject.to_owned(),
        call,
        render,
        changes,
        heartbeat,
        fresh: true,
        ended: true,
        last: first,
    };
    let body = Body::new(Chunks { next: Some(Box::pin(state.next())) });
    Ok(reply::with_body(StatusCode::OK, "application/json; charset=utf-8", body))
}

struct State {
    call: Call,
    subject: String,
    render: Render,
    changes: watch::Receiver<i64>,
    closing: watch::Receiver<bool>,
    heartbeat: Option<Duration>,
    /// Whether `last` has yet to be sent.
    fresh: bool,
    /// Whether the newlines behind what was sent last were sent, too.
    ended: bool,
    last: String,
}

impl State {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if !self.ended {
            self.ended = true;
            return Some((Bytes::from_static(SEPARATOR.as_bytes()), self));
        }
        while !self.fresh {
            let heartbeat = self.heartbeat;
            let beat = async move {
                match heartbeat {
                    Some(interval) => tokio::time::sleep(interval).await,
                    None => std::future::pending().await,
                }
            };
            let changed = tokio::select! {
                changed = self.changes.changed() => {
                    changed.ok()?;
                    true
                }
                _ = self.closing.wait_for(|closing| *closing) => return None,
                () = beat => false,
            };
            if !changed {
                return Some((Bytes::from_static(SEPARATOR.as_bytes()), self));
            }
            self.call = self.call.now();
            self.call.check().ok()?;
            let chain = self.call.from.shown.chain.as_ref();
            if chain.is_some_and(|chain| !chain.is_vouched_for(&self.call.meta)) {
                return None;
            }
            let text = (self.render)(&self.call, &self.subject).ok()?;
            self.fresh = text != self.last;
            self.last = text;
        }
        (self.fresh, self.ended) = (false, false);
        Some((self.last.clone().into(), self))
    }
}

/// A body made of what a [`State`] yields.
struct Chunks {
    next: Option<BoxFuture<'static, Option<(Bytes, State)>>>,
}

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(next) = self.next.as_mut() else { return Poll::Ready(None) };
        let yielded = ready!(next.as_mut().poll(context));
        self.next = None;
        Poll::Ready(yielded.map(|(bytes, state)| {
            self.next = Some(Box::pin(state.next()));
            Ok(Frame::data(bytes))
        }))
    }
}
