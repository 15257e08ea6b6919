//! The body of the answer to a view query, made while the client takes it.
//!
//! - What blocks (the index on the disk, functions in their process) runs on threads for that, a piece at a time. A client that is slow
//!   holds none of them, and a node that is slow holds none either.
//! - What is held is a piece, and of each other node what came last.
//! - A client that leaves ends the query, here and on the other nodes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use axum::body::{Body, Bytes};
use http::BoxFuture;
use hyper::body::{Body as HttpBody, Frame};
use service::{Answer, AskError};
use tokio::{sync::Semaphore, task::spawn_blocking};
use views::{
    index::{Functions, Pull, Source, SourceError, wire::Remote},
    response::{Progress, Response},
};

use crate::{
    queries::Local,
    wanted::{HasLeft, PIECE_TIME, Wanted},
};

/// About how many bytes a piece has.
const PIECE_BYTES: usize = 64 << 10;
/// Rows that are looked at for a piece; of those that are skipped there is nothing to send.
const PIECE_ROWS: usize = 4096;

/// The answer of a node.
pub(crate) enum NodeAnswer {
    /// Of this one.
    Here(Box<Local>),
    /// Of another one.
    There(Box<There>),
    /// Of none: this is why.
    Nowhere(SourceError),
}

/// The answer of another node.
pub(crate) struct There {
    /// Where the node is. Errors that keep it from answering are told to be from there.
    pub address: String,
    /// What has come of it.
    pub remote: Remote,
    /// How it comes.
    pub answer: Answer,
}

impl There {
    /// Waits for what comes next.
    async fn feed(&mut self) {
        match self.answer.next().await {
            Ok(Some(part)) => self.remote.push(&part),
            Ok(None) => self.remote.close(Ok(())),
            Err(error) => {
                let reason = match error {
                    AskError::TimedOut => "timeout".to_owned(),
                    other => other.to_string(),
                };
                self.remote.close(Err(SourceError::new(self.address.clone(), reason)));
            }
        }
    }
}

impl Source for NodeAnswer {
    fn pull(&mut self, functions: &mut dyn Functions) -> Result<Pull, SourceError> {
        match self {
            Self::Here(answer) => answer.pull(functions),
            Self::There(there) => there.remote.pull(functions),
            Self::Nowhere(error) => Err(error.clone()),
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        match self {
            Self::Here(answer) => answer.total_rows(),
            Self::There(there) => there.remote.total_rows(),
            Self::Nowhere(error) => Err(error.clone()),
        }
    }

    fn lacks(&mut self) -> Option<SourceError> {
        match self {
            Self::Here(answer) => answer.lacks(),
            Self::There(there) => there.remote.lacks(),
            Self::Nowhere(_) => None,
        }
    }
}

/// The body of an answer. `functions` reduce what several nodes have of a group. Each piece is made in one of the places of `pieces`, and
/// `held` is dropped with the body. The client has left once that drops `wanted`.
pub(crate) fn body<F: Functions + Send + 'static>(
    response: Response<NodeAnswer>,
    functions: F,
    pieces: Arc<Semaphore>,
    (wanted, held): (Wanted, impl Send + 'static),
) -> Body {
    let making = Making { response, functions, pieces, has_left: wanted.has_left(), is_waiting: false };
    Body::new(Pieces { next: Some(Box::pin(making.next())), _wanted: wanted, _held: held })
}

/// An answer that is being made.
struct Making<F> {
    response: Response<NodeAnswer>,
    functions: F,
    pieces: Arc<Semaphore>,
    has_left: HasLeft,
    is_waiting: bool,
}

/// The next piece, and what makes those behind it.
type Made<F> = Result<(Vec<u8>, Option<Making<F>>), Broken>;

/// A thread that made a piece panicked.
#[derive(Debug, thiserror::Error)]
#[error("the answer could not be made")]
struct Broken;

impl<F: Functions + Send + 'static> Making<F> {
    async fn next(mut self) -> Made<F> {
        loop {
            if std::mem::take(&mut self.is_waiting) {
                self.feed().await;
            }
            let place = Arc::clone(&self.pieces).acquire_owned().await.map_err(|_| Broken)?;
            let made = spawn_blocking(move || {
                let _until_it_is_made = place;
                self.piece()
            });
            let (made, piece, progress) = made.await.map_err(|_| Broken)?;
            self = made;
            self.is_waiting = progress == Progress::Waiting;
            match progress {
                Progress::Ended => return Ok((piece, None)),
                _ if !piece.is_empty() => return Ok((piece, Some(self))),
                _ => {}
            }
        }
    }

    fn piece(mut self) -> (Self, Vec<u8>, Progress) {
        let (mut piece, mut rows, began) = (Vec::new(), 0, Instant::now());
        let progress = self.response.fill(&mut self.functions, &mut piece, |bytes| {
            rows += 1;
            let is_late = rows > 1 && began.elapsed() >= PIECE_TIME;
            bytes >= PIECE_BYTES || rows > PIECE_ROWS || is_late || self.has_left.get()
        });
        (self, piece, progress)
    }

    /// Waits for those nodes without whose next item there is no next row.
    async fn feed(&mut self) {
        for source in self.response.sources() {
            if let NodeAnswer::There(there) = source
                && there.remote.is_waiting()
            {
                there.feed().await;
            }
        }
    }
}

/// The pieces as a body.
struct Pieces<F, H> {
    next: Option<BoxFuture<'static, Made<F>>>,
    _wanted: Wanted,
    _held: H,
}

// Nothing of it is referred to from within: the future has a place of its own.
impl<F, H> Unpin for Pieces<F, H> {}

impl<F: Functions + Send + 'static, H: Send + 'static> HttpBody for Pieces<F, H> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(next) = self.next.as_mut() else { return Poll::Ready(None) };
        let made = ready!(next.as_mut().poll(context));
        self.next = None;
        Poll::Ready(Some(made.map(|(piece, making)| {
            self.next = making.map(|making| Box::pin(making.next()) as BoxFuture<'static, Made<F>>);
            Frame::data(piece.into())
        })))
    }
}

#[cfg(test)]
mod tests;
