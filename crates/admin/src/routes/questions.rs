//! Questions of services on other nodes: the answer goes out part by part, for as long as its sender may ask.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use hyper::body::{Body as HttpBody, Frame};

use http::{
    BoxFuture,
    reply::{self, Outcome},
};

use crate::{node::control::AnswerParts, request::Call};

/// `POST /_settee/services/SERVICE`.
pub(super) async fn answer(call: &Call, service: &str) -> Outcome {
    let answer = call.api.control.ask_service(service, call.body.clone(), &call.user);
    match answer.await {
        Ok(parts) => {
            // The question is the service's now.
            let asked = Call { body: Bytes::new(), ..call.now() };
            let body = Streamed { parts, ended: Box::pin(right_ends(asked)) };
            Ok(reply::with_body(StatusCode::OK, "application/octet-stream", Body::new(body)))
        }
        Err(reason) => Ok(reply::text(StatusCode::SERVICE_UNAVAILABLE, reason)),
    }
}

/// Resolves when the sender may ask no more, or the server stops.
async fn right_ends(mut call: Call) {
    let (mut changes, mut closing) = (call.api.control.watch(), call.from.closing.clone());
    while call.check().is_ok() {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            _ = closing.wait_for(|closing| *closing) => return,
        }
        call = call.now();
    }
}

/// The parts of an answer. One that does not come to its end is cut off, which the other side notices.
struct Streamed {
    parts: Box<dyn AnswerParts>,
    ended: BoxFuture<'static, ()>,
}

impl HttpBody for Streamed {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err("the other node may ask no more, or this one stops".to_owned())));
        }
        self.parts.poll_next(context).map(|part| part.map(|part| part.map(Frame::data)))
    }
}
