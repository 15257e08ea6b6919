//! Which node serves which vBucket by now.
//!
//! "Not my vBucket" is no error for the users of an SDK: it fetches the map anew and tries again. So does this. The
//! fetching blocks and has a thread of its own, which ends with this; one fetch is under way at a time. Nodes keep the
//! numbers that they had when the run connected. One that joined since has no connections here: what it serves is tried
//! again until the tries are over.

use crate::target::Target;
use base::VbId;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Before each fetch: what comes back sooner would still be the old map while vBuckets move.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// The node of each vBucket; `None` where none is known.
type Nodes = Vec<Option<usize>>;

pub(super) struct Homes {
    pub(super) target: Arc<Target>,
    /// `None` as long as what the target discovered has proved right.
    nodes: Option<Nodes>,
    thread: Option<(Sender<()>, Receiver<Option<Nodes>>)>,
    asked: bool,
}

impl Homes {
    pub(super) fn new(target: Arc<Target>) -> Homes {
        Homes { target, nodes: None, thread: None, asked: false }
    }

    /// vBucket and node of a key.
    #[inline]
    pub(super) fn route(&self, key: &[u8]) -> (VbId, usize) {
        let (vb, node) = self.target.route(key);
        let moved = self.nodes.as_ref().and_then(|nodes| *nodes.get(usize::from(vb.get()))?);
        (vb, moved.unwrap_or(node))
    }

    /// Asks for the map; nothing happens if that is under way.
    pub(super) fn refresh(&mut self) {
        if self.asked {
            return;
        }
        let target = &self.target;
        let (orders, _) = self.thread.get_or_insert_with(|| {
            let (orders, inbox) = channel();
            let (outbox, answers) = channel();
            let target = target.clone();
            std::thread::spawn(move || {
                while inbox.recv().is_ok() {
                    std::thread::sleep(PAUSE);
                    // A map that cannot be had now is asked for again with the next refusal.
                    if outbox.send(target.homes().unwrap_or_default()).is_err() {
                        return;
                    }
                }
            });
            (orders, answers)
        });
        // The thread ends only when this sender does.
        self.asked = orders.send(()).is_ok();
    }

    /// Takes in an answer; says whether there was one.
    pub(super) fn see(&mut self) -> bool {
        let Some(answer) = self.thread.as_ref().and_then(|(_, answers)| answers.try_recv().ok()) else {
            return false;
        };
        self.asked = false;
        self.nodes = answer.or_else(|| self.nodes.take());
        true
    }
}
