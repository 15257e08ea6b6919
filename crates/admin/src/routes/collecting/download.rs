//! The archive that a node has made last, for an administrator with a browser.

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
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::spawn_blocking;

use crate::request::{Call, collecting::PartState};
use http::{
    BoxFuture,
    reply::{self, Outcome},
};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// The archive of this node, with the name of its file.
pub(super) async fn answer(call: &Call) -> Outcome {
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
    let mut answer = reply::with_body(StatusCode::OK, "application/x-tar", body);
    let name = Path::new(&part.path).file_name().unwrap_or_default().to_string_lossy();
    if let Ok(disposition) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        answer.headers_mut().insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(answer)
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
