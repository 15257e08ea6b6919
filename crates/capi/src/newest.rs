//! A second look before a client is told that something is not there.
//!
//! Clients take such an answer as final. But a node that starts, or lags, does not know yet what was agreed on a moment ago. So it first
//! asks the leader what was agreed on, and answers by that. Where it cannot learn that in time, it says so, and the client asks again.

use std::{sync::Arc, time::Duration};

use cluster::Metadata;
use http::Gate;
use views::refusal::Refusal;

/// How long the leader is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `answer` makes of the metadata. Where that is 404, it is made once more by metadata that are known to be new enough. `timeout`
/// tells how long the client waits, where it says so.
///
/// # Errors
/// Those of `answer`, and 503 where nobody says in time what was agreed on.
pub(crate) async fn by_newest<A, F>(
    gate: &dyn Gate,
    meta: &Arc<Metadata>,
    timeout: impl Future<Output = Option<Duration>>,
    answer: impl Fn(Arc<Metadata>) -> F,
) -> Result<A, Refusal>
where
    F: Future<Output = Result<A, Refusal>>,
{
    let refused = match answer(Arc::clone(meta)).await {
        Err(refused) if refused.status == 404 => refused,
        answered => return answered,
    };
    if !gate.catches_up_within(timeout.await.unwrap_or(PATIENCE).min(PATIENCE)).await {
        return Err(unknown(&refused));
    }
    let now = gate.metadata();
    if Arc::ptr_eq(&now, meta) { Err(refused) } else { answer(now).await }
}

fn unknown(refused: &Refusal) -> Refusal {
    let why = &refused.reason;
    let reason = format!(
        "This node does not know it ({why}), and no node that leads has said in time whether that is the newest. Try again."
    );
    Refusal { status: 503, error: "error", reason }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    use http::{AuditEvent, BoxFuture};

    use super::*;
    use crate::answer::not_found;

    /// A node that knows only what was agreed on before it was killed.
    struct Lagging {
        known: Mutex<Arc<Metadata>>,
        /// What was agreed on since, where the leader can be asked.
        agreed: Option<Arc<Metadata>>,
        asked: AtomicUsize,
        waited: Mutex<Duration>,
    }

    impl Lagging {
        fn new(agreed: Option<Arc<Metadata>>) -> Self {
            let known = Mutex::new(metadata(1));
            Self { known, agreed, asked: AtomicUsize::new(0), waited: Mutex::default() }
        }

        /// The answer of a view that is there since revision 2, and how often it was looked for.
        fn told(&self, timeout: Option<Duration>) -> (Result<i64, Refusal>, usize) {
            let looks = AtomicUsize::new(0);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let meta = self.metadata();
            let told = runtime.block_on(by_newest(self, &meta, std::future::ready(timeout), |meta| {
                looks.fetch_add(1, SeqCst);
                std::future::ready(if meta.rev < 2 { Err(not_found("missing")) } else { Ok(meta.rev) })
            }));
            (told, looks.into_inner())
        }
    }

    impl Gate for Lagging {
        fn metadata(&self) -> Arc<Metadata> {
            Arc::clone(&self.known.lock().unwrap())
        }

        fn catches_up_within(&self, patience: Duration) -> BoxFuture<'_, bool> {
            self.asked.fetch_add(1, SeqCst);
            *self.waited.lock().unwrap() = patience;
            if let Some(agreed) = &self.agreed {
                *self.known.lock().unwrap() = Arc::clone(agreed);
            }
            Box::pin(std::future::ready(self.agreed.is_some()))
        }

        fn audit(&self, _: AuditEvent) {}
    }

    fn metadata(rev: i64) -> Arc<Metadata> {
        Arc::new(Metadata { rev, ..Metadata::new("c".repeat(32), 256) })
    }

    #[test]
    fn what_was_agreed_on_while_a_node_was_down_is_found_by_its_first_request() {
        let node = Lagging::new(Some(metadata(2)));
        assert_eq!(node.told(None), (Ok(2), 2));
        assert_eq!(node.told(None), (Ok(2), 1), "it knows it now");
        assert_eq!(node.asked.load(SeqCst), 1);
    }

    #[test]
    fn what_is_not_there_by_the_newest_metadata_either_is_not_found() {
        let node = Lagging::new(Some(metadata(1)));
        assert_eq!(node.told(None), (Err(not_found("missing")), 2));
        let mut node = Lagging::new(None);
        node.agreed = Some(node.metadata());
        assert_eq!(node.told(None), (Err(not_found("missing")), 1), "nothing is new");
    }

    #[test]
    fn a_node_that_learns_nothing_in_time_does_not_say_that_something_is_not_there() {
        let node = Lagging::new(None);
        for (timeout, waited) in
            [(None, PATIENCE), (Some(60_000), PATIENCE), (Some(7), Duration::from_millis(7))]
        {
            let (told, looks) = node.told(timeout.map(Duration::from_millis));
            assert_eq!((told.map_err(|refused| refused.status), looks), (Err(503), 1));
            assert_eq!(*node.waited.lock().unwrap(), waited);
        }
    }
}
