//! What is kept of a password.
//!
//! To make a verifier takes a thread for tens of milliseconds, so that guesses are dear. Logins need the same threads, and a user may send a
//! request on each of many connections. So the node makes few verifiers at a time, and few requests wait for one.

use axum::http::StatusCode;
use cluster::auth::Credentials;
use http::reply::{self, Refusal};
use tokio::sync::Semaphore;

use crate::request::Api;

static TURNS: Turns = Turns { at_once: Semaphore::const_new(2), places: Semaphore::const_new(64) };

/// How many verifiers are made at a time, and how many are made or waited for.
struct Turns {
    at_once: Semaphore,
    places: Semaphore,
}

impl Turns {
    /// Does something on another thread once it is its turn. It keeps its turn and its place to its end, though nobody waits any more.
    ///
    /// # Errors
    /// 503: too many wait.
    async fn take<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let busy = || -> Refusal {
            let text = "Too many passwords are being set. Try again in a moment.";
            reply::text(StatusCode::SERVICE_UNAVAILABLE, text).into()
        };
        let place = self.places.try_acquire().map_err(|_| busy())?;
        let turn = self.at_once.acquire().await.map_err(|_| busy())?;
        let working = tokio::task::spawn_blocking(move || {
            let _kept = (place, turn);
            work()
        });
        working
            .await
            .map_err(|_| reply::text(StatusCode::INTERNAL_SERVER_ERROR, "Unexpected server error").into())
    }
}

/// Verifiers of a new password.
pub(super) async fn hashed(password: String) -> Result<Credentials, Refusal> {
    let random = Api::random()?;
    TURNS.take(move || Credentials::new(&password, random)).await
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use tokio::task::JoinSet;

    use super::*;

    static FEW: Turns = Turns { at_once: Semaphore::const_new(2), places: Semaphore::const_new(6) };
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_many_passwords_few_are_hashed_at_a_time_and_few_wait() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (ended, both) = (Arc::new(Mutex::new(ended)), Arc::new(Barrier::new(2)));
        let mut all = JoinSet::new();
        for _ in 0..20 {
            let (ended, both) = (Arc::clone(&ended), Arc::clone(&both));
            all.spawn(FEW.take(move || {
                MOST.fetch_max(NOW.fetch_add(1, SeqCst) + 1, SeqCst);
                both.wait();
                let ended = ended.lock().unwrap().recv();
                NOW.fetch_sub(1, SeqCst);
                ended.is_err()
            }));
        }
        // None of those that have a place ends before the others are refused.
        for _ in 0..14 {
            let refused = all.join_next().await.unwrap().unwrap();
            assert!(refused.is_err(), "six have a place");
        }
        drop(end);
        while let Some(done) = all.join_next().await {
            assert!(matches!(done.unwrap(), Ok(true)));
        }
        assert_eq!(MOST.load(SeqCst), 2);
    }
}
