//! The archive that a node has made last, for an administrator with a browser. A node passes on those of the others.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
};
use cluster::NodeInfo;
use http::{
    BoxFuture,
    reply::{self, Outcome, Refusal, Reply},
};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::spawn_blocking;

use crate::{
    node::control::NodeCall,
    request::{Call, collecting::PartState, figures::question},
    routes::nodes,
};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// The archive of this node, or of the one that the request names.
pub(super) async fn answer(call: &Call) -> Outcome {
    let Some(name) = call.query.get("node") else { return own(call).await };
    match nodes::find(call, name) {
        None => Err(reply::invalid_field("node", "The value must be the name of a node")),
        Some(node) if node.uuid == call.api.control.this_node() => own(call).await,
        Some(node) => of_other(call, node).await,
    }
}

/// That of another node. It is in memory for a moment. As a rule archives have a few megabytes, and nodes take 64 MiB at most from one
/// another.
async fn of_other(call: &Call, node: &NodeInfo) -> Outcome {
    let question = NodeCall { method: "GET".into(), ..question(node, "/settee/archive", Vec::new()) };
    let name = nodes::hostname(call, node);
    match call.api.control.call_node(question).await {
        Ok((200, archive)) => {
            let file = format!("collected-{}.tar", name.replace(['[', ']', ':'], "-"));
            Ok(attached(Body::from(archive), &file))
        }
        Ok((404, _)) => Ok(reply::not_found()),
        Ok((status, _)) => Err(unavailable(&format!("Node {name} answers {status}."))),
        Err(error) => Err(unavailable(&format!("{error}. Ask node {name} itself."))),
    }
}

fn unavailable(text: &str) -> Refusal {
    reply::text(StatusCode::SERVICE_UNAVAILABLE, text).into()
}

/// With the name under which a browser keeps it.
fn attached(body: Body, name: &str) -> Reply {
    let mut answer = reply::with_body(StatusCode::OK, "application/x-tar", body);
    if let Ok(disposition) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    }
    answer
}

/// That of this node, with the name of its file.
async fn own(call: &Call) -> Outcome {
    let last = call.api.figures.collecting.told().part;
    let part = last.filter(|part| part.state == PartState::Collected).ok_or_else(reply::not_found)?;
    let path = part.path.clone();
    let opened = spawn_blocking(move || {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok::<_, io::Error>((file, bytes))
    });
    // Somebody may have moved it elsewhere.
    let Ok(Ok((file, bytes))) = opened.await else { return Ok(reply::not_found()) };
    let body = Body::new(Pieces { left: bytes, next: Some(Box::pin(piece(file, bytes))) });
    Ok(attached(body, &Path::new(&part.path).file_name().unwrap_or_default().to_string_lossy()))
}

type Piece = io::Result<(Bytes, File)>;

/// The next bytes of a file of which so many are left.
async fn piece(mut file: File, left: u64) -> Piece {
    let read = spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(left.min(PIECE_BYTES)).unwrap_or_default()];
        file.read_exact(&mut bytes)?;
        Ok((bytes.into(), file))
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A file as a body. It is read as fast as its reader takes it. A file that has become shorter breaks the connection.
struct Pieces {
    left: u64,
    next: Option<BoxFuture<'static, Piece>>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let Some(next) = self.next.as_mut() else { return Poll::Ready(None) };
        let read = ready!(next.as_mut().poll(context));
        self.next = None;
        Poll::Ready(Some(read.map(|(bytes, file)| {
            self.left = self.left.saturating_sub(bytes.len() as u64);
            self.next = Some(Box::pin(piece(file, self.left)));
            Frame::data(bytes)
        })))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
