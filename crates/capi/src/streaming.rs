//! The body of the answer to a view query, made while the client takes it.
//!
//! - What blocks (the index on the disk, functions in their process) runs on threads for that, a piece at a time. A client that is slow
//!   holds none of them, and a node that is slow holds none either.
//! - What is held is a piece, and of each other node what came last.
//! - A client that leaves ends the query, here and on the other nodes.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::body::{Body, Bytes};
use http::BoxFuture;
use hyper::body::{Body as HttpBody, Frame};
use service::{Answer, AskError};
use views::{
    index::{self, Functions, Pull, Source, SourceError, wire::Remote},
    response::{Progress, Response},
};

/// About how many bytes a piece has.
const PIECE_BYTES: usize = 64 << 10;
/// Rows that are looked at for a piece; of those that are skipped there is nothing to send.
const PIECE_ROWS: usize = 4096;

/// The answer of a node.
pub enum NodeAnswer {
    /// Of this one.
    Here(Box<index::Answer>),
    /// Of another one.
    There(Box<There>),
}

/// The answer of another node.
pub struct There {
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
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        match self {
            Self::Here(answer) => Source::total_rows(&mut **answer),
            Self::There(there) => there.remote.total_rows(),
        }
    }
}

/// The body of an answer. `functions` reduce what several nodes have of a group.
pub fn body<F: Functions + Send + 'static>(response: Response<NodeAnswer>, functions: F) -> Body {
    let has_left = Arc::new(AtomicBool::new(false));
    let making = Making { response, functions, has_left: Arc::clone(&has_left), is_waiting: false };
    Body::new(Pieces { next: Some(Box::pin(making.next())), has_left })
}

/// An answer that is being made.
struct Making<F> {
    response: Response<NodeAnswer>,
    functions: F,
    has_left: Arc<AtomicBool>,
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
            let (made, piece, progress) =
                tokio::task::spawn_blocking(move || self.piece()).await.map_err(|_| Broken)?;
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
        let (mut piece, mut rows) = (Vec::new(), 0);
        let progress = self.response.fill(&mut self.functions, &mut piece, |bytes| {
            rows += 1;
            bytes >= PIECE_BYTES || rows > PIECE_ROWS || self.has_left.load(Ordering::Relaxed)
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
struct Pieces<F> {
    next: Option<BoxFuture<'static, Made<F>>>,
    has_left: Arc<AtomicBool>,
}

impl<F> Drop for Pieces<F> {
    fn drop(&mut self) {
        self.has_left.store(true, Ordering::Relaxed);
    }
}

impl<F: Functions + Send + 'static> HttpBody for Pieces<F> {
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
