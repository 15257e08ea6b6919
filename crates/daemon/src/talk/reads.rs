//! Reads of what was agreed on that several requests share.
//!
//! One read is under way at a time. A request that comes meanwhile waits for the next one. The read under way may have begun before a
//! change that the request's sender knows of. The next read serves all requests that wait for it. So the leader is asked one thing
//! after the other, however many requests come.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::timeout};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Held by the request that reads.
    turn: Mutex<()>,
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that has succeeded.
    succeeded: AtomicU64,
}

impl Reads {
    /// Waits for a read that begins after this call; whether it has succeeded in time. It is `read`, or that of another request.
    pub(crate) async fn share<F>(&self, patience: Duration, read: impl FnOnce(Duration) -> F) -> bool
    where
        F: Future<Output = bool>,
    {
        let until = Instant::now() + patience;
        let before = self.begun.load(SeqCst);
        let is_served = || self.succeeded.load(SeqCst) > before;
        let Ok(_turn) = timeout(patience, self.turn.lock()).await else { return is_served() };
        if is_served() {
            return true;
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let has_succeeded = read(until.saturating_duration_since(Instant::now())).await;
        if has_succeeded {
            self.succeeded.store(number, SeqCst);
        }
        has_succeeded
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        sync::atomic::AtomicUsize,
        task::{Context, Poll, Waker},
    };

    use tokio::sync::oneshot;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn is_ready<F: Future<Output = bool>>(future: Pin<&mut F>) -> Option<bool> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn within_a_runtime(test: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _context = runtime.enter();
        test();
    }

    #[test]
    fn one_read_serves_all_that_came_before_it_began() {
        within_a_runtime(|| {
            let (reads, asked) = (Reads::default(), AtomicUsize::new(0));
            let read = |ended: oneshot::Receiver<bool>| {
                let asked = &asked;
                move |_| async move {
                    asked.fetch_add(1, SeqCst);
                    ended.await.unwrap_or(false)
                }
            };
            let (end_first, first_ended) = oneshot::channel();
            let mut first = pin!(reads.share(LONG, read(first_ended)));
            assert_eq!(is_ready(first.as_mut()), None);
            let (end_second, second_ended) = oneshot::channel();
            let mut second = pin!(reads.share(LONG, read(second_ended)));
            assert_eq!(is_ready(second.as_mut()), None);
            let mut later: Vec<_> =
                (0..50).map(|_| Box::pin(reads.share(LONG, read(oneshot::channel().1)))).collect();
            assert!(later.iter_mut().all(|one| is_ready(one.as_mut()).is_none()));
            end_first.send(true).unwrap();
            assert_eq!(is_ready(first.as_mut()), Some(true));
            assert_eq!(is_ready(second.as_mut()), None, "the read under way began before it came");
            end_second.send(true).unwrap();
            assert_eq!(is_ready(second.as_mut()), Some(true));
            assert!(later.iter_mut().all(|one| is_ready(one.as_mut()) == Some(true)));
            assert_eq!(asked.load(SeqCst), 2);
        });
    }

    #[test]
    fn a_read_that_fails_or_is_given_up_serves_nobody() {
        within_a_runtime(|| {
            let reads = Reads::default();
            let mut first = Box::pin(reads.share(LONG, |_| std::future::pending()));
            assert_eq!(is_ready(first.as_mut()), None);
            let mut second = pin!(reads.share(LONG, |_| std::future::ready(false)));
            let mut third = pin!(reads.share(LONG, |_| std::future::ready(true)));
            assert_eq!((is_ready(second.as_mut()), is_ready(third.as_mut())), (None, None));
            drop(first);
            assert_eq!(is_ready(second.as_mut()), Some(false));
            assert_eq!(is_ready(third.as_mut()), Some(true));
            let mut late = pin!(reads.share(Duration::ZERO, |left| std::future::ready(left > LONG)));
            assert_eq!(is_ready(late.as_mut()), Some(false));
        });
    }
}
