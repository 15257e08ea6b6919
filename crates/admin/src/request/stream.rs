//! Answers that never end: a configuration, then a new one whenever it changes, each followed by four newlines. Those are
//! an HTTP chunk of their own, which the Java clients up to 1.4 wait for.
//!
//! Nothing is queued for a slow reader: the next configuration is made when the connection has taken the last one, and
//! is then the newest. Rights are checked again for each, so a stream ends when its user loses them. It also ends when
//! what it shows is gone, or when the server stops. With `?heartbeat=<seconds>` the four newlines alone are sent at
//! that interval.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{StatusCode, request::Parts},
};
use cluster::{AppTelemetry, TELEMETRY_PATH, auth::Privilege};
use hyper::body::{Body as HttpBody, Frame};
use tokio::{sync::watch, task::spawn_blocking};

use http::{
    BoxFuture,
    reply::{self, Outcome, Refusal},
};

use ::watch::sdk::Report;

use super::{
    call::Call,
    route::Route,
    telemetry::{self, Client},
};
use crate::node::counted::is_told_of;

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

/// Whether requests of that route open a conversation by which a client tells how long its operations took.
pub(crate) fn is_telemetry(route: &Route) -> bool {
    route.path == TELEMETRY_PATH.trim_start_matches('/')
}

/// Begins that conversation.
pub(crate) fn telemetry(mut call: Call, parts: &mut Parts) -> Outcome {
    let (all, afterwards) = (Arc::clone(&call.api.telemetry), Arc::clone(&call.from.afterwards));
    // What follows on a connection must not keep itself.
    call.from.afterwards = Arc::default();
    telemetry::open(&all, Telling(call), parts, &afterwards)
}

/// A client that tells, by the request that it began with.
struct Telling(Call);

impl Client for Telling {
    fn still_asked(&mut self) -> Result<AppTelemetry, &'static str> {
        self.0 = self.0.now();
        let call = &self.0;
        let settings = call.meta.app_telemetry().ok_or("telemetry was switched off")?;
        let chain = call.from.shown.chain.as_ref();
        let is_vouched_for = chain.is_none_or(|chain| chain.is_vouched_for(&call.meta));
        if call.check().is_ok() && is_vouched_for { Ok(settings) } else { Err("it may not tell any more") }
    }

    fn told(&self, answer: Vec<u8>) -> BoxFuture<'static, bool> {
        let call = self.0.clone();
        // Not where requests are answered: a megabyte of lines takes a while.
        let read = move || {
            let Some(text) = telemetry::report(&answer) else { return false };
            // Of a bucket that its user has nothing to do with a client knows nothing.
            let names = call.meta.buckets.keys().map(String::as_str);
            let held: BTreeSet<_> =
                names.filter(|name| call.holds(Privilege::BucketRead, Some(name))).collect();
            let report = Report::read(text, |node, bucket| {
                is_told_of(&call.meta, node, bucket) && bucket.is_none_or(|name| held.contains(name))
            });
            call.api.control.told_by_sdk(&report);
            true
        };
        Box::pin(async move { spawn_blocking(read).await.unwrap_or(false) })
    }

    fn changes(&self) -> watch::Receiver<i64> {
        self.0.api.control.watch()
    }

    fn closing(&self) -> watch::Receiver<bool> {
        self.0.from.closing.clone()
    }
}
