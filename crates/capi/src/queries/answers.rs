//! Answers to other nodes: the same as this node has of its own queries, as bytes.
//!
//! What blocks runs on threads for that, a limited number at a time. An asker that is slow holds none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use base::BucketUuid;
use http::BoxFuture;
use indexer::WaitError;
use service::{Answers, Parts};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};
use views::{
    index::{
        Reducing,
        wire::{AnswerWriter, Question},
    },
    query::Stale,
};

use super::{
    here::{Holding, Local, Refused, begin},
    places::Places,
    reducers::{Reducer, Reducers},
};
use crate::wanted::{HasLeft, PIECE_TIME, Wanted};

/// Answers that are begun at the same time and wait until an index is as far as they ask.
const NEWEST: usize = 64;
/// The same of answers that take an index as it is.
const PRESENT: usize = 32;
/// Pieces that are made at the same time.
const PIECES: usize = 24;
/// The same of answers that functions of users reduce, which take up to minutes: they keep no others from being made.
const PIECES_REDUCED: usize = 8;
/// About how many bytes a piece has.
const PIECE_BYTES: usize = 64 << 10;
/// Items that are written at once.
const PIECE_ITEMS: usize = 4096;
/// How long a query may have another node take where it says nothing, and at most.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// What this node has of buckets.
pub(crate) trait Homes: Send + Sync {
    /// What it has of one, if that is open here.
    fn of(&self, bucket: &BucketUuid) -> Option<Arc<dyn Holding>>;
}

/// Begins answers on threads that may block.
#[derive(Clone)]
pub(crate) struct Desk {
    homes: Arc<dyn Homes>,
    newest: Arc<Places>,
    present: Arc<Places>,
    pieces: Arc<Semaphore>,
    pieces_reduced: Arc<Semaphore>,
}

impl Desk {
    pub(crate) fn new(homes: Arc<dyn Homes>) -> Self {
        let [newest, present] = [NEWEST, PRESENT].map(|most| Arc::new(Places::new(most)));
        let [pieces, pieces_reduced] = [PIECES, PIECES_REDUCED].map(|most| Arc::new(Semaphore::new(most)));
        Self { homes, newest, present, pieces, pieces_reduced }
    }

    /// The places in which pieces of an answer are made that is reduced so.
    pub(crate) fn pieces(&self, reducing: Option<Reducing>) -> &Arc<Semaphore> {
        match reducing {
            Some(Reducing::Function(_)) => &self.pieces_reduced,
            Some(Reducing::Native(_)) | None => &self.pieces,
        }
    }

    /// What this node has of a bucket.
    pub(crate) fn home(&self, bucket: &BucketUuid) -> Option<Arc<dyn Holding>> {
        self.homes.of(bucket)
    }

    /// Begins an answer of this node. Where the future is dropped, so is what it waits for.
    pub(crate) async fn begin(&self, question: Question) -> Result<Local, Refused> {
        let home = self.home(&question.bucket);
        let home =
            home.ok_or_else(|| Refused::Again("this node has not opened the bucket yet".to_owned()))?;
        let until = Instant::now() + timeout(question.query.connection_timeout);
        let places = if question.query.stale == Stale::False { &self.newest } else { &self.present };
        // Answers that wait for an index hold the places: what is not begun in time would have waited for one as well.
        let place = tokio::time::timeout_at(until.into(), places.take(&question.bucket)).await;
        let late = |_| WaitError::Late("too many other queries wait for theirs".to_owned());
        let place = place.map_err(|elapsed| Refused::Failed(late(elapsed).to_string()))?;
        let place = place.map_err(|error| Refused::Failed(error.to_string()))?;
        let wanted = Wanted::default();
        let has_left = wanted.has_left();
        let begun = spawn_blocking(move || {
            let _until_it_ends = place;
            begin(&home, &question, until, &|| !has_left.get())
        });
        begun.await.unwrap_or_else(|error| Err(Refused::Failed(error.to_string())))
    }
}

/// How long a query has another node take.
pub(crate) fn timeout(millis: Option<u64>) -> Duration {
    millis.map_or(TIMEOUT, Duration::from_millis).min(TIMEOUT_MAX)
}

async fn place(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, String> {
    Arc::clone(of).acquire_owned().await.map_err(|error| error.to_string())
}

/// What answers other nodes.
pub(crate) struct ToNodes {
    pub(crate) desk: Desk,
    pub(crate) reducers: Arc<Reducers>,
}

impl Answers for ToNodes {
    fn answer(&self, question: Bytes, parts: Parts) -> BoxFuture<'static, Result<(), String>> {
        let (desk, reducers) = (self.desk.clone(), Arc::clone(&self.reducers));
        Box::pin(async move {
            let wanted = Wanted::default();
            let question = Question::decode(&question).map_err(|error| error.to_string())?;
            let (view, reduces) = (question.view.clone(), question.query.grouping.is_some());
            let local = desk.begin(question).await.map_err(Refused::text)?;
            let reducing = local
                .definition()
                .filter(|_| reduces)
                .and_then(|definition| definition.reducing(definition.view(&view)?));
            let mut first = Vec::new();
            let writer = AnswerWriter::begin(local.rows(), local.incomplete(), &mut first);
            let functions = local.definition().map(|definition| reducers.of(definition, wanted.has_left()));
            let mut writing = Some(Writing { local, writer, functions, has_left: wanted.has_left() });
            let gone = |gone: service::Gone| gone.to_string();
            parts.send(first.into()).await.map_err(gone)?;
            while let Some(next) = writing {
                let place = place(desk.pieces(reducing)).await?;
                let made = spawn_blocking(move || {
                    let _until_it_is_made = place;
                    next.piece()
                });
                let (piece, rest) = made.await.map_err(|error| error.to_string())?;
                parts.send(piece.into()).await.map_err(gone)?;
                writing = rest;
            }
            Ok(())
        })
    }
}

/// An answer that is being written.
struct Writing {
    local: Local,
    writer: AnswerWriter,
    functions: Option<Reducer>,
    has_left: HasLeft,
}

impl Writing {
    /// The next piece, and what writes those behind it.
    fn piece(mut self) -> (Vec<u8>, Option<Self>) {
        let (mut piece, began) = (Vec::new(), Instant::now());
        for _ in 0..PIECE_ITEMS {
            let next = match &mut self.functions {
                Some(functions) => self.local.next(functions),
                None => self.local.next(&mut views::index::NoFunctions),
            };
            let written = match next {
                Ok(Some((range, item))) => {
                    self.writer.item(range, &item, &mut piece).map_err(|error| error.to_string())
                }
                Ok(None) => {
                    self.writer.end(&mut piece);
                    return (piece, None);
                }
                Err(reason) => Err(reason),
            };
            if let Err(reason) = written {
                self.writer.failed(&reason, &mut piece);
                return (piece, None);
            }
            if piece.len() >= PIECE_BYTES || began.elapsed() >= PIECE_TIME || self.has_left.get() {
                break;
            }
        }
        (piece, Some(self))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};

    use service::Answer;

    use super::{
        super::fixture::{BUCKET, Home, OneBucket, question, reduced_by_a_function, slow},
        *,
    };

    /// Groups of the answer below.
    const GROUPS: usize = 50;
    /// What the function takes for each.
    const CALL: Duration = Duration::from_millis(100);

    /// A node whose function is slow, a question for its groups, and what gets a byte for each call.
    fn slow_groups() -> (ToNodes, Question, PipeReader) {
        let home = Home::with_index(reduced_by_a_function(), &[0]);
        for number in 10..10 + GROUPS {
            home.state().add(0, &format!("d{number}"), &[&number.to_string()]);
        }
        let (calls, writer) = pipe().unwrap();
        let command = move || slow(("10", "7"), CALL, writer.try_clone().unwrap());
        let (desk, reducers) = (Desk::new(Arc::new(OneBucket(home))), Reducers::new(Arc::new(command)));
        let signature = reduced_by_a_function().signature();
        (ToNodes { desk, reducers }, Question { signature, ..question("group=true", &[0]) }, calls)
    }

    #[tokio::test]
    async fn a_piece_of_an_answer_by_a_slow_function_ends_before_the_asker_loses_patience() {
        let (to_nodes, question, _calls) = slow_groups();
        let local = to_nodes.desk.begin(question).await.ok().unwrap();
        let wanted = Wanted::default();
        let functions = Some(to_nodes.reducers.of(reduced_by_a_function(), wanted.has_left()));
        let writer = AnswerWriter::begin(local.rows(), local.incomplete(), &mut Vec::new());
        let writing = Writing { local, writer, functions, has_left: wanted.has_left() };
        let (piece, rest) = spawn_blocking(|| writing.piece()).await.unwrap();
        assert!(!piece.is_empty());
        assert!(rest.is_some(), "all groups take {:?}", CALL * GROUPS as u32);
    }

    #[tokio::test]
    async fn functions_are_called_no_more_once_the_asker_has_left() {
        let (to_nodes, question, mut calls) = slow_groups();
        let places = Arc::clone(&to_nodes.desk.pieces_reduced);
        let to_nodes = Arc::new(to_nodes) as Arc<dyn Answers>;
        let runtime = tokio::runtime::Handle::current();
        let answer = Answer::of(&runtime, &to_nodes, question.encode().into(), ());
        let mut call = [0];
        let (mut calls, called) = spawn_blocking(move || {
            let called = calls.read(&mut call).unwrap();
            (calls, called)
        })
        .await
        .unwrap();
        assert_eq!((called, places.available_permits()), (1, PIECES_REDUCED - 1));
        drop(answer);
        let all = places.acquire_many(PIECES_REDUCED as u32);
        let _all = tokio::time::timeout(TIMEOUT, all).await.unwrap().unwrap();
        drop(to_nodes);
        let mut rest = Vec::new();
        calls.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < 5, "{} calls of {GROUPS} were made after that", rest.len());
    }

    #[tokio::test]
    async fn a_place_is_waited_for_no_longer_than_the_query_has_time() {
        let desk = Desk::new(Arc::new(OneBucket(Home::serving(&[0]))));
        let bucket = BucketUuid(BUCKET.into());
        let mut places = Vec::new();
        for _ in 0..NEWEST / 2 {
            places.push(desk.newest.take(&bucket).await);
        }
        let asked = question("stale=false&connection_timeout=50", &[0]);
        let begun = tokio::time::timeout(Duration::from_secs(5), desk.begin(asked.clone())).await;
        let reason =
            "the index is not as far as it has to be: too many other queries wait for theirs".to_owned();
        assert_eq!(begun.map(Result::err), Ok(Some(Refused::Failed(reason))));
        drop(places);
        assert!(desk.begin(asked).await.is_ok());
    }
}
